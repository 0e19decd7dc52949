// SPDX-License-Identifier: Apache-2.0
// Reads the files of a byte-level BPE. What would change ids and is not supported is refused by
// its name.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/file.h"
#include "base/json_text.h"
#include "base/options.h"
#include "core/thread_pool.h"
#include "data/tokenizer/byte_level_bpe.h"
#include "data/tokenizer/declared_tokens.h"
#include "data/tokenizer/pipeline_post_processor.h"
#include "data/tokenizer/tokenizer_kind.h"
#include "data/tokenizer/vocab_index.h"

namespace tessera::data {
namespace {

using nlohmann::json;

Status Unsupported(const std::string& path, std::string_view part, const json& value) {
  std::string shown = value.dump(-1, ' ', false, json::error_handler_t::replace);
  if (value.is_object() && value.contains("type") && value["type"].is_string()) {
    shown = value["type"].get<std::string>();
  }
  return InvalidArgument(path, ": ", part, " ", shown.substr(0, 80), " is not supported");
}

// The value at `key`; null where it is absent.
const json& At(const json& object, const char* key) {
  static const json* const null = new json();
  const auto at = object.find(key);
  return at == object.end() ? *null : *at;
}

bool IsEmptyOrNull(const json& value) {
  return value.is_null() || (value.is_string() && value.get_ref<const std::string&>().empty());
}

Status ReadVocab(const json& vocab, const std::string& path, ByteLevelBpeConfig* config) {
  if (!vocab.is_object()) return InvalidArgument(path, ": the vocabulary is not a JSON object");
  if (vocab.empty()) return InvalidArgument(path, ": the vocabulary is empty");
  config->vocab.reserve(vocab.size());
  for (const auto& [piece, id] : vocab.items()) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > INT32_MAX) {
      return InvalidArgument(path, ": the id of token ", piece, " is not a number >= 0");
    }
    config->vocab.emplace_back(piece, id.get<int32_t>());
  }
  return OkStatus();
}

Status ReadVocabFile(const std::string& path, ByteLevelBpeConfig* config) {
  TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  if (std::optional<VocabEntries> vocab = ReadVocabJson(text); vocab && !vocab->empty()) {
    config->vocab = *std::move(vocab);
    return OkStatus();
  }
  TESSERA_ASSIGN_OR_RETURN(const json root, ParseJson(text, path));
  return ReadVocab(root, path, config);
}

// "left right"; false where it is not that.
bool AddMerge(std::string_view line, ByteLevelBpeConfig* config) {
  const size_t space = line.find(' ');
  if (space == 0 || space == std::string_view::npos || space + 1 == line.size() ||
      line.find(' ', space + 1) != std::string_view::npos) {
    return false;
  }
  config->merges.emplace_back(line.substr(0, space), line.substr(space + 1));
  return true;
}

Status NoMerge(const std::string& where, std::string_view line) {
  return InvalidArgument(where, ": not two pieces with a space between: ", line.substr(0, 80));
}

// merges.txt: a "#version" line, then one "left right" per line.
Status ReadMergesFile(const std::string& path, ByteLevelBpeConfig* config) {
  TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  size_t number = 0;
  config->merges.reserve(static_cast<size_t>(std::count(text.begin(), text.end(), '\n')));
  for (size_t begin = 0; begin < text.size();) {
    size_t end = text.find('\n', begin);
    if (end == std::string::npos) end = text.size();
    std::string_view line = std::string_view(text).substr(begin, end - begin);
    if (line.ends_with('\r')) line.remove_suffix(1);
    begin = end + 1;
    ++number;
    if (line.empty() || line.starts_with("#version")) continue;
    if (!AddMerge(line, config)) return NoMerge(Concat(path, ":", number), line);
  }
  return OkStatus();
}

Status ReadJsonMerges(const json& merges, const std::string& path, ByteLevelBpeConfig* config) {
  if (!merges.is_array()) return InvalidArgument(path, ": model.merges is not an array");
  config->merges.reserve(merges.size());
  for (size_t i = 0; i < merges.size(); ++i) {
    const json& merge = merges[i];
    const auto where = [&] { return Concat(path, ": model.merges[", i, "]"); };
    if (merge.is_string()) {
      const auto& line = merge.get_ref<const std::string&>();
      if (!AddMerge(line, config)) return NoMerge(where(), line);
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
               merge[1].is_string()) {
      const std::string line =
          merge[0].get_ref<const std::string&>() + " " + merge[1].get_ref<const std::string&>();
      if (!AddMerge(line, config)) return NoMerge(where(), line);
    } else {
      return InvalidArgument(where(), ": neither \"a b\" nor [\"a\", \"b\"]");
    }
  }
  return OkStatus();
}

