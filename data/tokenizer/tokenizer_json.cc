// Chooses between the two that read tokenizer.json: what GPT-2's byte-level BPE is has a faster
// class of its own.
#include <algorithm>
#include <string>
#include <vector>

#include "core/file.h"
#include "data/tokenizer/byte_level_bpe.h"
#include "data/tokenizer/json_text.h"
#include "data/tokenizer/pipeline_tokenizer.h"
#include "data/tokenizer/tokenizer_kind.h"

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
  const auto is_one_of = [](const nlohmann::json& part, std::vector<std::string> types) {
    const nlohmann::json& type = Member(part, "type");
    return type.is_null() || std::find(types.begin(), types.end(), type) != types.end();
  };
  return is_one_of(model, {"BPE"}) && Member(root, "normalizer").is_null() &&
         Member(Member(root, "pre_tokenizer"), "type") == "ByteLevel" &&
         is_one_of(Member(root, "post_processor"), {"ByteLevel", "RobertaProcessing"}) &&
         is_one_of(Member(root, "decoder"), {"ByteLevel"});
}

Claim ClaimOf(const TokenizerFolder& folder) {
  return folder.Has("tokenizer.json") ? Claim::kFiles : Claim::kNone;
}

StatusOr<std::unique_ptr<Tokenizer>> Load(const std::string& folder) {
  TESSERA_ASSIGN_OR_RETURN(const nlohmann::json root,
                           ReadJsonFile(JoinPath(folder, "tokenizer.json")));
  return IsPlainByteLevel(root) ? ByteLevelBpe::Load(folder) : PipelineTokenizer::Load(folder);
}

const TokenizerRegistration registration({.files = "tokenizer.json",
                                          .claim = ClaimOf,
                                          .load = Load});

}  // namespace
}  // namespace tessera::data
