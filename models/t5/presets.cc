// SPDX-License-Identifier: Apache-2.0
// How the command line and the Hub know T5 and mT5.
#include <cmath>

#include "data/tokenizer/tokenizer.h"
#include "models/family.h"
#include "models/input_check.h"
#include "models/model_keys.h"
#include "models/t5/t5.h"
#include "models/t5/t5_keys.h"
#include "nlohmann/json.hpp"

namespace tessera::models {
namespace {

struct Size {
  const char* name;
  int layers;
  int heads;
  int width;
  int head_dim;
  int inner;
  bool v1_1;
};

Preset MakePreset(const Size& size) {
  nlohmann::json config = PresetConfig(
      R"({"model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "vocab_size": 32128,
          "relative_attention_num_buckets": 32, "relative_attention_max_distance": 128,
          "dropout_rate": 0.1, "layer_norm_epsilon": 1e-6, "initializer_factor": 1.0,
          "is_encoder_decoder": true, "pad_token_id": 0, "eos_token_id": 1,
          "decoder_start_token_id": 0})",
      {{"d_model", size.width},
       {"d_kv", size.head_dim},
       {"d_ff", size.inner},
       {"num_layers", size.layers},
       {"num_decoder_layers", size.layers},
       {"num_heads", size.heads}});
  config["feed_forward_proj"] = size.v1_1 ? "gated-gelu" : "relu";
  config["tie_word_embeddings"] = !size.v1_1;
  return {size.name, "", std::move(config)};
}

