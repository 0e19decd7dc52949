// SPDX-License-Identifier: Apache-2.0
// Reads the description of a tokenizer made of parts from a folder: tokenizer.json, or of older
// versions of transformers vocab.json and merges.txt (GPT-2, RoBERTa) or vocab.txt (BERT), and the
// files that say more beside these.
#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/file.h"
#include "base/json_text.h"
#include "base/options.h"
#include "base/utf8.h"
#include "core/thread_pool.h"
#include "data/tokenizer/declared_tokens.h"
#include "data/tokenizer/pipeline_post_processor.h"
#include "data/tokenizer/pipeline_tokenizer.h"
#include "data/tokenizer/tokenizer_kind.h"

namespace tessera::data {
namespace {

using nlohmann::json;

// ---- Classes ------------------------------------------------------------------------------------

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

// GPT-2's class may turn out to be RoBERTa's.
Status TakeByteLevelConfig(const json& config, const std::string& path,
                           TokenizerDescription* description) {
  bool ignored = false;
  TESSERA_RETURN_IF_ERROR(ReadMember(config, "add_prefix_space", path, &ignored));
  const JsonPart whole_config(config, path);
  const JsonPart blank = whole_config["add_prefix_space"];
  if (!blank.is_null()) description->json.root["pre_tokenizer"]["add_prefix_space"] = blank.value();
  const JsonPart name = whole_config["tokenizer_class"];
  const bool roberta = name.value() == "RobertaTokenizer" || name.value() == "RobertaTokenizerFast";
  if (roberta) description->tokenizer_class = TokenizerClass::kRoberta;
  if (description->is_file) return OkStatus();
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

// The class that a tokenizer.json describes, part by part.
TokenizerClass ClassOf(const JsonPart& root) {
  if (IsByteLevel(root)) {
    return root["post_processor"].type() == "RobertaProcessing" ? TokenizerClass::kRoberta
                                                                : TokenizerClass::kGpt2;
  }
  return IsBert(root) ? TokenizerClass::kBert : TokenizerClass::kGeneral;
}

// Of BERT, and of others that are the same under another name.
bool IsBertClass(const json& name) {
  constexpr const char* kClasses[] = {"BertTokenizer",       "BertTokenizerFast",
                                      "DistilBertTokenizer", "DistilBertTokenizerFast",
                                      "ElectraTokenizer",    "ElectraTokenizerFast"};
  return std::any_of(std::begin(kClasses), std::end(kClasses),
                     [&](const char* known) { return name == known; });
}

// A class whose template transformers 4 replaces: add_bos_token and add_eos_token say what it has.
struct RowEndsClass {
  const char* name;
  const char* bos;  // where no file names them
  const char* eos;
};

const RowEndsClass* FindRowEndsClass(const json& name) {
  static constexpr RowEndsClass kClasses[] = {
      {"LlamaTokenizer", "<s>", "</s>"},     {"LlamaTokenizerFast", "<s>", "</s>"},
      {"CodeLlamaTokenizer", "<s>", "</s>"}, {"CodeLlamaTokenizerFast", "<s>", "</s>"},
      {"GemmaTokenizer", "<bos>", "<eos>"},  {"GemmaTokenizerFast", "<bos>", "<eos>"}};
  const auto* const found = std::find_if(std::begin(kClasses), std::end(kClasses),
                                         [&](const auto& known) { return name == known.name; });
  return found == std::end(kClasses) ? nullptr : found;
}

Status TakeRowEnds(const json& config, const std::string& path, TokenizerDescription* description) {
  const RowEndsClass* const known =
      FindRowEndsClass(JsonPart(config, path)["tokenizer_class"].value());
  if (known == nullptr || !description->is_file) return OkStatus();
  RowEnd& bos = description->bos;
  RowEnd& eos = description->eos;
  bos.usual_name = known->bos;
  eos.usual_name = known->eos;
  TESSERA_RETURN_IF_ERROR(ReadMember(config, "add_bos_token", path, &bos.adds));
  TESSERA_RETURN_IF_ERROR(ReadMember(config, "add_eos_token", path, &eos.adds));
  // A byte-level tokenizer of such a class has rows, which GPT-2's have not.
  if (description->tokenizer_class == TokenizerClass::kGpt2 &&
      (bos.adds == true || eos.adds == true)) {
    description->tokenizer_class = TokenizerClass::kGeneral;
  }
  return OkStatus();
}

// The switches of a tokenizer_config.json, which count where the description says otherwise.
Status TakeConfig(const json& config, const std::string& path, TokenizerDescription* description) {
  const JsonPart name = JsonPart(config, path)["tokenizer_class"];
  TESSERA_RETURN_IF_ERROR(
      ReadMember(config, "clean_up_tokenization_spaces", path, &description->clean_up_spaces));
  TESSERA_RETURN_IF_ERROR(
      ReadMember(config, "split_special_tokens", path, &description->split_special));
  TESSERA_RETURN_IF_ERROR(TakeRowEnds(config, path, description));
  switch (description->tokenizer_class) {
    case TokenizerClass::kGeneral:
      return OkStatus();
    case TokenizerClass::kGpt2:
    case TokenizerClass::kRoberta:
      return TakeByteLevelConfig(config, path, description);
    case TokenizerClass::kBert:
      if (description->is_file && !IsBertClass(name.value())) return OkStatus();
      return TakeBertConfig(config, path, &description->json.root);
  }
  return OkStatus();
}

// With what is beside the vocabulary.
StatusOr<std::unique_ptr<Tokenizer>> Finish(const std::string& folder,
                                            TokenizerDescription description) {
  const std::string config_path = JoinPath(folder, "tokenizer_config.json");
  if (PathExists(config_path)) {
    TESSERA_ASSIGN_OR_RETURN(const json config, ReadJsonFile(config_path));
    if (!config.is_object()) return InvalidArgument(config_path, ": not a JSON object");
    TESSERA_RETURN_IF_ERROR(TakeConfig(config, config_path, &description));
  }
  TESSERA_ASSIGN_OR_RETURN(description.declared, ReadDeclaredTokens(folder));
  return PipelineTokenizer::Create(std::move(description));
}

template <typename T>
Status Take(StatusOr<T> from, T* to) {
  TESSERA_ASSIGN_OR_RETURN(*to, std::move(from));
  return OkStatus();
}

// Calls f(line, number) for the lines of a text until it gives false.
void ForEachLine(std::string_view text, const std::function<bool(std::string_view, int64_t)>& f) {
  int64_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!f(line, ++number)) return;
    begin = end + 1;
  }
}

// ---- tokenizer.json -----------------------------------------------------------------------------

// What a class takes for granted where its file says nothing.
void FillIn(TokenizerClass tokenizer_class, json* root) {
  const auto fill = [root](const char* part, const char* key, const json& value) {
    json& member = (*root)[part][key];
    if (member.is_null()) member = value;
  };
  if (tokenizer_class == TokenizerClass::kBert) {
    fill("normalizer", "lowercase", true);
    fill("normalizer", "strip_accents", json((*root)["normalizer"]["lowercase"]));
  } else if (tokenizer_class != TokenizerClass::kGeneral) {
    fill("pre_tokenizer", "add_prefix_space", false);
  }
}

Claim ClaimOfJson(const TokenizerFolder& folder) {
  return folder.Has("tokenizer.json") ? Claim::kWhole : Claim::kNone;
}

StatusOr<std::unique_ptr<Tokenizer>> LoadJson(const std::string& folder) {
  TokenizerDescription description = {.path = JoinPath(folder, "tokenizer.json"), .is_file = true};
  TESSERA_ASSIGN_OR_RETURN(description.json, ReadTokenizerJsonFile(description.path));
  if (!description.json.root.is_object()) {
    return InvalidArgument(description.path, ": not a JSON object");
  }
  description.tokenizer_class = ClassOf(JsonPart(description.json.root, description.path));
  FillIn(description.tokenizer_class, &description.json.root);
  return Finish(folder, std::move(description));
}

const TokenizerRegistration json_kind({.files = "tokenizer.json",
                                       .claim = ClaimOfJson,
                                       .load = LoadJson});

// ---- vocab.json + merges.txt --------------------------------------------------------------------

StatusOr<VocabEntries> ReadVocabFile(const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  std::optional<VocabEntries> vocab = ReadVocabJson(text);
  if (vocab && !vocab->empty()) return *std::move(vocab);
  TESSERA_ASSIGN_OR_RETURN(const json root, ParseJson(text, path));
  return ReadVocab(JsonPart(root, path));
}

StatusOr<BpeRules> ReadMergesFile(const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  BpeRules merges;
  merges.reserve(static_cast<size_t>(std::count(text.begin(), text.end(), '\n')));
  Status status;
  ForEachLine(text, [&](std::string_view line, int64_t number) {
    if (line.empty() || line.starts_with("#version")) return true;
    const size_t blank = line.find(' ');
    if (blank == 0 || blank == std::string_view::npos || blank + 1 == line.size() ||
        line.find(' ', blank + 1) != std::string_view::npos) {
      status = InvalidArgument(path, ":", number,
                               ": not two pieces with a space between: ", line.substr(0, 80));
      return false;
    }
    merges.emplace_back(line.substr(0, blank), line.substr(blank + 1));
    return true;
  });
  if (!status.ok()) return status;
  return merges;
}

Claim ClaimOfMerges(const TokenizerFolder& folder) {
  if (folder.Has("tokenizer.json")) return Claim::kNone;
  if (folder.Has("vocab.json")) return Claim::kFiles;
  const bool has_part =
      folder.Has("merges.txt") || folder.Has("encoder.json") || folder.Has("vocab.bpe");
  return has_part && !folder.Has("vocab.txt") ? Claim::kFiles : Claim::kNone;
}

StatusOr<std::unique_ptr<Tokenizer>> LoadMerges(const std::string& folder) {
  const auto has = [&](const char* name) { return PathExists(JoinPath(folder, name)); };
  const bool openai = !has("vocab.json") && !has("merges.txt");
  const char* const vocab_name = openai ? "encoder.json" : "vocab.json";
  const char* const merges_name = openai ? "vocab.bpe" : "merges.txt";
  for (const auto& [name, other] :
       {std::pair(vocab_name, merges_name), {merges_name, vocab_name}}) {
    if (has(name)) continue;
    return NotFound(JoinPath(folder, name), ": no such file, needed beside ", other);
  }
  TokenizerDescription description = {.path = JoinPath(folder, vocab_name),
                                      .tokenizer_class = TokenizerClass::kGpt2};
  // Parsed: a list of members that runs out of memory halfway would lose the first ones.
  TESSERA_ASSIGN_OR_RETURN(description.json.root, ParseJson(R"({
    "model": {"type": "BPE"},
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}})",
                                                            description.path));
  TokenizerJsonFile::LargeParts& large = description.json.large.emplace();
  large.place = JoinPath(folder, merges_name);
  Status read[2];
  ParallelFor(2, /*grain=*/1, [&](int64_t which, int64_t) {
    read[which] = which == 0 ? Take(ReadVocabFile(description.path), &large.vocab)
                             : Take(ReadMergesFile(large.place), &large.merges);
  });
  for (const Status& status : read) TESSERA_RETURN_IF_ERROR(status);
  return Finish(folder, std::move(description));
}

