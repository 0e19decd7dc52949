// SPDX-License-Identifier: Apache-2.0
// How the command line and the Hub know BERT and RoBERTa.
#include "core/batch_keys.h"
#include "models/bert/bert.h"
#include "models/bert/bert_keys.h"
#include "models/family.h"
#include "models/input_check.h"
#include "nlohmann/json.hpp"

namespace tessera::models {
namespace {

using nlohmann::json;

struct Size {
  const char* name;
  int layers;
  int heads;
  int width;
  int vocabulary;
};

Preset MakePreset(const Size& size, const char* own) {
  json config = PresetConfig(
      R"({"hidden_act": "gelu", "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1,
          "initializer_range": 0.02, "position_embedding_type": "absolute"})",
      {{"vocab_size", size.vocabulary},
       {"hidden_size", size.width},
       {"num_hidden_layers", size.layers},
       {"num_attention_heads", size.heads},
       {"intermediate_size", 4 * size.width}});
  config.update(PresetConfig(own));
  return {size.name, "", std::move(config)};
}

constexpr char kBert[] =
    R"({"model_type": "bert", "architectures": ["BertForMaskedLM"], "max_position_embeddings": 512,
        "type_vocab_size": 2, "layer_norm_eps": 1e-12, "pad_token_id": 0})";
constexpr char kRoberta[] =
    R"({"max_position_embeddings": 514, "type_vocab_size": 1, "layer_norm_eps": 1e-5,
        "bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2})";

bool StartsWith(const std::string& text, const std::string& prefix) {
  return text.rfind(prefix, 0) == 0;
}
bool EndsWith(const std::string& text, const std::string& suffix) {
  return text.size() >= suffix.size() &&
         text.compare(text.size() - suffix.size(), suffix.size(), suffix) == 0;
}

// Positions and token types of the longest row, which older files carry.
bool IsBuffer(const std::string& name) {
  return EndsWith(name, "embeddings.position_ids") || EndsWith(name, "embeddings.token_type_ids");
}

bool IsHead(const std::string& name) {
  for (const char* prefix : {"cls.", "lm_head.", "classifier.", "pooler.", "bert.pooler.",
                             "roberta.pooler.", "qa_outputs."}) {
    if (StartsWith(name, prefix)) return true;
  }
  return false;
}

// The name with and without the encoder's prefix; a bias that is also the decoder's; and each with
// the names that norms had in TensorFlow.
// The head's bias has two names. Models that tie them agree; of those that do not, transformers 5
// has both and adds the decoder's.
constexpr const char* kBiases[][2] = {{"cls.predictions.decoder.bias", "cls.predictions.bias"},
                                      {"lm_head.decoder.bias", "lm_head.bias"}};

std::vector<std::string> OtherNames(const std::string& parameter, const std::string& prefix) {
  std::vector<std::string> names = {parameter};
  if (StartsWith(parameter, prefix)) {
    names.push_back(parameter.substr(prefix.size()));
  } else if (!IsHead(parameter) || StartsWith(parameter, "pooler.")) {
    names.push_back(prefix + parameter);
  }
  for (const auto& [copy, of] : kBiases) {
    if (parameter == of) names.push_back(copy);
  }
  const size_t plain = names.size();
  for (size_t i = 0; i < plain; ++i) {
    for (const auto& [ours, old] :
         {std::pair<std::string, std::string>("LayerNorm.weight", "LayerNorm.gamma"),
          {"LayerNorm.bias", "LayerNorm.beta"}}) {
      if (EndsWith(names[i], ours)) {
        names.push_back(names[i].substr(0, names[i].size() - ours.size()) + old);
      }
    }
  }
  names.erase(names.begin());
  return names;
}
std::vector<std::string> BertNames(const std::string& parameter) {
  return OtherNames(parameter, "bert.");
}
std::vector<std::string> RobertaNames(const std::string& parameter) {
  return OtherNames(parameter, "roberta.");
}

bool IsDecoderBias(const std::string& name) {
  return name == kBiases[0][0] || name == kBiases[1][0];
}

std::vector<EntryCopy> Copies(json* config) {
  const auto parsed = BertConfig::FromJson(*config);
  const bool has_decoder = parsed.ok() && (parsed->head == BertHead::kMaskedLm ||
                                           parsed->head == BertHead::kPreTraining);
  if (!has_decoder || parsed->tie_word_embeddings) return {};
  const auto& [copy, of] = kBiases[parsed->roberta ? 1 : 0];
  return {{copy, of}};
}

void LeaveOutPooler(json* config) {
  const auto parsed = BertConfig::FromJson(*config);
  if (parsed.ok() && parsed->head == BertHead::kNone) (*config)["add_pooling_layer"] = false;
}

StatusOr<std::unique_ptr<Model>> Build(const json& config, const nn::BuildContext& context) {
  TESSERA_ASSIGN_OR_RETURN(const BertConfig parsed, BertConfig::FromJson(config));
  return std::make_unique<Bert>(parsed, config, context);
}

Status CheckLabelInput(const std::string& source, const BertConfig& config, const Bundle& inputs) {
  const std::string where = source + ": 'labels'";
  const int64_t rows = inputs.at(keys::kInputIds).size(0);
  switch (config.head) {
    case BertHead::kNone:
      return InvalidArgument(where, " given, but the model has no head");
    case BertHead::kSequence:
      return CheckLabels(source, inputs.at(keys::kLabels), rows, config.labels);
    case BertHead::kTokens:
      return CheckRange(where, inputs.at(keys::kLabels), config.labels.count, -100, "labels");
    default:
      return CheckRange(where, inputs.at(keys::kLabels), config.vocab_size, -100, "vocabulary");
  }
}

