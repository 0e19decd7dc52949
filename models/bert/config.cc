// SPDX-License-Identifier: Apache-2.0
#include "models/bert/config.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "models/config_reader.h"
#include "nlohmann/json.hpp"
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

std::vector<BertArchitecture> BertArchitectures(const BertKind& kind) {
  std::vector<BertArchitecture> all;
  for (const auto& [suffix, head] : kArchitectures) {
    // RoBERTa knows no next sentence.
    if (kind.roberta && head == BertHead::kPreTraining) continue;
    all.push_back({Concat(kind.classes, suffix), head});
  }
  return all;
}

bool BertConfig::has_pooler() const {
  return (head == BertHead::kNone && add_pooling_layer) || head == BertHead::kPreTraining ||
         (head == BertHead::kSequence && !roberta);
}

const OptionTable& BertConfig::Table() {
  using C = BertConfig;
  static const auto* table = new OptionTable(
      OptionTable::Of<C>("BERT and RoBERTa")
          .Add("vocab_size", &C::vocab_size, "tokens", SizeBelow(kMostRows))
          .Add("hidden_size", &C::hidden_size, "features of a token", SizeBelow(kMostWidth))
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
          .Add("max_position_embeddings", &C::max_position_embeddings, "rows of positions",
               SizeBelow(kMostRows))
          .Add("type_vocab_size", &C::type_vocab_size, "kinds of segments", SizeBelow(kMostWidth))
          .Add("initializer_range", &C::initializer_range, "standard deviation of first weights",
               {.least = 0})
          .Add("layer_norm_eps", &C::layer_norm_eps, "added to variances", {.least = 0})
          .Add("pad_token_id", &C::pad_token_id, "id of the token that fills rows")
          .Add("classifier_dropout", &C::classifier_dropout, "dropout before the classifier",
               {.least = 0, .below = 1, .unset = "hidden_dropout_prob"})
          .Add("tie_word_embeddings", &C::tie_word_embeddings, "the head is the embedding")
          .Add("add_pooling_layer", &C::add_pooling_layer,
               "a model without a head has a pooler of the first token")
          .AddUnsupported({{"position_embedding_type", "absolute"},
                           {"is_decoder", false},
                           {"add_cross_attention", false},
                           {"pruned_heads", nlohmann::json::object()}}));
  return *table;
}

StatusOr<BertConfig> BertConfig::FromJson(const nlohmann::json& json) {
  BertConfig c;
  const std::string type = json.at("model_type").get<std::string>();
  const auto* const kind =
      std::find_if(std::begin(kBertKinds), std::end(kBertKinds),
                   [&](const BertKind& known) { return type == known.model_type; });
  TESSERA_CHECK(kind != std::end(kBertKinds), "bert", "model type '", type, "' is not BERT's");
  c.roberta = kind->roberta;
  c.vocab_size = kind->vocab_size;
  if (c.roberta) c.pad_token_id = 1;
  ConfigReader reader(json, type);
  reader.Read(&c);
  reader.RequireMultiple("hidden_size", c.hidden_size, "num_attention_heads",
                         c.num_attention_heads);
  reader.RequireToken("pad_token_id", c.pad_token_id, c.vocab_size);
  reader.Require(c.max_tokens() > 0, Concat("'max_position_embeddings' (",
                                            c.max_position_embeddings, ") leaves no position"));
  const std::vector<BertArchitecture> known = BertArchitectures(*kind);
  std::vector<std::string> names;
  for (const BertArchitecture& architecture : known) names.push_back(architecture.name);
  c.head = known[reader.ReadArchitecture(names)].head;
  reader.RequireOk("hidden_act", nn::FindActivation(c.hidden_act).status());
  TESSERA_RETURN_IF_ERROR(reader.status());
  TESSERA_ASSIGN_OR_RETURN(c.labels, LabelSpec::FromJson(json, type));
  return c;
}

}  // namespace tessera::models
