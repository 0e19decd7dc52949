// SPDX-License-Identifier: Apache-2.0
// Chooses between those that read tokenizer.json: what GPT-2's byte-level BPE or BERT's WordPiece
// is has a faster class of its own.
#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json_text.h"
#include "data/tokenizer/byte_level_bpe.h"
#include "data/tokenizer/pipeline_post_processor.h"
#include "data/tokenizer/pipeline_tokenizer.h"
#include "data/tokenizer/tokenizer_json_file.h"
#include "data/tokenizer/tokenizer_kind.h"
#include "data/tokenizer/word_piece.h"

namespace tessera::data {
namespace {

const nlohmann::json& Member(const nlohmann::json& object, const char* key) {
  static const nlohmann::json* const null = new nlohmann::json();
  if (!object.is_object()) return *null;
  const auto at = object.find(key);
  return at == object.end() ? *null : *at;
}

// Whether a tokenizer.json is what ByteLevelBpe is made for.
bool IsPlainByteLevel(const nlohmann::json& root) {
  if (!root.is_object()) return true;
  const nlohmann::json& model = Member(root, "model");
  for (const char* key : {"byte_fallback", "continuing_subword_prefix", "end_of_word_suffix"}) {
    const nlohmann::json& value = Member(model, key);
    if (!value.is_null() && value != false && value != "") return false;
  }
  // No texts of their own: GCC 12 destroys a list's elements that it had no memory to make, where
  // the list is behind && or ||.
  const auto is_one_of = [](const nlohmann::json& part, std::initializer_list<const char*> types) {
    const nlohmann::json& type = Member(part, "type");
    return type.is_null() ||
           std::any_of(types.begin(), types.end(), [&](const char* name) { return type == name; });
  };
  return is_one_of(model, {"BPE"}) && Member(root, "normalizer").is_null() &&
         Member(Member(root, "pre_tokenizer"), "type") == "ByteLevel" &&
         (is_one_of(Member(root, "post_processor"), {"ByteLevel", "RobertaProcessing"}) ||
          IsEmptyTemplate(JsonPart(root, "tokenizer.json")["post_processor"])) &&
         is_one_of(Member(root, "decoder"), {"ByteLevel"});
}

// Whether it is what WordPiece is made for.
bool IsBertPipeline(const nlohmann::json& root) {
  const JsonPart whole(root, "tokenizer.json");
  const JsonPart model = whole["model"];
  const JsonPart normalizer = whole["normalizer"];
  const JsonPart decoder = whole["decoder"];
  const auto is = [](const auto& value, const auto& wanted) {
    return value.ok() && *value == wanted;
  };
  if (model.type() != "WordPiece" || normalizer.type() != "BertNormalizer" ||
      whole["pre_tokenizer"].type() != "BertPreTokenizer" || decoder.type() != "WordPiece" ||
      !is(model.Text("continuing_subword_prefix", "##"), "##") ||
      !is(model.Count("max_input_chars_per_word", 100), 100) ||
      !is(normalizer.Bool("clean_text", true), true) || !is(decoder.Text("prefix", "##"), "##") ||
      !is(decoder.Bool("cleanup", true), true)) {
    return false;
  }
  RowTemplate single;
  RowTemplate pair;
  if (whole["post_processor"].is_null() ||
      !ReadPostProcessor(whole["post_processor"], &single, &pair).ok()) {
    return false;
  }
  constexpr int32_t kFirst = RowTemplate::kFirst;
  constexpr int32_t kSecond = RowTemplate::kSecond;
  if (single.items.size() != 3 || pair.items.size() != 5) return false;
  const int32_t cls = pair.items[0].id;
  const int32_t sep = pair.items[2].id;
  return single == RowTemplate{{{cls, 0}, {kFirst, 0}, {sep, 0}}} &&
         pair == RowTemplate{{{cls, 0}, {kFirst, 0}, {sep, 0}, {kSecond, 1}, {sep, 1}}};
}

Claim ClaimOf(const TokenizerFolder& folder) {
  return folder.Has("tokenizer.json") ? Claim::kWhole : Claim::kNone;
}

StatusOr<std::unique_ptr<Tokenizer>> Load(const std::string& folder) {
  TESSERA_ASSIGN_OR_RETURN(TokenizerJsonFile file,
                           ReadTokenizerJsonFile(JoinPath(folder, "tokenizer.json")));
  if (IsPlainByteLevel(file.root)) return ByteLevelBpe::Load(folder, std::move(file));
  return IsBertPipeline(file.root) ? WordPiece::Load(folder) : PipelineTokenizer::Load(folder);
}

const TokenizerRegistration registration({.files = "tokenizer.json",
                                          .claim = ClaimOf,
                                          .load = Load});

}  // namespace
}  // namespace tessera::data
