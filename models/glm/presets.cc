// SPDX-License-Identifier: Apache-2.0
// How the command line and the Hub know GLM and ChatGLM-6B.
#include <algorithm>

#include "core/batch_keys.h"
#include "data/tokenizer/tokenizer.h"
#include "models/family.h"
#include "models/glm/chat_prompt.h"
#include "models/glm/chatglm.h"
#include "models/glm/glm.h"
#include "models/glm/glm_keys.h"
#include "models/glm/prefix_mask.h"
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
  int positions;
  int vocabulary;
};

// The special tokens are the tokenizer's to say.
Preset GlmPreset(const Size& size) {
  return {size.name, "",
          PresetConfig(R"({"model_type": "glm", "architectures": ["GLMForConditionalGeneration"],
                           "embedding_dropout_prob": 0.1, "attention_dropout_prob": 0.1,
                           "output_dropout_prob": 0.1, "initializer_range": 0.02,
                           "block_position_encoding": true, "relative_encoding": false,
                           "max_memory_length": 0, "attention_scale": 1.0, "parallel_output": true,
                           "spell_func": "lstm", "spell_length": null, "sop_token_id": null,
                           "eop_token_id": null, "mask_token_id": null, "smask_token_id": null,
                           "gmask_token_id": null, "pad_token_id": null, "eos_token_id": null})",
                       {{"vocab_size", size.vocabulary},
                        {"hidden_size", size.width},
                        {"num_layers", size.layers},
                        {"num_attention_heads", size.heads},
                        {"max_sequence_length", size.positions}})};
}

Preset ChatGlmPreset(const Size& size, const char* tokens) {
  json config = PresetConfig(
      R"({"model_type": "chatglm", "architectures": ["ChatGLMModel"], "layernorm_epsilon": 1e-5,
          "position_encoding_2d": true, "tie_word_embeddings": false, "use_cache": true,
          "pre_seq_len": null, "prefix_projection": false, "quantization_bit": 0})",
      {{"vocab_size", size.vocabulary},
       {"hidden_size", size.width},
       {"inner_hidden_size", 4 * size.width},
       {"num_layers", size.layers},
       {"num_attention_heads", size.heads},
       {"max_sequence_length", size.positions}});
  config.update(PresetConfig(tokens));
  return {size.name, "", std::move(config)};
}

bool StartsWith(const std::string& text, const std::string& prefix) {
  return text.rfind(prefix, 0) == 0;
}
bool EndsWith(const std::string& text, const std::string& suffix) {
  return text.size() >= suffix.size() &&
         text.compare(text.size() - suffix.size(), suffix.size(), suffix) == 0;
}

// Published files, and checkpoints of the trainings that they came from.
std::vector<std::string> WithGlmPrefix(const std::string& parameter) {
  return {"glm." + parameter, "model." + parameter, "module." + parameter,
          "module.model." + parameter};
}

// Without its prefix, as the bare transformer is saved.
std::vector<std::string> WithoutTransformer(const std::string& parameter) {
  const std::string prefix = "transformer.";
  if (!StartsWith(parameter, prefix)) return {};
  return {parameter.substr(prefix.size())};
}

// The frequencies of the rotations.
bool IsRotaryBuffer(const std::string& name) { return EndsWith(name, "rotary_emb.inv_freq"); }

StatusOr<std::unique_ptr<Model>> BuildGlm(const json& object, const nn::BuildContext& context) {
  TESSERA_ASSIGN_OR_RETURN(const GlmConfig config, GlmConfig::FromJson(object));
  return std::make_unique<Glm>(config, object, context);
}

StatusOr<std::unique_ptr<Model>> BuildChatGlm(const json& object, const nn::BuildContext& context) {
  TESSERA_ASSIGN_OR_RETURN(const ChatGlmConfig config, ChatGlmConfig::FromJson(object));
  return std::make_unique<ChatGlm>(config, object, context);
}

Status CheckLabels(const std::string& source, const Model& model, const Bundle& inputs) {
  if (!inputs.has(keys::kLabels)) return OkStatus();
  const Tensor labels = inputs.at(keys::kLabels);
  const Shape& expected = inputs.at(keys::kInputIds).shape();
  if (labels.shape() != expected || IsFloating(labels.dtype())) {
    return InvalidArgument(source, ": 'labels' is ", labels, "; expected integers ", expected);
  }
  return CheckRange(source + ": 'labels'", labels, model.vocab_size(), -100, "vocabulary");
}

