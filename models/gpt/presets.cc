// SPDX-License-Identifier: Apache-2.0
// How the command line and the Hub know GPT-2.
#include "core/batch_keys.h"
#include "models/family.h"
#include "models/gpt/gpt.h"
#include "nlohmann/json.hpp"

namespace tessera::models {
namespace {

struct Size {
  const char* name;
  int layers;
  int heads;
  int width;
  int positions;
};

Preset MakePreset(const Size& size) {
  const bool small = size.positions < 1024;
  return {size.name, small ? "byte" : "",
          PresetConfig(R"({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"],
                           "vocab_size": 50257, "n_inner": null, "activation_function": "gelu_new",
                           "resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1,
                           "layer_norm_epsilon": 1e-5, "initializer_range": 0.02,
                           "bos_token_id": 50256, "eos_token_id": 50256})",
                       {{"n_positions", size.positions},
                        {"n_ctx", size.positions},
                        {"n_embd", size.width},
                        {"n_layer", size.layers},
                        {"n_head", size.heads}})};
}

bool IsBuffer(const std::string& name) {
  // The causal masks that older files carry: h.0.attn.bias, h.0.attn.masked_bias.
  const auto ends_with = [&](const std::string& suffix) {
    return name.size() >= suffix.size() &&
           name.compare(name.size() - suffix.size(), suffix.size(), suffix) == 0;
  };
  return ends_with(".attn.bias") || ends_with(".attn.masked_bias");
}

std::vector<std::string> OtherNames(const std::string& parameter) {
  const std::string prefix = "transformer.";
  if (parameter.rfind(prefix, 0) == 0) return {parameter.substr(prefix.size())};
  return {};
}

StatusOr<std::unique_ptr<Model>> Build(const nlohmann::json& json,
                                       const nn::BuildContext& context) {
  TESSERA_ASSIGN_OR_RETURN(const GptConfig config, GptConfig::FromJson(json));
  return std::make_unique<Gpt>(config, json, context);
}

Family MakeFamily() {
  Family family;
  family.model_type = "gpt2";
  family.shares_sequences = true;
  family.loss_takes_num_items = true;
  family.architectures = {{"GPT2LMHeadModel", {Capability::kNextToken}}};
  for (const Size& size : {Size{"gpt2", 12, 12, 768, 1024},
                           {"gpt2-medium", 24, 16, 1024, 1024},
                           {"gpt2-large", 36, 20, 1280, 1024},
                           {"gpt2-xl", 48, 25, 1600, 1024},
                           {"gpt-tiny", 4, 4, 128, 256},
                           {"gpt-mini", 6, 6, 384, 256}}) {
    family.presets.push_back(MakePreset(size));
  }
  family.build = Build;
  family.other_names = OtherNames;
  family.ignored_entry = IsBuffer;
  family.untie = UntieWordEmbeddings;
  family.adapter_targets = {"c_attn"};
  family.prefix = PrefixPlace();
  family.inputs = {keys::kInputIds, keys::kAttentionMask, keys::kPositionIds, keys::kLabels};
  return family;
}

const FamilyRegistration registration(MakeFamily);

}  // namespace
}  // namespace tessera::models
