// SPDX-License-Identifier: Apache-2.0
// ResNet-18 (He et al. 2015, "Deep Residual Learning for Image Recognition") as a model family of
// one's own; examples/vision/resnet_test.cc trains it.
//
//   7x7 convolution / 2 -> norm, ReLU -> 3x3 maximum / 2
//     -> four stages of residual blocks, of width, 2 width, 4 width, 8 width channels
//     -> mean over the picture -> linear
//
// Names are torchvision's (`layer2.0.downsample.1.running_mean`), so its weights load; of its files
// `num_batches_tracked` is passed over. Input `pixel_values` [B, channels, H, W], `labels` as
// models/classification.h says; outputs `logits`, and `loss` with labels. Blocks: 0 the stem, 1 ...
// the residual blocks, then mean and head. Every rank of a tensor-parallel group computes all of
// it. BatchNorm has no place under pipelines and ZeRO 3 (nn/running_statistics.h).
#ifndef TESSERA_EXAMPLES_VISION_RESNET_H_
#define TESSERA_EXAMPLES_VISION_RESNET_H_

#include <memory>
#include <vector>

#include <tessera/base/options.h>
#include <tessera/models/classification.h>
#include <tessera/models/model.h>
#include <tessera/nn/channel_norm.h>
#include <tessera/nn/convolution.h>
#include <tessera/nn/linear.h>

#include "nlohmann/json.hpp"

namespace tessera::examples {

struct ResNetConfig {
  int64_t width = 64;            // channels of the first stage
  int64_t blocks_per_stage = 2;  // ResNet-18's
  int64_t num_channels = 3;      // of the pictures
  models::LabelSpec labels;

  static StatusOr<ResNetConfig> FromJson(const nlohmann::json& json);
  static const OptionTable& Table();
};

// relu(x + norm(conv(relu(norm(conv(x)))))), where x is made smaller and wider if that is asked.
class BasicBlock : public nn::Module {
 public:
  BasicBlock(int64_t in_channels, int64_t out_channels, int64_t stride, const nn::Scope& scope);
  Tensor Forward(const Tensor& x_BCHW, const nn::ForwardContext& context) const;

 private:
  struct Shortcut : nn::Module {
    Shortcut(int64_t in_channels, int64_t out_channels, int64_t stride, const nn::Scope& scope);
    Tensor Forward(const Tensor& x_BCHW, const nn::ForwardContext& context) const;
    nn::Conv2d conv;
    nn::BatchNorm norm;
  };

  nn::Conv2d conv1_;
  nn::BatchNorm bn1_;
  nn::Conv2d conv2_;
  nn::BatchNorm bn2_;
  std::unique_ptr<Shortcut> downsample_;  // nullptr: x as it is
};

class ResNet : public models::Model {
 public:
  ResNet(const ResNetConfig& config, const nlohmann::json& json, const nn::BuildContext& build);

  int num_blocks() const override { return static_cast<int>(4 * config_.blocks_per_stage) + 2; }
  models::BlockKeys keys_of_block(int block) const override;
  Bundle RunBlock(int block, Bundle in, const models::RunOptions& options) const override;
  const nlohmann::json& config() const override { return json_; }
  int64_t max_positions() const override { return 0; }
  int64_t vocab_size() const override { return 0; }
  const ResNetConfig& resnet_config() const { return config_; }

 private:
  Bundle RunStem(const Bundle& in, const nn::ForwardContext& context) const;
  Bundle RunHead(const Bundle& in, const models::RunOptions& options) const;

  const ResNetConfig config_;
  const nlohmann::json json_;
  std::unique_ptr<nn::Conv2d> conv1_;
  std::unique_ptr<nn::BatchNorm> bn1_;
  std::vector<std::unique_ptr<BasicBlock>> residual_;  // nullptr: of another stage
  std::unique_ptr<nn::ReplicatedLinear> fc_;
};

}  // namespace tessera::examples

#endif  // TESSERA_EXAMPLES_VISION_RESNET_H_
