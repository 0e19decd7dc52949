// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/tokenizer_kind.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/json_text.h"
#include "data/tokenizer/byte_tokenizer.h"
#include "nlohmann/json.hpp"

namespace tessera::data {
namespace {

constinit const TokenizerRegistration* last_registered = nullptr;

std::string NameOf(const TokenizerKind& kind) {
  return kind.tokenizer_class == nullptr ? kind.files
                                         : Concat(kind.files, " of ", kind.tokenizer_class);
}

}  // namespace

// By name: the order in which objects are linked must not be seen.
std::vector<TokenizerKind> SortedKinds() {
  std::vector<TokenizerKind> kinds;
  for (const auto* r = last_registered; r != nullptr; r = r->before_) kinds.push_back(r->kind_);
  std::sort(kinds.begin(), kinds.end(),
            [](const TokenizerKind& a, const TokenizerKind& b) { return NameOf(a) < NameOf(b); });
  return kinds;
}

namespace {

const std::vector<TokenizerKind>& Kinds() {
  static const auto* const kinds = new std::vector<TokenizerKind>(SortedKinds());
  return *kinds;
}

// The kind that is surest of the folder; nullptr: none claims it.
const TokenizerKind* SurestKind(const TokenizerFolder& folder) {
  std::pair<const TokenizerKind*, Claim> surest = {nullptr, Claim::kNone};
  for (const TokenizerKind& kind : Kinds()) {
    const Claim claim = kind.claim(folder);
    if (claim == Claim::kNone || claim < surest.second) continue;
    TESSERA_CHECK(claim > surest.second, "LoadTokenizer", "two kinds of tokenizers claim ",
                  folder.path, ": ", NameOf(*surest.first), "; ", NameOf(kind));
    surest = {&kind, claim};
  }
  return surest.first;
}

Status NoTokenizer(const std::string& folder) {
  std::string known;
  for (const TokenizerKind& kind : Kinds()) known += (known.empty() ? "" : "; ") + NameOf(kind);
  return NotFound(folder, ": no tokenizer here; known are ", known);
}

// What transformers 4 and 5 keep of a tokenizer in a folder, beside SentencePiece models.
constexpr const char* kFileNames[] = {"tokenizer.json",
                                      "tokenizer_config.json",
                                      "special_tokens_map.json",
                                      "added_tokens.json",
                                      "chat_template.jinja",
                                      "chat_template.json",
                                      "vocab.json",
                                      "merges.txt",
                                      "vocab.txt"};
constexpr const char* kTemplateFolder = "additional_chat_templates";

StatusOr<std::vector<TokenizerFile>> ReadSourceFiles(const TokenizerFolder& folder) {
  std::vector<std::string> names;
  for (const char* name : kFileNames) {
    if (folder.Has(name)) names.emplace_back(name);
  }
  for (const SentencePieceFile& file : kSentencePieceFiles) {
    if (folder.Has(file.name)) names.emplace_back(file.name);
  }
  const std::string templates = JoinPath(folder.path, kTemplateFolder);
  if (IsDirectory(templates)) {
    TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> found, ListDirectory(templates));
    for (const std::string& name : found) {
      if (name.ends_with(".jinja")) names.push_back(JoinPath(kTemplateFolder, name));
    }
  }
  std::vector<TokenizerFile> files;
  for (std::string& name : names) {
    TESSERA_ASSIGN_OR_RETURN(std::string content, ReadFile(JoinPath(folder.path, name)));
    files.push_back({std::move(name), std::move(content)});
  }
  return files;
}

}  // namespace

StatusOr<TokenizerFolder> TokenizerFolder::Open(const std::string& path) {
  TokenizerFolder folder{.path = path, .tokenizer_class = ""};
  if (!folder.Has("tokenizer_config.json")) return folder;
  const std::string config_path = JoinPath(path, "tokenizer_config.json");
  TESSERA_ASSIGN_OR_RETURN(const nlohmann::json config, ReadJsonFile(config_path));
  if (!config.is_object()) return InvalidArgument(config_path, ": not a JSON object");
  const auto name = config.find("tokenizer_class");
  if (name != config.end() && name->is_string()) folder.tokenizer_class = *name;
  return folder;
}

bool TokenizerFolder::Has(const char* file) const { return PathExists(JoinPath(path, file)); }

TokenizerRegistration::TokenizerRegistration(const TokenizerKind& kind)
    : kind_(kind), before_(std::exchange(last_registered, this)) {}

const SentencePieceFile* FindSentencePieceFile(const TokenizerFolder& folder) {
  for (const SentencePieceFile& file : kSentencePieceFiles) {
    if (folder.Has(file.name)) return &file;
  }
  return nullptr;
}

StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& spec) {
  if (spec == "byte") return std::unique_ptr<Tokenizer>(std::make_unique<ByteTokenizer>());
  if (spec == "char") {
    return InvalidArgument(
        "tokenizer 'char' has no vocabulary of its own: it is made from the "
        "training text and then loaded from the model's folder");
  }
  if (!IsDirectory(spec)) return NotFound(spec, ": no such tokenizer (a folder, byte or char)");
  TESSERA_ASSIGN_OR_RETURN(const TokenizerFolder folder, TokenizerFolder::Open(spec));
  const TokenizerKind* const kind = SurestKind(folder);
  if (kind == nullptr) return NoTokenizer(spec);
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<Tokenizer> tokenizer, kind->load(spec));
  TESSERA_ASSIGN_OR_RETURN(std::vector<TokenizerFile> files, ReadSourceFiles(folder));
  tokenizer->set_source_files(std::move(files));
  return tokenizer;
}

bool HasTokenizer(const std::string& folder) {
  if (!IsDirectory(folder)) return false;
  const auto opened = TokenizerFolder::Open(folder);
  return !opened.ok() || SurestKind(*opened) != nullptr;
}

StatusOr<std::vector<TokenizerFile>> TokenizerFilesOf(const std::string& folder) {
  const auto tokenizer = LoadTokenizer(folder);
  if (tokenizer.ok()) return (*tokenizer)->FilesToSave();
  return ReadSourceFiles({.path = folder, .tokenizer_class = ""});
}

}  // namespace tessera::data
