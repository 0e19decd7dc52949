// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/sentence_piece/model.h"

#include <algorithm>
#include <utility>

#include "base/python_text.h"
#include "base/utf8.h"
#include "core/execution_context.h"

namespace tessera::data {
namespace {

using PieceType = SentencePieceSpec::Piece;

// Texts from here on are cut at blanks: each byte takes some tens of bytes of memory.
constexpr size_t kLongText = size_t{1} << 26;

}  // namespace

std::unique_ptr<SentencePieceModel> SentencePieceModel::Parse(std::string_view bytes,
                                                              std::string* error) {
  *error = FindModelDamage(bytes);
  if (!error->empty()) {
    std::replace(error->begin(), error->end(), '\n', ' ');
    return nullptr;
  }
  std::unique_ptr<SentencePieceModel> model(new SentencePieceModel());
  model->spec_ = ReadSentencePieceSpec(bytes);
  const SentencePieceSpec& spec = model->spec_;
  std::vector<ByteTrie::Entry> user_defined;
  for (int32_t id = 0; id < model->size(); ++id) {
    const PieceType& piece = model->PieceAt(id);
    if (piece.type == PieceType::kUserDefined) user_defined.emplace_back(piece.text, id);
  }
  model->vocab_ = PieceIndex(spec.pieces);
  model->user_defined_ = ByteTrie(std::move(user_defined));
  model->normalizer_.emplace(spec.normalizer, spec.treat_whitespace_as_suffix,
                             &model->user_defined_);
  if (!spec.denormalizer.character_map.empty()) {
    model->denormalizer_.emplace(spec.denormalizer, /*blank_is_suffix=*/false, nullptr);
  }
  model->segmenter_ = Segmenter::Make(spec, &model->vocab_, &model->user_defined_);
  return model;
}

void SentencePieceModel::Encode(std::string_view text, std::vector<int32_t>* ids,
                                bool dummy_prefix) const {
  while (!text.empty()) {
    StopIfCancelled();
    size_t length = text.size();
    if (length > kLongText) {
      length = text.find(' ', kLongText);
      if (length == std::string_view::npos) length = std::min(text.size(), 2 * kLongText);
    }
    const auto first = static_cast<ptrdiff_t>(ids->size());
    segmenter_->Encode(normalizer_->Normalize(text.substr(0, length), dummy_prefix), ids);
    const bool has_control = std::any_of(ids->begin() + first, ids->end(), [this](int32_t id) {
      return PieceAt(id).type == PieceType::kControl;
    });
    if (has_control) ids->resize(static_cast<size_t>(first));
    text.remove_prefix(length);
  }
}

PieceKind SentencePieceModel::Kind(int32_t id) const {
  switch (PieceAt(id).type) {
    case PieceType::kUnknown:
      return PieceKind::kUnknown;
    case PieceType::kControl:
      return PieceKind::kControl;
    case PieceType::kByte:
      return PieceKind::kByte;
    default:
      return PieceKind::kText;
  }
}

// `at_start`: nothing but blanks that were dropped came before. *dropped: another one is.
std::string SentencePieceModel::DecodePiece(const std::string& piece, int32_t id, bool at_start,
                                            bool* dropped) const {
  *dropped = false;
  if (Kind(id) == PieceKind::kControl) return "";
  if (Kind(id) == PieceKind::kUnknown) return piece == Piece(id) ? spec_.unk_surface : piece;
  std::string_view text = piece;
  if (at_start && drops_first_blank() && text.starts_with(kSentencePieceBlank)) {
    text.remove_prefix(kSentencePieceBlank.size());
    // Where blanks are removed, all are that come first.
    *dropped = !spec_.normalizer.remove_extra_whitespaces;
  }
  return ReplacedAll(text, kSentencePieceBlank, " ");
}

std::string SentencePieceModel::Decode(const std::vector<std::string>& pieces) const {
  std::string text;
  std::string bytes;
  const auto flush = [&] {
    text += ReplaceInvalidBytes(bytes);
    bytes.clear();
  };
  bool at_start = true;
  bool dropped = false;
  for (const std::string& piece : pieces) {
    const int32_t id = vocab_.FindOrUnknown(piece);
    if (Kind(id) == PieceKind::kByte) {
      bytes += static_cast<char>(*ByteOfPiece(piece));
      continue;
    }
    flush();
    if (dropped || !text.empty()) at_start = false;
    text += DecodePiece(piece, id, at_start, &dropped);
  }
  flush();
  return denormalizer_ ? denormalizer_->Normalize(text) : text;
}

}  // namespace tessera::data
