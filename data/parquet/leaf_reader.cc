// SPDX-License-Identifier: Apache-2.0
#include "data/parquet/leaf_reader.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "data/columns/column.h"
#include "data/parquet/parquet_leaf_type.h"

namespace tessera::data {
namespace {

// Levels are read so many at once.
constexpr int64_t kLevelsAtOnce = 4096;
// Of one batch, in a column of lists: what a damaged file may make of few bytes.
constexpr int64_t kMaxEntries = int64_t{1} << 26;

// CodecName's numbers.
StatusOr<std::optional<Codec>> CodecOf(int codec) {
  switch (codec) {
    case 0:
      return std::optional<Codec>();
    case 1:
      return std::optional(Codec::kSnappy);
    case 2:
      return std::optional(Codec::kGzip);
    case 6:
      return std::optional(Codec::kZstd);
    case 7:
      return std::optional(Codec::kLz4Block);
    default:
      return InvalidArgument("compression ", CodecName(codec),
                             " is not supported (none, snappy, gzip, zstd, lz4_raw are)");
  }
}

}  // namespace

Status LeafReader::LevelReader::Read(uint8_t* out, int64_t count) {
  if (!(packed ? bits.Read(out, count) : runs.Read(out, count))) {
    return DataLoss("a page's levels end early");
  }
  if (count > 0 && *std::max_element(out, out + count) > largest) {
    return DataLoss("a level is larger than the schema allows");
  }
  return OkStatus();
}

StatusOr<LeafReader> LeafReader::Open(const ParquetLeaf& leaf, const ColumnChunk& chunk,
                                      std::string_view file, std::shared_ptr<const void> owner) {
  if (chunk.encrypted) return InvalidArgument("the column is encrypted, which is not supported");
  if (!chunk.file_path.empty()) {
    return InvalidArgument("the column is in another file, '", chunk.file_path,
                           "', which is not supported");
  }
  if (!chunk.has_metadata) return DataLoss("the footer does not say where the column is");
  if (chunk.type != static_cast<int>(leaf.physical)) {
    return DataLoss("the row group has another type than the schema");
  }
  LeafReader reader(leaf, file, std::move(owner));
  TESSERA_ASSIGN_OR_RETURN(reader.codec_, CodecOf(chunk.codec));
  int64_t begin = chunk.data_page_offset;
  if (chunk.dictionary_page_offset > 0) begin = std::min(begin, chunk.dictionary_page_offset);
  if (begin < 0 || begin > std::ssize(file) || chunk.num_values < 0) {
    return DataLoss("the column lies outside the file");
  }
  reader.position_ = static_cast<size_t>(begin);
  reader.chunk_left_ = chunk.num_values;
  return reader;
}

// ---- Pages -------------------------------------------------------------------------------------

StatusOr<ByteBuffer> LeafReader::PageBytes(std::string_view stored, int64_t size,
                                           bool compressed) const {
  if (codec_ && compressed) return Decompress(*codec_, stored, size);
  if (size != std::ssize(stored)) {
    return DataLoss("a page of ", stored.size(), " bytes that should have ", size);
  }
  return ByteBuffer{stored, owner_};
}

Status LeafReader::NextPage() {
  while (true) {
    size_t header_size = 0;
    TESSERA_ASSIGN_OR_RETURN(const PageHeader header,
                             ParsePageHeader(file_.substr(position_), &header_size));
    position_ += header_size;
    if (header.compressed_size > std::ssize(file_) - static_cast<int64_t>(position_)) {
      return DataLoss("a page is cut off by the end of the file");
    }
    const std::string_view stored =
        file_.substr(position_, static_cast<size_t>(header.compressed_size));
    position_ += stored.size();
    if (header.crc &&
        *header.crc != crc32_z(0, reinterpret_cast<const Bytef*>(stored.data()), stored.size())) {
      return DataLoss("a page has another checksum than its header says");
    }
    switch (header.type) {
      case PageType::kDictionary:
        TESSERA_RETURN_IF_ERROR(OpenDictionary(header, stored));
        break;
      case PageType::kData:
        return OpenPage(header, stored);
      case PageType::kDataV2:
        return OpenPageV2(header, stored);
      default:
        break;  // an index
    }
  }
}

Status LeafReader::OpenDictionary(const PageHeader& header, std::string_view stored) {
  if (dictionary_ != nullptr) return DataLoss("the column has two dictionaries");
  TESSERA_ASSIGN_OR_RETURN(ByteBuffer bytes, PageBytes(stored, header.uncompressed_size, true));
  TESSERA_ASSIGN_OR_RETURN(LeafValues values,
                           ReadDictionary(*leaf_, header.encoding, bytes.bytes, header.num_values));
  if (bytes.owner != nullptr) values.kept.push_back(std::move(bytes.owner));
  dictionary_ = std::make_unique<LeafValues>(std::move(values));
  return OkStatus();
}

Status LeafReader::TakeLevels(int largest, Encoding encoding, std::string_view* bytes,
                              LevelReader* levels) {
  *levels = {.largest = largest};
  if (largest == 0) return OkStatus();
  const int width = BitsOf(largest);
  if (encoding == Encoding::kBitPacked) {
    const int64_t size = PackedLevelReader::Size(page_left_, width);
    if (size > std::ssize(*bytes)) return DataLoss("a page's levels end early");
    levels->packed = true;
    levels->bits = PackedLevelReader(bytes->substr(0, static_cast<size_t>(size)), width);
    bytes->remove_prefix(static_cast<size_t>(size));
    return OkStatus();
  }
  if (encoding != Encoding::kRle) {
    return InvalidArgument("levels in encoding ", static_cast<int>(encoding), " are not supported");
  }
  uint32_t size = 0;
  if (bytes->size() < sizeof(size)) return DataLoss("a page's levels end early");
  std::memcpy(&size, bytes->data(), sizeof(size));
  bytes->remove_prefix(sizeof(size));
  if (size > bytes->size()) return DataLoss("a page's levels end early");
  levels->runs = RunReader(bytes->substr(0, size), width);
  bytes->remove_prefix(size);
  return OkStatus();
}

Status LeafReader::OpenPage(const PageHeader& header, std::string_view stored) {
  page_left_ = header.num_values;
  TESSERA_ASSIGN_OR_RETURN(page_, PageBytes(stored, header.uncompressed_size, true));
  std::string_view bytes = page_.bytes;
  TESSERA_RETURN_IF_ERROR(
      TakeLevels(leaf_->max_repetition, header.repetition_level_encoding, &bytes, &repetition_));
  TESSERA_RETURN_IF_ERROR(
      TakeLevels(leaf_->max_definition, header.definition_level_encoding, &bytes, &definition_));
  values_from_dictionary_ =
      header.encoding == Encoding::kPlainDictionary || header.encoding == Encoding::kRleDictionary;
  page_is_kept_ = false;
  TESSERA_ASSIGN_OR_RETURN(values_,
                           OpenPageValues(*leaf_, header.encoding, bytes, dictionary_.get()));
  return OkStatus();
}

Status LeafReader::OpenPageV2(const PageHeader& header, std::string_view stored) {
  page_left_ = header.num_values;
  const int64_t repetition = header.repetition_levels_size;
  const int64_t definition = header.definition_levels_size;
  if (repetition + definition > std::min(header.uncompressed_size, std::ssize(stored))) {
    return DataLoss("a page's levels end early");
  }
  repetition_ = {.largest = leaf_->max_repetition};
  repetition_.runs =
      RunReader(stored.substr(0, static_cast<size_t>(repetition)), BitsOf(leaf_->max_repetition));
  definition_ = {.largest = leaf_->max_definition};
  definition_.runs =
      RunReader(stored.substr(static_cast<size_t>(repetition), static_cast<size_t>(definition)),
                BitsOf(leaf_->max_definition));
  TESSERA_ASSIGN_OR_RETURN(
      page_, PageBytes(stored.substr(static_cast<size_t>(repetition + definition)),
                       header.uncompressed_size - repetition - definition, header.is_compressed));
  values_from_dictionary_ =
      header.encoding == Encoding::kPlainDictionary || header.encoding == Encoding::kRleDictionary;
  page_is_kept_ = false;
  TESSERA_ASSIGN_OR_RETURN(values_,
                           OpenPageValues(*leaf_, header.encoding, page_.bytes, dictionary_.get()));
  return OkStatus();
}

// ---- Entries -----------------------------------------------------------------------------------

Status LeafReader::NextPiece() {
  while (page_left_ == 0) {
    if (chunk_left_ == 0) return DataLoss("the column has fewer rows than its row group");
    TESSERA_RETURN_IF_ERROR(NextPage());
    if (page_left_ > chunk_left_) return DataLoss("a page has more values than its column");
    chunk_left_ -= page_left_;
  }
  piece_begin_ = 0;
  piece_end_ = std::min(page_left_, kLevelsAtOnce);
  page_left_ -= piece_end_;
  const auto size = static_cast<size_t>(piece_end_);
  if (leaf_->max_repetition > 0) {
    piece_repetition_.resize(size);
    TESSERA_RETURN_IF_ERROR(repetition_.Read(piece_repetition_.data(), piece_end_));
  }
  if (leaf_->max_definition > 0) {
    piece_definition_.resize(size);
    TESSERA_RETURN_IF_ERROR(definition_.Read(piece_definition_.data(), piece_end_));
  }
  return OkStatus();
}

Status LeafReader::ReadValues(int64_t count, LeafEntries* out) {
  if (count == 0) return OkStatus();
  const size_t begin = out->values.strings.size();
  // Of a dictionary, few bytes make many values.
  const int width = PhysicalWidth(leaf_->physical, leaf_->type_length);
  if (count * width > kMaxRepeatedBytes - std::ssize(out->values.fixed)) {
    return InvalidArgument("repeated values take more than ", kMaxRepeatedBytes, " bytes");
  }
  TESSERA_RETURN_IF_ERROR(values_->Read(count, &out->values));
  if (out->values.strings.size() == begin) return OkStatus();
  if (values_from_dictionary_) return OkStatus();
  if (!std::exchange(page_is_kept_, true) && page_.owner != nullptr) {
    out->values.kept.push_back(page_.owner);
  }
  return CheckText(*leaf_, out->values.strings, begin);
}

Status LeafReader::TakeEntries(int64_t count, LeafEntries* out) {
  int64_t present = count;
  if (leaf_->max_definition > 0) {
    const auto begin = piece_definition_.begin() + piece_begin_;
    out->definition.insert(out->definition.end(), begin, begin + count);
    present = std::count(begin, begin + count, static_cast<uint8_t>(leaf_->max_definition));
  }
  if (leaf_->max_repetition > 0) {
    const auto begin = piece_repetition_.begin() + piece_begin_;
    out->repetition.insert(out->repetition.end(), begin, begin + count);
  }
  out->count += count;
  piece_begin_ += count;
  return ReadValues(present, out);
}

Status LeafReader::ReadFlat(int64_t rows, LeafEntries* out) {
  while (rows > 0) {
    if (piece_begin_ == piece_end_) TESSERA_RETURN_IF_ERROR(NextPiece());
    const int64_t count = std::min(rows, piece_end_ - piece_begin_);
    TESSERA_RETURN_IF_ERROR(TakeEntries(count, out));
    rows -= count;
  }
  return OkStatus();
}

Status LeafReader::ReadNested(int64_t rows, LeafEntries* out) {
  int64_t begun = 0;
  while (true) {
    if (piece_begin_ == piece_end_) {
      if (page_left_ == 0 && chunk_left_ == 0 && begun == rows) return OkStatus();
      TESSERA_RETURN_IF_ERROR(NextPiece());
    }
    int64_t end = piece_begin_;
    bool done = false;
    for (; end < piece_end_; ++end) {
      if (piece_repetition_[static_cast<size_t>(end)] != 0) {
        if (begun == 0) return DataLoss("the column does not begin with a row");
        continue;
      }
      done = begun == rows;
      if (done) break;
      ++begun;
    }
    TESSERA_RETURN_IF_ERROR(TakeEntries(end - piece_begin_, out));
    if (done) return OkStatus();
    if (out->count > kMaxEntries) {
      return InvalidArgument("more than ", kMaxEntries, " list elements in ", rows, " rows");
    }
  }
}

Status LeafReader::Read(int64_t rows, LeafEntries* out) {
  // What batches share is kept by each of them.
  page_is_kept_ = false;
  TESSERA_RETURN_IF_ERROR(leaf_->max_repetition > 0 ? ReadNested(rows, out) : ReadFlat(rows, out));
  if (dictionary_ != nullptr) {
    out->values.kept.insert(out->values.kept.end(), dictionary_->kept.begin(),
                            dictionary_->kept.end());
  }
  return OkStatus();
}

}  // namespace tessera::data
