// SPDX-License-Identifier: Apache-2.0
// The feed-forward part of a transformer block: up, activation, down; or, gated (Shazeer 2020,
// "GLU variants"), down(activation(gate(h)) * up(h)), with Silu in one pass (ops/swiglu).
#ifndef TESSERA_NN_MLP_H_
#define TESSERA_NN_MLP_H_

#include <memory>
#include <string>
#include <vector>

#include "nn/activation.h"
#include "nn/dropout.h"
#include "nn/feed_forward.h"
#include "nn/linear.h"

namespace tessera::nn {

struct MlpConfig {
  int64_t hidden_size = 0;
  int64_t inner_size = 0;
  Activation activation = nullptr;  // required
  double dropout = 0.0;             // of the result
  double inner_dropout = 0.0;       // of what goes into `down`
  bool bias = true;
  LinearLayout layout = LinearLayout::kOutIn;
  Init weight_init = Init::Normal(0.02);
  Init output_init = Init::Normal(0.02);
  // Empty: no gate. The same as up_name: one projection gives both, the gate's features first.
  std::string gate_name = {};
  std::string up_name = "c_fc";
  std::string down_name = "c_proj";
};

// The feed-forward part of a block, gated or not.
class Mlp : public FeedForward {
 public:
  Mlp(const MlpConfig& config, const Scope& scope);
  std::string_view kind() const override { return "Mlp"; }
  // h [B, T, C] to [B, T, C]; the inner features are split over the tensor-parallel group.
  Tensor Forward(const Tensor& h, const ForwardContext& context) const override;
  // This rank's term of the sum over the group, for h [..., C] that every rank has whole: what
  // several of them add up at once (nn/expert_mlp.h). Without a bias and dropout of the result.
  Tensor ForwardPartial(const Tensor& h, const ForwardContext& context) const;

  // A layer, how many rows it gets, and the rank whose tokens they are
  // (ExecutionContext::token_source).
  struct Rows {
    const Mlp* layer;
    int64_t count;
    int source;
  };
  // Applies layers of one configuration to rows [R, C], the first layer's first. The result has the
  // bits of each layer's ForwardPartial; the products run together (ops/matmul/grouped_linear.h).
  static Tensor ForwardGrouped(const std::vector<Rows>& layers, const Tensor& rows);
  // Whether ForwardGrouped takes this layer. It does where weights are dense and there are no
  // biases, no hooks and no dropout of inner features.
  bool can_be_grouped(const ForwardContext& context) const;

 private:
  Tensor Inner(const Tensor& whole, const ForwardContext& context) const;
  Tensor Activated(Tensor gate, Tensor up) const;

  const Activation activation_;
  const int64_t inner_size_;
  const Share inner_;  // this rank's inner features
  const bool gated_;
  const bool has_biases_;
  const LinearLayout layout_;
  std::unique_ptr<ColumnParallelLinear> gate_;  // null: no gate, or one in up_
  ColumnParallelLinear up_;
  RowParallelLinear down_;
  Dropout inner_dropout_;
  Dropout dropout_;
};

}  // namespace tessera::nn

#endif  // TESSERA_NN_MLP_H_
