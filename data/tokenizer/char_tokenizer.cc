// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/char_tokenizer.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/json_text.h"
#include "base/utf8.h"
#include "data/tokenizer/tokenizer_kind.h"
#include "nlohmann/json.hpp"

namespace tessera::data {
namespace {

constexpr char32_t kEndOfUnicode = 0x110000;
constexpr char32_t kLowEnd = 0x3000;
constexpr std::string_view kUnkBytes = "\xEF\xBF\xBD";

bool IsScalarValue(char32_t c) { return c < 0xD800 || (c >= 0xE000 && c < kEndOfUnicode); }

Claim ClaimOfCharacters(const TokenizerFolder& folder) {
  return folder.tokenizer_class == CharTokenizer::kClassName ? Claim::kClass : Claim::kNone;
}

const TokenizerRegistration characters_registration(
    {.files = "char_vocab.json + tokenizer_config.json",
     .tokenizer_class = CharTokenizer::kClassName,
     .claim = ClaimOfCharacters,
     .load = CharTokenizer::Load});

}  // namespace

CharTokenizer::Trainer::Trainer() : seen_(kEndOfUnicode, false) {}

Status CharTokenizer::Trainer::Add(std::string_view text, std::string_view source) {
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = DecodeUtf8(text, i);
    if (!c.valid) return InvalidArgument(source, ": invalid UTF-8 at byte ", i);
    seen_[c.code_point] = true;
    i += c.length;
  }
  return OkStatus();
}

std::unique_ptr<CharTokenizer> CharTokenizer::Trainer::Finish() const {
  std::vector<char32_t> characters;
  for (char32_t c = 0; c < kEndOfUnicode; ++c) {
    if (seen_[c]) characters.push_back(c);
  }
  return std::make_unique<CharTokenizer>(std::move(characters));
}

StatusOr<std::unique_ptr<CharTokenizer>> CharTokenizer::Train(std::string_view text,
                                                              std::string_view source) {
  Trainer trainer;
  TESSERA_RETURN_IF_ERROR(trainer.Add(text, source));
  return trainer.Finish();
}

CharTokenizer::CharTokenizer(std::vector<char32_t> characters)
    : characters_(std::move(characters)), low_ids_(kLowEnd, kUnkId) {
  for (size_t i = 0; i < characters_.size(); ++i) {
    const char32_t c = characters_[i];
    TESSERA_CHECK(IsScalarValue(c) && (i == 0 || characters_[i - 1] < c), "CharTokenizer",
                  "characters must be ascending scalar values, not ", static_cast<uint32_t>(c),
                  " at ", i);
    std::string bytes;
    AppendUtf8(c, &bytes);
    bytes_.push_back(std::move(bytes));
    if (c < kLowEnd) low_ids_[c] = kFirstCharId + static_cast<int32_t>(i);
  }
  eos_id_ = kEosId;
  set_special_tokens({{"<unk>", kUnkId}, {std::string(kEndOfText), kEosId}});
}

int32_t CharTokenizer::IdOf(char32_t character) const {
  if (character < kLowEnd) return low_ids_[character];
  const auto at = std::lower_bound(characters_.begin(), characters_.end(), character);
  if (at == characters_.end() || *at != character) return kUnkId;
  return kFirstCharId + static_cast<int32_t>(at - characters_.begin());
}

void CharTokenizer::EncodeTo(std::string_view text, const EncodeOptions&,
                             std::vector<int32_t>* ids) const {
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = DecodeUtf8(text, i);
    ids->push_back(c.valid ? IdOf(c.code_point) : kUnkId);
    i += c.length;
  }
}

std::string_view CharTokenizer::TokenBytes(int32_t id) const {
  if (id == kUnkId) return kUnkBytes;
  if (id == kEosId) return kEndOfText;
  if (id < kFirstCharId || id >= vocab_size()) return {};
  return bytes_[static_cast<size_t>(id - kFirstCharId)];
}

std::vector<TokenizerFile> CharTokenizer::Files() const {
  std::string vocab = "{\"characters\": [";
  for (size_t i = 0; i < bytes_.size(); ++i) {
    if (i > 0) vocab += ", ";
    vocab += JsonQuoted(bytes_[i]);
  }
  vocab += "]}\n";
  return {{"char_vocab.json", vocab},
          {"tokenizer_config.json",
           Concat("{\n  \"tokenizer_class\": \"", kClassName, "\",\n  \"eos_token\": \"",
                  kEndOfText, "\",\n  \"unk_token\": \"<unk>\"\n}\n")}};
}

uint64_t CharTokenizer::Fingerprint() const {
  uint64_t hash = HashBytes(kClassName);
  for (const std::string& bytes : bytes_) hash = HashBytes(bytes, hash);
  return hash;
}

StatusOr<std::unique_ptr<Tokenizer>> CharTokenizer::Load(const std::string& folder) {
  const std::string path = folder + "/char_vocab.json";
  TESSERA_ASSIGN_OR_RETURN(const nlohmann::json root, ReadJsonFile(path));
  if (!root.is_object() || !root.contains("characters") || !root["characters"].is_array()) {
    return InvalidArgument(path, ": no array \"characters\"");
  }
  std::vector<char32_t> characters;
  for (const nlohmann::json& item : root["characters"]) {
    const auto* text = item.get_ptr<const std::string*>();
    if (text == nullptr || text->empty()) {
      return InvalidArgument(path, ": entry ", characters.size(), " is not a character");
    }
    const Utf8Char c = DecodeUtf8(*text, 0);
    if (!c.valid || static_cast<size_t>(c.length) != text->size()) {
      return InvalidArgument(path, ": entry ", characters.size(), " is not one character");
    }
    if (!characters.empty() && characters.back() >= c.code_point) {
      return InvalidArgument(path, ": entry ", characters.size(), " is out of order");
    }
    characters.push_back(c.code_point);
  }
  return std::unique_ptr<Tokenizer>(std::make_unique<CharTokenizer>(std::move(characters)));
}

}  // namespace tessera::data
