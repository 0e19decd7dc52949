// SPDX-License-Identifier: Apache-2.0
// Reads and writes the files of a SentencePiece tokenizer.
#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/file.h"
#include "base/json_text.h"
#include "base/options.h"
#include "data/tokenizer/declared_tokens.h"
#include "data/tokenizer/sentence_piece/sentence_piece.h"
#include "data/tokenizer/tokenizer_kind.h"
#include "nlohmann/json.hpp"

namespace tessera::data {
namespace {

using nlohmann::json;
using Family = SentencePieceFamily;

struct FamilyClass {
  const char* name;
  Family family;
};
constexpr FamilyClass kClasses[] = {
    {"T5Tokenizer", Family::kT5},          {"MT5Tokenizer", Family::kT5},
    {"AlbertTokenizer", Family::kAlbert},  {"LlamaTokenizer", Family::kLlama},
    {"GemmaTokenizer", Family::kLlama},    {"XLMRobertaTokenizer", Family::kXlmRoberta},
    {"GLMChineseTokenizer", Family::kGlm}, {"ChatGLMTokenizer", Family::kChatGlm}};

const char* ClassName(Family family) {
  for (const FamilyClass& known : kClasses) {
    if (known.family == family) return known.name;
  }
  return "";
}

const json& At(const json& object, const char* key) {
  static const json* const null = new json();
  const auto at = object.find(key);
  return at == object.end() ? *null : *at;
}

Status ReadCount(const json& object, const char* key, const std::string& path, int64_t most,
                 int32_t* value) {
  const json& item = At(object, key);
  if (item.is_null()) return OkStatus();
  if (!item.is_number_integer() || item.get<int64_t>() < 0 || item.get<int64_t>() > most) {
    return InvalidArgument(path, ": ", key, " is not an integer in [0, ", most, "]");
  }
  *value = item.get<int32_t>();
  return OkStatus();
}

// "</s>" or {"content": "</s>", ...}; nullopt: neither.
std::optional<std::string> NameIn(const json& item) {
  const json& content = item.is_object() ? At(item, "content") : item;
  if (!content.is_string()) return std::nullopt;
  return content.get<std::string>();
}

void SetFamilyDefaults(Family family, SentencePieceConfig* config) {
  config->family = family;
  config->unk_token = "<unk>";
  switch (family) {
    case Family::kT5:
      config->eos_token = "</s>";
      config->pad_token = "<pad>";
      config->extra_ids = 100;
      break;
    case Family::kAlbert:
      config->bos_token = config->cls_token = "[CLS]";
      config->eos_token = config->sep_token = "[SEP]";
      config->pad_token = "<pad>";
      config->mask_token = "[MASK]";
      config->mask_lstrip = true;
      config->do_lower_case = config->remove_space = true;
      config->keep_accents = false;
      break;
    case Family::kLlama:
      config->bos_token = "<s>";
      config->eos_token = "</s>";
      break;
    case Family::kXlmRoberta:
      config->bos_token = config->cls_token = "<s>";
      config->eos_token = config->sep_token = "</s>";
      config->pad_token = "<pad>";
      config->mask_token = "<mask>";
      config->mask_lstrip = true;
      break;
    case Family::kGlm:
      config->eos_token = config->pad_token = "<|endoftext|>";
      config->cls_token = "[CLS]";
      config->sep_token = "[SEP]";
      config->mask_token = "[MASK]";
      config->additional_special_tokens = {"<|startofpiece|>", "<|endofpiece|>", "[gMASK]",
                                           "[sMASK]"};
      break;
    case Family::kChatGlm:
      config->bos_token = "<sop>";
      config->eos_token = "<eop>";
      config->pad_token = "<pad>";
      config->mask_token = "[MASK]";
      config->num_image_tokens = 20000;
      break;
  }
}

// The special tokens' names, of tokenizer_config.json or special_tokens_map.json.
Status ReadNames(const json& root, const std::string& path, SentencePieceConfig* config) {
  const std::pair<const char*, std::string*> names[] = {
      {"bos_token", &config->bos_token},  {"eos_token", &config->eos_token},
      {"unk_token", &config->unk_token},  {"sep_token", &config->sep_token},
      {"pad_token", &config->pad_token},  {"cls_token", &config->cls_token},
      {"mask_token", &config->mask_token}};
  for (const auto& [key, name] : names) {
    const json& item = At(root, key);
    if (item.is_null()) continue;
    const auto text = NameIn(item);
    if (!text) return InvalidArgument(path, ": ", key, " is not a text");
    *name = *text;
    if (name == &config->mask_token && item.is_object()) {
      config->mask_lstrip = false;
      TESSERA_RETURN_IF_ERROR(ReadMember(item, "lstrip", path, &config->mask_lstrip));
    }
  }
  TESSERA_ASSIGN_OR_RETURN(const auto extra, ReadExtraTokens(root, path));
  if (!extra) return OkStatus();
  config->additional_special_tokens.clear();
  for (const AddedToken& token : *extra) config->additional_special_tokens.push_back(token.content);
  return OkStatus();
}

// added_tokens.json: {"text": id, ...}, as older versions of transformers write it.
Status ReadAddedTokensFile(const json& root, const std::string& path, SentencePieceConfig* config) {
  if (!root.is_object()) return InvalidArgument(path, ": not a JSON object");
  for (const auto& [content, id] : root.items()) {
    if (content.empty() || !id.is_number_integer() || id.get<int64_t>() < 0 ||
        id.get<int64_t>() > INT32_MAX) {
      return InvalidArgument(path, ": an added token needs a content and an id >= 0");
    }
    config->added_tokens.push_back({.content = content, .id = id.get<int32_t>(), .special = false});
  }
  return OkStatus();
}

// T5's sentinels: extra_ids of them, unless the additional tokens list them one by one.
Status CheckExtraIds(const std::string& path, SentencePieceConfig* config) {
  if (config->family != Family::kT5) return OkStatus();
  const auto& additional = config->additional_special_tokens;
  const auto listed = std::count_if(additional.begin(), additional.end(), [](const auto& name) {
    return name.find("<extra_id_") != std::string::npos;
  });
  if (listed > 0 && config->extra_ids > 0 && listed != config->extra_ids) {
    return InvalidArgument(path, ": extra_ids is ", config->extra_ids,
                           ", but additional_special_tokens lists ", listed);
  }
  return OkStatus();
}

Status ReadTokenizerConfig(const json& root, const std::string& path, SentencePieceConfig* config) {
  if (!root.is_object()) return InvalidArgument(path, ": not a JSON object");
  TESSERA_RETURN_IF_ERROR(ReadNames(root, path, config));
  bool* const flags[] = {&config->legacy,       &config->add_prefix_space, &config->add_bos,
                         &config->add_eos,      &config->do_lower_case,    &config->remove_space,
                         &config->keep_accents, &config->clean_up_spaces};
  const char* const keys[] = {
      "legacy",        "add_prefix_space", "add_bos_token", "add_eos_token",
      "do_lower_case", "remove_space",     "keep_accents",  "clean_up_tokenization_spaces"};
  for (size_t i = 0; i < std::size(flags); ++i) {
    bool value = *flags[i];
    TESSERA_RETURN_IF_ERROR(ReadMember(root, keys[i], path, &value));
    *flags[i] = value;
  }
  // Those that the family's own class does not know.
  const Family family = config->family;
  if (family != Family::kAlbert && family != Family::kChatGlm) {
    config->do_lower_case = config->remove_space = false;
  }
  if (family == Family::kT5) {
    TESSERA_RETURN_IF_ERROR(ReadCount(root, "extra_ids", path, 10000, &config->extra_ids));
  }
  if (family == Family::kChatGlm) {
    TESSERA_RETURN_IF_ERROR(
        ReadCount(root, "num_image_tokens", path, 1000000, &config->num_image_tokens));
  }
  return ReadAddedTokensDecoder(At(root, "added_tokens_decoder"), path, &config->added_tokens);
}

// Classes of transformers that say nothing of the family.
bool IsGenericClass(std::string_view name) {
  return name.empty() || name == "PreTrainedTokenizerFast" || name == "TokenizersBackend";
}

Status ChooseFamily(const TokenizerFolder& folder, const json& root, const std::string& path,
                    const SentencePieceFile& file, SentencePieceConfig* config) {
  std::string name = folder.tokenizer_class;
  if (IsGenericClass(name)) {
    const json& kept = root.is_object() ? At(root, SentencePieceTokenizer::kClassKey) : root;
    name = kept.is_string() ? kept.get<std::string>() : file.tokenizer_class;
  }
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  const auto* known = std::find_if(std::begin(kClasses), std::end(kClasses),
                                   [&](const FamilyClass& c) { return name == c.name; });
  // ChatGLM2 and later keep their name, but not the way they treat text.
  const bool later_chat = name == "ChatGLMTokenizer" && name != file.tokenizer_class;
  if (known == std::end(kClasses) || later_chat) {
    return InvalidArgument(path, ": tokenizer_class ", name, " with ", file.name,
                           " is not supported");
  }
  SetFamilyDefaults(known->family, config);
  if (name == "GemmaTokenizer") {
    config->bos_token = "<bos>";
    config->eos_token = "<eos>";
    config->pad_token = "<pad>";
    config->add_prefix_space = config->legacy = false;
  }
  return OkStatus();
}

// Null where it does not exist.
StatusOr<json> ReadJsonIfThere(const std::string& path) {
  return PathExists(path) ? ReadJsonFile(path) : StatusOr<json>(json());
}

// Whether the tokenizer.json beside a model is the one that is made of it: then the model gives
// the same ids, and gives them faster.
bool IsOwnTokenizerJson(const TokenizerFolder& folder) {
  const auto config = ReadJsonFile(JoinPath(folder.path, "tokenizer_config.json"));
  if (!config.ok() || !config->is_object() ||
      !config->contains(SentencePieceTokenizer::kClassKey)) {
    return false;
  }
  const auto loaded = SentencePieceTokenizer::Load(folder.path);
  const auto text = ReadFile(JoinPath(folder.path, "tokenizer.json"));
  return loaded.ok() && text.ok() &&
         static_cast<const SentencePieceTokenizer&>(**loaded).TokenizerJsonText() == *text;
}

Claim ClaimOf(const TokenizerFolder& folder) {
  if (FindSentencePieceFile(folder) == nullptr) return Claim::kNone;
  if (!folder.Has("tokenizer.json")) return Claim::kModel;
  return IsOwnTokenizerJson(folder) ? Claim::kOwn : Claim::kNone;
}

const TokenizerRegistration registration({.files = "a SentencePiece model",
                                          .claim = ClaimOf,
                                          .load = SentencePieceTokenizer::Load});

}  // namespace

StatusOr<std::unique_ptr<Tokenizer>> SentencePieceTokenizer::Load(const std::string& folder) {
  TESSERA_ASSIGN_OR_RETURN(const TokenizerFolder shown, TokenizerFolder::Open(folder));
  const SentencePieceFile* const file = FindSentencePieceFile(shown);
  if (file == nullptr) return NotFound(folder, ": no SentencePiece model here");
  SentencePieceConfig config;
  const std::string model_path = JoinPath(folder, file->name);
  TESSERA_ASSIGN_OR_RETURN(config.model, ReadFile(model_path));
  config.model_file = file->name;

  const std::string config_path = JoinPath(folder, "tokenizer_config.json");
  TESSERA_ASSIGN_OR_RETURN(const json root, ReadJsonIfThere(config_path));
  TESSERA_RETURN_IF_ERROR(ChooseFamily(shown, root, config_path, *file, &config));
  if (!root.is_null()) TESSERA_RETURN_IF_ERROR(ReadTokenizerConfig(root, config_path, &config));
  if (config.added_tokens.empty()) {
    const std::string names_path = JoinPath(folder, "special_tokens_map.json");
    TESSERA_ASSIGN_OR_RETURN(const json names, ReadJsonIfThere(names_path));
    if (names.is_object()) TESSERA_RETURN_IF_ERROR(ReadNames(names, names_path, &config));
    const std::string added_path = JoinPath(folder, "added_tokens.json");
    TESSERA_ASSIGN_OR_RETURN(const json added, ReadJsonIfThere(added_path));
    if (!added.is_null()) {
      TESSERA_RETURN_IF_ERROR(ReadAddedTokensFile(added, added_path, &config));
    }
  }
  TESSERA_RETURN_IF_ERROR(CheckExtraIds(config_path, &config));
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<SentencePieceTokenizer> result,
                           Create(std::move(config), model_path));
  return std::unique_ptr<Tokenizer>(std::move(result));
}

