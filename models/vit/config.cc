// SPDX-License-Identifier: Apache-2.0
#include "models/vit/config.h"

#include "models/config_reader.h"
#include "nn/activation.h"

namespace tessera::models {
namespace {

Status ReadArchitecture(const nlohmann::json& json, VitConfig* config) {
  const auto found = json.find("architectures");
  if (found == json.end() || found->is_null() || found->empty()) return OkStatus();
  if (!found->is_array() || !(*found)[0].is_string()) {
    return InvalidArgument("config of vit: 'architectures' must be a list of names");
  }
  const std::string name = (*found)[0].get<std::string>();
  if (name == kVitForImageClassification) return OkStatus();
  if (name != kVitModel) {
    return InvalidArgument("config of vit: 'architectures': \"", name,
                           "\" is not supported; known are ", kVitModel, ", ",
                           kVitForImageClassification);
  }
  config->classifies = false;
  config->has_pooler = config->add_pooling_layer;
  return OkStatus();
}

void CheckSizes(const VitConfig& c, ConfigReader* reader) {
  struct Size {
    const char* name;
    int64_t value;
    int64_t most;
  };
  for (const Size& size : {Size{"hidden_size", c.hidden_size, 1 << 20},
                           {"num_hidden_layers", c.num_hidden_layers, 10000},
                           {"num_attention_heads", c.num_attention_heads, 1 << 20},
                           {"intermediate_size", c.intermediate_size, 1 << 24},
                           {"image_size", c.image_size, 1 << 16},
                           {"patch_size", c.patch_size, 1 << 12},
                           {"num_channels", c.num_channels, 1 << 12},
                           {"pooler_output_size", c.pooler_output_size, 1 << 20}}) {
    reader->Require(size.value > 0 && size.value < size.most,
                    Concat("'", size.name, "' is out of range: ", size.value));
  }
  if (!reader->status().ok()) return;
  reader->Require(
      c.hidden_size % c.num_attention_heads == 0,
      Concat("'hidden_size' (", c.hidden_size, ") is not a multiple of 'num_attention_heads' (",
             c.num_attention_heads, ")"));
  reader->Require(
      c.image_size >= c.patch_size,
      Concat("'image_size' (", c.image_size, ") is less than 'patch_size' (", c.patch_size, ")"));
  for (const double p : {c.hidden_dropout_prob, c.attention_probs_dropout_prob}) {
    reader->Require(p >= 0 && p < 1, Concat("a dropout probability of ", p, " is not in [0, 1)"));
  }
}

}  // namespace

StatusOr<VitConfig> VitConfig::FromJson(const nlohmann::json& json) {
  VitConfig c;
  std::string pooling = "cls";
  ConfigReader reader(json, "vit");
  reader.Read("hidden_size", &c.hidden_size);
  c.pooler_output_size = c.hidden_size;
  reader.Read("num_hidden_layers", &c.num_hidden_layers);
  reader.Read("num_attention_heads", &c.num_attention_heads);
  reader.Read("intermediate_size", &c.intermediate_size);
  reader.Read("hidden_act", &c.hidden_act);
  reader.Read("hidden_dropout_prob", &c.hidden_dropout_prob);
  reader.Read("attention_probs_dropout_prob", &c.attention_probs_dropout_prob);
  reader.ReadNotNegative("initializer_range", &c.initializer_range);
  reader.ReadNotNegative("layer_norm_eps", &c.layer_norm_eps);
  reader.Read("image_size", &c.image_size);
  reader.Read("patch_size", &c.patch_size);
  reader.Read("num_channels", &c.num_channels);
  reader.Read("qkv_bias", &c.qkv_bias);
  reader.Read("add_pooling_layer", &c.add_pooling_layer);
  reader.Read("pooler_output_size", &c.pooler_output_size);
  reader.Read("pooler_act", &c.pooler_act);
  reader.Read("pooling", &pooling);
  reader.Require(pooling == "cls" || pooling == "mean",
                 Concat("'pooling' must be \"cls\" or \"mean\", not \"", pooling, "\""));
  reader.Refuse("pruned_heads", nlohmann::json::object());
  c.mean_pooling = pooling == "mean";
  CheckSizes(c, &reader);
  TESSERA_RETURN_IF_ERROR(reader.status());
  TESSERA_RETURN_IF_ERROR(ReadArchitecture(json, &c));
  TESSERA_ASSIGN_OR_RETURN(c.labels, LabelSpec::FromJson(json, "vit"));
  TESSERA_RETURN_IF_ERROR(nn::FindActivation(c.hidden_act).status());
  TESSERA_RETURN_IF_ERROR(nn::FindActivation(c.pooler_act).status());
  return c;
}

}  // namespace tessera::models
