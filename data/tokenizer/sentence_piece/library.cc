#include "data/tokenizer/sentence_piece/library.h"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <exception>
#include <utility>

namespace sentencepiece::logging {
// In the library, but in none of the headers that are installed.
void SetMinLogLevel(int level);
}  // namespace sentencepiece::logging

namespace tessera::data {
namespace {

// Texts from here on are cut at blanks: the library counts bytes as int and takes some tens of
// bytes of memory for each.
constexpr size_t kLongText = size_t{1} << 26;

}  // namespace

struct SentencePieceModel::Impl {
  sentencepiece::SentencePieceProcessor processor;
};

SentencePieceModel::SentencePieceModel(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SentencePieceModel::~SentencePieceModel() = default;

std::unique_ptr<SentencePieceModel> SentencePieceModel::Parse(std::string_view bytes,
                                                              std::string* error) {
  *error = FindModelDamage(bytes);
  if (!error->empty()) return nullptr;
  sentencepiece::logging::SetMinLogLevel(3);  // failures are statuses
  auto impl = std::make_unique<Impl>();
  try {
    const auto status = impl->processor.LoadFromSerializedProto(bytes);
    if (!status.ok()) *error = std::string("not a SentencePiece model: ") + status.message();
  } catch (const std::exception& thrown) {  // by its trie, of a piece that has no text, say
    *error = std::string("not a SentencePiece model: ") + thrown.what();
  }
  if (!error->empty()) {
    std::replace(error->begin(), error->end(), '\n', ' ');
    return nullptr;
  }
  return std::unique_ptr<SentencePieceModel>(new SentencePieceModel(std::move(impl)));
}

void SentencePieceModel::Encode(std::string_view text, std::vector<int32_t>* ids) const {
  std::vector<int> part;
  while (!text.empty()) {
    size_t length = text.size();
    if (length > kLongText) {
      length = text.find(' ', kLongText);
      if (length == std::string_view::npos) length = std::min(text.size(), 2 * kLongText);
    }
    if (impl_->processor.Encode(text.substr(0, length), &part).ok()) {
      ids->insert(ids->end(), part.begin(), part.end());
    }
    text.remove_prefix(length);
  }
}

std::string SentencePieceModel::Decode(const std::vector<std::string>& pieces) const {
  std::string text;
  impl_->processor.Decode(pieces, &text).IgnoreError();
  return text;
}

int32_t SentencePieceModel::size() const { return impl_->processor.GetPieceSize(); }

const std::string& SentencePieceModel::Piece(int32_t id) const {
  return impl_->processor.IdToPiece(id);
}

PieceKind SentencePieceModel::Kind(int32_t id) const {
  if (impl_->processor.IsUnknown(id)) return PieceKind::kUnknown;
  if (impl_->processor.IsControl(id)) return PieceKind::kControl;
  if (impl_->processor.IsByte(id)) return PieceKind::kByte;
  return PieceKind::kText;
}

std::optional<int32_t> SentencePieceModel::Find(std::string_view piece) const {
  const int id = impl_->processor.PieceToId(piece);
  if (id < 0 || id >= size() || impl_->processor.IdToPiece(id) != piece) return std::nullopt;
  return id;
}

int32_t SentencePieceModel::unk_id() const { return impl_->processor.unk_id(); }

std::string WithoutDummyPrefix(std::string_view model) {
  // A message given twice is merged, the later field counts: normalizer_spec (3) with
  // add_dummy_prefix (3) = false.
  constexpr std::string_view kOff("\x1A\x02\x18\x00", 4);
  return std::string(model) + std::string(kOff);
}

}  // namespace tessera::data
