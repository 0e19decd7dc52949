#include "data/tokenizer/tokenizer.h"

#include <algorithm>
#include <filesystem>

#include "core/file.h"
#include "data/tokenizer/byte_level_bpe.h"
#include "data/tokenizer/byte_tokenizer.h"
#include "data/tokenizer/char_tokenizer.h"
#include "data/tokenizer/json_text.h"
#include "data/tokenizer/pipeline_tokenizer.h"
#include "data/tokenizer/sentence_piece.h"
#include "data/tokenizer/word_piece.h"

namespace tessera::data {
namespace {

// Tokenizers of transformers that are BERT's under another name.
bool IsWordPieceClass(const nlohmann::json& name) {
  for (const char* known :
       {"BertTokenizer", "BertTokenizerFast", "DistilBertTokenizer", "DistilBertTokenizerFast",
        "ElectraTokenizer", "ElectraTokenizerFast"}) {
    if (name == known) return true;
  }
  return false;
}

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

}  // namespace

std::optional<RowTemplate> RowTemplate::Of(
    std::initializer_list<std::pair<std::optional<int32_t>, int32_t>> items) {
  RowTemplate row;
  for (const auto& [id, type_id] : items) {
    if (!id) return std::nullopt;
    row.items.push_back({*id, type_id});
  }
  return row;
}

std::string Tokenizer::Decode(std::span<const int32_t> ids, const DecodeOptions& options) const {
  std::string out;
  for (const int32_t id : ids) {
    if (options.skip_special && IsSpecial(id)) continue;
    out += TokenBytes(id);
  }
  return out;
}

bool Tokenizer::IsSpecial(int32_t id) const {
  const auto at =
      std::lower_bound(special_tokens_.begin(), special_tokens_.end(), id,
                       [](const SpecialToken& t, int32_t value) { return t.id < value; });
  return at != special_tokens_.end() && at->id == id;
}

std::optional<int32_t> Tokenizer::FindSpecial(std::string_view content) const {
  for (const SpecialToken& token : special_tokens_) {
    if (token.content == content) return token.id;
  }
  return std::nullopt;
}

void Tokenizer::set_special_tokens(std::vector<SpecialToken> tokens) {
  special_tokens_ = std::move(tokens);
  std::sort(special_tokens_.begin(), special_tokens_.end(),
            [](const SpecialToken& a, const SpecialToken& b) { return a.id < b.id; });
}

void Tokenizer::SetBertRows() {
  constexpr int32_t kFirst = RowTemplate::kFirst;
  constexpr int32_t kSecond = RowTemplate::kSecond;
  set_rows(RowTemplate::Of({{cls_id_, 0}, {kFirst, 0}, {sep_id_, 0}}),
           RowTemplate::Of({{cls_id_, 0}, {kFirst, 0}, {sep_id_, 0}, {kSecond, 1}, {sep_id_, 1}}),
           /*of_prompts=*/false);
}

void Tokenizer::SetRobertaRows() {
  constexpr int32_t kFirst = RowTemplate::kFirst;
  constexpr int32_t kSecond = RowTemplate::kSecond;
  set_rows(RowTemplate::Of({{cls_id_, 0}, {kFirst, 0}, {sep_id_, 0}}),
           RowTemplate::Of(
               {{cls_id_, 0}, {kFirst, 0}, {sep_id_, 0}, {sep_id_, 0}, {kSecond, 0}, {sep_id_, 0}}),
           /*of_prompts=*/false);
}

uint64_t HashBytes(std::string_view bytes, uint64_t hash) {
  for (const char c : bytes) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001B3u;
  return hash;
}

StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& spec) {
  namespace fs = std::filesystem;
  if (spec == "byte") return std::unique_ptr<Tokenizer>(std::make_unique<ByteTokenizer>());
  if (spec == "char") {
    return InvalidArgument(
        "tokenizer 'char' has no vocabulary of its own: it is made from the "
        "training text and then loaded from the model's folder");
  }
  std::error_code ignored;
  if (!fs::is_directory(spec, ignored)) {
    return NotFound(spec, ": no such tokenizer (a folder, byte or char)");
  }
  if (const std::string model = SentencePieceTokenizer::FindModelFile(spec); !model.empty()) {
    return SentencePieceTokenizer::Load(spec);
  }
  const auto has = [&](const char* file) { return fs::exists(fs::path(spec) / file, ignored); };
  const std::string config_path = (fs::path(spec) / "tokenizer_config.json").string();
  if (fs::exists(config_path, ignored)) {
    TESSERA_ASSIGN_OR_RETURN(const nlohmann::json config, ReadJsonFile(config_path));
    if (!config.is_object()) return InvalidArgument(config_path, ": not a JSON object");
    const auto name = config.find("tokenizer_class");
    if (name != config.end() && *name == ByteTokenizer::kClassName) {
      return std::unique_ptr<Tokenizer>(std::make_unique<ByteTokenizer>());
    }
    if (name != config.end() && *name == CharTokenizer::kClassName) {
      return CharTokenizer::Load(spec);
    }
    if (name != config.end() && IsWordPieceClass(*name) && has("vocab.txt")) {
      return WordPiece::Load(spec);
    }
  }
  if (has("vocab.txt") && !has("tokenizer.json") && !has("vocab.json")) {
    return WordPiece::Load(spec);
  }
  const std::string json_path = (fs::path(spec) / "tokenizer.json").string();
  if (fs::exists(json_path, ignored)) {
    TESSERA_ASSIGN_OR_RETURN(const nlohmann::json root, ReadJsonFile(json_path));
    if (!IsPlainByteLevel(root)) return PipelineTokenizer::Load(spec);
  }
  return ByteLevelBpe::Load(spec);
}

}  // namespace tessera::data
