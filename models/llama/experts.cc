// SPDX-License-Identifier: Apache-2.0
#include "models/llama/experts.h"

#include <algorithm>

#include "autograd/autograd.h"
#include "models/config_reader.h"
#include "models/llama/config.h"
#include "models/model.h"
#include "nn/activation.h"
#include "ops/cast/cast.h"
#include "ops/collective/collective.h"
#include "ops/elementwise/elementwise.h"
#include "ops/index/index.h"
#include "ops/reduction/reduction.h"
#include "ops/reduction/sum.h"
#include "ops/softmax/softmax.h"
#include "ops/view/view.h"

namespace tessera::models {
namespace {

// Qwen's: every decoder_sparse_step-th layer, but those of mlp_only_layers.
void ReadSparseLayers(size_t layers, ConfigReader* reader, LlamaExperts* e) {
  int64_t step = 1;
  std::vector<int64_t> dense;
  reader->Read("decoder_sparse_step", &step, {.least = 1});
  reader->Read("mlp_only_layers", &dense);
  for (size_t i = 0; i < layers && reader->status().ok(); ++i) {
    const auto number = static_cast<int64_t>(i);
    const bool named = std::find(dense.begin(), dense.end(), number) != dense.end();
    e->layers[i] = !named && (number + 1) % step == 0;
  }
}

// GLM's: all but the first ones.
void ReadGlmExperts(size_t layers, ConfigReader* reader, LlamaConfig* c) {
  LlamaExperts* e = &c->experts;
  int64_t shared = 1;
  int64_t first = 1;
  reader->Read("n_shared_experts", &shared, {.least = 0, .below = kMostLayers});
  reader->Read("first_k_dense_replace", &first, {.least = 0});
  reader->Read("routed_scaling_factor", &e->scale, {.above = 0});
  reader->Read("n_group", &e->groups, SizeBelow(kMostRows));
  reader->Read("topk_group", &e->chosen_groups, SizeBelow(kMostRows));
  reader->Read("router_bias_update_rate", &e->bias_update_rate, {.least = 0});
  reader->Read("use_qk_norm", &c->has_head_norms);
  e->shared_inner_size = shared * e->inner_size;
  for (size_t i = 0; i < layers; ++i) e->layers[i] = static_cast<int64_t>(i) >= first;
  reader->RequireMultiple("n_routed_experts", e->num_experts, "n_group", e->groups);
  if (!reader->status().ok() || e->groups == 1) return;
  const int64_t each = e->num_experts / e->groups;
  reader->Require(
      each >= 2 && e->chosen_groups <= e->groups && e->chosen_groups * each >= e->per_token,
      Concat("'topk_group' (", e->chosen_groups, ") of 'n_group' (", e->groups,
             ") groups do not hold 'num_experts_per_tok' (", e->per_token,
             ") of 'n_routed_experts' (", e->num_experts, ")"));
}

}  // namespace

void ReadExperts(const std::string& model_type, size_t layers, ConfigReader* reader,
                 LlamaConfig* c) {
  LlamaExperts* e = &c->experts;
  const bool mixtral = model_type == "mixtral";
  const bool glm = model_type == "glm4_moe";
  // transformers 5 calls Qwen's as Mixtral's.
  const char* const number_key = glm                                           ? "n_routed_experts"
                                 : mixtral || reader->Has("num_local_experts") ? "num_local_experts"
                                                                               : "num_experts";
  reader->Read(number_key, &e->num_experts, SizeBelow(kMostLayers));
  reader->Read("num_experts_per_tok", &e->per_token, SizeBelow(kMostLayers));
  reader->Require(e->per_token <= e->num_experts,
                  Concat("'num_experts_per_tok' (", e->per_token, ") is more than '", number_key,
                         "' (", e->num_experts, ")"));
  if (mixtral) {
    e->inner_size = c->intermediate_size;
    reader->Read("router_jitter_noise", &e->jitter, {.least = 0, .below = 1});
  } else {
    reader->Read("moe_intermediate_size", &e->inner_size, SizeBelow(kMostInnerWidth));
    reader->Read("norm_topk_prob", &e->normalised);
  }
  if (!glm) {
    reader->Read("output_router_logits", &e->output_router_logits);
    reader->Read("router_aux_loss_coef", &e->balance_weight, {.least = 0});
  }
  reader->Read("router_z_loss_coef", &e->z_weight, {.least = 0});
  reader->Read("expert_capacity_factor", &e->capacity_factor, {.least = 0});
  e->layers.assign(layers, true);
  if (glm) ReadGlmExperts(layers, reader, c);
  if (model_type == "qwen2_moe") {
    reader->Read("qkv_bias", &c->qkv_bias);
    reader->Read("shared_expert_intermediate_size", &e->shared_inner_size,
                 SizeBelow(kMostInnerWidth));
  }
  if (!mixtral && !glm) ReadSparseLayers(layers, reader, e);
}

nn::ExpertMlpConfig ExpertsConfig(const LlamaConfig& c) {
  const LlamaExperts& e = c.experts;
  const nn::Init weight = nn::Init::Normal(c.initializer_range);
  const auto mlp = [&](int64_t inner) {
    return nn::MlpConfig{.hidden_size = c.hidden_size,
                         .inner_size = inner,
                         .activation = *nn::FindActivation(c.hidden_act),
                         .bias = false,
                         .weight_init = weight,
                         .output_init = weight,
                         .gate_name = e.gate,
                         .up_name = e.up,
                         .down_name = e.down};
  };
  nn::ExpertMlpConfig config;
  config.router = {.hidden_size = c.hidden_size,
                   .num_experts = e.num_experts,
                   .experts_per_token = e.per_token,
                   .scores = e.sigmoids ? nn::RouterConfig::Scores::kSigmoid
                                        : nn::RouterConfig::Scores::kSoftmax,
                   .normalised = e.normalised,
                   .scale = e.scale,
                   .groups = e.groups,
                   .chosen_groups = e.chosen_groups,
                   .bias_name = e.sigmoids ? "e_score_correction_bias" : "",
                   .bias_update_rate = e.bias_update_rate,
                   .in_float32 = e.sigmoids,
                   .weight_init = weight};
  config.expert = mlp(e.inner_size);
  if (e.shared_inner_size > 0) config.shared = mlp(e.shared_inner_size);
  config.input_jitter = e.jitter;
  config.capacity_factor = e.capacity_factor;
  config.shared_name = e.shared;
  if (e.gated_share) config.shared_gate_name = "shared_expert_gate";
  return config;
}

// Training does, to report the loads.
bool CountsRoutings(const LlamaConfig& c, const RunOptions& options) {
  if (c.experts.num_experts == 0 || options.cache != nullptr) return false;
  return options.context.training || c.experts.output_router_logits || c.experts.z_weight > 0;
}

Tensor EmptyRouterSums(const LlamaConfig& c, DType dtype, const Device& device) {
  const DType wide = dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  return Full({2 * c.experts.num_experts + 3}, 0.0, wide, device);
}

namespace {

// The sum over the ranks that share out the tokens. Every rank's loss depends on it.
Tensor SumOverRanks(const Tensor& x, const Group& ranks) {
  return CopyToGroup(ReduceFromGroup(x, ranks), ranks);
}

}  // namespace

Tensor AddRouting(const LlamaConfig& c, const Tensor& sums, const nn::Routing& routing,
                  const Tensor& mask, const Group& ranks) {
  const int64_t experts = c.experts.num_experts;
  const int64_t tokens = routing.logits.size(0);
  std::optional<NoGrad> no_loss;
  if (!c.experts.output_router_logits && c.experts.z_weight == 0) no_loss.emplace();
  const DType dtype = routing.logits.dtype();
  const Device device = routing.logits.device();
  // What a token counts; the means are of all tokens that do.
  const Tensor counts = mask.defined() ? Cast(Reshape(mask, {tokens, 1}), dtype)
                                       : Full({tokens, 1}, 1.0, dtype, device);
  Tensor all;
  {
    const NoGrad no_grad;
    all = Maximum(SumOverRanks(Sum(counts), ranks), Full({}, 1.0, dtype, device));
  }
  const Tensor share = Div(counts, all);
  const auto sum = [&](const Tensor& x) { return Sum(Mul(x, share), {0}); };
  Tensor chosen, loads;
  {
    const NoGrad no_grad;
    chosen = SumOverRanks(sum(Sum(OneHot(routing.chosen, experts, dtype), {1})), ranks);  // f [E]
    const double even = static_cast<double>(experts) / static_cast<double>(c.experts.per_token);
    loads = Mul(Stack({Max(chosen, 0), Min(chosen, 0)}, 0), even);
  }
  const Tensor z = sum(Unsqueeze(Square(LogSumExp(routing.logits, -1)), 1));
  const Tensor found = SumOverRanks(Cat({sum(Softmax(routing.logits, -1)), z}, 0), ranks);
  return Add(sums, Cat({chosen, found, loads}, 0));
}

void AddRouterLosses(const LlamaConfig& c, const Tensor& sums, const RunOptions& options) {
  const LlamaExperts& e = c.experts;
  const auto layers = static_cast<double>(std::count(e.layers.begin(), e.layers.end(), true));
  if (layers == 0) return;
  const Tensor means = Mul(sums, 1 / layers);
  const int64_t experts = e.num_experts;
  const Tensor chosen = Slice(means, 0, 0, experts);
  const Tensor probabilities = Slice(means, 0, experts, experts);
  if (e.output_router_logits) {
    const Tensor balance = Mul(Sum(Mul(chosen, probabilities)), static_cast<double>(experts));
    options.AddAuxiliary("router_aux_loss", balance, e.balance_weight);
  }
  if (e.z_weight > 0) {
    options.AddAuxiliary("router_z_loss", Select(means, 0, 2 * experts), e.z_weight);
  }
  if (!options.context.training) return;
  options.AddAuxiliary("expert_load_max", Select(means, 0, 2 * experts + 1).Detach(), 0);
  options.AddAuxiliary("expert_load_min", Select(means, 0, 2 * experts + 2).Detach(), 0);
}

}  // namespace tessera::models
