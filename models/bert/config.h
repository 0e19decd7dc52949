// SPDX-License-Identifier: Apache-2.0
// BERT's and RoBERTa's configuration; fields are named as in Hugging Face's config.json.
#ifndef TESSERA_MODELS_BERT_CONFIG_H_
#define TESSERA_MODELS_BERT_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/options_fwd.h"
#include "base/status.h"
#include "models/classification.h"
#include "nlohmann/json_fwd.hpp"

namespace tessera::models {

// What is on the encoder; config.json's `architectures` says it (BertForMaskedLM, ...).
enum class BertHead { kNone, kMaskedLm, kPreTraining, kSequence, kTokens };

// A head by the name of its class.
struct BertArchitecture {
  std::string name;
  BertHead head;
};
// A model type: BERT, or RoBERTa, which other vocabularies have under names of their own.
struct BertKind {
  const char* model_type;
  const char* classes;  // what their names begin with
  bool roberta;
  int64_t vocab_size;  // where config.json does not say it
};
inline constexpr BertKind kBertKinds[] = {{"bert", "Bert", false, 30522},
                                          {"roberta", "Roberta", true, 50265},
                                          {"xlm-roberta", "XLMRoberta", true, 30522},
                                          {"camembert", "Camembert", true, 30522}};
std::vector<BertArchitecture> BertArchitectures(const BertKind& kind);

// What a config.json says; defaults are bert-base-uncased's.
struct BertConfig {
  bool roberta = false;  // the model type is RoBERTa's or like it
  BertHead head = BertHead::kMaskedLm;
  int64_t vocab_size = 30522;
  int64_t hidden_size = 768;
  int64_t num_hidden_layers = 12;
  int64_t num_attention_heads = 12;
  int64_t intermediate_size = 3072;
  std::string hidden_act = "gelu";
  double hidden_dropout_prob = 0.1;
  double attention_probs_dropout_prob = 0.1;
  int64_t max_position_embeddings = 512;
  int64_t type_vocab_size = 2;
  double initializer_range = 0.02;
  double layer_norm_eps = 1e-12;
  int64_t pad_token_id = 0;                  // RoBERTa: 1
  std::optional<double> classifier_dropout;  // absent: hidden_dropout_prob
  bool tie_word_embeddings = true;
  // False: a model without a head has no pooler either, as in transformers' constructor.
  bool add_pooling_layer = true;
  LabelSpec labels;

  // Whether a pooler (of the first token) is on the encoder.
  bool has_pooler() const;
  // Tokens a row may have: RoBERTa's positions begin behind the padding's.
  int64_t max_tokens() const {
    return roberta ? max_position_embeddings - pad_token_id - 1 : max_position_embeddings;
  }
  double head_dropout() const { return classifier_dropout.value_or(hidden_dropout_prob); }

  // Checks sizes; refuses by name what would change results and is not supported.
  static StatusOr<BertConfig> FromJson(const nlohmann::json& json);
  static const OptionTable& Table();
};

}  // namespace tessera::models

#endif  // TESSERA_MODELS_BERT_CONFIG_H_
