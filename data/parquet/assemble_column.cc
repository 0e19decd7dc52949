// SPDX-License-Identifier: Apache-2.0
#include "data/parquet/assemble_column.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "data/parquet/parquet_leaf_type.h"

namespace tessera::data {
namespace {

// Calls `slot(definition)` for each of the node's slots, by the entries of a leaf below it that has
// definition levels.
template <typename F>
void ForEachSlot(const ParquetNode& node, const LeafEntries& entries, F&& slot) {
  const bool repeated = !entries.repetition.empty();
  for (size_t i = 0; i < entries.definition.size(); ++i) {
    if (repeated && entries.repetition[i] > node.slot_repetition) continue;
    if (entries.definition[i] >= node.slot_definition) slot(int{entries.definition[i]});
  }
}

class Assembler {
 public:
  Assembler(std::span<const ParquetLeaf> leaves, std::span<LeafEntries> entries, size_t first)
      : leaves_(leaves), entries_(entries), first_(first) {}

  StatusOr<Column> Assemble(const ParquetNode& node) {
    Column column;
    column.type = node.type;
    TESSERA_RETURN_IF_ERROR(SetRows(node, &column));
    switch (node.type->kind) {
      case TypeKind::kStruct:
        TESSERA_RETURN_IF_ERROR(AddChildren(node, column.length, &column));
        break;
      case TypeKind::kList:
      case TypeKind::kMap: {
        std::vector<int64_t> offsets = Offsets(node);
        const int64_t elements = offsets.back();
        column.SetOffsets(std::move(offsets));
        TESSERA_RETURN_IF_ERROR(AddChildren(node, elements, &column));
        break;
      }
      default: {
        const Status filled = FillLeaf(node, &column);
        if (!filled.ok()) return At(node, filled);
      }
    }
    return column;
  }

 private:
  Status At(const ParquetNode& node, const Status& status) const {
    return Failure(status.code(), "column '", leaves_[node.first_leaf - first_].path,
                   "': ", status.message());
  }

  const LeafEntries& First(const ParquetNode& node) const {
    return entries_[node.first_leaf - first_];
  }

  // Length and nulls.
  Status SetRows(const ParquetNode& node, Column* column) const {
    const LeafEntries& entries = First(node);
    if (entries.definition.empty()) {
      column->length = entries.count;
      return OkStatus();
    }
    std::vector<uint8_t> valid;
    valid.reserve(entries.definition.size());
    ForEachSlot(node, entries, [&](int definition) {
      valid.push_back(definition >= node.valid_definition ? 1 : 0);
    });
    column->length = std::ssize(valid);
    if (std::ranges::find(valid, 0) != valid.end()) column->SetValid(std::move(valid));
    return OkStatus();
  }

  // Of the elements of a list's or map's slots.
  std::vector<int64_t> Offsets(const ParquetNode& node) const {
    const LeafEntries& entries = First(node);
    std::vector<int64_t> offsets;
    int64_t elements = 0;
    for (size_t i = 0; i < entries.definition.size(); ++i) {
      const int definition = entries.definition[i];
      const int repetition = entries.repetition[i];
      if (repetition <= node.slot_repetition && definition >= node.slot_definition) {
        offsets.push_back(elements);
      }
      if (repetition <= node.slot_repetition + 1 && definition >= node.element_definition) {
        ++elements;
      }
    }
    offsets.push_back(elements);
    return offsets;
  }

  Status AddChildren(const ParquetNode& node, int64_t length, Column* column) {
    for (const ParquetNode& child : node.children) {
      TESSERA_ASSIGN_OR_RETURN(Column made, Assemble(child));
      if (made.length != length) {
        return At(child, DataLoss("the column has ", made.length,
                                  " values where those beside it have ", length));
      }
      column->children.push_back(std::move(made));
    }
    return OkStatus();
  }

  Status FillLeaf(const ParquetNode& node, Column* column) {
    const ParquetLeaf& leaf = leaves_[node.first_leaf - first_];
    LeafValues values = std::move(entries_[node.first_leaf - first_].values);
    column->kept.insert(column->kept.end(), values.kept.begin(), values.kept.end());
    const TypeKind kind = leaf.type->kind;
    if (kind == TypeKind::kNull) return OkStatus();
    if (kind == TypeKind::kString || kind == TypeKind::kBinary) {
      column->SetStrings(Spread(std::move(values.strings), 1, *column));
      return OkStatus();
    }
    // Nulls take room, too.
    if (column->length > kMaxRepeatedBytes / leaf.type->byte_width) {
      return InvalidArgument("the values take more than ", kMaxRepeatedBytes, " bytes");
    }
    std::vector<std::byte> bytes;
    if (leaf.physical == PhysicalType::kByteArray) {
      TESSERA_ASSIGN_OR_RETURN(bytes, DecimalsOf(values.strings, *leaf.type));
    } else {
      TESSERA_ASSIGN_OR_RETURN(bytes, ConvertValues(leaf.physical, leaf.type_length, *leaf.type,
                                                    std::move(values.fixed)));
    }
    column->SetValues(
        Spread(std::move(bytes), static_cast<size_t>(leaf.type->byte_width), *column));
    return OkStatus();
  }

  // Values, of `width` items each, moved apart so that nulls have room.
  template <typename T>
  static std::vector<T> Spread(std::vector<T> values, size_t width, const Column& column) {
    if (column.valid == nullptr) return values;
    size_t from = values.size();
    values.resize(static_cast<size_t>(column.length) * width);
    for (size_t row = static_cast<size_t>(column.length); row-- > 0;) {
      T* const to = values.data() + row * width;
      if (column.valid[row] == 0) {
        std::fill_n(to, width, T{});
      } else {
        from -= width;
        std::copy_backward(values.data() + from, values.data() + from + width, to + width);
      }
    }
    return values;
  }

  std::span<const ParquetLeaf> leaves_;
  std::span<LeafEntries> entries_;
  size_t first_;
};

}  // namespace

StatusOr<Column> AssembleColumn(const ParquetNode& node, std::span<const ParquetLeaf> leaves,
                                std::span<LeafEntries> entries) {
  return Assembler(leaves, entries, node.first_leaf).Assemble(node);
}

}  // namespace tessera::data
