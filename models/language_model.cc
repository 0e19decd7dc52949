// SPDX-License-Identifier: Apache-2.0
#include "models/language_model.h"

#include <algorithm>
#include <cmath>

#include "autograd/autocast.h"
#include "models/model_keys.h"
#include "models/transformer_stack.h"
#include "ops/collective/collective.h"
#include "ops/collective/sequence_runs.h"
#include "ops/index/index.h"
#include "ops/view/view.h"

namespace tessera::models {

BlockKeys LanguageModelKeys() {
  return {.takes = {keys::kHidden, keys::kPositionIds},
          .may_take = {keys::kLabels, keys::kTargets, keys::kLogitPositions},
          .gives = {keys::kLoss, keys::kLogits, keys::kLastHiddenState}};
}

Tensor AlignedTargets(const Bundle& in) {
  return in.has(keys::kTargets) ? in.at(keys::kTargets) : in.get(keys::kLabels);
}

Tensor ShiftedTargets(const Bundle& in) {
  if (in.has(keys::kTargets) || !in.has(keys::kLabels)) return in.get(keys::kTargets);
  const Tensor labels = in.at(keys::kLabels);
  return Pad(Slice(labels, 1, 1, labels.size(1) - 1), 1, 0, 1, -100);
}

Bundle CutTexts(Bundle rows, const Tensor& targets, const nn::BuildContext& build,
                nn::ForwardContext* context) {
  const Tensor ids_BT = rows.at(keys::kInputIds);
  const int64_t tokens = ids_BT.size(1);
  if (!rows.has(keys::kPositionIds)) {
    rows.set(keys::kPositionIds, CountingPositions(ids_BT.size(0), tokens, ids_BT.device()));
  }
  rows.erase(keys::kLabels);
  if (targets.defined()) rows.set(keys::kTargets, targets);
  context->cut_length = tokens;
  const Group& ranks = build.context_parallel;
  const std::vector<SequenceRun> runs = SequenceRuns(tokens, ranks->size(), ranks->rank());
  for (const TensorKey& key : {keys::kInputIds, keys::kPositionIds, keys::kTargets}) {
    if (!rows.has(key)) continue;
    const Tensor whole = rows.at(key);
    rows.set(key, TakeRuns(whole, whole.ndim() - 1, runs));
  }
  return rows;
}

Tensor AtLogitPositions(const Tensor& h, const Bundle& in, const nn::BuildContext& build,
                        nn::ForwardContext* context) {
  if (!in.has(keys::kLogitPositions)) return h;
  const Tensor at = in.at(keys::kLogitPositions);
  const Shape rows = {at.size(0), at.size(1), h.size(2)};
  const Tensor chosen =
      Gather(WholeSequence(h, build, *context), 1,
             Unsqueeze(at, 2).AsStrided(rows, {at.stride(0), at.stride(1), 0}, 0));
  context->sequence_length = at.size(1);
  return build.sequence_parallel ? ScatterToGroup(chosen, 1, build.tensor_parallel) : chosen;
}

namespace {

// The indices of the targets that are not left out: [M]. A dry run takes as many as the caller says
// there are, or all.
Tensor TargetRows(const Tensor& targets, double count) {
  if (targets.device().is_meta()) {
    const int64_t all = targets.numel();
    const int64_t rows = count > 0 ? std::min<int64_t>(all, std::llround(count)) : all;
    return Empty({rows}, DType::kInt64, targets.device());
  }
  const std::vector<int64_t> all = targets.ToVector<int64_t>();
  std::vector<int64_t> rows;
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i] != CrossEntropyOptions().ignore_index) rows.push_back(static_cast<int64_t>(i));
  }
  return Tensor::FromVector(rows, {std::ssize(rows)});
}

}  // namespace

MaskedTokens MaskedTokensOf(const Tensor& h, const Tensor& targets, const nn::BuildContext& build,
                            const RunOptions& options) {
  const bool alone = !options.keep_logits && options.loss_reduction != LossReduction::kNone &&
                     !build.sequence_parallel && h.device().target == DeviceType::kCpu &&
                     targets.defined();
  if (!alone) return {h, targets};
  const Tensor rows_M = TargetRows(targets, options.loss_targets);
  const int64_t width = h.size(-1);
  return {IndexSelect(Reshape(h, {h.numel() / width, width}), 0, rows_M),
          IndexSelect(Reshape(targets, {targets.numel()}), 0, rows_M)};
}

namespace {

// Tokens whose logits are made at a time; 0: those of all.
int64_t ChunkTokens(const nn::VocabParallelHead& head, const Tensor& h_BTC,
                    const RunOptions& options) {
  const Group& group = head.build().tensor_parallel;
  const bool whole = group == nullptr || group->size() == 1;
  if (options.keep_logits || !whole || options.loss_reduction == LossReduction::kNone) return 0;
  if (options.loss_chunk_tokens >= 0) return options.loss_chunk_tokens;
  const bool casts = h_BTC.dtype() == DType::kFloat32;
  const DType dtype = casts ? AutocastDType() : h_BTC.dtype();  // of the logits
  // Gradients of float16 need the loss's scale from the first.
  if (h_BTC.device().target != DeviceType::kCuda || dtype == DType::kFloat16) return 0;
  constexpr int64_t kBytes = int64_t{1} << 30;
  constexpr int64_t kUnit = 1024;
  const int64_t row = head.LossOptions({}).local_vocab * static_cast<int64_t>(DTypeSize(dtype));
  return std::max(kUnit, kBytes / row / kUnit * kUnit);
}

}  // namespace

Bundle LanguageModelOutputs(nn::VocabParallelHead& head, const Tensor& h, const Tensor& targets,
                            const Bundle& in, const RunOptions& options) {
  nn::ForwardContext context = ContextFor(in, options);
  const Tensor h_BTC = AtLogitPositions(h, in, head.build(), &context);
  Bundle out;
  const bool hidden_only = WantsHiddenOnly(in, options);
  if (options.keep_logits || options.all_hidden_states || hidden_only) {
    out.set(keys::kLastHiddenState, WholeSequence(h_BTC, head.build(), context));
  }
  if (hidden_only) return out;
  CrossEntropyOptions loss = LossOptionsOf(options);
  const int64_t chunk = ChunkTokens(head, h_BTC, options);
  if (targets.defined() && chunk > 0 && targets.numel() > chunk) {
    out.set(keys::kLoss, head.ChunkedLoss(h_BTC, targets, loss, chunk, context));
    return out;
  }
  const Tensor logits_BTV = head.Forward(h_BTC, context);
  if (options.keep_logits) out.set(keys::kLogits, head.Gather(logits_BTV));
  if (targets.defined()) {
    loss.overwrite_logits = !options.keep_logits;
    out.set(keys::kLoss, CrossEntropy(logits_BTV, targets, head.LossOptions(loss)));
  }
  return out;
}

}  // namespace tessera::models
