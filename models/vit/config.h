// SPDX-License-Identifier: Apache-2.0
// ViT's configuration; fields are named as in Hugging Face's config.json.
#ifndef TESSERA_MODELS_VIT_CONFIG_H_
#define TESSERA_MODELS_VIT_CONFIG_H_

#include <cstdint>
#include <string>

#include "base/options_fwd.h"
#include "base/status.h"
#include "models/classification.h"
#include "nlohmann/json_fwd.hpp"

namespace tessera::models {

// What config.json's `architectures` may say.
inline constexpr char kVitForImageClassification[] = "ViTForImageClassification";
inline constexpr char kVitModel[] = "ViTModel";

struct VitConfig {
  bool classifies = true;   // architectures: ViTForImageClassification, or ViTModel
  bool has_pooler = false;  // ViTModel's
  // False: ViTModel has none either, as in transformers' constructor.
  bool add_pooling_layer = true;
  int64_t hidden_size = 768;
  int64_t num_hidden_layers = 12;
  int64_t num_attention_heads = 12;
  int64_t intermediate_size = 3072;
  std::string hidden_act = "gelu";
  double hidden_dropout_prob = 0.0;
  double attention_probs_dropout_prob = 0.0;
  double initializer_range = 0.02;
  double layer_norm_eps = 1e-12;
  int64_t image_size = 224;  // of the position table; other sizes interpolate it
  int64_t patch_size = 16;
  int64_t num_channels = 3;
  bool qkv_bias = true;
  int64_t pooler_output_size = 768;  // absent: hidden_size
  std::string pooler_act = "tanh";
  bool mean_pooling = false;  // "pooling": "mean" instead of "cls"; a key of this library's own
  LabelSpec labels;

  // Patches along each side of an image of `image_size`.
  int64_t grid() const { return image_size / patch_size; }

  // Checks sizes; refuses by name what would change results and is not supported.
  static StatusOr<VitConfig> FromJson(const nlohmann::json& json);
  static const OptionTable& Table();
};

}  // namespace tessera::models

#endif  // TESSERA_MODELS_VIT_CONFIG_H_
