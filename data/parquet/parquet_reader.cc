// SPDX-License-Identifier: Apache-2.0
#include "data/parquet/parquet_reader.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "core/thread_pool.h"
#include "data/parquet/assemble_column.h"
#include "data/parquet/leaf_reader.h"
#include "data/parquet/parquet_metadata.h"
#include "data/parquet/parquet_schema.h"

namespace tessera::data {
namespace {

constexpr std::string_view kMagic = "PAR1";
constexpr std::string_view kEncryptedMagic = "PARE";

class ParquetReader final : public TableReader {
 public:
  ParquetReader(const MappedFile& file, std::string_view data, FileMetadata metadata,
                ParquetSchema schema, std::vector<TablePart> parts)
      : TableReader(file.path(), "Parquet"),
        file_(file),
        data_(data),
        metadata_(std::move(metadata)),
        schema_(std::move(schema)) {
    std::vector<Field> fields;
    for (const ParquetNode& node : schema_.columns) fields.push_back({node.name, node.type});
    SetTable(std::move(fields), std::move(parts), std::move(metadata_.key_values));
  }

 protected:
  Status ReadRows(size_t part, int64_t begin, int64_t count, Column* rows) override {
    TESSERA_RETURN_IF_ERROR(MoveTo(part, begin));
    std::vector<LeafEntries> entries;
    const Status read = ReadLeaves(count, &entries);
    if (!read.ok()) return Forget(read);
    position_ = begin + count;
    if (position_ == metadata_.row_groups[part].num_rows) {
      for (const Leaf& leaf : leaves_) {
        if (leaf.reader.AtEnd()) continue;
        return Forget(
            At(part, leaf.number, DataLoss("the column has more rows than its row group")));
      }
    }
    const Status assembled = Assemble(count, entries, rows);
    return assembled.ok() ? assembled : Forget(assembled);
  }

 private:
  struct Leaf {
    size_t number;  // of the schema's leaves
    LeafReader reader;
  };

  std::string Where(size_t part) const { return Concat(path(), ": row group ", part, ", "); }
  Status At(size_t part, size_t leaf, const Status& status) const {
    return Failure(status.code(), Where(part), "column '", schema_.leaves[leaf].path,
                   "': ", status.message());
  }
  // After a failure, nothing is known of where the leaves' readers are.
  Status Forget(Status status) {
    leaves_.clear();
    columns_.clear();
    part_.reset();
    return status;
  }

  // The leaves' readers at this row, of the columns that are wanted.
  Status MoveTo(size_t part, int64_t row) {
    if (part_ != part || columns_ != selected() || position_ > row) {
      part_ = part;
      columns_ = selected();
      position_ = 0;
      const Status opened = OpenLeaves(part);
      if (!opened.ok()) return Forget(opened);
    }
    while (position_ < row) {
      const int64_t skipped = std::min(row - position_, kMaxBatchRows);
      std::vector<LeafEntries> entries;
      const Status read = ReadLeaves(skipped, &entries);
      if (!read.ok()) return Forget(read);
      position_ += skipped;
    }
    return OkStatus();
  }

  Status OpenLeaves(size_t part) {
    leaves_.clear();
    const RowGroup& group = metadata_.row_groups[part];
    for (const size_t c : columns_) {
      const ParquetNode& node = schema_.columns[c];
      for (size_t l = node.first_leaf; l < node.first_leaf + node.num_leaves; ++l) {
        auto reader = LeafReader::Open(schema_.leaves[l], group.columns[l], data_, file_.owner());
        if (!reader.ok()) return At(part, l, reader.status());
        leaves_.push_back({l, *std::move(reader)});
      }
    }
    return OkStatus();
  }

  Status ReadLeaves(int64_t rows, std::vector<LeafEntries>* entries) {
    entries->resize(leaves_.size());
    std::vector<Status> statuses(leaves_.size());
    ParallelFor(std::ssize(leaves_), 1, [&](int64_t begin, int64_t) {
      const auto i = static_cast<size_t>(begin);
      statuses[i] = leaves_[i].reader.Read(rows, &(*entries)[i]);
    });
    for (size_t i = 0; i < leaves_.size(); ++i) {
      if (!statuses[i].ok()) return At(*part_, leaves_[i].number, statuses[i]);
    }
    return OkStatus();
  }

