// SPDX-License-Identifier: Apache-2.0
#include "models/hub/gguf/gguf_bpe.h"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json_text.h"
#include "data/tokenizer/byte_alphabet.h"
#include "data/tokenizer/pipeline_model.h"
#include "data/tokenizer/split_patterns.h"
#include "data/tokenizer/tokenizer_json_text.h"

namespace tessera::models {
namespace {

using data::SplitPattern;
using nlohmann::json;
using Piece = GgufTokens::Piece;

std::string SplittingNames() {
  std::string names;
  for (const SplitPattern& known : data::kSplitPatterns) {
    names += Concat(names.empty() ? "" : ", ", known.name);
  }
  return names;
}

bool IsAdded(int32_t type) { return type == Piece::kControl || type == Piece::kUserDefined; }

json Split(std::string_view pattern) {
  return {{"type", "Split"},
          {"pattern", {{"Regex", pattern}}},
          {"behavior", "Isolated"},
          {"invert", false}};
}

std::string PreTokenizerText(const SplitPattern& splitting) {
  const bool own = splitting.pattern.empty();
  json bytes = {{"type", "ByteLevel"},
                {"add_prefix_space", false},
                {"trim_offsets", false},
                {"use_regex", own}};
  json steps = json::array();
  if (splitting.options.splits_digits) {
    steps.push_back({{"type", "Digits"}, {"individual_digits", true}});
  }
  for (const std::string_view pattern : splitting.options.first) steps.push_back(Split(pattern));
  if (!own) steps.push_back(Split(splitting.pattern));
  if (steps.empty()) return bytes.dump();
  steps.push_back(std::move(bytes));
  return json{{"type", "Sequence"}, {"pretokenizers", std::move(steps)}}.dump();
}

// The texts that a row of one or two is made of, with what begins and ends each.
std::string PostProcessorText(const json& config, const GgufTokens& tokens) {
  const auto id_of = [&](const char* flag, const char* name) {
    if (!config[flag].get<bool>()) return int32_t{-1};
    const auto at = std::find(tokens.texts.begin(), tokens.texts.end(), config[name]);
    return static_cast<int32_t>(at - tokens.texts.begin());
  };
  const int32_t bos = id_of("add_bos_token", "bos_token");
  const int32_t eos = id_of("add_eos_token", "eos_token");
  if (bos < 0 && eos < 0) return "null";
  const auto row = [&](bool pair) {
    data::RowTemplate items;
    for (int32_t i = 0; i < (pair ? 2 : 1); ++i) {
      if (bos >= 0) items.items.push_back({bos, i});
      items.items.push_back({i == 0 ? data::RowTemplate::kFirst : data::RowTemplate::kSecond, i});
      if (eos >= 0) items.items.push_back({eos, i});
    }
    return items;
  };
  return data::TemplateJson(row(false), row(true),
                            [&](int32_t id) { return tokens.texts[static_cast<size_t>(id)]; });
}

// Other names that llama.cpp has for the patterns.
constexpr std::pair<std::string_view, std::string_view> kAliases[] = {
    {"phi-2", "gpt-2"},
    {"jina-es", "gpt-2"},
    {"jina-de", "gpt-2"},
    {"jina-v2-es", "gpt-2"},
    {"jina-v2-de", "gpt-2"},
    {"gigachat", "gpt-2"},
    {"a.x-4.0", "gpt-2"},
    {"mellum", "gpt-2"},
    {"modern-bert", "gpt-2"},
    {"exaone4", "gpt-2"},
    {"olmo", "gpt-2"},
    {"mpt", "gpt-2"},
    {"trillion", "gpt-2"},
    {"jais", "gpt-2"},
    {"granite-docling", "gpt-2"},
    {"llama3", "llama-bpe"},
    {"llama-v3", "llama-bpe"},
    {"falcon3", "llama-bpe"},
    {"falcon-h1", "llama-bpe"},
    {"pixtral", "llama-bpe"},
    {"midm-2.0", "llama-bpe"},
    {"lfm2", "llama-bpe"},
    {"jina-v5-nano", "llama-bpe"},
    {"smaug-bpe", "dbrx"},
    {"glm5", "glm4"},

    {"chatglm-bpe", "dbrx"},
    {"kormo", "qwen2"},
    {"f2llmv2", "qwen2"},
    {"megrez", "qwen2"},
    {"stablelm2", "qwen2"},
    {"hunyuan", "qwen2"},
    {"solar-open", "deepseek-r1-qwen"},
    {"grok-2", "deepseek-r1-qwen"},
    {"starcoder", "smollm"},
    {"refact", "smollm"},
    {"command-r", "smollm"},
    {"codeshell", "smollm"},
    {"exaone", "smollm"},
    {"minerva-7b", "smollm"},
    {"mellum2", "smollm"},
    {"llama4", "gpt-4o"},
    {"kanana2", "gpt-4o"},
    {"talkie", "gpt-4o"},
    {"minimax-m2", "gpt-4o"},
    {"hunyuan-dense", "deepseek-v3"},
    {"joyai-llm", "deepseek-v3"},
    {"hy_v4", "deepseek-v3"}};

StatusOr<const SplitPattern*> SplittingOf(const GgufFile& file) {
  // Files that are older than the key.
  std::string architecture;
  TESSERA_RETURN_IF_ERROR(file.Read("general.architecture", &architecture));
  std::string name = architecture == "gpt2" ? "gpt-2" : architecture;
  TESSERA_RETURN_IF_ERROR(file.Read("tokenizer.ggml.pre", &name));
  for (const auto& [alias, pattern] : kAliases) {
    if (name == alias) name = pattern;
  }
  for (const SplitPattern& known : data::kSplitPatterns) {
    if (known.name == name) return &known;
  }
  if (file.FindValue("tokenizer.ggml.pre") == nullptr) {
    return InvalidArgument(file.path(),
                           ": key 'tokenizer.ggml.pre', which says how texts are split, "
                           "is missing; make the file anew with a later convert_hf_to_gguf.py");
  }
  return InvalidArgument(file.path(), ": key 'tokenizer.ggml.pre': '", name, "' is not supported; ",
                         SplittingNames(), " are");
}

// The steps of a pre_tokenizer, without what is of no consequence: how offsets are trimmed.
json StepsOf(const json& pre_tokenizer) {
  json steps = json::array();
  if (pre_tokenizer.is_object() && pre_tokenizer.contains("pretokenizers")) {
    steps = pre_tokenizer["pretokenizers"];
  } else {
    steps.push_back(pre_tokenizer);
  }
  for (json& step : steps) {
    if (!step.is_object() || !step.contains("type") || step["type"] != "ByteLevel") continue;
    step.erase("trim_offsets");
    if (!step.contains("use_regex")) step["use_regex"] = true;  // older files
  }
  return steps;
}

StatusOr<const SplitPattern*> SplittingOf(const json& root, const std::string& where) {
  const json normalizer = root.value("normalizer", json());
  const bool composes = normalizer == json{{"type", "NFC"}};
  const bool ignores_merges = root["model"].value("ignore_merges", json()) == true;
  const json steps = StepsOf(root.value("pre_tokenizer", json()));
  for (const SplitPattern& known : data::kSplitPatterns) {
    if (steps == StepsOf(*ParseJson(PreTokenizerText(known), where)) &&
        (composes || normalizer.is_null()) && composes == known.options.composes &&
        ignores_merges == known.options.ignores_merges) {
      return &known;
    }
  }
  return InvalidArgument(where, ": splits text in a way that GGUF files cannot name; ",
                         SplittingNames(), " can be");
}

}  // namespace

StatusOr<FolderTexts> BpeOfGguf(const GgufFile& file) {
  TESSERA_ASSIGN_OR_RETURN(const SplitPattern* splitting, SplittingOf(file));
  TESSERA_ASSIGN_OR_RETURN(const GgufTokens tokens, ReadGgufTokens(file));
  TESSERA_ASSIGN_OR_RETURN(json config,
                           TokenizerConfigOf(file, tokens, /*add_bos=*/splitting->options.begins));
  const bool as_gpt2 = splitting->name == "gpt-2";
  config["tokenizer_class"] = as_gpt2 ? "GPT2Tokenizer" : "PreTrainedTokenizerFast";
  std::vector<std::string> merges;
  TESSERA_RETURN_IF_ERROR(file.Read("tokenizer.ggml.merges", &merges));

  std::vector<std::pair<int32_t, std::string>> vocab;
  data::TokenizerJson whole;
  for (size_t i = 0; i < tokens.texts.size(); ++i) {
    const std::string& text = tokens.texts[i];
    const auto id = static_cast<int32_t>(i);
    const int32_t type = tokens.types[i];
    if (tokens.IsPadding(i)) continue;
    if (IsAdded(type)) {
      whole.added_tokens.push_back({.content = text, .id = id, .special = type == Piece::kControl});
    }
    // An added token that is no row of bytes is behind the vocabulary.
    if (!IsAdded(type) || data::BytesOfPiece(text)) vocab.emplace_back(id, text);
  }
  if (splitting->options.composes) whole.normalizer = R"({"type": "NFC"})";
  whole.pre_tokenizer = PreTokenizerText(*splitting);
  whole.post_processor = PostProcessorText(config, tokens);
  whole.decoder =
      R"({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": true})";
  data::BpeJson bpe = {.ignore_merges = splitting->options.ignores_merges,
                       .vocab = data::VocabJson(std::move(vocab)),
                       .merges = ""};
  for (const std::string& merge : merges) {
    bpe.merges += bpe.merges.empty() ? "" : ", ";
    bpe.merges += JsonQuoted(merge);
  }
  whole.model = bpe.Text();
  return FolderTexts{{"tokenizer.json", whole.Text()}, {kTokenizerConfig, ConfigText(config)}};
}

