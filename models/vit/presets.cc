// SPDX-License-Identifier: Apache-2.0
// How the command line and the Hub know ViT.
#include "core/batch_keys.h"
#include "models/family.h"
#include "models/input_check.h"
#include "models/vit/vit.h"
#include "nlohmann/json.hpp"

namespace tessera::models {
namespace {

using nlohmann::json;

struct Size {
  const char* name;
  int layers;
  int heads;
  int width;
  int patch;
  int image;
};

// ImageNet's labels are called LABEL_0, ... until a data set gives its own.
Preset MakePreset(const Size& size) {
  json config = PresetConfig(
      R"({"model_type": "vit", "architectures": ["ViTForImageClassification"], "hidden_act": "gelu",
          "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
          "initializer_range": 0.02, "layer_norm_eps": 1e-12, "num_channels": 3, "qkv_bias": true,
          "num_labels": 1000})",
      {{"hidden_size", size.width},
       {"num_hidden_layers", size.layers},
       {"num_attention_heads", size.heads},
       {"intermediate_size", 4 * size.width},
       {"image_size", size.image},
       {"patch_size", size.patch}});
  return {size.name, "", std::move(config)};
}

// For 28 x 28 grey-scale pictures of ten classes (MNIST's format).
Preset MakeMini() {
  Preset preset = MakePreset({"vit-mini", 6, 4, 128, 4, 28});
  preset.config["num_channels"] = 1;
  // 128 wide, 0.02 would leave the signal so small that learning begins slowly.
  preset.config["initializer_range"] = 0.08;
  preset.config["num_labels"] = 10;
  return preset;
}

bool IsHead(const std::string& name) {
  for (const char* prefix : {"classifier.", "pooler.", "vit.pooler."}) {
    if (name.rfind(prefix, 0) == 0) return true;
  }
  return false;
}

std::vector<std::string> OtherNames(const std::string& parameter) {
  const std::string prefix = "vit.";
  if (parameter.rfind(prefix, 0) == 0) return {parameter.substr(prefix.size())};
  if (parameter.rfind("classifier.", 0) == 0) return {};
  return {prefix + parameter};
}

// Version 5 of transformers has other modules than its files say.
std::string NameInVersion5(std::string name) {
  const std::pair<const char*, const char*> renamed[] = {
      {"encoder.layer.", "layers."},
      {".attention.attention.query.", ".attention.q_proj."},
      {".attention.attention.key.", ".attention.k_proj."},
      {".attention.attention.value.", ".attention.v_proj."},
      {".attention.output.dense.", ".attention.o_proj."},
      {".intermediate.dense.", ".mlp.fc1."},
      {".output.dense.", ".mlp.fc2."}};
  for (const auto& [ours, theirs] : renamed) {
    const size_t at = name.find(ours);
    if (at != std::string::npos) name.replace(at, std::string_view(ours).size(), theirs);
  }
  return name;
}

std::vector<std::string> NamesInModel(const std::string& parameter, int version) {
  std::vector<std::string> names = OtherNames(parameter);
  names.insert(names.begin(), parameter);
  if (version < 5) return names;
  std::transform(names.begin(), names.end(), names.begin(), NameInVersion5);
  return names;
}

StatusOr<std::unique_ptr<Model>> Build(const json& config, const nn::BuildContext& context) {
  TESSERA_ASSIGN_OR_RETURN(const VitConfig parsed, VitConfig::FromJson(config));
  return std::make_unique<Vit>(parsed, config, context);
}

Status CheckInputs(const std::string& source, const Model& model, Bundle* inputs) {
  const VitConfig& config = static_cast<const Vit&>(model).vit_config();
  if (!inputs->has(keys::kPixelValues))
    return InvalidArgument(source, ": 'pixel_values' is missing");
  const Tensor& pixels = inputs->at(keys::kPixelValues);
  if (pixels.ndim() != 4 || pixels.numel() == 0 || !IsFloating(pixels.dtype()) ||
      pixels.size(1) != config.num_channels || pixels.size(2) % config.patch_size != 0 ||
      pixels.size(3) % config.patch_size != 0) {
    return InvalidArgument(source, ": 'pixel_values' has shape ", pixels.shape(),
                           "; it must be floating [batch, ", config.num_channels,
                           ", height, width], sizes multiples of ", config.patch_size);
  }
  if (!inputs->has(keys::kLabels)) return OkStatus();
  if (!config.classifies) {
    return InvalidArgument(source, ": 'labels' given, but the model has no head");
  }
  return CheckLabels(source, inputs->at(keys::kLabels), pixels.size(0), config.labels);
}

void LeaveOutPooler(json* config) {
  const auto parsed = VitConfig::FromJson(*config);
  if (parsed.ok() && !parsed->classifies) (*config)["add_pooling_layer"] = false;
}

Family MakeFamily() {
  Family family;
  family.model_type = "vit";
  family.shares_sequences = true;
  family.architectures = {{kVitForImageClassification, {Capability::kImageLabels}},
                          {kVitModel, {}}};
  for (const Size& size : {Size{"vit-base-patch16-224", 12, 12, 768, 16, 224},
                           {"vit-base-patch16-384", 12, 12, 768, 16, 384},
                           {"vit-base-patch32-224", 12, 12, 768, 32, 224},
                           {"vit-base-patch32-384", 12, 12, 768, 32, 384},
                           {"vit-tiny-patch16-224", 12, 3, 192, 16, 224},
                           {"vit-small-patch16-224", 12, 6, 384, 16, 224},
                           {"vit-large-patch16-224", 24, 16, 1024, 16, 224},
                           {"vit-large-patch32-384", 24, 16, 1024, 32, 384}}) {
    family.presets.push_back(MakePreset(size));
  }
  family.presets.push_back(MakeMini());
  family.build = Build;
  family.adapter_targets = {"query", "value"};
  family.other_names = OtherNames;
  family.names_in_model = NamesInModel;
  family.inputs = {keys::kPixelValues, keys::kLabels};
  family.check_inputs = CheckInputs;
  family.is_head = IsHead;
  family.leave_out_pooler = LeaveOutPooler;
  family.loss_takes_num_items = true;
  return family;
}

const FamilyRegistration registration(MakeFamily);

}  // namespace
}  // namespace tessera::models
