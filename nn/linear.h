// SPDX-License-Identifier: Apache-2.0
// Linear layers split over a tensor-parallel group (Shoeybi et al. 2019, "Megatron-LM").
//
//   ColumnParallelLinear c_fc({.in_features = C, .out_features = 4 * C, .layout = kInOut},
//                             Child("c_fc"));
//   RowParallelLinear c_proj({.in_features = 4 * C, .out_features = C}, Child("c_proj"));
//   y = c_proj.Forward(act(c_fc.Forward(x)));     // one all-reduce forward, one backward
//
// Column-parallel: each rank computes a share of the outputs. Row-parallel: each rank has a share
// of the inputs, and the results are summed over ranks, then the bias is added. Shares are counted
// in units (a head's features), need not be equal, and may be empty. With a group of one each is
// the plain layer. Under sequence parallelism the column-parallel layer gathers the sequence (dim
// 1) and the row-parallel one scatters it again.
//
// Where the model is built as deterministic, sums over cut features go by a tree, on any number of
// ranks that it knows (SumsInTrees of nn/weight.h), so that all of them have the same bits. A
// layer's sums over ranks are then its own: of dx, too, so that nothing sums them where x was
// copied to the ranks.
#ifndef TESSERA_NN_LINEAR_H_
#define TESSERA_NN_LINEAR_H_

#include <vector>

#include "nn/module.h"
#include "ops/matmul/linear_gelu.h"
#include "ops/matmul/matmul.h"

namespace tessera::nn {

// A run of features that is split by itself: q, k and v in a fused projection.
struct FeatureBlock {
  int64_t features;
  int64_t unit = 1;  // features that stay together
  int64_t leaf = 0;  // those that stay together in a leaf of a SumTree; 0: a unit
};

// The tree over these blocks of features, of which each rank has its share; nullptr where there is
// none.
std::shared_ptr<const SumTree> TreeOver(const std::vector<FeatureBlock>& blocks,
                                        const BuildContext& build);
// What column-parallel layers are given: x [B, T, C] (its share of the sequence under sequence
// parallelism) as every rank sees it, and backwards the sum of the ranks' gradients, where layers
// do not sum them.
Tensor GatherForColumns(const Tensor& x, const ForwardContext& context, const BuildContext& build);
// `whole`, as the product of a layer with this weight takes it: where the weight does not sum dx
// over the ranks though the model's layers do, that is done here.
Tensor InputOf(const Parameter& weight, const Tensor& whole, const BuildContext& build);
// What the ranks' terms y of row-parallel layers give: their sum, or y, where a layer has summed
// them; of it the rank's share of the sequence under sequence parallelism.
Tensor JoinRows(const Tensor& y, const BuildContext& build);

// A layer's sizes, its bias, how its weight is stored and begins.
struct LinearConfig {
  int64_t in_features = 0;
  int64_t out_features = 0;
  bool bias = true;
  LinearLayout layout = LinearLayout::kOutIn;
  Init weight_init = Init::Normal(0.02);
  Init bias_init = Init::Zeros();
  // How the split dim (outputs of a column-, inputs of a row-parallel layer) is divided; empty: one
  // block of single features.
  std::vector<FeatureBlock> blocks = {};
  // Of a ReplicatedLinear: under sequence parallelism it is given this rank's share of the
  // sequence, and its gradients are marked to be summed over the group.
  bool on_sequence_share = false;
};

class ColumnParallelLinear : public Module {
 public:
  ColumnParallelLinear(const LinearConfig& config, const Scope& scope);
  std::string_view kind() const override { return "ColumnParallelLinear"; }
  // x [..., in] on every rank (its share of the sequence under sequence parallelism) to this
  // rank's [..., out share].
  Tensor Forward(const Tensor& x, const ForwardContext& context = {}) const;
  // GeluTanh of it, for a row-parallel layer to continue with; of a dense weight.
  Gelued ForwardGelu(const Tensor& x, const ForwardContext& context = {}) const;
  // The same in two steps, for layers that share an input (separate q, k and v): what `Gather`
  // gives goes to `ForwardGathered` of each of them, and is communicated once.
  Tensor Gather(const Tensor& x, const ForwardContext& context = {}) const;
  Tensor ForwardGathered(const Tensor& whole, const ForwardContext& context = {}) const;
  const Parameter& weight() const { return weight_; }
  std::optional<LinearLayout> linear_layout() const override { return config_.layout; }

 private:
  // Of what every rank has.
  Tensor Product(const Tensor& whole, const ForwardContext& context) const;

  const LinearConfig config_;
  Parameter& weight_;
  Parameter* bias_ = nullptr;
};

class RowParallelLinear : public Module {
 public:
  RowParallelLinear(const LinearConfig& config, const Scope& scope);
  std::string_view kind() const override { return "RowParallelLinear"; }
  // This rank's [..., in share] to [..., out], whole on every rank (a share of the sequence under
  // sequence parallelism).
  Tensor Forward(const Tensor& x, const ForwardContext& context = {}) const;
  Tensor ForwardGelu(const Gelued& x) const;
  // This rank's term of the sum, or, of sums in trees, all of it; without the bias.
  Tensor ForwardPartial(const Tensor& x, const ForwardContext& context = {}) const;
  const Parameter& weight() const { return weight_; }
  std::optional<LinearLayout> linear_layout() const override { return config_.layout; }

 private:
  // The sum over the group, and the bias, where it is not there yet.
  Tensor Joined(const Tensor& y) const;
  Tensor Product(const Tensor& x, const Tensor& bias, const ForwardContext& context) const;
  // What is added with the product: the bias, where that is the whole sum.
  Tensor OwnBias() const;

  const LinearConfig config_;
  Parameter& weight_;
  Parameter* bias_ = nullptr;
};

// A plain linear layer, the same on every rank.
class ReplicatedLinear : public Module {
 public:
  ReplicatedLinear(const LinearConfig& config, const Scope& scope);
  std::string_view kind() const override { return "ReplicatedLinear"; }
  Tensor Forward(const Tensor& x, const ForwardContext& context = {}) const;
  std::optional<LinearLayout> linear_layout() const override { return config_.layout; }

 private:
  const LinearConfig config_;
  Parameter& weight_;
  Parameter* bias_ = nullptr;
};

}  // namespace tessera::nn

#endif  // TESSERA_NN_LINEAR_H_