// What the family's class has by default is written out: the one that takes a tokenizer.json as it
// is has no names of its own, and gives token types to every model or, in version 5, to none.
std::string SentencePieceTokenizer::ConfigJson(bool has_tokenizer_json) const {
  json root = json::object();
  for (const TokenizerFile& file : source_files()) {
    if (file.name == "tokenizer_config.json") {
      root = ParseJson(file.content, file.name).value_or(json());
    }
  }
  if (!root.is_object()) root = json::object();
  if (config_.family == Family::kT5) root["extra_ids"] = config_.extra_ids;
  if (config_.family == Family::kChatGlm) root["num_image_tokens"] = config_.num_image_tokens;
  if (!has_tokenizer_json) {
    root["tokenizer_class"] = ClassName(config_.family);
    return root.dump(2) + "\n";
  }
  root["tokenizer_class"] = "PreTrainedTokenizerFast";
  root[kClassKey] = ClassName(config_.family);
  const std::pair<const char*, const std::string*> names[] = {
      {"bos_token", &config_.bos_token},  {"eos_token", &config_.eos_token},
      {"unk_token", &config_.unk_token},  {"sep_token", &config_.sep_token},
      {"pad_token", &config_.pad_token},  {"cls_token", &config_.cls_token},
      {"mask_token", &config_.mask_token}};
  for (const auto& [key, name] : names) {
    if (!name->empty() && !root.contains(key)) root[key] = *name;
  }
  const auto by_default = [&root](const char* key, json value) {
    if (!root.contains(key)) root[key] = std::move(value);
  };
  json inputs = {"input_ids", "attention_mask"};
  if (config_.family == Family::kAlbert) inputs.insert(inputs.begin() + 1, "token_type_ids");
  by_default("model_input_names", std::move(inputs));
  if (config_.family == Family::kLlama) by_default("padding_side", "left");
  return root.dump(2) + "\n";
}

std::vector<TokenizerFile> SentencePieceTokenizer::Files() const {
  std::vector<TokenizerFile> files = {{config_.model_file, config_.model}};
  std::string whole = TokenizerJsonText();
  files.push_back({"tokenizer_config.json", ConfigJson(!whole.empty()),
                   /*replaces=*/!whole.empty()});
  if (!whole.empty()) files.push_back({"tokenizer.json", std::move(whole)});
  return files;
}

}  // namespace tessera::data
