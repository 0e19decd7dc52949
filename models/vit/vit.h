// SPDX-License-Identifier: Apache-2.0
// ViT (Dosovitskiy et al. 2020, "An Image is Worth 16x16 Words"): an encoder of pre-norm blocks
// over the patches of an image.
//
//   patches -> linear -> [class token, patches] + positions -> dropout
//     -> num_hidden_layers x [x + attn(norm(x)); x + mlp(norm(x))] -> norm -> head
//
// Input: `pixel_values` [B, channels, H, W] floating; H and W are multiples of patch_size, and may
// differ from image_size: the positions are then interpolated (position_table.h). `labels` as
// models/classification.h says. Outputs: `logits` [B, L] of the class token, or with `pooling`
// "mean" of the mean over the patches' tokens; for ViTModel `pooler_output`; `last_hidden_state`
// [B, 1 + patches, C] unless RunOptions::keep_logits is false; `loss` with labels.
// Parameter names and shapes are Hugging Face's (the patch projection is a convolution there: [C,
// channels, p, p]). Blocks: 0 embeddings, 1 ... the layers, then norm and head.
#ifndef TESSERA_MODELS_VIT_VIT_H_
#define TESSERA_MODELS_VIT_VIT_H_

#include <memory>

#include "models/model.h"
#include "models/vit/config.h"
#include "nlohmann/json.hpp"

namespace tessera::models {

class Vit : public Model {
 public:
  Vit(const VitConfig& config, nlohmann::json json, const nn::BuildContext& build);
  ~Vit() override;

  int num_blocks() const override { return static_cast<int>(config_.num_hidden_layers) + 2; }
  BlockKeys keys_of_block(int block) const override;
  Bundle RunBlock(int block, Bundle in, const RunOptions& options) const override;
  const nlohmann::json& config() const override { return json_; }
  // Tokens of an image of image_size.
  int64_t max_positions() const override { return config_.grid() * config_.grid() + 1; }
  int64_t vocab_size() const override { return 0; }
  int64_t hidden_size() const override { return config_.hidden_size; }
  const VitConfig& vit_config() const { return config_; }

 private:
  class Embeddings;
  class Encoder;  // under `vit.`
  Bundle RunHead(const Bundle& in, const RunOptions& options) const;

  const VitConfig config_;
  const nlohmann::json json_;
  std::unique_ptr<Encoder> encoder_;
  std::unique_ptr<nn::Module> classifier_;
};

}  // namespace tessera::models

#endif  // TESSERA_MODELS_VIT_VIT_H_
