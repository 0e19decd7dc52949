#include "data/tokenizer/pipeline_tokenizer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/file.h"
#include "data/tokenizer/json_text.h"
#include "data/tokenizer/python_text.h"
#include "data/tokenizer/utf8.h"

namespace tessera::data {
namespace {

using nlohmann::json;

constexpr int64_t kMaxId = 1 << 22;

StatusOr<json> TakeJson(const std::string& folder, const std::string& name,
                        std::vector<std::pair<std::string, std::string>>* files) {
  const std::string path = JoinPath(folder, name);
  if (!PathExists(path)) return json();
  TESSERA_ASSIGN_OR_RETURN(std::string text, ReadFile(path));
  TESSERA_ASSIGN_OR_RETURN(json root, ParseJson(text, path));
  if (!root.is_object()) return InvalidArgument(path, ": not a JSON object");
  files->emplace_back(name, std::move(text));
  return root;
}

// [text, id] of Bert- and RobertaProcessing.
StatusOr<int32_t> TokenIdIn(const JsonPart& part) {
  const json& item = part.value();
  if (!item.is_array() || item.size() != 2 || !item[1].is_number_integer() ||
      item[1].get<int64_t>() < 0 || item[1].get<int64_t>() >= kMaxId) {
    return part.Wrong("not a token and its id");
  }
  return item[1].get<int32_t>();
}

// [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, ...]
Status ReadTemplate(const JsonPart& part, const JsonPart& tokens, bool pair, RowTemplate* result) {
  if (!part.value().is_array()) return part.Wrong("not an array");
  result->items.clear();
  for (size_t i = 0; i < part.size(); ++i) {
    const JsonPart sequence = part[i]["Sequence"];
    const JsonPart item = sequence.is_null() ? part[i]["SpecialToken"] : sequence;
    TESSERA_ASSIGN_OR_RETURN(const std::string name, item.Text("id", ""));
    TESSERA_ASSIGN_OR_RETURN(const int64_t type, item.Count("type_id", 0));
    if (type > 1000) return item["type_id"].Wrong("too large");
    const auto type_id = static_cast<int32_t>(type);
    if (!sequence.is_null()) {
      if (name != "A" && name != "B") return item["id"].Wrong("neither A nor B");
      result->items.push_back({name == "A" ? RowTemplate::kFirst : RowTemplate::kSecond, type_id});
      continue;
    }
    const JsonPart ids = tokens[name.c_str()]["ids"];
    if (name.empty() || ids.size() == 0) return item.Wrong("no special token of that id");
    for (size_t k = 0; k < ids.size(); ++k) {
      const json& id = ids.value()[k];
      if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() >= kMaxId) {
        return ids[k].Wrong("not an id");
      }
      result->items.push_back({id.get<int32_t>(), type_id});
    }
  }
  const auto count = [&](int32_t what) {
    return std::count_if(result->items.begin(), result->items.end(),
                         [&](const RowTemplate::Item& item) { return item.id == what; });
  };
  if (count(RowTemplate::kFirst) != 1 || count(RowTemplate::kSecond) != (pair ? 1 : 0)) {
    return part.Wrong("each text is to stand in it once");
  }
  return OkStatus();
}

Status ReadPostProcessor(const JsonPart& part, RowTemplate* single, RowTemplate* pair) {
  const std::string_view type = part.type();
  if (type == "ByteLevel") return OkStatus();  // offsets alone
  if (type == "Sequence") {
    const JsonPart all = part["processors"];
    for (size_t i = 0; i < all.size(); ++i)
      TESSERA_RETURN_IF_ERROR(ReadPostProcessor(all[i], single, pair));
    return OkStatus();
  }
  if (type == "TemplateProcessing") {
    const JsonPart tokens = part["special_tokens"];
    TESSERA_RETURN_IF_ERROR(ReadTemplate(part["single"], tokens, false, single));
    return ReadTemplate(part["pair"], tokens, true, pair);
  }
  if (type != "BertProcessing" && type != "RobertaProcessing") return part.Unsupported();
  TESSERA_ASSIGN_OR_RETURN(const int32_t cls, TokenIdIn(part["cls"]));
  TESSERA_ASSIGN_OR_RETURN(const int32_t sep, TokenIdIn(part["sep"]));
  single->items = {{cls, 0}, {RowTemplate::kFirst, 0}, {sep, 0}};
  *pair = *single;
  if (type == "RobertaProcessing") {
    for (const int32_t id : {sep, RowTemplate::kSecond, sep}) pair->items.push_back({id, 0});
  } else {
    for (const int32_t id : {RowTemplate::kSecond, sep}) pair->items.push_back({id, 1});
  }
  return OkStatus();
}

}  // namespace

