// SPDX-License-Identifier: Apache-2.0
// PEFT's adapter_config.json (models/hub/adapter_config.h), and names of modules judged by it.
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "models/hub/adapter_config.h"
#include "nlohmann/json.hpp"
#include "tests/fuzz/fuzz_target.h"

namespace tessera::fuzz {
namespace {

bool Run(std::string_view bytes) {
  static const FuzzFolder folder;
  folder.Write("adapter_config.json", bytes);
  const auto config = models::AdapterConfig::Read(folder.path());
  if (!config.ok()) return false;
  try {
    for (const std::string module : {"model.layers.0.self_attn.q_proj", "lm_head", ""}) {
      config->Targets(module, /*linear=*/true);
      config->Saves(module);
      if (config->CheckPatterns(module).ok()) config->ScaleOf(module);
    }
  } catch (const Error&) {
    // A pattern that steps back too often (core/regex.h).
  }
  config->ToJson(/*fan_in_fan_out=*/false);
  return true;
}

std::vector<std::string> Seeds() {
  return {
      R"({"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"],)"
      R"( "modules_to_save": ["score"], "layers_to_transform": [0, 2],)"
      R"( "rank_pattern": {"layers.0.*q_proj": 2}, "alpha_pattern": {"v_proj": 3.5}})",
      R"({"peft_type": "LORA", "r": 2, "target_modules": ".*\\.(q|k)_proj", "use_dora": true,)"
      R"( "bias": "lora_only", "exclude_modules": ["lm_head"], "init_lora_weights": "gaussian"})",
      R"({"peft_type": "PREFIX_TUNING", "task_type": "CAUSAL_LM", "num_virtual_tokens": 3,)"
      R"( "token_dim": 8, "num_transformer_submodules": 1, "num_attention_heads": 2,)"
      R"( "num_layers": 1})"};
}

const FuzzTargetRegistration registration({.name = "adapter_config",
                                           .run = Run,
                                           .seeds = Seeds,
                                           .words = {"peft_type", "target_modules", "all-linear",
                                                     "layers_pattern", "rank_pattern", "(?:a*)*b",
                                                     "null", "true", "-1", "1e308"}});

}  // namespace
}  // namespace tessera::fuzz