std::vector<std::string> OtherNames(const std::string& parameter) {
  // Files may hold the shared embedding under the name of one of its uses only.
  if (parameter == "shared.weight") {
    return {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight"};
  }
  return {};
}

// The two stacks look up modules of their own, whose weight is that of a third, 'shared', which
// nothing looks up.
std::vector<std::string> NamesInModel(const std::string& parameter, int /*version*/) {
  return {parameter == "shared.weight" ? "encoder.embed_tokens.weight" : parameter};
}

// Further copies of the shared embedding, and a table of the decoder's attention to the encoder
// that early files carry and no model uses.
bool IsIgnored(const std::string& name) {
  return name == "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight";
}

// What the head is fed stays what it is.
void SetTied(bool tied, nlohmann::json* config) {
  const auto parsed = T5Config::FromJson(*config);
  if (!parsed.ok()) return;
  (*config)["scale_decoder_outputs"] = parsed->scale_decoder_outputs;
  (*config)["tie_word_embeddings"] = tied;
}
double ScaleOfHead(nlohmann::json* config) {
  const auto parsed = T5Config::FromJson(*config);
  if (!parsed.ok() || !parsed->scale_decoder_outputs) return 1;
  (*config)["scale_decoder_outputs"] = false;
  return 1 / std::sqrt(static_cast<double>(parsed->d_model));
}
// As transformers 5, which ties whatever the configuration says.
void Tie(nlohmann::json* config) { SetTied(true, config); }
void Untie(nlohmann::json* config) { SetTied(false, config); }

// transformers 4 scales what it ties. A tied head that is not scaled is, for it, one of its own
// that begins as the embedding.
std::vector<EntryCopy> Copies(nlohmann::json* config) {
  const auto parsed = T5Config::FromJson(*config);
  if (!parsed.ok() || parsed->encoder_only) return {};
  if (!parsed->tie_word_embeddings || parsed->scale_decoder_outputs) return {};
  Untie(config);
  return {{"lm_head.weight", "shared.weight"}};
}

StatusOr<std::unique_ptr<Model>> Build(const nlohmann::json& json,
                                       const nn::BuildContext& context) {
  TESSERA_ASSIGN_OR_RETURN(const T5Config config, T5Config::FromJson(json));
  return std::make_unique<T5>(config, json, context);
}

Status CheckInputs(const std::string& source, const Model& model, Bundle* inputs) {
  TESSERA_RETURN_IF_ERROR(CheckTokenInputs(source, model, {keys::kAttentionMask}, inputs));
  if (model.encoder_decoder() == nullptr) return OkStatus();
  if (!inputs->has(keys::kDecoderInputIds) && !inputs->has(keys::kLabels)) {
    return InvalidArgument(source, ": 'decoder_input_ids' or 'labels' are missing");
  }
  const int64_t rows = inputs->at(keys::kInputIds).size(0);
  Shape shape;
  for (const TensorKey& key :
       {keys::kDecoderInputIds, keys::kLabels, keys::kDecoderAttentionMask}) {
    if (!inputs->has(key)) continue;
    const Tensor& t = inputs->at(key);
    if (t.ndim() != 2 || t.size(0) != rows || (shape.ndim() > 0 && t.shape() != shape)) {
      return InvalidArgument(source, ": '", key.name(), "' is ", t,
                             ", expected one row of tokens for ", "each of the ", rows,
                             " rows of 'input_ids', and one length");
    }
    shape = t.shape();
  }
  if (inputs->has(keys::kDecoderInputIds)) {
    TESSERA_RETURN_IF_ERROR(CheckRange(Concat(source, ": 'decoder_input_ids'"),
                                       inputs->at(keys::kDecoderInputIds), model.vocab_size(), 0,
                                       "vocabulary"));
  }
  if (!inputs->has(keys::kLabels)) return OkStatus();
  return CheckRange(Concat(source, ": 'labels'"), inputs->at(keys::kLabels), model.vocab_size(),
                    -100, "vocabulary");
}

Family MakeFamily(const char* model_type, const char* architecture, const char* encoder) {
  Family family;
  family.model_type = model_type;
  family.shares_sequences = true;
  family.architectures = {{architecture, {Capability::kTargetText, Capability::kCorruptedSpans}},
                          {encoder, {}}};
  family.build = Build;
  family.adapter_targets = {"q", "v"};
  family.prefix = {.layers_under = "decoder."};
  family.other_names = OtherNames;
  family.names_in_model = NamesInModel;
  family.ignored_entry = IsIgnored;
  family.untie = Untie;
  family.scale_of_head = ScaleOfHead;
  family.tie = Tie;
  family.copies = Copies;
  family.inputs = {keys::kInputIds, keys::kAttentionMask, keys::kDecoderInputIds,
                   keys::kDecoderAttentionMask, keys::kLabels};
  family.check_inputs = CheckInputs;
  family.texts.token_keys = {
      {.key = "decoder_start_token_id",
       .token = {"padding", [](const data::Tokenizer& tokenizer) { return tokenizer.pad_id(); }}}};
  family.texts.sentinel = [](int64_t i) { return Concat("<extra_id_", i, ">"); };
  return family;
}

Family MakeT5() {
  Family family = MakeFamily("t5", "T5ForConditionalGeneration", "T5EncoderModel");
  for (const Size& size : {Size{"t5-small", 6, 8, 512, 64, 2048, false},
                           {"t5-base", 12, 12, 768, 64, 3072, false},
                           {"t5-large", 24, 16, 1024, 64, 4096, false},
                           {"t5-3b", 24, 32, 1024, 128, 16384, false},
                           {"t5-11b", 24, 128, 1024, 128, 65536, false},
                           {"t5-v1_1-small", 8, 6, 512, 64, 1024, true},
                           {"t5-v1_1-base", 12, 12, 768, 64, 2048, true},
                           {"t5-v1_1-large", 24, 16, 1024, 64, 2816, true},
                           {"t5-v1_1-xl", 24, 32, 2048, 64, 5120, true},
                           {"t5-v1_1-xxl", 24, 64, 4096, 64, 10240, true},
                           {"t5-mini", 3, 4, 256, 64, 1024, false}}) {
    family.presets.push_back(MakePreset(size));
  }
  return family;
}

const FamilyRegistration t5(MakeT5);
const FamilyRegistration mt5([] {
  return MakeFamily("mt5", "MT5ForConditionalGeneration", "MT5EncoderModel");
});

}  // namespace
}  // namespace tessera::models