StatusOr<std::unique_ptr<Tokenizer>> PipelineTokenizer::Load(const std::string& folder) {
  std::unique_ptr<PipelineTokenizer> result(new PipelineTokenizer());
  const std::string path = JoinPath(folder, "tokenizer.json");
  TESSERA_ASSIGN_OR_RETURN(const json root, TakeJson(folder, "tokenizer.json", &result->files_));
  if (root.is_null()) return NotFound(path, ": no such file");
  TESSERA_RETURN_IF_ERROR(result->ReadTokenizer(JsonPart(root, path)));
  for (const char* name : {"special_tokens_map.json", "tokenizer_config.json"}) {
    TESSERA_ASSIGN_OR_RETURN(const json names, TakeJson(folder, name, &result->files_));
    if (!names.is_null()) {
      TESSERA_RETURN_IF_ERROR(result->ReadNames(names, JoinPath(folder, name)));
    }
  }
  result->FillTokenBytes();
  return std::unique_ptr<Tokenizer>(std::move(result));
}

Status PipelineTokenizer::ReadTokenizer(const JsonPart& root) {
  TESSERA_ASSIGN_OR_RETURN(model_, PipelineModel::Parse(root["model"]));
  TESSERA_ASSIGN_OR_RETURN(normalizer_, PipelineNormalizer::Parse(root["normalizer"]));
  TESSERA_ASSIGN_OR_RETURN(splitter_, PipelineSplitter::Parse(root["pre_tokenizer"]));
  TESSERA_ASSIGN_OR_RETURN(decoder_, PipelineDecoder::Parse(root["decoder"]));
  TESSERA_RETURN_IF_ERROR(ReadAddedTokens(root["added_tokens"]));
  RowTemplate single{.items = {{RowTemplate::kFirst, 0}}};
  RowTemplate pair{.items = {{RowTemplate::kFirst, 0}, {RowTemplate::kSecond, 1}}};
  const JsonPart processor = root["post_processor"];
  if (!processor.is_null()) {
    TESSERA_RETURN_IF_ERROR(ReadPostProcessor(processor, &single, &pair));
  }
  set_rows(std::move(single), std::move(pair), /*of_prompts=*/true);
  return OkStatus();
}

