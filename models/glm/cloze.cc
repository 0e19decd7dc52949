// SPDX-License-Identifier: Apache-2.0
#include "models/glm/cloze.h"

#include <algorithm>
#include <limits>

#include "core/batch_keys.h"
#include "models/glm/glm_keys.h"
#include "models/glm/text_layout.h"
#include "ops/elementwise/elementwise.h"
#include "ops/index/index.h"
#include "ops/reduction/reduction.h"
#include "ops/view/view.h"

namespace tessera::models {
namespace {

constexpr int64_t kNone = -100;

// Sizes that hold every row.
struct Extent {
  int64_t tokens = 0;
  int64_t candidates = 0;
  int64_t length = 0;
};

StatusOr<Extent> Measure(const GlmConfig& config, const std::vector<ClozeRow>& rows) {
  Extent extent;
  for (size_t b = 0; b < rows.size(); ++b) {
    if (!FirstBlank(config, rows[b].context)) {
      return InvalidArgument("row ", b, " of a cloze has no blank");
    }
    if (rows[b].candidates.empty()) return InvalidArgument("row ", b, " has no candidates");
    int64_t tokens = std::ssize(rows[b].context);
    for (const std::vector<int64_t>& candidate : rows[b].candidates) {
      if (candidate.empty()) return InvalidArgument("row ", b, " has an empty candidate");
      tokens += std::ssize(candidate);
      extent.length = std::max<int64_t>(extent.length, std::ssize(candidate));
    }
    extent.tokens = std::max(extent.tokens, tokens);
    extent.candidates = std::max<int64_t>(extent.candidates, std::ssize(rows[b].candidates));
  }
  return extent;
}

// One row's places in the tensors of the batch.
struct RowOf {
  int64_t* ids;        // [T]
  int64_t* positions;  // [2, T]
  int64_t* mask;       // [T, T]
  int64_t* choices;    // [N, L]
  int64_t* indices;    // [N, L]
};

void FillRow(const GlmConfig& config, const ClozeRow& row, const Extent& extent, const RowOf& to) {
  const int64_t context = std::ssize(row.context);
  const int64_t blank = *FirstBlank(config, row.context);
  const auto see = [&](int64_t query, int64_t begin, int64_t end) {
    std::fill(to.mask + query * extent.tokens + begin, to.mask + query * extent.tokens + end, 1);
  };
  for (int64_t t = 0; t < context; ++t) {
    to.ids[t] = row.context[static_cast<size_t>(t)];
    to.positions[t] = t;
    see(t, 0, context);
  }
  int64_t begin = context;
  for (size_t n = 0; n < row.candidates.size(); ++n) {
    const std::vector<int64_t>& candidate = row.candidates[n];
    for (int64_t i = 0; i < std::ssize(candidate); ++i) {
      const int64_t t = begin + i;
      to.ids[t] = i == 0 ? *config.sop_token_id : candidate[static_cast<size_t>(i - 1)];
      to.positions[t] = blank;
      to.positions[extent.tokens + t] = i + 1;
      see(t, 0, context);
      see(t, begin, t + 1);
      const int64_t at = static_cast<int64_t>(n) * extent.length + i;
      to.choices[at] = candidate[static_cast<size_t>(i)];
      to.indices[at] = t;
    }
    begin += std::ssize(candidate);
  }
}

}  // namespace

StatusOr<Bundle> ClozeInputs(const GlmConfig& config, const std::vector<ClozeRow>& rows,
                             const Device& device) {
  if (!config.sop_token_id || !config.block_position_encoding) {
    return InvalidArgument("a cloze needs 'sop_token_id' and 'block_position_encoding'");
  }
  TESSERA_ASSIGN_OR_RETURN(const Extent extent, Measure(config, rows));
  const int64_t batch = std::ssize(rows);
  const int64_t t = extent.tokens;
  const Shape choices = {batch, extent.candidates, extent.length};
  const Tensor ids_BT = Zeros({batch, t}, DType::kInt64);
  const Tensor positions_B2T = Zeros({batch, 2, t}, DType::kInt64);
  const Tensor mask_B1TT = Zeros({batch, 1, t, t}, DType::kInt64);
  const Tensor choices_BNL = Full(choices, kNone, DType::kInt64);
  const Tensor indices_BNL = Full(choices, kNone, DType::kInt64);
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t choice = b * extent.candidates * extent.length;
    FillRow(config, rows[static_cast<size_t>(b)], extent,
            {ids_BT.data<int64_t>() + b * t, positions_B2T.data<int64_t>() + b * 2 * t,
             mask_B1TT.data<int64_t>() + b * t * t, choices_BNL.data<int64_t>() + choice,
             indices_BNL.data<int64_t>() + choice});
  }
  return Bundle{{keys::kInputIds, CopyTo(ids_BT, device)},
                {keys::kPositionIds, CopyTo(positions_B2T, device)},
                {keys::kAttentionMask, CopyTo(mask_B1TT, device)},
                {keys::kChoiceIds, CopyTo(choices_BNL, device)},
                {keys::kChoiceIndices, CopyTo(indices_BNL, device)}};
}

Tensor ChoiceScores(const Tensor& logits_BTV, const Tensor& choice_ids,
                    const Tensor& choice_indices, CrossEntropyOptions options) {
  const Shape shape = choice_ids.shape();  // [B, N, L]
  const int64_t tokens = shape[1] * shape[2];
  const Tensor none = Compare(choice_ids, static_cast<double>(kNone), Comparison::kEqual);
  const Tensor at_BK =
      Reshape(Where(none, Zeros(shape, DType::kInt64, choice_ids.device()), choice_indices),
              {shape[0], tokens});
  const Shape rows = {shape[0], tokens, logits_BTV.size(2)};
  const Tensor logits_BKV =
      Gather(logits_BTV, 1, at_BK.AsStrided(rows, {tokens, 1, 0}, at_BK.offset()));
  options.reduction = LossReduction::kNone;
  options.overwrite_logits = false;
  const Tensor losses_BK =
      CrossEntropy(logits_BKV, Reshape(choice_ids, {shape[0], tokens}), options);
  const Tensor scores_BN = Mul(Sum(Reshape(losses_BK, shape), {2}), -1.0);
  const Tensor greatest_BN = Max(CastCopy(choice_ids, DType::kFloat32), 2);
  return MaskedFill(scores_BN, Compare(greatest_BN, static_cast<double>(kNone), Comparison::kEqual),
                    -std::numeric_limits<double>::infinity());
}

}  // namespace tessera::models
