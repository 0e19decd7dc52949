// SPDX-License-Identifier: Apache-2.0
#include "data/columns/column.h"

#include <algorithm>

namespace tessera::data {
namespace {

// Rows of two columns as one: `second` follows `first`.
struct Pair {
  const Column* first;
  const Column* second;

  const Column& Of(int64_t* row) const {
    if (*row < first->length) return *first;
    *row -= first->length;
    return *second;
  }
};

Status TooLarge() {
  return InvalidArgument("repeated values take more than ", kMaxRepeatedBytes, " bytes");
}

StatusOr<Column> TakeOf(const Pair& source, std::span<const int64_t> rows) {
  Column out;
  out.type = source.first->type;
  out.length = std::ssize(rows);
  for (const Column* column : {source.first, source.second}) {
    out.kept.insert(out.kept.end(), column->kept.begin(), column->kept.end());
    if (source.first == source.second) break;
  }
  const TypeKind kind = out.type->kind;
  const auto width = static_cast<size_t>(out.type->byte_width);
  const bool has_strings = kind == TypeKind::kString || kind == TypeKind::kBinary;
  const bool has_offsets = kind == TypeKind::kList || kind == TypeKind::kMap;
  const Status too_large = TooLarge();
  if (width > 0 && out.length > kMaxRepeatedBytes / out.type->byte_width) return too_large;
  if (has_offsets) {
    int64_t count = 0;
    for (int64_t row : rows) {
      if (row < 0) continue;
      const Column& column = source.Of(&row);
      count += column.offsets[row + 1] - column.offsets[row];
      if (count > kMaxRepeatedBytes / int64_t{sizeof(int64_t)}) return too_large;
    }
  }
  std::vector<uint8_t> valid(rows.size());
  std::vector<std::byte> values(rows.size() * width);
  std::vector<std::string_view> strings(has_strings ? rows.size() : 0);
  std::vector<int64_t> offsets(has_offsets ? 1 : 0);
  std::vector<int64_t> elements;
  for (size_t i = 0; i < rows.size(); ++i) {
    int64_t row = rows[i];
    if (row >= 0) {
      const Column& column = source.Of(&row);
      valid[i] = column.IsNull(row) ? 0 : 1;
      if (valid[i] != 0) {
        if (width > 0) std::memcpy(&values[i * width], column.Bytes(row).data(), width);
        if (has_strings) strings[i] = column.strings[row];
        if (has_offsets) {
          const int64_t shift = &column == source.first ? 0 : source.first->children[0].length;
          const int64_t end = column.offsets[row + 1];
          for (int64_t e = column.offsets[row]; e < end; ++e) elements.push_back(e + shift);
        }
      }
    }
    if (has_offsets) offsets.push_back(std::ssize(elements));
  }
  if (std::ranges::find(valid, 0) != valid.end()) out.SetValid(std::move(valid));
  if (width > 0) out.SetValues(std::move(values));
  if (has_strings) out.SetStrings(std::move(strings));
  if (has_offsets) out.SetOffsets(std::move(offsets));
  for (size_t c = 0; c < source.first->children.size(); ++c) {
    const Pair child = {&source.first->children[c], &source.second->children[c]};
    TESSERA_ASSIGN_OR_RETURN(
        Column taken, TakeOf(child, has_offsets ? std::span<const int64_t>(elements) : rows));
    out.children.push_back(std::move(taken));
  }
  return out;
}

}  // namespace

StatusOr<Column> TakeRows(const Column& column, std::span<const int64_t> rows) {
  return TakeOf({&column, &column}, rows);
}

StatusOr<Column> Concatenated(const Column& first, const Column& second) {
  constexpr int64_t kMost = kMaxRepeatedBytes / int64_t{sizeof(int64_t)};
  if (first.length > kMost || second.length > kMost - first.length) return TooLarge();
  std::vector<int64_t> rows(static_cast<size_t>(first.length + second.length));
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int64_t>(i);
  return TakeOf({&first, &second}, rows);
}

}  // namespace tessera::data