Status PipelineTokenizer::ReadAddedTokens(const JsonPart& part) {
  if (!part.is_null() && !part.value().is_array()) return part.Wrong("not an array");
  std::vector<AddedToken> raw;
  std::vector<AddedToken> normalized;
  std::vector<SpecialToken> specials;
  for (size_t i = 0; i < part.size(); ++i) {
    const JsonPart item = part[i];
    AddedToken token;
    TESSERA_ASSIGN_OR_RETURN(token.content, item.Text("content", ""));
    TESSERA_ASSIGN_OR_RETURN(const int64_t id, item.Count("id", kMaxId));
    if (token.content.empty() || id >= kMaxId) {
      return item.Wrong(Concat("an added token needs a content and an id in [0, ", kMaxId, ")"));
    }
    token.id = static_cast<int32_t>(id);
    TESSERA_ASSIGN_OR_RETURN(token.special, item.Bool("special", false));
    TESSERA_ASSIGN_OR_RETURN(token.lstrip, item.Bool("lstrip", false));
    TESSERA_ASSIGN_OR_RETURN(token.rstrip, item.Bool("rstrip", false));
    TESSERA_ASSIGN_OR_RETURN(token.normalized, item.Bool("normalized", !token.special));
    TESSERA_ASSIGN_OR_RETURN(const bool single_word, item.Bool("single_word", false));
    if (single_word) return item["single_word"].Unsupported();
    if (token.special) specials.push_back({token.content, token.id});
    added_.push_back(token);
    AddedToken copy = token;
    copy.normalized = false;
    if (token.normalized) copy.content = normalizer_.Normalize(ReplaceInvalidUtf8(token.content));
    if (!copy.content.empty()) (token.normalized ? normalized : raw).push_back(copy);
  }
  std::stable_sort(added_.begin(), added_.end(),
                   [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  matcher_ = AddedTokenMatcher(raw);
  normalized_matcher_ = AddedTokenMatcher(normalized);
  set_special_tokens(std::move(specials));
  return OkStatus();
}

Status PipelineTokenizer::ReadNames(const json& root, const std::string& path) {
  const std::pair<const char*, std::optional<int32_t>*> names[] = {
      {"bos_token", &bos_id_}, {"eos_token", &eos_id_}, {"pad_token", &pad_id_},
      {"cls_token", &cls_id_}, {"sep_token", &sep_id_}, {"mask_token", &mask_id_}};
  for (const auto& [key, id] : names) {
    const auto item = root.find(key);
    if (item == root.end() || item->is_null()) continue;
    const bool object = item->is_object() && item->contains("content");
    const json& content = object ? (*item)["content"] : *item;
    if (!content.is_string()) return InvalidArgument(path, ": ", key, " is not a text");
    const auto& name = content.get_ref<const std::string&>();
    const auto added = std::find_if(added_.begin(), added_.end(),
                                    [&](const AddedToken& t) { return t.content == name; });
    *id = added != added_.end() ? std::optional(added->id) : model_->vocab().Find(name);
    if (!*id) return InvalidArgument(path, ": ", key, " ", name, " is not in the vocabulary");
  }
  const auto clean = root.find("clean_up_tokenization_spaces");
  if (clean != root.end() && clean->is_boolean()) clean_up_spaces_ = clean->get<bool>();
  return OkStatus();
}

std::string PipelineTokenizer::TokenString(int32_t id) const {
  const auto at = std::lower_bound(added_.begin(), added_.end(), id,
                                   [](const AddedToken& t, int32_t value) { return t.id < value; });
  if (at != added_.end() && at->id == id) return at->content;
  const std::vector<std::string>& pieces = model_->vocab().pieces();
  return id >= 0 && id < std::ssize(pieces) ? pieces[static_cast<size_t>(id)] : std::string();
}

void PipelineTokenizer::FillTokenBytes() {
  size_t count = model_->vocab().pieces().size();
  if (!added_.empty()) count = std::max(count, static_cast<size_t>(added_.back().id) + 1);
  token_bytes_.resize(count);
  first_token_bytes_.resize(count);
  // A token behind another one is what it adds to the text of that one.
  std::string before;
  for (size_t id = 0; id < model_->vocab().pieces().size() && before.empty(); ++id) {
    const std::string& piece = model_->vocab().pieces()[id];
    if (piece.size() == 1 && piece[0] >= 'a' && piece[0] <= 'z') before = piece;
  }
  const std::string alone = decoder_.Decode({before});
  for (size_t id = 0; id < count; ++id) {
    const std::string piece = TokenString(static_cast<int32_t>(id));
    if (piece.empty()) continue;
    if (piece.size() == 6 && piece.starts_with("<0x") && piece.back() == '>' &&
        decoder_.Decode({piece}) != piece) {
      const int byte = std::stoi(piece.substr(3, 2), nullptr, 16);
      token_bytes_[id] = first_token_bytes_[id] = std::string(1, static_cast<char>(byte));
      continue;
    }
    first_token_bytes_[id] = decoder_.Decode({piece});
    const std::string behind = decoder_.Decode({before, piece});
    token_bytes_[id] =
        behind.starts_with(alone) ? behind.substr(alone.size()) : first_token_bytes_[id];
  }
}

std::string_view PipelineTokenizer::TokenBytes(int32_t id) const {
  if (id < 0 || id >= vocab_size()) return {};
  return token_bytes_[static_cast<size_t>(id)];
}

std::string_view PipelineTokenizer::FirstTokenBytes(int32_t id) const {
  if (id < 0 || id >= vocab_size()) return {};
  return first_token_bytes_[static_cast<size_t>(id)];
}

void PipelineTokenizer::EncodeTo(std::string_view text, const EncodeOptions& options,
                                 std::vector<int32_t>* ids) const {
  std::string valid;
  if (FindInvalidUtf8(text) != kNoInvalidUtf8) {
    valid = ReplaceInvalidUtf8(text);
    text = valid;
  }
  for (const TextPiece& piece : matcher_.Split(text, options.parse_special)) {
    if (piece.id >= 0) {
      ids->push_back(piece.id);
      continue;
    }
    bool at_begin = piece.text.data() == text.data();
    const std::string normalized = normalizer_.Normalize(piece.text, &at_begin);
    for (const TextPiece& part : normalized_matcher_.Split(normalized, options.parse_special)) {
      if (part.id >= 0) {
        ids->push_back(part.id);
      } else {
        for (const std::string& word : splitter_.Split(part.text, at_begin)) {
          model_->Encode(word, ids);
        }
      }
      at_begin = false;
    }
  }
}

std::string PipelineTokenizer::Decode(std::span<const int32_t> ids,
                                      const DecodeOptions& options) const {
  std::vector<std::string> pieces;
  for (const int32_t id : ids) {
    if (options.skip_special && IsSpecial(id)) continue;
    std::string piece = TokenString(id);
    if (!piece.empty()) pieces.push_back(std::move(piece));
  }
  if (pieces.empty()) return "";
  std::string text = decoder_.Decode(pieces);
  if (clean_up_spaces_) CleanUpSpaces(&text);
  return text;
}

Status PipelineTokenizer::Save(const std::string& folder) const {
  for (const auto& [name, content] : files_) {
    TESSERA_RETURN_IF_ERROR(WriteFileAtomically(JoinPath(folder, name), content));
  }
  return OkStatus();
}

uint64_t PipelineTokenizer::Fingerprint() const {
  return HashBytes(files_[0].second, HashBytes("pipeline"));
}

}  // namespace tessera::data
