// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/tokenizer.h"

#include <algorithm>

#include "base/file.h"

namespace tessera::data {

std::optional<RowTemplate> RowTemplate::Of(
    std::initializer_list<std::pair<std::optional<int32_t>, int32_t>> items) {
  RowTemplate row;
  for (const auto& [id, type_id] : items) {
    if (!id) return std::nullopt;
    row.items.push_back({*id, type_id});
  }
  return row;
}

std::vector<int32_t> Tokenizer::text_begin() const {
  std::vector<int32_t> begin;
  const RowTemplate* const row = row_template(/*pair=*/false);
  if (row == nullptr) return begin;
  for (const RowTemplate::Item& item : row->items) {
    if (item.id == RowTemplate::kFirst || item.id == cls_id_) break;
    begin.push_back(item.id);
  }
  return begin;
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

std::vector<TokenizerFile> Tokenizer::FilesToSave() const {
  std::vector<TokenizerFile> files = source_files_;
  for (TokenizerFile& file : Files()) {
    const auto known = std::find_if(files.begin(), files.end(),
                                    [&](const TokenizerFile& f) { return f.name == file.name; });
    if (known == files.end()) {
      files.push_back(std::move(file));
    } else if (file.replaces) {
      *known = std::move(file);
    }
  }
  return files;
}

Status Tokenizer::WriteFiles(const std::vector<TokenizerFile>& files, const std::string& folder) {
  for (const TokenizerFile& file : files) {
    const std::string path = JoinPath(folder, file.name);
    if (file.name.find('/') != std::string::npos) {
      TESSERA_RETURN_IF_ERROR(MakeDirectories(path.substr(0, path.rfind('/'))));
    }
    TESSERA_RETURN_IF_ERROR(WriteFileAtomically(path, file.content));
  }
  return OkStatus();
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

}  // namespace tessera::data