// All but what is in the file's large parts, if they are there.
Status ReadModel(const json& model, const std::string& path, TokenizerJsonFile* file,
                 ByteLevelBpeConfig* config) {
  if (!model.is_object()) return InvalidArgument(path, ": no object \"model\"");
  const json& type = At(model, "type");
  if (!type.is_null() && type != "BPE") return Unsupported(path, "model", model);
  const json& dropout = At(model, "dropout");
  if (!dropout.is_null() && dropout != 0) return Unsupported(path, "model.dropout", dropout);
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!IsEmptyOrNull(At(model, key))) {
      return Unsupported(path, Concat("model.", key), At(model, key));
    }
  }
  bool byte_fallback = false;
  TESSERA_RETURN_IF_ERROR(ReadMember(model, "byte_fallback", path, &byte_fallback));
  if (byte_fallback) return Unsupported(path, "model.byte_fallback", true);
  TESSERA_RETURN_IF_ERROR(ReadMember(model, "fuse_unk", path, &config->fuse_unk));
  TESSERA_RETURN_IF_ERROR(ReadMember(model, "ignore_merges", path, &config->ignore_merges));
  const json& unk = At(model, "unk_token");
  if (!IsEmptyOrNull(unk)) {
    if (!unk.is_string()) return Unsupported(path, "model.unk_token", unk);
    config->unk_token = unk.get<std::string>();
  }
  if (file->large) {
    config->vocab = std::move(file->large->vocab);
    config->merges = std::move(file->large->merges);
    return OkStatus();
  }
  TESSERA_RETURN_IF_ERROR(ReadVocab(At(model, "vocab"), path, config));
  return ReadJsonMerges(At(model, "merges"), path, config);
}

Status ReadPreTokenizer(const json& value, const std::string& path, ByteLevelBpeConfig* config) {
  const json* pre = &value;
  if (pre->is_object() && At(*pre, "type") == "Sequence" && At(*pre, "pretokenizers").is_array() &&
      At(*pre, "pretokenizers").size() == 1) {
    pre = &At(*pre, "pretokenizers")[0];
  }
  if (!pre->is_object() || At(*pre, "type") != "ByteLevel") {
    return Unsupported(path, "pre_tokenizer", *pre);
  }
  TESSERA_RETURN_IF_ERROR(ReadMember(*pre, "add_prefix_space", path, &config->add_prefix_space));
  return ReadMember(*pre, "use_regex", path, &config->use_regex);
}

// The names that RobertaTokenizer has where the files say nothing.
void SetRoberta(ByteLevelBpeConfig* config) {
  config->roberta = true;
  for (const auto& [name, text] : {std::pair(&config->bos_token, "<s>"),
                                   {&config->eos_token, "</s>"},
                                   {&config->cls_token, "<s>"},
                                   {&config->sep_token, "</s>"},
                                   {&config->pad_token, "<pad>"},
                                   {&config->unk_token, "<unk>"},
                                   {&config->mask_token, "<mask>"}}) {
    if (!*name) *name = text;
  }
}

Status TakeTokenizerJson(const std::string& path, TokenizerJsonFile file,
                         ByteLevelBpeConfig* config) {
  const json& root = file.root;
  if (!root.is_object()) return InvalidArgument(path, ": not a JSON object");
  TESSERA_RETURN_IF_ERROR(ReadModel(At(root, "model"), path, &file, config));
  if (!At(root, "normalizer").is_null()) {
    return Unsupported(path, "normalizer", At(root, "normalizer"));
  }
  TESSERA_RETURN_IF_ERROR(ReadPreTokenizer(At(root, "pre_tokenizer"), path, config));
  for (const char* key : {"post_processor", "decoder"}) {
    const json& part = At(root, key);
    if (part.is_object() && At(part, "type") == "RobertaProcessing") {
      SetRoberta(config);
      continue;
    }
    if (IsEmptyTemplate(JsonPart(part, path))) continue;
    if (!part.is_null() && !(part.is_object() && At(part, "type") == "ByteLevel")) {
      return Unsupported(path, key, part);
    }
  }
  TESSERA_ASSIGN_OR_RETURN(config->added_tokens,
                           ReadAddedTokens(JsonPart(root, path)["added_tokens"]));
  return OkStatus();
}

// What the files beside the vocabulary say of special tokens.
void TakeDeclared(DeclaredTokens declared, ByteLevelBpeConfig* config) {
  const auto take = [&](const char* key, std::optional<std::string>* name) {
    if (const std::string* const found = declared.NameOf(key)) *name = *found;
  };
  take("eos_token", &config->eos_token);
  take("bos_token", &config->bos_token);
  take("pad_token", &config->pad_token);
  if (config->roberta) {
    take("cls_token", &config->cls_token);
    take("sep_token", &config->sep_token);
    take("mask_token", &config->mask_token);
    // RoBERTa's mask takes the blank before it along.
    for (auto& [key, token] : declared.named) token.lstrip |= key == "mask_token";
  }
  int64_t size = 0;
  for (const auto& [piece, id] : config->vocab) size = std::max<int64_t>(size, id + int64_t{1});
  std::optional<VocabIndex> index;  // most folders declare nothing
  const auto find = [&](const std::string& piece) {
    if (!index) index.emplace(&config->vocab);
    return index->Find(piece);
  };
  declared.AddTo(find, size, &config->added_tokens);
}

