// SPDX-License-Identifier: Apache-2.0
#include "data/arrow/arrow_batch.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/utf8.h"
#include "core/thread_pool.h"

namespace tessera::data {
namespace {

// Rows of a type that takes no bytes of the file, below a list: what a damaged file may claim.
constexpr int64_t kMaxRowsWithoutBytes = int64_t{1} << 26;

Status At(const ArrowField& field, const Status& status) {
  return Failure(status.code(), "column '", field.path, "': ", status.message());
}

template <typename T>
T ValueAt(std::string_view bytes, int64_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

int64_t IntegerAt(std::string_view bytes, int64_t i, int width, bool is_signed) {
  switch (width) {
    case 1:
      return is_signed ? ValueAt<int8_t>(bytes, i) : ValueAt<uint8_t>(bytes, i);
    case 2:
      return is_signed ? ValueAt<int16_t>(bytes, i) : ValueAt<uint16_t>(bytes, i);
    case 4:
      return is_signed ? ValueAt<int32_t>(bytes, i) : int64_t{ValueAt<uint32_t>(bytes, i)};
    default:
      return ValueAt<int64_t>(bytes, i);
  }
}

bool BitAt(std::string_view bits, int64_t i) {
  return ((static_cast<uint8_t>(bits[static_cast<size_t>(i / 8)]) >> (i % 8)) & 1) != 0;
}

// Whether `bytes` have items [0, end) of `width` bytes.
bool Has(std::string_view bytes, int64_t end, int64_t width) {
  return width == 0 || end <= std::ssize(bytes) / width;
}

}  // namespace

StatusOr<std::optional<Codec>> ArrowCodec(const FlatTable& batch) {
  const FlatTable compression = batch.Table(3);
  if (!compression.present()) return std::optional<Codec>();
  const int codec = compression.Int<int8_t>(0, 0);
  if (codec == 0) return std::optional(Codec::kLz4Frame);
  if (codec == 1) return std::optional(Codec::kZstd);
  return InvalidArgument("compression ", codec, " is not supported (LZ4_FRAME and ZSTD are)");
}

// ---- Buffers -----------------------------------------------------------------------------------

// Deals a batch's lists of nodes and buffers out to the columns.
class ArrowBatch::Loader {
 public:
  Loader(const FlatTable& batch, const ByteBuffer& body)
      : body_(body),
        nodes_(batch.Vector(1, 16)),
        buffers_(batch.Vector(2, 16)),
        view_buffers_(batch.Vector(4, 8)) {}

  // `node` is nullptr for a column that is not wanted.
  Status Take(const ArrowField& field, Node* node) {
    if (next_node_ == nodes_.size()) return At(field, DataLoss("the batch has too few columns"));
    const size_t n = next_node_++;
    if (node != nullptr) {
      node->field = &field;
      node->length = nodes_.Int<int64_t>(n);
      node->null_count = nodes_.Int<int64_t>(n, 8);
      if (node->length < 0) return At(field, DataLoss("a length of ", node->length));
    }
    int64_t count = NumBuffers(field);
    if (field.layout == ArrowLayout::kViews && field.dictionary == nullptr) {
      if (next_views_ == view_buffers_.size()) {
        return At(field, DataLoss("the batch does not say how many buffers there are"));
      }
      const auto more = view_buffers_.Int<int64_t>(next_views_++);
      if (more < 0 || more > ssize(buffers_)) return At(field, DataLoss(more, " buffers"));
      count += more;
    }
    for (; count > 0; --count) TESSERA_RETURN_IF_ERROR(TakeBuffer(field, node));
    if (field.dictionary != nullptr) return OkStatus();
    if (node != nullptr) node->children.resize(field.children.size());
    for (size_t c = 0; c < field.children.size(); ++c) {
      TESSERA_RETURN_IF_ERROR(
          Take(field.children[c], node == nullptr ? nullptr : &node->children[c]));
    }
    return OkStatus();
  }

 private:
  static int64_t NumBuffers(const ArrowField& field) {
    if (field.dictionary != nullptr) return 2;
    switch (field.layout) {
      case ArrowLayout::kNull:
        return 0;
      case ArrowLayout::kFixedList:
      case ArrowLayout::kStruct:
        return 1;
      case ArrowLayout::kStrings:
        return 3;
      default:
        return 2;
    }
  }
  static int64_t ssize(const FlatVector& vector) { return static_cast<int64_t>(vector.size()); }

