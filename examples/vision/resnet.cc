// SPDX-License-Identifier: Apache-2.0
#include "examples/vision/resnet.h"

#include <cmath>
#include <utility>

#include <tessera/models/config_reader.h>
#include <tessera/models/family.h>
#include <tessera/models/input_check.h>
#include <tessera/ops/cast/cast.h>
#include <tessera/ops/elementwise/elementwise.h>
#include <tessera/ops/pooling/pooling.h>
#include <tessera/ops/view/view.h>

// B batch, C channels, H and W of the picture, L labels.
namespace tessera::examples {
namespace {

using models::BlockKeys;
using models::RunOptions;
using nlohmann::json;

// Of a square kernel, padded so that a stride of 1 keeps the size; He et al.'s initialisation by
// the outputs.
nn::Conv2dConfig Kernel(int64_t in_channels, int64_t out_channels, int64_t kernel, int64_t stride) {
  const auto fan_out = static_cast<double>(out_channels * kernel * kernel);
  return {.in_channels = in_channels,
          .out_channels = out_channels,
          .kernel = kernel,
          .stride = stride,
          .padding = kernel / 2,
          .bias = false,
          .weight_init = nn::Init::Normal(std::sqrt(2.0 / fan_out))};
}

}  // namespace

BasicBlock::Shortcut::Shortcut(int64_t in_channels, int64_t out_channels, int64_t stride,
                               const nn::Scope& scope)
    : Module(scope),
      conv(Kernel(in_channels, out_channels, 1, stride), Child("0")),
      norm({.channels = out_channels}, Child("1")) {}

Tensor BasicBlock::Shortcut::Forward(const Tensor& x_BCHW,
                                     const nn::ForwardContext& context) const {
  return Call(x_BCHW, [&] { return norm.Forward(conv.Forward(x_BCHW), context); });
}

BasicBlock::BasicBlock(int64_t in_channels, int64_t out_channels, int64_t stride,
                       const nn::Scope& scope)
    : Module(scope),
      conv1_(Kernel(in_channels, out_channels, 3, stride), Child("conv1")),
      bn1_({.channels = out_channels}, Child("bn1")),
      conv2_(Kernel(out_channels, out_channels, 3, 1), Child("conv2")),
      bn2_({.channels = out_channels}, Child("bn2")) {
  if (stride == 1 && in_channels == out_channels) return;
  downsample_ = std::make_unique<Shortcut>(in_channels, out_channels, stride, Child("downsample"));
}

Tensor BasicBlock::Forward(const Tensor& x_BCHW, const nn::ForwardContext& context) const {
  return Call(x_BCHW, [&] {
    const Tensor inner = Relu(bn1_.Forward(conv1_.Forward(x_BCHW), context));
    const Tensor branch = bn2_.Forward(conv2_.Forward(inner), context);
    return Relu(Add(branch, downsample_ ? downsample_->Forward(x_BCHW, context) : x_BCHW));
  });
}

const OptionTable& ResNetConfig::Table() {
  using C = ResNetConfig;
  static const auto* table = new OptionTable(
      OptionTable::Of<C>("ResNet")
          .Add("width", &C::width, "channels of the first stage", {.least = 1, .below = 4096})
          .Add("blocks_per_stage", &C::blocks_per_stage, "residual blocks of each of four stages",
               {.least = 1, .below = 4096})
          .Add("num_channels", &C::num_channels, "channels of a picture",
               {.least = 1, .below = 4096}));
  return *table;
}

StatusOr<ResNetConfig> ResNetConfig::FromJson(const json& config) {
  ResNetConfig c;
  models::ConfigReader reader(config, "torchvision-resnet");
  reader.Read(&c);
  TESSERA_RETURN_IF_ERROR(reader.status());
  TESSERA_ASSIGN_OR_RETURN(c.labels, models::LabelSpec::FromJson(config, "torchvision-resnet"));
  return c;
}

ResNet::ResNet(const ResNetConfig& config, const json& given, const nn::BuildContext& build)
    : Model(nn::Scope::Root(build)), config_(config), json_(given) {
  const int64_t width = config.width;
  if (HasBlock(0)) {
    conv1_ = std::make_unique<nn::Conv2d>(Kernel(config.num_channels, width, 7, 2), Child("conv1"));
    bn1_ = std::make_unique<nn::BatchNorm>(nn::BatchNormConfig{.channels = width}, Child("bn1"));
  }
  for (int64_t i = 0; i < 4 * config.blocks_per_stage; ++i) {
    const int64_t stage = i / config.blocks_per_stage;
    const int64_t place = i % config.blocks_per_stage;
    const bool narrows = stage > 0 && place == 0;
    residual_.push_back(nullptr);
    if (!HasBlock(static_cast<int>(i) + 1)) continue;
    residual_.back() = std::make_unique<BasicBlock>((narrows ? width / 2 : width) << stage,
                                                    width << stage, narrows ? 2 : 1,
                                                    Child(Concat("layer", stage + 1, ".", place)));
  }
  if (!HasBlock(num_blocks() - 1)) return;
  fc_ = std::make_unique<nn::ReplicatedLinear>(
      nn::LinearConfig{
          .in_features = 8 * width,
          .out_features = config.labels.count,
          .weight_init = nn::Init::Normal(1.0 / std::sqrt(24.0 * static_cast<double>(width)))},
      Child("fc"));
}

BlockKeys ResNet::keys_of_block(int block) const {
  if (block == 0) {
    return {.takes = {keys::kPixelValues}, .gives = {keys::kHidden}, .drops = {keys::kPixelValues}};
  }
  if (block + 1 < num_blocks()) return {.takes = {keys::kHidden}, .gives = {keys::kHidden}};
  return {.takes = {keys::kHidden},
          .may_take = {keys::kLabels, keys::kTargets},
          .gives = {keys::kLoss, keys::kLogits}};
}

Bundle ResNet::RunBlock(int block, Bundle in, const RunOptions& options) const {
  TESSERA_CHECK(HasBlock(block), "resnet", "block ", block, " is not part of this model");
  if (block + 1 == num_blocks()) return RunHead(in, options);
  if (block == 0) {
    Bundle stem = RunStem(in, options.context);
    in.erase(keys::kPixelValues);
    in.set(keys::kHidden, stem.at(keys::kHidden));
    return in;
  }
  const BasicBlock& residual = *residual_[static_cast<size_t>(block) - 1];
  in.set(keys::kHidden, residual.Forward(in.at(keys::kHidden), options.context));
  return in;
}

Bundle ResNet::RunStem(const Bundle& in, const nn::ForwardContext& context) const {
  const Tensor pixels = in.at(keys::kPixelValues);
  TESSERA_CHECK(pixels.ndim() == 4 && pixels.size(1) == config_.num_channels, "resnet",
                "pixel_values must be [batch, ", config_.num_channels, ", height, width], got ",
                pixels);
  // Pictures come in float32, whatever the weights are.
  const Tensor x = Cast(pixels, build().dtype);
  const Tensor stem = Relu(bn1_->Forward(conv1_->Forward(x), context));
  return {{keys::kHidden, MaxPool2d(stem, {.kernel = 3, .stride = Extent2d(2), .padding = 1})}};
}

Bundle ResNet::RunHead(const Bundle& in, const RunOptions& options) const {
  const Tensor x_BCHW = in.at(keys::kHidden);
  const Tensor mean_BC = Reshape(AdaptiveAvgPool2d(x_BCHW, 1), {x_BCHW.size(0), x_BCHW.size(1)});
  const Tensor logits_BL = fc_->Forward(mean_BC);
  Bundle out;
  if (options.keep_logits) out.set(keys::kLogits, logits_BL);
  const Tensor labels = in.has(keys::kTargets) ? in.at(keys::kTargets) : in.get(keys::kLabels);
  if (labels.defined()) {
    out.set(keys::kLoss, models::ClassificationLoss(logits_BL, labels, config_.labels, options));
  }
  return out;
}

namespace {

models::Preset MakePreset(const char* name, int64_t channels, int64_t size, int64_t width) {
  return {name,
          "",
          {{"model_type", "torchvision-resnet"},
           {"architectures", {"ResNet"}},
           {"width", width},
           {"blocks_per_stage", 2},
           {"num_channels", channels},
           {"image_size", size},
           {"num_labels", 10}}};
}

StatusOr<std::unique_ptr<models::Model>> Build(const json& config,
                                               const nn::BuildContext& context) {
  TESSERA_ASSIGN_OR_RETURN(const ResNetConfig parsed, ResNetConfig::FromJson(config));
  return std::make_unique<ResNet>(parsed, config, context);
}

Status CheckInputs(const std::string& source, const models::Model& model, Bundle* inputs) {
  const ResNetConfig& config = static_cast<const ResNet&>(model).resnet_config();
  const Tensor pixels = inputs->get(keys::kPixelValues);
  if (!pixels.defined() || pixels.ndim() != 4 || pixels.numel() == 0 ||
      !IsFloating(pixels.dtype()) || pixels.size(1) != config.num_channels) {
    return InvalidArgument(source, ": 'pixel_values' must be floating [batch, ",
                           config.num_channels, ", height, width]");
  }
  if (!inputs->has(keys::kLabels)) return OkStatus();
  return models::CheckLabels(source, inputs->at(keys::kLabels), pixels.size(0), config.labels);
}

models::Family MakeFamily() {
  models::Family family;
  family.model_type = "torchvision-resnet";
  family.architectures = {{"ResNet", {models::Capability::kImageLabels}}};
  family.presets = {MakePreset("resnet18", 3, 224, 64), MakePreset("resnet18-64", 3, 64, 64),
                    MakePreset("resnet18-mnist", 1, 28, 64)};
  family.build = Build;
  family.ignored_entry = [](const std::string& name) {
    return name.ends_with(".num_batches_tracked");
  };
  family.inputs = {keys::kPixelValues, keys::kLabels};
  family.check_inputs = CheckInputs;
  family.is_head = [](const std::string& name) { return name.starts_with("fc."); };
  return family;
}

const models::FamilyRegistration registration(MakeFamily);

}  // namespace
}  // namespace tessera::examples