// tokenizer_config.json; `plain` where the vocabulary does not come from tokenizer.json.
Status ReadTokenizerConfig(const std::string& path, bool plain, ByteLevelBpeConfig* config) {
  TESSERA_ASSIGN_OR_RETURN(const json root, ReadJsonFile(path));
  if (!root.is_object()) return InvalidArgument(path, ": not a JSON object");
  TESSERA_RETURN_IF_ERROR(ReadMember(root, "add_prefix_space", path, &config->add_prefix_space));
  const json& name = At(root, "tokenizer_class");
  const bool roberta = name == "RobertaTokenizer" || name == "RobertaTokenizerFast";
  if (roberta) SetRoberta(config);
  if (!plain) return OkStatus();
  const bool known = roberta || name.is_null() || name == "GPT2Tokenizer" ||
                     name == "GPT2TokenizerFast" || name == "CodeGenTokenizer" ||
                     name == "CodeGenTokenizerFast" || name == "TokenizersBackend" ||
                     name == "PreTrainedTokenizerFast";
  if (!known) return Unsupported(path, "tokenizer_class", name);
  bool add_bos = false;
  TESSERA_RETURN_IF_ERROR(ReadMember(root, "add_bos_token", path, &add_bos));
  return add_bos ? Unsupported(path, "add_bos_token", true) : OkStatus();
}

Status ReadPlainFiles(const std::string& folder, ByteLevelBpeConfig* config) {
  constexpr const char* kNames[][2] = {{"vocab.json", "merges.txt"}, {"encoder.json", "vocab.bpe"}};
  for (const auto& [vocab, merges] : kNames) {
    const std::string vocab_path = JoinPath(folder, vocab);
    const std::string merges_path = JoinPath(folder, merges);
    const bool has_vocab = PathExists(vocab_path);
    const bool has_merges = PathExists(merges_path);
    if (!has_vocab && !has_merges) continue;
    if (!has_vocab) return NotFound(vocab_path, ": no such file, needed beside ", merges);
    if (!has_merges) return NotFound(merges_path, ": no such file, needed beside ", vocab);
    Status read[2];
    ParallelFor(2, /*grain=*/1, [&](int64_t which, int64_t) {
      read[which] =
          which == 0 ? ReadVocabFile(vocab_path, config) : ReadMergesFile(merges_path, config);
    });
    TESSERA_RETURN_IF_ERROR(read[0]);
    return read[1];
  }
  return NotFound(folder,
                  ": no tokenizer here (tokenizer.json, vocab.json + merges.txt, or encoder.json + "
                  "vocab.bpe)");
}

Claim ClaimOf(const TokenizerFolder& folder) {
  if (folder.Has("tokenizer.json")) return Claim::kNone;  // tokenizer_json.cc
  if (folder.Has("vocab.json")) return Claim::kFiles;
  const bool has_part =
      folder.Has("merges.txt") || folder.Has("encoder.json") || folder.Has("vocab.bpe");
  return has_part && !folder.Has("vocab.txt") ? Claim::kFiles : Claim::kNone;
}

const TokenizerRegistration registration({.files = "vocab.json + merges.txt or encoder.json + "
                                                   "vocab.bpe",
                                          .claim = ClaimOf,
                                          .load = [](const std::string& folder) {
                                            return ByteLevelBpe::Load(folder);
                                          }});

}  // namespace

StatusOr<std::unique_ptr<Tokenizer>> ByteLevelBpe::Load(const std::string& folder) {
  const std::string json_path = JoinPath(folder, "tokenizer.json");
  if (PathExists(json_path)) {
    TESSERA_ASSIGN_OR_RETURN(TokenizerJsonFile json, ReadTokenizerJsonFile(json_path));
    return Load(folder, std::move(json));
  }
  ByteLevelBpeConfig config;
  TESSERA_RETURN_IF_ERROR(ReadPlainFiles(folder, &config));
  return Finish(folder, /*plain=*/true, std::move(config));
}

StatusOr<std::unique_ptr<Tokenizer>> ByteLevelBpe::Load(const std::string& folder,
                                                        TokenizerJsonFile json) {
  ByteLevelBpeConfig config;
  TESSERA_RETURN_IF_ERROR(
      TakeTokenizerJson(JoinPath(folder, "tokenizer.json"), std::move(json), &config));
  return Finish(folder, /*plain=*/false, std::move(config));
}

// With what is beside the vocabulary.
StatusOr<std::unique_ptr<Tokenizer>> ByteLevelBpe::Finish(const std::string& folder, bool plain,
                                                          ByteLevelBpeConfig config) {
  const std::string config_path = JoinPath(folder, "tokenizer_config.json");
  if (PathExists(config_path)) {
    TESSERA_RETURN_IF_ERROR(ReadTokenizerConfig(config_path, plain, &config));
  }
  TESSERA_ASSIGN_OR_RETURN(DeclaredTokens declared, ReadDeclaredTokens(folder));
  TakeDeclared(std::move(declared), &config);
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<ByteLevelBpe> bpe, Create(std::move(config), folder));
  return std::unique_ptr<Tokenizer>(std::move(bpe));
}

}  // namespace tessera::data