  Status TakeBuffer(const ArrowField& field, Node* node) {
    if (next_buffer_ == buffers_.size()) {
      return At(field, DataLoss("the batch has too few buffers"));
    }
    const size_t b = next_buffer_++;
    if (node == nullptr) return OkStatus();
    const auto begin = buffers_.Int<int64_t>(b);
    const auto size = buffers_.Int<int64_t>(b, 8);
    const int64_t all = std::ssize(body_.bytes);
    if (begin < 0 || size < 0 || begin > all || size > all - begin) {
      return At(field, DataLoss("a buffer lies outside the batch"));
    }
    node->buffers.push_back(
        {body_.bytes.substr(static_cast<size_t>(begin), static_cast<size_t>(size)), body_.owner});
    return OkStatus();
  }

  const ByteBuffer& body_;
  FlatVector nodes_;
  FlatVector buffers_;
  FlatVector view_buffers_;
  size_t next_node_ = 0;
  size_t next_buffer_ = 0;
  size_t next_views_ = 0;
};

namespace {

// A compressed buffer has its size before it; -1: it is not compressed after all.
Status DecompressBuffer(Codec codec, ByteBuffer* buffer) {
  if (buffer->bytes.empty()) return OkStatus();
  if (buffer->bytes.size() < 8) return DataLoss("a compressed buffer without its size");
  const auto size = ValueAt<int64_t>(buffer->bytes, 0);
  const std::string_view stored = buffer->bytes.substr(8);
  if (size == -1) {
    buffer->bytes = stored;
    return OkStatus();
  }
  TESSERA_ASSIGN_OR_RETURN(*buffer, Decompress(codec, stored, size));
  return OkStatus();
}

}  // namespace

StatusOr<ArrowBatch> ArrowBatch::Load(const FlatTable& batch, const ByteBuffer& body,
                                      const std::vector<ArrowField>& fields,
                                      const std::vector<size_t>& wanted) {
  ArrowBatch loaded;
  loaded.num_rows_ = batch.Int<int64_t>(0, 0);
  loaded.columns_.resize(wanted.size());
  Loader loader(batch, body);
  for (size_t f = 0; f < fields.size(); ++f) {
    const auto at = std::ranges::find(wanted, f);
    Node* const node =
        at == wanted.end() ? nullptr : &loaded.columns_[static_cast<size_t>(at - wanted.begin())];
    TESSERA_RETURN_IF_ERROR(loader.Take(fields[f], node));
    if (node != nullptr && node->length != loaded.num_rows_) {
      return At(fields[f],
                DataLoss("the column has ", node->length, " rows, the batch ", loaded.num_rows_));
    }
  }
  TESSERA_ASSIGN_OR_RETURN(const std::optional<Codec> codec, ArrowCodec(batch));
  if (!codec) return loaded;
  std::vector<std::pair<const ArrowField*, ByteBuffer*>> compressed;
  const auto collect = [&](auto& self, Node& node) -> void {
    for (ByteBuffer& buffer : node.buffers) compressed.emplace_back(node.field, &buffer);
    for (Node& child : node.children) self(self, child);
  };
  for (Node& node : loaded.columns_) collect(collect, node);
  std::vector<Status> statuses(compressed.size());
  ParallelFor(std::ssize(compressed), 1, [&](int64_t begin, int64_t) {
    const auto i = static_cast<size_t>(begin);
    statuses[i] = DecompressBuffer(*codec, compressed[i].second);
  });
  for (size_t i = 0; i < compressed.size(); ++i) {
    if (!statuses[i].ok()) return At(*compressed[i].first, statuses[i]);
  }
  return loaded;
}

// ---- Rows --------------------------------------------------------------------------------------

class ArrowBatch::RowReader {
 public:
  explicit RowReader(const ArrowDictionaries& dictionaries) : dictionaries_(dictionaries) {}

  StatusOr<Column> Read(const Node& node, int64_t begin, int64_t count) const {
    const ArrowField& field = *node.field;
    if (count > node.length || begin > node.length - count) {
      return At(field, DataLoss("a list has elements behind the last one"));
    }
    Column column;
    column.type = field.type;
    column.length = count;
    for (const ByteBuffer& buffer : node.buffers) {
      if (buffer.owner != nullptr) column.kept.push_back(buffer.owner);
    }
    const Status filled = Fill(node, begin, &column);
    if (!filled.ok()) return At(field, filled);
    TESSERA_RETURN_IF_ERROR(AddChildren(node, begin, &column));
    return column;
  }

