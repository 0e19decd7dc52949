// SPDX-License-Identifier: Apache-2.0
// Weights as layers use them: linear layers multiply by one, embeddings look rows of one up, and
// neither knows in what form its numbers are.
//
//   y_BTO = Multiply(weight_, LinearLayout::kOutIn, x_BTI, bias);
//   h_BTC = LookUp(table_, ids_BT, {});
//
// A parameter is dense (its tensor, as the checkpoint has it) unless a form is attached to it:
//
//   model->FindParameter("transformer.h.0.attn.c_attn.weight")->form =
//       std::make_shared<LowRankSum>(down, up, scale);                   // x W + scale (x A) B
//
// So whatever is not dense (a low-rank term, quantised blocks) is found by a parameter's name and
// is no concern of layers and families. Parameters that are cut over ranks stay dense: their
// storage borrows its bytes when they are gathered (core/storage.h).
#ifndef TESSERA_NN_WEIGHT_H_
#define TESSERA_NN_WEIGHT_H_

#include "nn/module.h"
#include "ops/index/index.h"
#include "ops/matmul/matmul.h"

namespace tessera::nn {

class AdaptedWeight;

// How a parameter's numbers are held, and multiplied by. It is shared by what uses the parameter
// and has no state that a use changes. `weight` is the parameter it is attached to: this rank's
// part, whose placement says which. `context` is that of the layer's Forward: a term with dropout
// takes its keys from there.
class WeightForm {
 public:
  virtual ~WeightForm() = default;
  // x [..., in] to [..., out], plus bias [out] where defined: as ops/matmul/matmul.h's Linear.
  virtual Tensor Multiply(const Parameter& weight, LinearLayout layout, const Tensor& x,
                          const Tensor& bias, const ForwardContext& context) const = 0;
  // int64 ids [...] to [..., width]: as ops/index/index.h's Embedding.
  virtual Tensor LookUp(const Parameter& table, const Tensor& ids, const EmbeddingOptions& options,
                        const ForwardContext& context) const = 0;
  // Whether it sums over features in Parameter::trees, where there are any, and rows that are
  // looked up over the ranks. Else this rank's terms are what it gives.
  virtual bool sums_in_trees() const { return false; }
  // This form, where adapters add terms to it (nn/low_rank.h); else nullptr.
  virtual const AdaptedWeight* adapted() const { return nullptr; }
};

// Whether layers sum over cut features in trees: where the model is built so, over a number of
// ranks that divides a tree's leaves.
bool SumsInTrees(const BuildContext& build);
// Of a layer of such a model: whether its weight's form sums over the ranks, so that the layer need
// not.
bool SumsRanks(const Parameter& weight);

Tensor Multiply(const Parameter& weight, LinearLayout layout, const Tensor& x, const Tensor& bias,
                const ForwardContext& context = {});
Tensor LookUp(const Parameter& table, const Tensor& ids, const EmbeddingOptions& options,
              const ForwardContext& context = {});

// Whether operations that fuse more than the product may take the tensor itself.
inline bool IsDense(const Parameter& weight) { return weight.form == nullptr; }

}  // namespace tessera::nn

#endif  // TESSERA_NN_WEIGHT_H_