Status CheckChoices(const std::string& source, const Model& model, const Bundle& inputs) {
  const Shape& ids = inputs.at(keys::kInputIds).shape();
  const Tensor choices = inputs.get(keys::kChoiceIds);
  const Tensor indices = inputs.get(keys::kChoiceIndices);
  if (!choices.defined() || !indices.defined() || choices.ndim() != 3 || choices.numel() == 0 ||
      choices.size(0) != ids[0] || indices.shape() != choices.shape() ||
      IsFloating(choices.dtype()) || IsFloating(indices.dtype())) {
    return InvalidArgument(source, ": 'choice_ids' and 'choice_indices' go together and must be ",
                           "integers [", ids[0], ", candidates, tokens]");
  }
  TESSERA_RETURN_IF_ERROR(
      CheckRange(source + ": 'choice_ids'", choices, model.vocab_size(), -100, "vocabulary"));
  TESSERA_RETURN_IF_ERROR(
      CheckRange(source + ": 'choice_indices'", indices, ids[1], -100, "row of tokens"));
  const std::vector<int64_t> id = choices.ToVector<int64_t>();
  const std::vector<int64_t> at = indices.ToVector<int64_t>();
  for (size_t i = 0; i < id.size(); ++i) {
    if (id[i] != -100 && at[i] == -100) {
      return InvalidArgument(source, ": 'choice_indices' lacks the place of a token of row ",
                             i / static_cast<size_t>(choices.numel() / ids[0]));
    }
  }
  if (!inputs.has(keys::kLabels)) return OkStatus();
  const Tensor labels = inputs.at(keys::kLabels);
  if (labels.shape() != (Shape{ids[0]}) || IsFloating(labels.dtype())) {
    return InvalidArgument(source, ": 'labels' is ", labels, "; beside candidates it must be ",
                           "integers [", ids[0], "]");
  }
  TESSERA_RETURN_IF_ERROR(
      CheckRange(source + ": 'labels'", labels, choices.size(1), -100, "candidates"));
  const std::vector<int64_t> label = labels.ToVector<int64_t>();
  for (int64_t b = 0; b < ids[0]; ++b) {
    const int64_t at = label[static_cast<size_t>(b)];
    if (at == -100) continue;
    const auto first = id.begin() + (b * choices.size(1) + at) * choices.size(2);
    if (std::any_of(first, first + choices.size(2), [](int64_t i) { return i != -100; })) continue;
    return InvalidArgument(source, ": 'labels': row ", b, " has no candidate ", at);
  }
  return OkStatus();
}

Status CheckGlmInputs(const std::string& source, const Model& model, Bundle* inputs) {
  const GlmConfig& c = static_cast<const Glm&>(model).fields();
  TESSERA_RETURN_IF_ERROR(CheckInputIds(source, model, *inputs));
  const PositionLimits limits = {.rows = c.position_rows(),
                                 .one_coordinate = true,
                                 .two_coordinates = c.block_position_encoding};
  TESSERA_RETURN_IF_ERROR(CheckMaskAndPositions(source, limits, inputs));
  if (inputs->has(keys::kChoiceIds) || inputs->has(keys::kChoiceIndices)) {
    return CheckChoices(source, model, *inputs);
  }
  return CheckLabels(source, model, *inputs);
}

Status CheckChatGlmInputs(const std::string& source, const Model& model, Bundle* inputs) {
  TESSERA_RETURN_IF_ERROR(CheckInputIds(source, model, *inputs));
  TESSERA_RETURN_IF_ERROR(CheckMaskAndPositions(source, {.rows = model.max_positions()}, inputs));
  TESSERA_RETURN_IF_ERROR(CheckLabels(source, model, *inputs));
  const Status derived = DeriveFromIds(static_cast<const ChatGlm&>(model).fields(), inputs);
  if (derived.ok()) return derived;
  return InvalidArgument(source, ": 'input_ids' ", Message(derived));
}

// --- Texts ---------------------------------------------------------------------------------------

std::optional<int32_t> FindEither(const data::Tokenizer& tokenizer, const char* name,
                                  const char* other) {
  const auto id = tokenizer.FindSpecial(name);
  return id ? id : tokenizer.FindSpecial(other);
}

TextToken Mask() {
  return {"[MASK]", [](const data::Tokenizer& tokenizer) { return tokenizer.mask_id(); }};
}
TextToken SentenceMask() {
  return {"[sMASK]",
          [](const data::Tokenizer& tokenizer) { return tokenizer.FindSpecial("[sMASK]"); }};
}
TextToken DocumentMask() {
  return {"[gMASK]",
          [](const data::Tokenizer& tokenizer) { return tokenizer.FindSpecial("[gMASK]"); }};
}
TextToken StartOfPiece() {
  return {"<|startofpiece|>", [](const data::Tokenizer& tokenizer) {
            return FindEither(tokenizer, "<|startofpiece|>", "<sop>");
          }};
}
TextToken EndOfPiece() {
  return {"<|endofpiece|>", [](const data::Tokenizer& tokenizer) {
            return FindEither(tokenizer, "<|endofpiece|>", "<eop>");
          }};
}