 private:
  Status Fill(const Node& node, int64_t begin, Column* column) const {
    TESSERA_RETURN_IF_ERROR(SetValid(node, begin, column));
    if (node.field->dictionary != nullptr) return Resolve(node, begin, column);
    switch (node.field->layout) {
      case ArrowLayout::kBits:
        return SetBits(node.buffers[1].bytes, begin, column);
      case ArrowLayout::kFixed:
        return SetFixed(node, begin, column);
      case ArrowLayout::kStrings:
        return SetStrings(node, begin, column);
      case ArrowLayout::kViews:
        return SetViews(node, begin, column);
      case ArrowLayout::kList:
        return OkStatus();
      case ArrowLayout::kNull:
      case ArrowLayout::kFixedList:
      case ArrowLayout::kStruct:
        break;
    }
    if (column->length > kMaxRowsWithoutBytes) {
      return InvalidArgument("lists of more than ", kMaxRowsWithoutBytes, " elements");
    }
    return OkStatus();
  }

  static Status SetValid(const Node& node, int64_t begin, Column* column) {
    if (node.field->layout == ArrowLayout::kNull && node.field->dictionary == nullptr) {
      return OkStatus();
    }
    const std::string_view bits = node.buffers[0].bytes;
    if (node.null_count == 0 || column->length == 0) return OkStatus();
    if (bits.empty()) {
      if (node.null_count < 0) return OkStatus();  // unknown
      return DataLoss("there are nulls, but nothing says where");
    }
    if (!Has(bits, (begin + column->length + 7) / 8, 1)) {
      return DataLoss("the buffer of nulls is too short");
    }
    std::vector<uint8_t> valid(static_cast<size_t>(column->length));
    for (int64_t i = 0; i < column->length; ++i) {
      valid[static_cast<size_t>(i)] = BitAt(bits, begin + i) ? 1 : 0;
    }
    column->SetValid(std::move(valid));
    return OkStatus();
  }

  static Status SetBits(std::string_view bits, int64_t begin, Column* column) {
    if (!Has(bits, (begin + column->length + 7) / 8, 1)) return TooShort();
    std::vector<std::byte> values(static_cast<size_t>(column->length));
    for (int64_t i = 0; i < column->length; ++i) {
      values[static_cast<size_t>(i)] = std::byte{BitAt(bits, begin + i)};
    }
    column->SetValues(std::move(values));
    return OkStatus();
  }

  static Status SetFixed(const Node& node, int64_t begin, Column* column) {
    const std::string_view bytes = node.buffers[1].bytes;
    const int width = node.field->milliseconds ? 8 : column->type->byte_width;
    if (!Has(bytes, begin + column->length, width)) return TooShort();
    if (!node.field->milliseconds) {
      column->values = reinterpret_cast<const std::byte*>(bytes.data()) + begin * width;
      return OkStatus();
    }
    constexpr int64_t kPerDay = 86'400'000;
    std::vector<std::byte> days(static_cast<size_t>(column->length) * 4);
    for (int64_t i = 0; i < column->length; ++i) {
      const auto value = ValueAt<int64_t>(bytes, begin + i);
      const auto day = static_cast<int32_t>(value / kPerDay - (value % kPerDay < 0 ? 1 : 0));
      std::memcpy(&days[static_cast<size_t>(i) * 4], &day, sizeof(day));
    }
    column->SetValues(std::move(days));
    return OkStatus();
  }

  // Offsets [begin, begin + length], checked not to fall.
  static StatusOr<std::vector<int64_t>> Offsets(const Node& node, int64_t begin, int64_t length) {
    std::vector<int64_t> offsets(1, 0);
    if (length == 0) return offsets;
    const std::string_view bytes = node.buffers[1].bytes;
    const int width = node.field->offset_width;
    if (!Has(bytes, begin + length + 1, width)) return TooShort();
    offsets.resize(static_cast<size_t>(length) + 1);
    for (int64_t i = 0; i <= length; ++i) {
      const auto at = static_cast<size_t>(i);
      offsets[at] = IntegerAt(bytes, begin + i, width, true);
      if (offsets[at] < (i == 0 ? 0 : offsets[at - 1])) return DataLoss("offsets that fall");
    }
    return offsets;
  }

  static Status SetStrings(const Node& node, int64_t begin, Column* column) {
    TESSERA_ASSIGN_OR_RETURN(const std::vector<int64_t> offsets,
                             Offsets(node, begin, column->length));
    const std::string_view bytes = node.buffers[2].bytes;
    if (offsets.back() > std::ssize(bytes)) return TooShort();
    std::vector<std::string_view> strings(static_cast<size_t>(column->length));
    for (size_t i = 0; i < strings.size(); ++i) {
      // What lies below a null is nobody's.
      if (column->valid != nullptr && column->valid[i] == 0) continue;
      strings[i] = bytes.substr(static_cast<size_t>(offsets[i]),
                                static_cast<size_t>(offsets[i + 1] - offsets[i]));
    }
    return SetChecked(std::move(strings), column);
  }

