// SPDX-License-Identifier: Apache-2.0
#include "nn/weight.h"

namespace tessera::nn {

bool SumsInTrees(const BuildContext& build) {
  const int ranks = build.tensor_parallel == nullptr ? 1 : build.tensor_parallel->size();
  return build.deterministic && kSumLeaves % ranks == 0;
}

bool SumsRanks(const Parameter& weight) {
  return weight.part_group == nullptr || IsDense(weight) || weight.form->sums_in_trees();
}

Tensor Multiply(const Parameter& weight, LinearLayout layout, const Tensor& x, const Tensor& bias,
                const ForwardContext& context) {
  return IsDense(weight) ? Linear(x, LeafOf(weight), bias, layout, weight.trees)
                         : weight.form->Multiply(weight, layout, x, bias, context);
}

Tensor LookUp(const Parameter& table, const Tensor& ids, const EmbeddingOptions& options,
              const ForwardContext& context) {
  return IsDense(table) ? Embedding(LeafOf(table), ids, options)
                        : table.form->LookUp(table, ids, options, context);
}

}  // namespace tessera::nn