const TokenizerRegistration merges_kind({.files = "vocab.json + merges.txt or encoder.json + "
                                                  "vocab.bpe",
                                         .claim = ClaimOfMerges,
                                         .load = LoadMerges});

// ---- vocab.txt ----------------------------------------------------------------------------------

Claim ClaimOfLines(const TokenizerFolder& folder) {
  if (!folder.Has("vocab.txt")) return Claim::kNone;
  if (IsBertClass(folder.tokenizer_class)) return Claim::kClass;
  return folder.Has("vocab.json") ? Claim::kNone : Claim::kFiles;
}

StatusOr<std::unique_ptr<Tokenizer>> LoadLines(const std::string& folder) {
  TokenizerDescription description = {.path = JoinPath(folder, "vocab.txt"),
                                      .tokenizer_class = TokenizerClass::kBert};
  TESSERA_ASSIGN_OR_RETURN(description.json.root, ParseJson(R"({
    "model": {"type": "WordPiece"},
    "normalizer": {"type": "BertNormalizer"},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "decoder": {"type": "WordPiece"}})",
                                                            description.path));
  TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadFile(description.path));
  const size_t invalid = FindInvalidUtf8(text);
  if (invalid != kNoInvalidUtf8) {
    return InvalidArgument(description.path, ": invalid UTF-8 at byte ", invalid);
  }
  VocabEntries vocab;
  ForEachLine(text, [&](std::string_view line, int64_t number) {
    vocab.emplace_back(line, static_cast<int32_t>(number - 1));
    return number <= kMaxTokenId;
  });
  if (vocab.empty()) return InvalidArgument(description.path, ": the vocabulary is empty");
  std::reverse(vocab.begin(), vocab.end());  // of equal pieces the last one counts
  description.json.large = {std::move(vocab), {}, description.path};
  return Finish(folder, std::move(description));
}

const TokenizerRegistration lines_kind({.files = "vocab.txt",
                                        .claim = ClaimOfLines,
                                        .load = LoadLines});

}  // namespace
}  // namespace tessera::data