  static Status SetViews(const Node& node, int64_t begin, Column* column) {
    const std::string_view views = node.buffers[1].bytes;
    constexpr int64_t kViewSize = 16;
    constexpr uint32_t kInline = 12;
    if (!Has(views, begin + column->length, kViewSize)) return TooShort();
    std::vector<std::string_view> strings(static_cast<size_t>(column->length));
    for (size_t i = 0; i < strings.size(); ++i) {
      if (column->valid != nullptr && column->valid[i] == 0) continue;
      const std::string_view view =
          views.substr((static_cast<size_t>(begin) + i) * kViewSize, kViewSize);
      const auto size = ValueAt<uint32_t>(view, 0);
      if (size <= kInline) {
        strings[i] = view.substr(4, size);
        continue;
      }
      const size_t buffer = size_t{2} + ValueAt<uint32_t>(view, 2);
      const auto offset = ValueAt<uint32_t>(view, 3);
      if (buffer >= node.buffers.size()) return DataLoss("a view of a buffer that is not there");
      const std::string_view bytes = node.buffers[buffer].bytes;
      if (offset > bytes.size() || size > bytes.size() - offset) {
        return DataLoss("a view lies outside its buffer");
      }
      strings[i] = bytes.substr(offset, size);
    }
    return SetChecked(std::move(strings), column);
  }

  static Status SetChecked(std::vector<std::string_view> strings, Column* column) {
    if (column->type->kind == TypeKind::kString) {
      for (const std::string_view text : strings) {
        const size_t bad = FindInvalidUtf8(text);
        if (bad != kNoInvalidUtf8) return DataLoss("a string is not UTF-8 at its byte ", bad);
      }
    }
    column->SetStrings(std::move(strings));
    return OkStatus();
  }

  // The values of indices into a dictionary.
  Status Resolve(const Node& node, int64_t begin, Column* column) const {
    const ArrowDictionary& dictionary = *node.field->dictionary;
    const auto values = dictionaries_.find(dictionary.id);
    if (values == dictionaries_.end()) {
      return DataLoss("its dictionary (number ", dictionary.id, ") is missing");
    }
    const std::string_view bytes = node.buffers[1].bytes;
    if (!Has(bytes, begin + column->length, dictionary.index_width)) return TooShort();
    std::vector<int64_t> rows(static_cast<size_t>(column->length), -1);
    for (int64_t i = 0; i < column->length; ++i) {
      if (column->valid != nullptr && column->valid[i] == 0) continue;
      const int64_t row =
          IntegerAt(bytes, begin + i, dictionary.index_width, dictionary.index_signed);
      if (row < 0 || row >= values->second.length) {
        return DataLoss("value ", row, " of a dictionary that has ", values->second.length);
      }
      rows[static_cast<size_t>(i)] = row;
    }
    TESSERA_ASSIGN_OR_RETURN(*column, TakeRows(values->second, rows));
    return OkStatus();
  }

  Status AddChildren(const Node& node, int64_t begin, Column* column) const {
    const ArrowField& field = *node.field;
    if (field.dictionary != nullptr) return OkStatus();
    if (field.layout == ArrowLayout::kStruct) {
      for (const Node& child : node.children) {
        TESSERA_ASSIGN_OR_RETURN(Column made, Read(child, begin, column->length));
        column->children.push_back(std::move(made));
      }
    }
    if (field.layout != ArrowLayout::kList && field.layout != ArrowLayout::kFixedList) {
      return OkStatus();
    }
    std::vector<int64_t> offsets;
    if (field.layout == ArrowLayout::kList) {
      auto read = Offsets(node, begin, column->length);
      if (!read.ok()) return At(field, read.status());
      offsets = *std::move(read);
    } else {
      for (int64_t i = 0; i <= column->length; ++i) {
        offsets.push_back((begin + i) * field.list_size);
      }
    }
    const int64_t first = offsets.front();
    const int64_t count = offsets.back() - first;
    for (int64_t& offset : offsets) offset -= first;
    column->SetOffsets(std::move(offsets));
    TESSERA_ASSIGN_OR_RETURN(Column elements, Read(node.children[0], first, count));
    if (field.type->kind != TypeKind::kMap) {
      column->children.push_back(std::move(elements));
    } else {
      // Keys and values side by side; entries are never null.
      column->children = std::move(elements.children);
    }
    return OkStatus();
  }

  static Status TooShort() { return DataLoss("a buffer is too short for its column"); }

  const ArrowDictionaries& dictionaries_;
};

StatusOr<Column> ArrowBatch::Rows(size_t i, int64_t begin, int64_t count,
                                  const ArrowDictionaries& dictionaries) const {
  return RowReader(dictionaries).Read(columns_[i], begin, count);
}

}  // namespace tessera::data
