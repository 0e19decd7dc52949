// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/tokenizer_class.h"

#include <algorithm>

#include "base/options.h"
#include "data/tokenizer/pipeline_post_processor.h"

namespace tessera::data {
namespace {

using nlohmann::json;

// Whether a member is `wanted`, or absent.
bool Has(const JsonPart& part, const char* key, const json& wanted) {
  const JsonPart item = part[key];
  return item.is_null() || item.value() == wanted;
}

bool IsNullOr(const JsonPart& part, std::string_view type) {
  return part.is_null() || part.type() == type;
}

bool IsByteLevel(const JsonPart& root) {
  const JsonPart model = root["model"];
  const JsonPart processor = root["post_processor"];
  return Has(model, "type", "BPE") && Has(model, "byte_fallback", false) &&
         Has(model, "continuing_subword_prefix", "") && Has(model, "end_of_word_suffix", "") &&
         root["normalizer"].is_null() && root["pre_tokenizer"].type() == "ByteLevel" &&
         (IsNullOr(processor, "ByteLevel") || processor.type() == "RobertaProcessing" ||
          IsEmptyTemplate(processor)) &&
         IsNullOr(root["decoder"], "ByteLevel");
}

bool IsBert(const JsonPart& root) {
  const JsonPart model = root["model"];
  const JsonPart normalizer = root["normalizer"];
  const JsonPart decoder = root["decoder"];
  if (model.type() != "WordPiece" || normalizer.type() != "BertNormalizer" ||
      root["pre_tokenizer"].type() != "BertPreTokenizer" || decoder.type() != "WordPiece" ||
      !Has(model, "continuing_subword_prefix", "##") ||
      !Has(model, "max_input_chars_per_word", 100) || !Has(normalizer, "clean_text", true) ||
      !Has(decoder, "prefix", "##") || !Has(decoder, "cleanup", true)) {
    return false;
  }
  constexpr int32_t kFirst = RowTemplate::kFirst;
  constexpr int32_t kSecond = RowTemplate::kSecond;
  RowTemplate single;
  RowTemplate pair;
  if (root["post_processor"].is_null() ||
      !ReadPostProcessor(root["post_processor"], &single, &pair).ok() || pair.items.size() != 5) {
    return false;
  }
  const int32_t cls = pair.items[0].id;
  const int32_t sep = pair.items[2].id;
  return single == RowTemplate{{{cls, 0}, {kFirst, 0}, {sep, 0}}} &&
         pair == RowTemplate{{{cls, 0}, {kFirst, 0}, {sep, 0}, {kSecond, 1}, {sep, 1}}};
}

Status TakeByteLevelConfig(const json& config, const std::string& path, bool whole,
                           TokenizerClass* tokenizer_class, json* root) {
  bool ignored = false;
  TESSERA_RETURN_IF_ERROR(ReadMember(config, "add_prefix_space", path, &ignored));
  const JsonPart whole_config(config, path);
  const JsonPart blank = whole_config["add_prefix_space"];
  if (!blank.is_null()) (*root)["pre_tokenizer"]["add_prefix_space"] = blank.value();
  const JsonPart name = whole_config["tokenizer_class"];
  const bool roberta = name.value() == "RobertaTokenizer" || name.value() == "RobertaTokenizerFast";
  if (roberta) *tokenizer_class = TokenizerClass::kRoberta;
  if (whole) return OkStatus();
  constexpr const char* kKnown[] = {"GPT2Tokenizer",     "GPT2TokenizerFast",
                                    "CodeGenTokenizer",  "CodeGenTokenizerFast",
                                    "TokenizersBackend", "PreTrainedTokenizerFast"};
  const bool known = roberta || name.is_null() ||
                     std::any_of(std::begin(kKnown), std::end(kKnown),
                                 [&](const char* text) { return name.value() == text; });
  if (!known) return name.Unsupported();
  bool add_bos = false;
  TESSERA_RETURN_IF_ERROR(ReadMember(config, "add_bos_token", path, &add_bos));
  return add_bos ? whole_config["add_bos_token"].Unsupported() : OkStatus();
}

Status TakeBertConfig(const json& config, const std::string& path, json* root) {
  json& normalizer = (*root)["normalizer"];
  for (const auto& [key, name] : {std::pair("do_lower_case", "lowercase"),
                                  {"tokenize_chinese_chars", "handle_chinese_chars"},
                                  {"strip_accents", "strip_accents"}}) {
    bool ignored = false;
    TESSERA_RETURN_IF_ERROR(ReadMember(config, key, path, &ignored));
    const auto value = config.find(key);
    // Without a value of their own, accents go as the case does.
    const bool may_be_null = std::string_view(name) == "strip_accents";
    if (value == config.end() || (value->is_null() && !may_be_null)) continue;
    normalizer[name] = *value;
  }
  bool basic = true;
  TESSERA_RETURN_IF_ERROR(ReadMember(config, "do_basic_tokenize", path, &basic));
  if (!basic) return InvalidArgument(path, ": do_basic_tokenize false is not supported");
  return OkStatus();
}

}  // namespace

TokenizerClass ClassOf(const JsonPart& root) {
  if (IsByteLevel(root)) {
    return root["post_processor"].type() == "RobertaProcessing" ? TokenizerClass::kRoberta
                                                                : TokenizerClass::kGpt2;
  }
  return IsBert(root) ? TokenizerClass::kBert : TokenizerClass::kGeneral;
}

bool IsBertClass(std::string_view name) {
  constexpr std::string_view kClasses[] = {"BertTokenizer",       "BertTokenizerFast",
                                           "DistilBertTokenizer", "DistilBertTokenizerFast",
                                           "ElectraTokenizer",    "ElectraTokenizerFast"};
  return std::find(std::begin(kClasses), std::end(kClasses), name) != std::end(kClasses);
}

Status TakeConfig(const json& config, const std::string& path, bool whole,
                  TokenizerClass* tokenizer_class, json* root) {
  const json& name = JsonPart(config, path)["tokenizer_class"].value();
  switch (*tokenizer_class) {
    case TokenizerClass::kGeneral:
      return OkStatus();
    case TokenizerClass::kGpt2:
    case TokenizerClass::kRoberta:
      return TakeByteLevelConfig(config, path, whole, tokenizer_class, root);
    case TokenizerClass::kBert:
      if (whole && !(name.is_string() && IsBertClass(name.get_ref<const std::string&>()))) break;
      return TakeBertConfig(config, path, root);
  }
  return OkStatus();
}

}  // namespace tessera::data
