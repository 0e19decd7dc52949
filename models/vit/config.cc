// SPDX-License-Identifier: Apache-2.0
#include "models/vit/config.h"

#include "models/config_reader.h"
#include "nlohmann/json.hpp"
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

// Both sides of a square become a number.
Status TakeOneSide(const char* key, nlohmann::json* config) {
  const auto found = config->find(key);
  if (found == config->end() || !found->is_array()) return OkStatus();
  if (found->size() != 2 || (*found)[0] != (*found)[1]) {
    return InvalidArgument("config of vit: '", key, "' must be a number or two equal ones, not ",
                           found->dump());
  }
  *found = nlohmann::json((*found)[0]);
  return OkStatus();
}

}  // namespace

const OptionTable& VitConfig::Table() {
  using C = VitConfig;
  static const auto* table = new OptionTable(
      OptionTable::Of<C>("ViT")
          .Add("hidden_size", &C::hidden_size, "features of a patch", SizeBelow(kMostWidth))
          .Add("num_hidden_layers", &C::num_hidden_layers, "layers", SizeBelow(kMostLayers))
          .Add("num_attention_heads", &C::num_attention_heads, "heads of attention",
               SizeBelow(kMostWidth))
          .Add("intermediate_size", &C::intermediate_size,
               "inner features of the feed-forward part", SizeBelow(kMostInnerWidth))
          .Add("hidden_act", &C::hidden_act, "activation of the feed-forward part")
          .Add("hidden_dropout_prob", &C::hidden_dropout_prob,
               "dropout on embeddings and on what a layer adds", DropoutShare())
          .Add("attention_probs_dropout_prob", &C::attention_probs_dropout_prob,
               "dropout on attention's weights", DropoutShare())
          .Add("initializer_range", &C::initializer_range, "standard deviation of first weights",
               {.least = 0})
          .Add("layer_norm_eps", &C::layer_norm_eps, "added to variances", {.least = 0})
          .Add("image_size", &C::image_size, "side of a picture, in pixels", SizeBelow(1 << 16))
          .Add("patch_size", &C::patch_size, "side of a patch, in pixels", SizeBelow(1 << 12))
          .Add("num_channels", &C::num_channels, "channels of a picture", SizeBelow(1 << 12))
          .Add("qkv_bias", &C::qkv_bias, "queries, keys and values have biases")
          .Add("add_pooling_layer", &C::add_pooling_layer, "ViTModel has a pooler")
          .Add("pooler_act", &C::pooler_act, "activation of the pooler")
          .AddUnsupported({{"pruned_heads", nlohmann::json::object()}}));
  return *table;
}

StatusOr<VitConfig> VitConfig::FromJson(const nlohmann::json& json) {
  VitConfig c;
  std::string pooling = "cls";
  nlohmann::json config = json;
  for (const char* key : {"image_size", "patch_size"}) {
    TESSERA_RETURN_IF_ERROR(TakeOneSide(key, &config));
  }
  ConfigReader reader(config, "vit");
  reader.Read(&c);
  c.pooler_output_size = c.hidden_size;
  reader.Read("pooler_output_size", &c.pooler_output_size, SizeBelow(kMostWidth));
  reader.Read("pooling", &pooling, {.choices = {"cls", "mean"}});
  c.mean_pooling = pooling == "mean";
  reader.RequireMultiple("hidden_size", c.hidden_size, "num_attention_heads",
                         c.num_attention_heads);
  reader.Require(
      c.image_size >= c.patch_size,
      Concat("'image_size' (", c.image_size, ") is less than 'patch_size' (", c.patch_size, ")"));
  reader.RequireOk("hidden_act", nn::FindActivation(c.hidden_act).status());
  reader.RequireOk("pooler_act", nn::FindActivation(c.pooler_act).status());
  TESSERA_RETURN_IF_ERROR(reader.status());
  TESSERA_RETURN_IF_ERROR(ReadArchitecture(config, &c));
  TESSERA_ASSIGN_OR_RETURN(c.labels, LabelSpec::FromJson(config, "vit"));
  return c;
}

}  // namespace tessera::models
