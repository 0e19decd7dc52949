// SPDX-License-Identifier: Apache-2.0
#include "models/glm/prefix_mask.h"

#include <limits>
#include <utility>

#include "models/glm/glm_keys.h"
#include "models/input_check.h"
#include "models/language_model.h"
#include "models/model_keys.h"
#include "ops/collective/sequence_runs.h"
#include "ops/elementwise/elementwise.h"

namespace tessera::models {
void ResolveMask(Bundle* in) {
  if (in->has(keys::kPrefixLength) || !in->has(keys::kAttentionMask)) return;
  const Tensor mask = in->at(keys::kAttentionMask);
  const Tensor ids_BT = in->at(keys::kInputIds);
  const Shape rows = {ids_BT.size(0)};
  if (mask.ndim() == 1) {
    const Tensor lengths = CastCopy(mask, DType::kInt32);
    in->set(keys::kPrefixLength,
            mask.size(0) == rows[0] ? lengths : lengths.AsStrided(rows, {0}, 0).ContiguousCopy());
    in->erase(keys::kAttentionMask);
    return;
  }
  TESSERA_CHECK(mask.ndim() == 2 || mask.ndim() == 4, "glm", "attention_mask ", mask);
  in->set(keys::kPrefixLength,
          Full(rows, static_cast<double>(ids_BT.size(1)), DType::kInt32, ids_BT.device()));
}

BlockKeys PrefixBlockKeys() {
  return {.takes = {keys::kHidden, keys::kPositionIds},
          .may_take = {keys::kAttentionMask, keys::kPrefixLength, keys::kAttentionBias},
          .gives = {keys::kHidden, keys::kAttentionBias}};
}

nn::AttentionMasks MasksOf(Bundle* in) {
  nn::AttentionMasks masks;
  masks.prefix_length = in->get(keys::kPrefixLength);
  if (!in->has(keys::kAttentionMask)) return masks;
  const Tensor mask = in->at(keys::kAttentionMask);
  if (mask.ndim() == 2) {
    masks.key_padding = Compare(mask, 0.0, Comparison::kNotEqual);
    return masks;
  }
  if (!in->has(keys::kAttentionBias)) {
    const Tensor& hidden = in->at(keys::kHidden);
    in->set(keys::kAttentionBias, MaskedFill(Zeros(mask.shape(), hidden.dtype(), hidden.device()),
                                             Compare(mask, 0.0, Comparison::kEqual),
                                             -std::numeric_limits<double>::infinity()));
  }
  masks.bias = in->at(keys::kAttentionBias);
  return masks;
}

// A mask of pairs keeps this rank's queries, and all keys.
Bundle CutPrefixTexts(Bundle rows, const Tensor& targets, const nn::BuildContext& build,
                      nn::ForwardContext* context) {
  Bundle cut = CutTexts(std::move(rows), targets, build, context);
  const Tensor mask = cut.get(keys::kAttentionMask);
  if (mask.defined() && mask.ndim() == 4) {
    const Group& ranks = build.context_parallel;
    cut.set(keys::kAttentionMask,
            TakeRuns(mask, 2, SequenceRuns(mask.size(2), ranks->size(), ranks->rank())));
  }
  return cut;
}

namespace {

// One row of a tensor stands for all rows.
void RepeatRow(const TensorKey& name, int64_t rows, Bundle* inputs) {
  const Tensor t = inputs->at(name);
  if (t.ndim() < 2 || t.size(0) != 1 || rows == 1) return;
  Shape shape = t.shape();
  shape[0] = rows;
  Shape strides = t.shape();
  for (int d = 0; d < t.ndim(); ++d) strides[d] = d == 0 ? 0 : t.stride(d);
  inputs->set(name, t.AsStrided(shape, strides, t.offset()).ContiguousCopy());
}

Status CheckMask(const std::string& source, int64_t rows, int64_t tokens, Bundle* inputs) {
  if (!inputs->has(keys::kAttentionMask)) return OkStatus();
  const Tensor mask = inputs->at(keys::kAttentionMask);
  const bool lengths = mask.ndim() == 1 && (mask.size(0) == rows || mask.size(0) == 1);
  const bool keys = mask.shape() == (Shape{rows, tokens});
  const bool pairs = mask.shape() == (Shape{rows, 1, tokens, tokens}) ||
                     mask.shape() == (Shape{1, 1, tokens, tokens});
  if (!lengths && !keys && !pairs) {
    return InvalidArgument(source, ": 'attention_mask' has shape ", mask.shape(),
                           "; for 'input_ids' [", rows, ", ", tokens, "] it must be [", rows,
                           "] (lengths of the prefix), [", rows, ", ", tokens, "] or [", rows,
                           ", 1, ", tokens, ", ", tokens, "]");
  }
  if (!lengths) return OkStatus();
  if (IsFloating(mask.dtype())) {
    return InvalidArgument(source, ": lengths in 'attention_mask' must be integers");
  }
  return CheckRange(source + ": 'attention_mask'", mask, tokens + 1, 0, "lengths of the prefix");
}

}  // namespace

Status CheckMaskAndPositions(const std::string& source, const PositionLimits& limits,
                             Bundle* inputs) {
  const int64_t rows = inputs->at(keys::kInputIds).size(0);
  const int64_t tokens = inputs->at(keys::kInputIds).size(1);
  TESSERA_RETURN_IF_ERROR(CheckMask(source, rows, tokens, inputs));
  if (!inputs->has(keys::kPositionIds)) {
    if (tokens <= limits.rows) return OkStatus();
    return InvalidArgument(source, ": 'input_ids' has ", tokens, " tokens a row; the model has ",
                           limits.rows, " positions");
  }
  RepeatRow(keys::kPositionIds, rows, inputs);
  const Tensor positions = inputs->at(keys::kPositionIds);
  const bool one = limits.one_coordinate && positions.shape() == (Shape{rows, tokens});
  const bool two = limits.two_coordinates && positions.shape() == (Shape{rows, 2, tokens});
  if (!one && !two) {
    std::string expected;
    if (limits.two_coordinates) expected = Concat("[", rows, ", 2, ", tokens, "]");
    if (limits.one_coordinate) {
      expected += Concat(expected.empty() ? "" : " or ", "[", rows, ", ", tokens, "]");
    }
    return InvalidArgument(source, ": 'position_ids' has shape ", positions.shape(),
                           "; it must be ", expected);
  }
  if (IsFloating(positions.dtype())) {
    return InvalidArgument(source, ": 'position_ids' must hold integers");
  }
  return CheckRange(source + ": 'position_ids'", positions, limits.rows, 0, "positions");
}

}  // namespace tessera::models
