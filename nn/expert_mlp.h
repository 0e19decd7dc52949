// SPDX-License-Identifier: Apache-2.0
// A mixture of experts as a block's feed-forward part: every token is worked on by k of E Mlps
// (Shazeer et al. 2017, "Outrageously Large Neural Networks"; Jiang et al. 2024, "Mixtral of
// Experts"), and by one that all tokens share, where there is one (Dai et al. 2024, "DeepSeekMoE").
//
//   ExpertMlp experts({.router = {.hidden_size = C, .num_experts = 8, .experts_per_token = 2},
//                      .expert = {.hidden_size = C, .inner_size = I, .activation = Silu,
//                                 .bias = false, .gate_name = "w1", .up_name = "w3",
//                                 .down_name = "w2"}},
//                     Child("block_sparse_moe"));
//   Tensor y_BTC = experts.Forward(h_BTC, context);
//
// Tokens are sorted by expert, and of one expert by their place, so that every sum has one order.
// No token is dropped, unless there is a capacity. An expert that no token goes to has gradients of
// zeros. Experts' parameters are those of an Mlp each ("experts.3.w1.weight"), split over the
// tensor-parallel group like one; the group adds up the results of all experts at once. Like all
// weights they may be quantised or have adapters.
//
// Expert parallelism (BuildContext::expert_parallel): rank r of N has the experts of
// EvenShare(E, N, r). Rows go to the ranks that have their experts, and results come back, so that
// each rank has what it would have alone, with the same bits. Every rank runs as many passes.
//
// What the router decided is left in ForwardContext::routings, for losses that balance it. The
// numbers of tokens are read from the device, so that steps with experts are not captured.
#ifndef TESSERA_NN_EXPERT_MLP_H_
#define TESSERA_NN_EXPERT_MLP_H_

#include <memory>
#include <string>
#include <vector>

#include "nn/feed_forward.h"
#include "nn/linear.h"
#include "nn/mlp.h"
#include "nn/router.h"

namespace tessera::nn {

struct ExpertMlpConfig {
  RouterConfig router;
  MlpConfig expert;         // of each of router.num_experts; without biases
  MlpConfig shared = {};    // inner_size 0: there is none
  double input_jitter = 0;  // training multiplies h by numbers in [1 - jitter, 1 + jitter)
  // An expert takes at most ceil(capacity_factor * N * k / E) of N tokens, the first ones; beyond,
  // a token goes without it. 0: it takes all.
  double capacity_factor = 0;
  std::string router_name = "gate";
  std::string experts_name = "experts";
  std::string shared_name = "shared_experts";
  std::string shared_gate_name = {};  // of [1, C]: the shared Mlp counts by its sigmoid; "": by 1
};

class ExpertMlp : public FeedForward {
 public:
  ExpertMlp(const ExpertMlpConfig& config, const Scope& scope);
  ~ExpertMlp() override;
  std::string_view kind() const override { return "ExpertMlp"; }
  Tensor Forward(const Tensor& h, const ForwardContext& context) const override;
  bool reads_device() const override { return true; }

 private:
  class Experts;  // the list, under a name of its own

  Tensor Jittered(const Tensor& h, const ForwardContext& context) const;
  // This rank's term of what the experts give for h [N, C].
  Tensor Mix(const Tensor& h, const Routing& routing, const ForwardContext& context) const;
  Tensor Shared(const Tensor& h, const ForwardContext& context) const;

  const ExpertMlpConfig config_;
  Router router_;
  std::unique_ptr<Experts> experts_;
  std::unique_ptr<Mlp> shared_;                    // null: none
  std::unique_ptr<ReplicatedLinear> shared_gate_;  // null: none
  Dropout dropout_;  // of what the experts give together; 0 unless it is set (Module::set_dropout)
};

}  // namespace tessera::nn

#endif  // TESSERA_NN_EXPERT_MLP_H_
