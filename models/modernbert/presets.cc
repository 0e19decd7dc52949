// SPDX-License-Identifier: Apache-2.0
// How the command line and the Hub know ModernBERT.
#include "core/batch_keys.h"
#include "models/family.h"
#include "models/input_check.h"
#include "models/modernbert/modernbert.h"
#include "nlohmann/json.hpp"

namespace tessera::models {
namespace {

using nlohmann::json;

struct Size {
  const char* name;
  int layers;
  int heads;
  int width;
  int inner;
};

std::vector<Preset> Presets() {
  std::vector<Preset> presets;
  for (const Size& size : {Size{"modernbert-base", 22, 12, 768, 1152},
                           {"modernbert-large", 28, 16, 1024, 2624},
                           {"modernbert-mini", 6, 4, 256, 384}}) {
    json config = PresetConfig(
        R"({"model_type": "modernbert", "architectures": ["ModernBertForMaskedLM"],
            "vocab_size": 50368, "max_position_embeddings": 8192, "hidden_activation": "gelu",
            "initializer_range": 0.02, "initializer_cutoff_factor": 2.0, "norm_eps": 1e-5,
            "norm_bias": false, "global_rope_theta": 160000.0, "local_rope_theta": 10000.0,
            "global_attn_every_n_layers": 3, "local_attention": 128, "attention_bias": false,
            "attention_dropout": 0.0, "embedding_dropout": 0.0, "mlp_bias": false,
            "mlp_dropout": 0.0, "decoder_bias": true, "classifier_pooling": "mean",
            "classifier_dropout": 0.0, "classifier_bias": false, "classifier_activation": "gelu",
            "bos_token_id": 50281, "cls_token_id": 50281, "eos_token_id": 50282,
            "sep_token_id": 50282, "pad_token_id": 50283})",
        {{"hidden_size", size.width},
         {"intermediate_size", size.inner},
         {"num_hidden_layers", size.layers},
         {"num_attention_heads", size.heads}});
    presets.push_back({size.name, "", std::move(config)});
  }
  return presets;
}

bool IsHead(const std::string& name) {
  return name.starts_with("head.") || name.starts_with("decoder.") ||
         name.starts_with("classifier.");
}

// The encoder's parameters, with and without the prefix.
std::vector<std::string> OtherNames(const std::string& parameter) {
  const std::string prefix = "model.";
  if (parameter.starts_with(prefix)) return {parameter.substr(prefix.size())};
  if (IsHead(parameter)) return {};
  return {prefix + parameter};
}

// Version 4 of transformers knows neither `layer_types` nor `rope_parameters`: the saved
// configuration says the same in its keys where those can.
std::vector<EntryCopy> AddKeysOfVersion4(json* config) {
  const auto parsed = ModernBertConfig::FromJson(*config);
  if (!parsed.ok()) return {};
  (*config)["global_rope_theta"] = parsed->rotary.base;
  (*config)["local_rope_theta"] = parsed->local_rotary.base;
  const auto layers = static_cast<size_t>(parsed->num_hidden_layers);
  for (size_t every = 1; every <= layers; ++every) {
    bool says = true;
    for (size_t i = 0; i < layers; ++i) says = says && parsed->slides[i] == (i % every != 0);
    if (!says) continue;
    (*config)["global_attn_every_n_layers"] = every;
    break;
  }
  return {};
}

StatusOr<std::unique_ptr<Model>> Build(const json& config, const nn::BuildContext& context) {
  TESSERA_ASSIGN_OR_RETURN(const ModernBertConfig parsed, ModernBertConfig::FromJson(config));
  return std::make_unique<ModernBert>(parsed, config, context);
}

Status CheckInputs(const std::string& source, const Model& model, Bundle* inputs) {
  const ModernBertConfig& config = static_cast<const ModernBert&>(model).modernbert_config();
  std::vector<TensorKey> like_ids = {keys::kAttentionMask, keys::kPositionIds};
  if (config.head != ModernBertHead::kSequence) like_ids.push_back(keys::kLabels);
  TESSERA_RETURN_IF_ERROR(CheckTokenInputs(source, model, like_ids, inputs));
  if (!inputs->has(keys::kLabels)) return OkStatus();
  const std::string where = source + ": 'labels'";
  const Tensor labels = inputs->at(keys::kLabels);
  switch (config.head) {
    case ModernBertHead::kNone:
      return InvalidArgument(where, " given, but the model has no head");
    case ModernBertHead::kSequence:
      return CheckLabels(source, labels, inputs->at(keys::kInputIds).size(0), config.labels);
    case ModernBertHead::kTokens:
      return CheckRange(where, labels, config.labels.count, -100, "labels");
    case ModernBertHead::kMaskedLm:
      return CheckRange(where, labels, config.vocab_size, -100, "vocabulary");
  }
  return OkStatus();
}

// Labels of tokens have no task yet.
std::vector<Capability> CapabilitiesOf(ModernBertHead head) {
  if (head == ModernBertHead::kMaskedLm) return {Capability::kMaskedTokens};
  if (head == ModernBertHead::kSequence) return {Capability::kTextLabels};
  return {};
}

Family MakeFamily() {
  Family family;
  family.model_type = "modernbert";
  for (const auto& [name, head] : kModernBertArchitectures) {
    family.architectures.push_back({name, CapabilitiesOf(head)});
  }
  family.presets = Presets();
  family.build = Build;
  family.other_names = OtherNames;
  family.untie = UntieWordEmbeddings;
  family.copies = AddKeysOfVersion4;
  family.inputs = {keys::kInputIds, keys::kAttentionMask, keys::kPositionIds, keys::kLabels};
  family.check_inputs = CheckInputs;
  family.is_head = IsHead;
  // PEFT has no default for ModernBERT; of other families with a fused projection it is that.
  family.adapter_targets = {"Wqkv"};
  family.shares_sequences = true;
  family.loss_takes_num_items = true;
  return family;
}

const FamilyRegistration modernbert(MakeFamily);

}  // namespace
}  // namespace tessera::models