TextConventions GlmConventions() {
  TextConventions texts;
  const auto left = [&](const char* key, const TextToken& token) -> TokenKey& {
    return texts.token_keys.emplace_back(
        TokenKey{.key = key, .token = token, .left_to_tokenizer = true});
  };
  left("sop_token_id", StartOfPiece()).needed = true;
  left("eop_token_id", EndOfPiece()).ends_text = true;
  left("mask_token_id", Mask());
  left("smask_token_id", SentenceMask());
  left("gmask_token_id", DocumentMask());
  texts.blanks = {.span = Mask(),
                  .sentence = SentenceMask(),
                  .document = DocumentMask(),
                  .start = StartOfPiece(),
                  .end = EndOfPiece()};
  return texts;
}

TextConventions ChatGlmConventions() {
  TextConventions texts;
  texts.token_keys = {{.key = "mask_token_id", .token = Mask()},
                      {.key = "gmask_token_id", .token = DocumentMask()}};
  texts.conversation = {.join = ChatPrompt,
                        .answer_start = {"<sop>", [](const data::Tokenizer& tokenizer) {
                                           return tokenizer.bos_id();
                                         }}};
  return texts;
}

Family MakeGlmFamily() {
  Family family;
  family.model_type = "glm";
  family.shares_sequences = true;
  for (const char* name : kGlmArchitectures) {
    family.architectures.push_back({name, {Capability::kBlanks, Capability::kChoices}});
  }
  family.texts = GlmConventions();
  for (const Size& size : {Size{"glm-large", 24, 16, 1024, 512, 30592},
                           {"glm-large-chinese", 24, 16, 1024, 1024, 50048},
                           {"glm-10b", 48, 64, 4096, 1024, 50304},
                           {"glm-10b-chinese", 48, 64, 4096, 1024, 50048},
                           {"glm-tiny", 4, 4, 128, 256, 8192},
                           {"glm-mini", 6, 6, 384, 512, 8192}}) {
    family.presets.push_back(GlmPreset(size));
  }
  family.build = BuildGlm;
  family.adapter_targets = {"query_key_value"};
  family.prefix = {.takes_positions = false};
  family.other_names = WithGlmPrefix;
  family.inputs = {keys::kInputIds,  keys::kAttentionMask, keys::kPositionIds,
                   keys::kChoiceIds, keys::kChoiceIndices, keys::kLabels};
  family.check_inputs = CheckGlmInputs;
  return family;
}

Family MakeChatGlmFamily() {
  Family family;
  family.model_type = "chatglm";
  family.shares_sequences = true;
  for (const char* name : kChatGlmArchitectures) {
    family.architectures.push_back({name, {Capability::kAnswers}});
  }
  family.texts = ChatGlmConventions();
  constexpr char kTokens[] =
      R"({"bos_token_id": 130004, "eos_token_id": 130005, "mask_token_id": 130000,
          "gmask_token_id": 130001, "pad_token_id": 3})";
  constexpr char kSmall[] =
      R"({"bos_token_id": 8190, "eos_token_id": 8191, "mask_token_id": 8188,
          "gmask_token_id": 8189, "pad_token_id": 3})";
  family.presets = {ChatGlmPreset({"chatglm-6b", 28, 32, 4096, 2048, 130528}, kTokens),
                    ChatGlmPreset({"chatglm-tiny", 4, 4, 128, 256, 8192}, kSmall),
                    ChatGlmPreset({"chatglm-mini", 6, 6, 384, 512, 8192}, kSmall)};
  family.build = BuildChatGlm;
  family.adapter_targets = {"query_key_value"};
  family.prefix = {.takes_positions = false};
  family.other_names = WithoutTransformer;
  family.ignored_entry = IsRotaryBuffer;
  family.untie = UntieWordEmbeddings;
  family.inputs = {keys::kInputIds, keys::kAttentionMask, keys::kPositionIds, keys::kLabels};
  family.check_inputs = CheckChatGlmInputs;
  return family;
}

const FamilyRegistration glm_registration(MakeGlmFamily);
const FamilyRegistration chatglm_registration(MakeChatGlmFamily);

}  // namespace
}  // namespace tessera::models