Status CheckInputs(const std::string& source, const Model& model, Bundle* inputs) {
  const BertConfig& config = static_cast<const Bert&>(model).bert_config();
  std::vector<TensorKey> like_ids = {keys::kAttentionMask, keys::kTokenTypeIds};
  if (config.head != BertHead::kSequence) like_ids.push_back(keys::kLabels);
  if (inputs->has(keys::kPositionIds) && config.roberta) {
    // Positions of RoBERTa begin behind the padding's: the table is longer than a row may be.
    TESSERA_RETURN_IF_ERROR(CheckRange(source + ": 'position_ids'", inputs->at(keys::kPositionIds),
                                       config.max_position_embeddings, 0, "positions"));
    const Tensor positions = inputs->at(keys::kPositionIds);
    inputs->erase(keys::kPositionIds);
    TESSERA_RETURN_IF_ERROR(CheckTokenInputs(source, model, like_ids, inputs));
    if (positions.shape() != inputs->at(keys::kInputIds).shape()) {
      return InvalidArgument(source, ": 'position_ids' has shape ", positions.shape(),
                             ", 'input_ids' ", inputs->at(keys::kInputIds).shape());
    }
    inputs->set(keys::kPositionIds, positions);
  } else {
    like_ids.push_back(keys::kPositionIds);
    TESSERA_RETURN_IF_ERROR(CheckTokenInputs(source, model, like_ids, inputs));
  }
  if (inputs->has(keys::kTokenTypeIds)) {
    TESSERA_RETURN_IF_ERROR(CheckRange(source + ": 'token_type_ids'",
                                       inputs->at(keys::kTokenTypeIds), config.type_vocab_size, 0,
                                       "token types"));
  }
  if (inputs->has(keys::kNextSentenceLabel)) {
    if (config.head != BertHead::kPreTraining) {
      return InvalidArgument(source, ": 'next_sentence_label' is for BertForPreTraining");
    }
    TESSERA_RETURN_IF_ERROR(CheckLabels(source, inputs->at(keys::kNextSentenceLabel),
                                        inputs->at(keys::kInputIds).size(0),
                                        {.count = 2, .problem = ProblemType::kSingleLabel}));
  }
  return inputs->has(keys::kLabels) ? CheckLabelInput(source, config, *inputs) : OkStatus();
}

// Pre-training with pairs of sentences and labels of tokens have no task yet.
std::vector<Capability> CapabilitiesOf(BertHead head) {
  if (head == BertHead::kMaskedLm) return {Capability::kMaskedTokens};
  if (head == BertHead::kSequence) return {Capability::kTextLabels};
  return {};
}

Family MakeFamily(const BertKind& kind) {
  Family family;
  family.model_type = kind.model_type;
  family.shares_sequences = true;
  for (const auto& [name, head] : BertArchitectures(kind)) {
    family.architectures.push_back({name, CapabilitiesOf(head)});
  }
  family.build = Build;
  family.adapter_targets = {"query", "value"};
  family.ignored_entry = IsBuffer;
  family.overrides = IsDecoderBias;
  family.untie = UntieWordEmbeddings;
  family.leave_out_pooler = LeaveOutPooler;
  family.copies = Copies;
  family.inputs = {keys::kInputIds, keys::kAttentionMask, keys::kTokenTypeIds, keys::kPositionIds,
                   keys::kLabels};
  family.check_inputs = CheckInputs;
  family.is_head = IsHead;
  return family;
}

Family MakeBert() {
  Family family = MakeFamily(kBertKinds[0]);
  for (const Size& size : {Size{"bert-base-uncased", 12, 12, 768, 30522},
                           {"bert-large-uncased", 24, 16, 1024, 30522},
                           {"bert-base-cased", 12, 12, 768, 28996},
                           {"bert-large-cased", 24, 16, 1024, 28996},
                           {"bert-base-chinese", 12, 12, 768, 21128},
                           {"bert-tiny", 2, 2, 128, 30522},
                           {"bert-mini", 4, 4, 256, 30522},
                           {"bert-small", 4, 8, 512, 30522}}) {
    family.presets.push_back(MakePreset(size, kBert));
  }
  family.other_names = BertNames;
  family.inputs.push_back(keys::kNextSentenceLabel);
  return family;
}

Family MakeRoberta(const BertKind& kind, std::initializer_list<Size> sizes) {
  Family family = MakeFamily(kind);
  for (const Size& size : sizes) {
    Preset preset = MakePreset(size, kRoberta);
    preset.config["model_type"] = kind.model_type;
    preset.config["architectures"] = {Concat(kind.classes, "ForMaskedLM")};
    family.presets.push_back(std::move(preset));
  }
  family.other_names = RobertaNames;
  return family;
}

const FamilyRegistration bert(MakeBert);
const FamilyRegistration roberta([] {
  return MakeRoberta(kBertKinds[1], {{"roberta-base", 12, 12, 768, 50265},
                                     {"roberta-large", 24, 16, 1024, 50265}});
});
const FamilyRegistration xlm_roberta([] {
  return MakeRoberta(kBertKinds[2], {{"xlm-roberta-base", 12, 12, 768, 250002},
                                     {"xlm-roberta-large", 24, 16, 1024, 250002}});
});
const FamilyRegistration camembert([] {
  return MakeRoberta(kBertKinds[3], {{"camembert-base", 12, 12, 768, 32005}});
});

}  // namespace
}  // namespace tessera::models
