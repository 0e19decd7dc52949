// SPDX-License-Identifier: Apache-2.0
// Which experts a token goes to, and with what weights.
//
//   Router router({.hidden_size = C, .num_experts = 8, .experts_per_token = 2}, Child("gate"));
//   const Routing r = router.Route(h_NC, context);
//   y[n] = sum over j of r.weights[n, j] * expert[r.chosen[n, j]](h[n])
//
// Logits are h W^T. Scores are their softmax (Shazeer et al. 2017; Mixtral, Qwen) or their sigmoids
// (DeepSeek-V3, GLM-4.5), in float32. A token goes to the experts with the highest scores, of equal
// ones to those of lower numbers. With a correction bias (Wang et al. 2024, "Auxiliary-Loss-Free
// Load Balancing Strategy for Mixture-of-Experts") the choice is made by score + bias, and weights
// by the scores alone; with groups the choice is among the experts of the best groups, by the sum
// of a group's two best.
//
// Gradients flow from the weights and the logits to h and W, never through the choice. The bias
// has none: training moves it once a step by bias_update_rate * sign(mean load - load), over all
// tokens of the step, those of padding as well (nn/running_statistics.h).
#ifndef TESSERA_NN_ROUTER_H_
#define TESSERA_NN_ROUTER_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "nn/module.h"

namespace tessera::nn {

struct RouterConfig {
  enum class Scores { kSoftmax, kSigmoid };

  int64_t hidden_size = 0;
  int64_t num_experts = 0;
  int64_t experts_per_token = 0;  // k
  Scores scores = Scores::kSoftmax;
  bool normalised = true;  // a token's weights add up to 1 ...
  double scale = 1.0;      // ... times this
  int64_t groups = 1;      // of equally many experts each
  int64_t chosen_groups = 1;
  // The name of the correction bias ("e_score_correction_bias"); "": there is none.
  std::string bias_name = {};
  double bias_update_rate = 0;
  bool in_float32 = false;  // the product, too
  Init weight_init = Init::Normal(0.02);
};

// N tokens, E experts, k of them per token.
struct Routing {
  Tensor logits;   // [N, E] float32, of float64 tokens that; on the tape
  Tensor weights;  // [N, k] in the dtype of the tokens, or the logits' (in_float32); on the tape
  Tensor chosen;   // [N, k] int64, the highest score first
  std::vector<Tensor> tensors() const { return {logits, weights}; }
};

class Router : public Module {
 public:
  Router(const RouterConfig& config, const Scope& scope);
  std::string_view kind() const override { return "Router"; }
  // A low-rank term, unless the product is in float32. It is neither quantised nor among "all
  // linear" layers.
  std::optional<LinearLayout> term_layout() const override;
  // h [N, C], the same on every rank of the tensor-parallel group.
  Routing Route(const Tensor& h, const ForwardContext& context = {}) const;
  const RouterConfig& config() const { return config_; }

 private:
  Tensor Choose(const Tensor& scores) const;
  void CountLoad(const Tensor& chosen) const;

  const RouterConfig config_;
  Parameter& weight_;          // [E, C]
  Parameter* bias_ = nullptr;  // [E]
};

}  // namespace tessera::nn

#endif  // TESSERA_NN_ROUTER_H_
