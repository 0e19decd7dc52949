// SPDX-License-Identifier: Apache-2.0
#include "data/dataset/text_pieces.h"

#include <algorithm>
#include <utility>

#include "data/dataset/text_file.h"

namespace tessera::data {
namespace {

constexpr size_t kPieceBytes = size_t{1} << 22;
// Some kilobytes of gzip or zstd can become a line that fills the memory.
constexpr size_t kLongestLine = size_t{256} << 20;

}  // namespace

StatusOr<TextPieces> TextPieces::Open(const std::string& path) {
  TextPieces pieces;
  pieces.path_ = path;
  TESSERA_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  if (CompressionOfBytes(BytesOf(file)) == Compression::kNone) {
    pieces.file_ = std::move(file);
  } else {
    TESSERA_ASSIGN_OR_RETURN(pieces.source_, ByteSource::Open(path));
  }
  return pieces;
}

StatusOr<std::string_view> TextPieces::Read(size_t least) {
  if (source_ == nullptr) {
    // Mapped, and whole; it stays until the pieces go.
    if (given_ > 0 || !file_.has_value()) return std::string_view();
    given_ = 1;
    return TextIn(BytesOf(*file_), path_);
  }
  offset_ += static_cast<int64_t>(given_);
  bytes_.erase(0, given_);
  size_t end = 0;  // of the last whole line
  for (bool more = true; more && (end == 0 || bytes_.size() < least);) {
    const size_t before = bytes_.size();
    bytes_.resize(before + kPieceBytes);
    TESSERA_ASSIGN_OR_RETURN(const size_t count,
                             source_->Read(bytes_.data() + before, kPieceBytes));
    bytes_.resize(before + count);
    more = count > 0;
    // Of what is new alone, so that a line of any length is searched once.
    const size_t line = std::string_view(bytes_).substr(before).rfind('\n');
    if (line != std::string_view::npos) end = before + line + 1;
    if (!more) end = bytes_.size();
    if (least == 0 && end == 0 && bytes_.size() > kLongestLine) {
      return InvalidArgument(path_, ": a line of more than ", kLongestLine >> 20, " MiB at byte ",
                             offset_, " of what it decompresses to");
    }
  }
  given_ = end;
  return TextIn(std::string_view(bytes_).substr(0, end), path_, offset_);
}

StatusOr<std::string_view> TextPieces::Next() { return Read(0); }

StatusOr<std::string_view> TextPieces::Rest() { return Read(std::string::npos); }

StatusOr<bool> TextLinesOf::Next(std::string_view* line) {
  if (piece_.empty()) {
    TESSERA_ASSIGN_OR_RETURN(piece_, pieces_->Next());
    if (piece_.empty()) return false;
  }
  const size_t end = std::min(piece_.find('\n'), piece_.size());
  *line = piece_.substr(0, end);
  if (line->ends_with('\r')) line->remove_suffix(1);
  piece_.remove_prefix(std::min(end + 1, piece_.size()));
  ++number_;
  return true;
}

}  // namespace tessera::data