  Status Assemble(int64_t count, std::span<LeafEntries> entries, Column* rows) const {
    std::vector<std::span<LeafEntries>> shares;
    for (const size_t c : columns_) {
      const size_t num_leaves = schema_.columns[c].num_leaves;
      shares.push_back(entries.first(num_leaves));
      entries = entries.subspan(num_leaves);
    }
    std::vector<Status> statuses(columns_.size());
    rows->children.resize(columns_.size());
    ParallelFor(std::ssize(columns_), 1, [&](int64_t begin, int64_t) {
      const auto i = static_cast<size_t>(begin);
      const ParquetNode& node = schema_.columns[columns_[i]];
      auto column = AssembleColumn(
          node, std::span(schema_.leaves).subspan(node.first_leaf, node.num_leaves), shares[i]);
      if (!column.ok()) {
        statuses[i] = Failure(column.status().code(), Where(*part_), column.status().message());
      } else if (column->length != count) {
        statuses[i] = At(*part_, node.first_leaf, DataLoss("the levels are damaged"));
      } else {
        rows->children[i] = *std::move(column);
      }
    });
    for (const Status& status : statuses) TESSERA_RETURN_IF_ERROR(status);
    return OkStatus();
  }

  MappedFile file_;
  std::string_view data_;  // what is before the footer
  FileMetadata metadata_;
  ParquetSchema schema_;
  std::optional<size_t> part_;   // the row group that is open
  std::vector<size_t> columns_;  // of selected(), as it was then
  std::vector<Leaf> leaves_;
  int64_t position_ = 0;  // the row, within the group, that the leaves' readers are at
};

// Sizes and compressions of the row groups; DataLoss where they cannot be.
StatusOr<std::vector<TablePart>> PartsOf(const FileMetadata& metadata, size_t num_leaves) {
  std::vector<TablePart> parts;
  int64_t num_rows = 0;
  for (size_t g = 0; g < metadata.row_groups.size(); ++g) {
    const RowGroup& group = metadata.row_groups[g];
    if (group.columns.size() != num_leaves) {
      return DataLoss("row group ", g, " has ", group.columns.size(), " columns, the schema has ",
                      num_leaves);
    }
    if (group.num_rows < 0 || __builtin_add_overflow(num_rows, group.num_rows, &num_rows)) {
      return DataLoss("row group ", g, " has ", group.num_rows, " rows");
    }
    TablePart part = {.num_rows = group.num_rows, .compression = {}};
    std::vector<int> codecs;
    for (const ColumnChunk& chunk : group.columns) {
      // What no file has is no size; sums stay within their type.
      constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / 4;
      part.bytes =
          std::min(part.bytes + std::clamp<int64_t>(chunk.compressed_size, 0, kMost), kMost);
      part.uncompressed_bytes = std::min(
          part.uncompressed_bytes + std::clamp<int64_t>(chunk.uncompressed_size, 0, kMost), kMost);
      if (std::ranges::find(codecs, chunk.codec) != codecs.end()) continue;
      codecs.push_back(chunk.codec);
      part.compression += Concat(part.compression.empty() ? "" : ", ", CodecName(chunk.codec));
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace

bool IsParquet(std::string_view begin) {
  return begin.starts_with(kMagic) || begin.starts_with(kEncryptedMagic);
}

StatusOr<std::unique_ptr<TableReader>> OpenParquet(const MappedFile& file) {
  const auto at = [&](const Status& status) {
    return Failure(status.code(), file.path(), ": ", status.message());
  };
  const std::string_view bytes(reinterpret_cast<const char*>(file.data()),
                               static_cast<size_t>(file.size()));
  if (bytes.starts_with(kEncryptedMagic)) {
    return at(InvalidArgument("the file is encrypted, which is not supported"));
  }
  if (!bytes.starts_with(kMagic)) return at(InvalidArgument("not a Parquet file"));
  // "PAR1", the pages, the footer, its size, "PAR1".
  if (bytes.size() < 12 || !bytes.ends_with(kMagic)) {
    return at(DataLoss("the Parquet file is cut off: it does not end with PAR1"));
  }
  uint32_t footer_size = 0;
  std::memcpy(&footer_size, bytes.end() - 8, sizeof(footer_size));
  if (footer_size > bytes.size() - 12) {
    return at(DataLoss("a footer of ", footer_size, " bytes in a file of ", bytes.size()));
  }
  const std::string_view data = bytes.substr(0, bytes.size() - 8 - footer_size);
  auto metadata = ParseFileMetadata(bytes.substr(data.size(), footer_size));
  if (!metadata.ok()) return at(metadata.status());
  auto schema = MakeParquetSchema(metadata->schema);
  if (!schema.ok()) return at(schema.status());
  auto parts = PartsOf(*metadata, schema->leaves.size());
  if (!parts.ok()) return at(parts.status());
  return std::unique_ptr<TableReader>(std::make_unique<ParquetReader>(
      file, data, *std::move(metadata), *std::move(schema), *std::move(parts)));
}

}  // namespace tessera::data
