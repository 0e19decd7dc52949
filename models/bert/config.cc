// SPDX-License-Identifier: Apache-2.0
#include "models/bert/config.h"

#include "models/config_reader.h"
#include "nn/activation.h"

namespace tessera::models {
namespace {

constexpr struct {
  const char* suffix;
  BertHead head;
} kArchitectures[] = {
    {"ForMaskedLM", BertHead::kMaskedLm},
    {"Model", BertHead::kNone},
    {"ForPreTraining", BertHead::kPreTraining},
    {"ForSequenceClassification", BertHead::kSequence},
    {"ForTokenClassification", BertHead::kTokens},
};

}  // namespace

std::vector<BertArchitecture> BertArchitectures(bool roberta) {
  std::vector<BertArchitecture> all;
  for (const auto& [suffix, head] : kArchitectures) {
    // RoBERTa knows no next sentence.
    if (roberta && head == BertHead::kPreTraining) continue;
    all.push_back({Concat(roberta ? "Roberta" : "Bert", suffix), head});
  }
  return all;
}

namespace {

// The head that `architectures[0]` names; a masked language model where it says nothing.
Status ReadHead(const nlohmann::json& json, BertConfig* config) {
  const auto found = json.find("architectures");
  if (found == json.end() || found->is_null() || found->empty()) return OkStatus();
  if (!found->is_array() || !(*found)[0].is_string()) {
    return InvalidArgument("'architectures' must be a list of names");
  }
  const std::string name = (*found)[0].get<std::string>();
  std::string known;
  for (const BertArchitecture& architecture : BertArchitectures(config->roberta)) {
    if (name == architecture.name) {
      config->head = architecture.head;
      return OkStatus();
    }
    known += (known.empty() ? "" : ", ") + architecture.name;
  }
  return InvalidArgument("'architectures': \"", name, "\" is not supported; known are ", known);
}

void CheckSizes(const BertConfig& c, ConfigReader* reader) {
  struct Size {
    const char* name;
    int64_t value;
    int64_t most;
  };
  for (const Size& size : {Size{"vocab_size", c.vocab_size, int64_t{1} << 31},
                           {"max_position_embeddings", c.max_position_embeddings, int64_t{1} << 31},
                           {"hidden_size", c.hidden_size, 1 << 20},
                           {"num_hidden_layers", c.num_hidden_layers, 10000},
                           {"num_attention_heads", c.num_attention_heads, 1 << 20},
                           {"intermediate_size", c.intermediate_size, 1 << 24},
                           {"type_vocab_size", c.type_vocab_size, 1 << 20}}) {
    reader->Require(size.value > 0 && size.value < size.most,
                    Concat("'", size.name, "' is out of range: ", size.value));
  }
  if (!reader->status().ok()) return;
  reader->Require(
      c.hidden_size % c.num_attention_heads == 0,
      Concat("'hidden_size' (", c.hidden_size, ") is not a multiple of 'num_attention_heads' (",
             c.num_attention_heads, ")"));
  reader->Require(c.pad_token_id >= 0 && c.pad_token_id < c.vocab_size,
                  Concat("'pad_token_id' is out of range: ", c.pad_token_id));
  reader->Require(c.max_tokens() > 0, Concat("'max_position_embeddings' (",
                                             c.max_position_embeddings, ") leaves no position"));
  for (const double p : {c.hidden_dropout_prob, c.attention_probs_dropout_prob, c.head_dropout()}) {
    reader->Require(p >= 0 && p < 1, Concat("a dropout probability of ", p, " is not in [0, 1)"));
  }
}

}  // namespace

bool BertConfig::has_pooler() const {
  return (head == BertHead::kNone && add_pooling_layer) || head == BertHead::kPreTraining ||
         (head == BertHead::kSequence && !roberta);
}

StatusOr<BertConfig> BertConfig::FromJson(const nlohmann::json& json) {
  BertConfig c;
  const std::string type = json.at("model_type").get<std::string>();
  c.roberta = type == "roberta";
  if (c.roberta) {
    c.vocab_size = 50265;
    c.pad_token_id = 1;
  }
  ConfigReader reader(json, type);
  reader.Read("vocab_size", &c.vocab_size);
  reader.Read("hidden_size", &c.hidden_size);
  reader.Read("add_pooling_layer", &c.add_pooling_layer);
  reader.Read("num_hidden_layers", &c.num_hidden_layers);
  reader.Read("num_attention_heads", &c.num_attention_heads);
  reader.Read("intermediate_size", &c.intermediate_size);
  reader.Read("hidden_act", &c.hidden_act);
  reader.Read("hidden_dropout_prob", &c.hidden_dropout_prob);
  reader.Read("attention_probs_dropout_prob", &c.attention_probs_dropout_prob);
  reader.Read("max_position_embeddings", &c.max_position_embeddings);
  reader.Read("type_vocab_size", &c.type_vocab_size);
  reader.ReadNotNegative("initializer_range", &c.initializer_range);
  reader.ReadNotNegative("layer_norm_eps", &c.layer_norm_eps);
  reader.Read("pad_token_id", &c.pad_token_id);
  reader.Read("classifier_dropout", &c.classifier_dropout);
  reader.Read("tie_word_embeddings", &c.tie_word_embeddings);
  reader.Refuse("position_embedding_type", "absolute");
  reader.Refuse("is_decoder", false);
  reader.Refuse("add_cross_attention", false);
  reader.Refuse("pruned_heads", nlohmann::json::object());
  CheckSizes(c, &reader);
  TESSERA_RETURN_IF_ERROR(reader.status());
  if (const Status head = ReadHead(json, &c); !head.ok()) {
    return InvalidArgument("config of ", type, ": ", Message(head));
  }
  TESSERA_ASSIGN_OR_RETURN(c.labels, LabelSpec::FromJson(json, type));
  TESSERA_RETURN_IF_ERROR(nn::FindActivation(c.hidden_act).status());
  return c;
}

}  // namespace tessera::models
