// SPDX-License-Identifier: Apache-2.0
// Mixtures of experts in layers like Llama's: Mixtral (Jiang et al. 2024, "Mixtral of Experts"),
// Qwen2-MoE and Qwen3-MoE (Yang et al. 2024, 2025), GLM-4.5 (Zeng et al. 2025), and the losses that
// keep their experts busy.
//
//   config.feed_forward = [&](const nn::Scope& scope) {
//     return std::make_unique<nn::ExpertMlp>(ExpertsConfig(c), scope);
//   };
//
// Balance, as transformers' load_balancing_loss_func has it (Fedus et al. 2021, "Switch
// Transformers", over k experts per token): E * sum over e of f_e P_e. f_e is the number of tokens
// that choose expert e, and P_e the sum of its probabilities, both divided by the number of tokens
// and averaged over the layers. Tokens of padding do not count. A layer adds to `router_sums`, and
// the head makes the loss of them, so that it is one over all layers on any pipeline.
#ifndef TESSERA_MODELS_LLAMA_EXPERTS_H_
#define TESSERA_MODELS_LLAMA_EXPERTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/bundle.h"
#include "nn/expert_mlp.h"

namespace tessera::keys {

// Over layers: f [E], P [E], the mean of squared log-sum-exps, and the greatest and the least load.
inline constexpr TensorKey kRouterSums{"router_sums", KeyElements::kFloating, "[2 E + 3]",
                                       "what routers did, summed over layers"};

}  // namespace tessera::keys

namespace tessera::models {

class ConfigReader;
struct LlamaConfig;
struct RunOptions;

struct LlamaExperts {
  int64_t num_experts = 0;  // of a layer that has them; 0: the type knows none
  int64_t per_token = 2;
  int64_t inner_size = 0;         // of an expert
  int64_t shared_inner_size = 0;  // of the one that all tokens share; 0: none
  bool gated_share = false;       // the shared one counts by a sigmoid (Qwen2-MoE)
  bool sigmoids = false;          // scores are sigmoids, corrected by a bias (GLM-4.5)
  bool normalised = true;
  double scale = 1;
  int64_t groups = 1;
  int64_t chosen_groups = 1;
  double bias_update_rate = 0;
  double jitter = 0;
  double capacity_factor = 0;
  bool output_router_logits = false;  // the loss has the balance
  double balance_weight = 0;          // router_aux_loss_coef
  double z_weight = 0;                // router_z_loss_coef
  std::vector<bool> layers = {};      // which have experts
  // Names of checkpoints.
  std::string block = "mlp";
  std::string gate = "gate_proj";
  std::string up = "up_proj";
  std::string down = "down_proj";
  std::string shared = "shared_experts";

  bool In(size_t layer) const { return layer < layers.size() && layers[layer]; }
};

// The keys of `model_type`'s experts, which begin with c->experts.
void ReadExperts(const std::string& model_type, size_t layers, ConfigReader* reader,
                 LlamaConfig* c);

nn::ExpertMlpConfig ExpertsConfig(const LlamaConfig& c);

// Whether a pass adds up what its routers do.
bool CountsRoutings(const LlamaConfig& c, const RunOptions& options);
// Of a model in `dtype`.
Tensor EmptyRouterSums(const LlamaConfig& c, DType dtype, const Device& device);
// `sums` with a layer's routing. `mask` [B, T]: tokens that are 0 do not count; undefined: all do.
// `ranks` share out the tokens; nullptr: all are here.
Tensor AddRouting(const LlamaConfig& c, const Tensor& sums, const nn::Routing& routing,
                  const Tensor& mask, const Group& ranks);
// Adds the losses, and the greatest and the least load of an expert, of 1 where all are alike:
// `router_aux_loss`, `router_z_loss`, `expert_load_max`, `expert_load_min`.
void AddRouterLosses(const LlamaConfig& c, const Tensor& sums, const RunOptions& options);

}  // namespace tessera::models

#endif  // TESSERA_MODELS_LLAMA_EXPERTS_H_
