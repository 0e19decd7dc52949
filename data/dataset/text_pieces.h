// SPDX-License-Identifier: Apache-2.0
// The text of a file from front to back, by whole lines, whatever it is compressed with: nothing,
// gzip or zstd, which its first bytes say (byte_source.h).
//
//   TESSERA_ASSIGN_OR_RETURN(TextPieces pieces, TextPieces::Open("a.jsonl.gz"));
//   for (;;) {
//     TESSERA_ASSIGN_OR_RETURN(const std::string_view piece, pieces.Next());
//     if (piece.empty()) break;
//   }
//
// A file that is not compressed is mapped and given as one piece. Others are read in pieces of some
// megabytes, or of one line where that is longer: of 256 MiB at most. Text that is not UTF-8 is
// refused by TextIn (text_file.h).
#ifndef TESSERA_DATA_DATASET_TEXT_PIECES_H_
#define TESSERA_DATA_DATASET_TEXT_PIECES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/status.h"
#include "data/dataset/byte_source.h"

namespace tessera::data {

class TextPieces {
 public:
  static StatusOr<TextPieces> Open(const std::string& path);

  // Lines that follow, with their ends (the file's last may have none); empty behind the last.
  // Valid until the next call.
  StatusOr<std::string_view> Next();
  // All that follows. Valid until the next call.
  StatusOr<std::string_view> Rest();

 private:
  // At least `least` bytes more, and whole lines, unless the file ends.
  StatusOr<std::string_view> Read(size_t least);

  std::string path_;
  std::optional<MappedFile> file_;      // not compressed, and not given yet
  std::unique_ptr<ByteSource> source_;  // compressed
  std::string bytes_;                   // decompressed; the first `given_` were given
  size_t given_ = 0;
  int64_t offset_ = 0;  // of bytes_ in the text
};

// The lines of a file, numbered from 1, without their ends.
class TextLinesOf {
 public:
  explicit TextLinesOf(TextPieces* pieces) : pieces_(pieces) {}
  // False at the end.
  StatusOr<bool> Next(std::string_view* line);
  int64_t number() const { return number_; }

 private:
  TextPieces* const pieces_;
  std::string_view piece_;
  int64_t number_ = 0;
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_DATASET_TEXT_PIECES_H_
