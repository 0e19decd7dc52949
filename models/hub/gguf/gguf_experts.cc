// SPDX-License-Identifier: Apache-2.0
#include "models/hub/gguf/gguf_experts.h"

#include <algorithm>
#include <string>

#include "models/hub/gguf/gguf_rotary.h"
#include "models/llama/config.h"
#include "nlohmann/json.hpp"

namespace tessera::models {
namespace {

using nlohmann::json;

constexpr uint32_t kSigmoids = 2;  // of expert_gating_func

// GLM-4.5's.
Status AddRoutingKeys(const LlamaExperts& e, GgufMetadata* keys) {
  if (e.shared_inner_size == 0) return UnsayableInGguf("n_shared_experts", "0");
  const auto first = std::find(e.layers.begin(), e.layers.end(), true);
  keys->emplace_back("expert_shared_count", GgufCount(e.shared_inner_size / e.inner_size));
  keys->emplace_back("leading_dense_block_count", GgufCount(first - e.layers.begin()));
  keys->emplace_back("expert_gating_func", kSigmoids);
  keys->emplace_back("expert_weights_scale", static_cast<float>(e.scale));
  keys->emplace_back("expert_weights_norm", e.normalised);
  // llama.cpp takes no choice of all groups, which is the same as of none.
  if (e.chosen_groups < e.groups) {
    keys->emplace_back("expert_group_count", GgufCount(e.groups));
    keys->emplace_back("expert_group_used_count", GgufCount(e.chosen_groups));
  }
  return OkStatus();
}

Status ReadRouting(GgufKeyReader* reader, json* config) {
  int64_t gating = kSigmoids;
  double scale = 1;
  bool normalised = false;
  int64_t groups = 1;
  int64_t chosen = 1;
  reader->MayRead("expert_gating_func", &gating);
  reader->MayRead("expert_weights_scale", &scale);
  reader->MayRead("expert_weights_norm", &normalised);
  reader->MayRead("expert_group_count", &groups);
  reader->MayRead("expert_group_used_count", &chosen);
  // llama.cpp takes 0 for unset.
  reader->Require("expert_gating_func", gating == kSigmoids || gating == 0,
                  "is not 2, of sigmoids, which are all that is supported");
  if (groups <= 1) groups = chosen = 1;
  config->update({{"n_shared_experts", reader->Needed("expert_shared_count")},
                  {"routed_scaling_factor", scale == 0 ? 1 : GgufDecimal(scale)},
                  {"norm_topk_prob", normalised},
                  {"n_group", groups},
                  {"topk_group", chosen}});
  return reader->status();
}

// A model of so many experts is made only where the file holds them.
Status CheckRouters(const GgufFile& file, int64_t first, int64_t layers, int64_t experts,
                    GgufKeyReader* reader) {
  for (int64_t i = first; i < layers && reader->status().ok(); ++i) {
    const std::string name = Concat("blk.", i, ".ffn_gate_inp.weight");
    TESSERA_ASSIGN_OR_RETURN(const GgufTensor* router, file.Get(name));
    const int64_t rows = router->shape.size() < 2 ? 1 : router->shape[0];
    reader->Require("expert_count", rows == experts,
                    Concat("is ", experts, ", and tensor '", name, "' has ", rows,
                           rows == 1 ? " row" : " rows"));
  }
  return reader->status();
}

}  // namespace

StatusOr<GgufMetadata> GgufExpertKeys(const json& json, const LlamaConfig& c,
                                      const GgufExperts& experts) {
  const LlamaExperts& e = c.experts;
  GgufMetadata keys;
  if (e.num_experts == 0) return keys;
  if (e.capacity_factor > 0) return UnsayableInGguf("expert_capacity_factor", "a limit");
  keys = {{"expert_count", GgufCount(e.num_experts)},
          {"expert_used_count", GgufCount(e.per_token)}};
  if (experts.has_width) keys.emplace_back("expert_feed_forward_length", GgufCount(e.inner_size));
  if (experts.has_shared_width) {
    keys.emplace_back("expert_shared_feed_forward_length", GgufCount(e.shared_inner_size));
  }
  if (experts.says_routing) {
    TESSERA_RETURN_IF_ERROR(AddRoutingKeys(e, &keys));
    return keys;
  }
  if (e.normalised != experts.normalised) {
    return UnsayableInGguf("norm_topk_prob", e.normalised ? "true" : "false");
  }
  if (std::find(e.layers.begin(), e.layers.end(), false) != e.layers.end()) {
    const bool steps = json.value("decoder_sparse_step", nlohmann::json(1)) != 1;
    return UnsayableInGguf(steps ? "decoder_sparse_step" : "mlp_only_layers",
                           "a layer without experts");
  }
  return keys;
}

Status ReadGgufExperts(const GgufFile& file, const GgufExperts& experts, GgufKeyReader* reader,
                       json* config) {
  const int64_t dense_width = (*config)["intermediate_size"].get<int64_t>();
  const int64_t count = reader->Needed("expert_count");
  const int64_t used = reader->Needed("expert_used_count");
  int64_t first = 0;
  reader->Require("expert_used_count", used > 0 && used <= count,
                  "is not between 1 and the number of experts");
  if (experts.says_routing) reader->MayRead("leading_dense_block_count", &first);
  reader->Require("leading_dense_block_count", first >= 0, "is out of range");
  TESSERA_RETURN_IF_ERROR(reader->status());
  (*config)[std::string(experts.count_key)] = count;
  (*config)["num_experts_per_tok"] = used;
  if (experts.has_width) {
    int64_t width = dense_width / used;
    reader->MayRead("expert_feed_forward_length", &width);
    (*config)["moe_intermediate_size"] = width;
  }
  if (experts.has_shared_width) {
    int64_t width = dense_width;
    reader->MayRead("expert_shared_feed_forward_length", &width);
    (*config)["shared_expert_intermediate_size"] = width;
  }
  if (experts.says_routing) {
    (*config)["first_k_dense_replace"] = first;
    TESSERA_RETURN_IF_ERROR(ReadRouting(reader, config));
  } else if (experts.has_width) {
    (*config)["norm_topk_prob"] = experts.normalised;
  }
  return CheckRouters(file, first, (*config)["num_hidden_layers"].get<int64_t>(), count, reader);
}

}  // namespace tessera::models
