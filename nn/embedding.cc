// SPDX-License-Identifier: Apache-2.0
#include "nn/embedding.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "core/random.h"
#include "nn/linear.h"
#include "nn/sequence_share.h"
#include "nn/weight.h"
#include "ops/cast/cast.h"
#include "ops/cross_entropy/linear_cross_entropy.h"
#include "ops/elementwise/elementwise.h"
#include "ops/index/index.h"
#include "ops/matmul/matmul.h"
#include "ops/view/view.h"

namespace tessera::nn {
namespace {

Share VocabShare(int64_t vocab, const Group& group) {
  return group == nullptr ? Share{0, vocab} : EvenShare(vocab, group->size(), group->rank());
}

Placement VocabPlacement(const EmbeddingConfig& config, const Group& group) {
  const Share share = VocabShare(config.rows, group);
  return Placement::Split({config.rows, config.width}, 0,
                          {{config.rows, share.begin, share.count}});
}

// A row of padding begins as zeros, as PyTorch's does, so that it adds nothing.
Init InitOf(const EmbeddingConfig& config, const Scope& scope) {
  TESSERA_CHECK(config.padding_idx >= -1 && config.padding_idx < config.rows, "embedding",
                "padding_idx ", config.padding_idx, " is none of the ", config.rows, " rows of ",
                scope.path.empty() ? "the table" : scope.path, "; -1 is no padding");
  Init init = config.init;
  if (init.zero_row < 0) init.zero_row = config.padding_idx;
  return init;
}

}  // namespace

VocabParallelEmbedding::VocabParallelEmbedding(const EmbeddingConfig& config, const Scope& scope)
    : Module(scope),
      config_(config),
      weight_(AddParameter("weight", VocabPlacement(config, build().tensor_parallel),
                           InitOf(config, scope))) {
  weight_.table = true;
}

VocabParallelEmbedding::VocabParallelEmbedding(VocabParallelEmbedding& shared, const Scope& scope)
    : Module(scope), config_(shared.config_), weight_(AddTiedParameter("weight", shared.weight_)) {}

namespace {

// The same on every rank of a tensor-parallel group, all of which have the whole result.
Tensor AddNoise(const Tensor& h_BTC, const RandomKey& key, double alpha,
                const SequenceShare& given) {
  const int64_t rows = h_BTC.size(0);
  const int64_t width = h_BTC.size(2);
  SequenceShare share = given;
  if (share.is_whole()) share = {h_BTC.size(1), {{0, h_BTC.size(1)}}};
  const double bound = alpha / std::sqrt(static_cast<double>(share.length * width));
  std::vector<Tensor> parts;
  for (const SequenceRun& run : share.runs) {
    const Tensor part = Empty({rows, run.count, width}, DType::kFloat32);
    const Shape global = {rows, share.length, width};
    const Shape begin = {0, run.begin, 0};
    const auto span = [](const Shape& s) { return std::span<const int64_t>(s.begin(), s.end()); };
    FillUniformBox(part.data<float>(), {span(global), span(begin), span(part.shape())}, key,
                   {-bound, bound});
    parts.push_back(part);
  }
  const Tensor noise = parts.size() == 1 ? parts[0] : Cat(parts, 1);
  return Add(h_BTC, CopyTo(Cast(noise, h_BTC.dtype()), h_BTC.device()));
}

// By way of float32, in which transformers holds its scale.
double RoundedTo(DType dtype, double value) {
  return DispatchFloat(dtype, "embedding", [&](auto zero) {
    return static_cast<double>(decltype(zero)(static_cast<float>(value)));
  });
}

}  // namespace

Tensor VocabParallelEmbedding::Forward(const Tensor& ids, const ForwardContext& context) const {
  return Call(ids, [&] {
    const Group& group = build().tensor_parallel;
    const Share share = VocabShare(config_.rows, group);
    const Tensor local = LookUp(weight_, ids,
                                {.vocab_begin = share.begin,
                                 .global_vocab = config_.rows,
                                 .padding_idx = config_.padding_idx},
                                context);
    const bool whole = SumsInTrees(build()) && !IsDense(weight_) && weight_.form->sums_in_trees();
    Tensor h = whole ? local : ReduceFromGroup(local, group);
    if (config_.scale != 1) h = Mul(h, RoundedTo(h.dtype(), config_.scale));
    if (!context.training || context.neftune_noise_alpha == 0 || h.device().is_meta()) return h;
    return AddNoise(h, NoiseKey(context.seed, path(), context.step, context.micro_batch),
                    context.neftune_noise_alpha, GatheredTokens(build(), context));
  });
}

ReplicatedEmbedding::ReplicatedEmbedding(const EmbeddingConfig& config, const Scope& scope)
    : Module(scope),
      config_(config),
      weight_(AddParameter("weight", Placement::Whole({config.rows, config.width}),
                           InitOf(config, scope))) {
  TESSERA_CHECK(config.scale == 1, "embedding", path(), ": a scale is of VocabParallelEmbedding");
  weight_.table = true;
}

Tensor ReplicatedEmbedding::Forward(const Tensor& ids, const ForwardContext& context) const {
  return Call(ids,
              [&] { return LookUp(weight_, ids, {.padding_idx = config_.padding_idx}, context); });
}

std::optional<LinearLayout> VocabParallelEmbedding::term_layout() const {
  return LinearLayout::kInOut;
}
std::optional<LinearLayout> ReplicatedEmbedding::term_layout() const {
  return LinearLayout::kInOut;
}
std::optional<LinearLayout> VocabParallelHead::linear_layout() const {
  return LinearLayout::kOutIn;
}

VocabParallelHead::VocabParallelHead(Parameter& tied, const Scope& scope, double softcap)
    : Module(scope), weight_(AddTiedParameter("weight", tied)), softcap_(softcap) {
  weight_.trees.outputs = TreeOver({{weight_.placement.global_shape()[0]}}, build());
}

VocabParallelHead::VocabParallelHead(const EmbeddingConfig& config, const Scope& scope,
                                     double softcap)
    : Module(scope),
      weight_(AddParameter("weight", VocabPlacement(config, build().tensor_parallel), config.init)),
      softcap_(softcap) {
  weight_.table = true;
  weight_.trees.outputs = TreeOver({{config.rows}}, build());
}

Tensor VocabParallelHead::Logits(const Tensor& h, const Tensor& bias,
                                 const ForwardContext& context) const {
  const Tensor logits = Multiply(weight_, LinearLayout::kOutIn, h, bias, context);
  return softcap_ == 0 ? logits : Mul(Tanh(Mul(logits, 1 / softcap_)), softcap_);
}

Tensor VocabParallelHead::Forward(const Tensor& h, const ForwardContext& context,
                                  const Tensor& bias) const {
  return Call(h, [&] {
    const Tensor whole = GatherForColumns(h, context, build());
    return Logits(InputOf(weight_, whole, build()), bias, context);
  });
}

Tensor VocabParallelHead::ChunkedLoss(const Tensor& h, const Tensor& targets,
                                      const CrossEntropyOptions& options, int64_t chunk_rows,
                                      const ForwardContext& context) const {
  return Call(h, [&] {
    if (!IsDense(weight_) || softcap_ != 0) {
      return CrossEntropy(Logits(h, {}, context), targets, LossOptions(options));
    }
    return LinearCrossEntropy(h, weight_.tensor, targets, LossOptions(options), chunk_rows);
  });
}

Placement VocabParallelHead::BiasPlacement() const {
  const int64_t vocab = weight_.placement.global_shape()[0];
  const Share share = VocabShare(vocab, build().tensor_parallel);
  return Placement::Split({vocab}, 0, {{vocab, share.begin, share.count}});
}

Tensor VocabParallelHead::Gather(const Tensor& local_logits) const {
  return GatherFromGroup(local_logits, -1, weight_.placement.global_shape()[0],
                         build().tensor_parallel);
}

CrossEntropyOptions VocabParallelHead::LossOptions(CrossEntropyOptions options) const {
  const int64_t vocab = weight_.placement.global_shape()[0];
  const Share share = VocabShare(vocab, build().tensor_parallel);
  options.group = build().tensor_parallel;
  options.vocab_begin = share.begin;
  options.local_vocab = share.count;
  options.global_vocab = vocab;
  options.tree = weight_.trees.outputs;
  return options;
}

}  // namespace tessera::nn
