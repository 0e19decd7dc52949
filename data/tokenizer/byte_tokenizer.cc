// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/byte_tokenizer.h"

#include "base/file.h"
#include "data/tokenizer/tokenizer_kind.h"

namespace tessera::data {
namespace {

Claim ClaimOfBytes(const TokenizerFolder& folder) {
  return folder.tokenizer_class == ByteTokenizer::kClassName ? Claim::kClass : Claim::kNone;
}

StatusOr<std::unique_ptr<Tokenizer>> Load(const std::string&) {
  return std::unique_ptr<Tokenizer>(std::make_unique<ByteTokenizer>());
}

const TokenizerRegistration bytes_registration({.files = "tokenizer_config.json",
                                                .tokenizer_class = ByteTokenizer::kClassName,
                                                .claim = ClaimOfBytes,
                                                .load = Load});

}  // namespace

ByteTokenizer::ByteTokenizer() : bytes_(256, '\0') {
  for (int i = 0; i < 256; ++i) bytes_[i] = static_cast<char>(i);
  eos_id_ = kEosId;
  set_special_tokens({{std::string(kEndOfText), kEosId}});
}

void ByteTokenizer::EncodeTo(std::string_view text, const EncodeOptions&,
                             std::vector<int32_t>* ids) const {
  ids->reserve(ids->size() + text.size());
  for (const char c : text) ids->push_back(static_cast<uint8_t>(c));
}

std::string_view ByteTokenizer::TokenBytes(int32_t id) const {
  if (id >= 0 && id < kEosId) return std::string_view(bytes_).substr(static_cast<size_t>(id), 1);
  return id == kEosId ? kEndOfText : std::string_view();
}

std::vector<TokenizerFile> ByteTokenizer::Files() const {
  return {{"tokenizer_config.json", Concat("{\n  \"tokenizer_class\": \"", kClassName,
                                           "\",\n  \"eos_token\": \"", kEndOfText, "\"\n}\n")}};
}

}  // namespace tessera::data