StatusOr<GgufTokenizer> BpeForGguf(const data::Tokenizer& tokenizer,
                                   const std::string& tokenizer_json, const std::string& where,
                                   int64_t vocab_size) {
  TESSERA_ASSIGN_OR_RETURN(json root, ParseJson(tokenizer_json, where));
  if (!root.is_object() || !root.contains("model") || !root["model"].is_object() ||
      root["model"].value("type", json("BPE")) != "BPE" ||
      root["model"].value("byte_fallback", json()) == true) {
    return InvalidArgument(
        where, ": is no byte-level BPE, the only tokenizer.json that GGUF files can hold");
  }
  GgufTokenizer made = {.model = "gpt2", .tokens = GgufTokens(vocab_size)};
  TESSERA_ASSIGN_OR_RETURN(const SplitPattern* splitting, SplittingOf(root, where));
  made.pre = splitting->name;
  TESSERA_ASSIGN_OR_RETURN(const data::BpeRules merges,
                           data::ReadMerges(data::JsonPart(root, where)["model"]["merges"]));
  for (const auto& [left, right] : merges) made.merges.push_back(Concat(left, " ", right));
  for (const auto& [piece, id] : root["model"]["vocab"].items()) {
    TESSERA_RETURN_IF_ERROR(made.tokens.Set(where, id.get<int64_t>(), piece, Piece::kNormal));
  }
  for (const json& token : root.value("added_tokens", json::array())) {
    const int32_t type =
        token.value("special", json()) == true ? Piece::kControl : Piece::kUserDefined;
    TESSERA_RETURN_IF_ERROR(made.tokens.Set(where, token["id"].get<int64_t>(),
                                            token["content"].get<std::string>(), type));
  }
  for (const data::SpecialToken& token : tokenizer.special_tokens()) {
    TESSERA_RETURN_IF_ERROR(made.tokens.Set(where, token.id, token.content, Piece::kControl));
  }
  return made;
}

StatusOr<GgufTokenizer> ByteTokenizerForGguf(const data::Tokenizer& tokenizer,
                                             const std::string& where, int64_t vocab_size) {
  GgufTokenizer made = {.model = "gpt2", .pre = "gpt-2", .tokens = GgufTokens(vocab_size)};
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string_view bytes = tokenizer.TokenBytes(id);
    const bool special = tokenizer.IsSpecial(id);
    TESSERA_RETURN_IF_ERROR(
        made.tokens.Set(where, id, special ? std::string(bytes) : data::PieceOfBytes(bytes),
                        special ? Piece::kControl : Piece::kNormal));
  }
  return made;
}

}  // namespace tessera::models
