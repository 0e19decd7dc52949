// SPDX-License-Identifier: Apache-2.0
#include "models/hub/gguf/gguf_header.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <type_traits>
#include <unordered_set>

namespace tessera::models {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are read as they lie");

constexpr std::string_view kMagic = "GGUF";
constexpr uint32_t kVersion = 3;
constexpr int64_t kDefaultAlignment = 32;
constexpr int64_t kMaxAlignment = 1 << 20;
constexpr uint32_t kMaxDims = 4;
constexpr uint64_t kMaxKeyBytes = 65535;
// The least that one of them takes in the file.
constexpr uint64_t kLeastValueBytes = 8 + 4 + 1;
constexpr uint64_t kLeastTensorBytes = 8 + 4 + 4 + 8;

// Text from the file as part of a one-line message.
std::string Quoted(std::string_view text) {
  constexpr size_t kMost = 100;
  std::string cut(text.substr(0, kMost));
  for (char& c : cut) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return "'" + cut + (text.size() > kMost ? "...'" : "'");
}

int64_t Aligned(int64_t offset, int64_t alignment) {
  return (offset + alignment - 1) / alignment * alignment;
}

// Reads from left to right; `where` begins messages and is set by who knows what comes.
class Reader {
 public:
  Reader(std::string_view bytes, std::string path) : where(std::move(path)), bytes_(bytes) {}

  std::string where;

  size_t position() const { return at_; }
  uint64_t left() const { return bytes_.size() - at_; }

  template <typename T>
  Status Number(T* value) {
    if (left() < sizeof(T)) return Short();
    std::memcpy(value, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return OkStatus();
  }
  Status Bool(bool* value) {
    uint8_t byte = 0;
    TESSERA_RETURN_IF_ERROR(Number(&byte));
    if (byte > 1) return DataLoss(where, ": a boolean is ", int{byte});
    *value = byte == 1;
    return OkStatus();
  }
  Status Text(std::string* value) {
    uint64_t size = 0;
    TESSERA_RETURN_IF_ERROR(Number(&size));
    if (size > left()) return Short();
    value->assign(bytes_.substr(at_, size));
    at_ += size;
    return OkStatus();
  }
  template <typename T>
  Status Element(T* value) {
    if constexpr (std::is_same_v<T, bool>) {
      return Bool(value);
    } else if constexpr (std::is_same_v<T, std::string>) {
      return Text(value);
    } else {
      static_assert(std::is_arithmetic_v<T>);
      return Number(value);
    }
  }
  Status Element(GgufArray*) { return OkStatus(); }  // read by who looks for it
  // A count of what takes at least `least` bytes each.
  Status Count(uint64_t least, uint64_t* count) {
    TESSERA_RETURN_IF_ERROR(Number(count));
    if (*count <= left() / least) return OkStatus();
    return DataLoss(where, ": ", *count, " elements do not fit into the ", left(),
                    " bytes that are left");
  }

 private:
  Status Short() const { return DataLoss(where, ": the file is cut off"); }

  std::string_view bytes_;
  size_t at_ = 0;
};

// Makes it the default value of the type that has this number.
template <typename Variant, size_t... kIndex>
bool SetType(uint32_t number, Variant* value, std::index_sequence<kIndex...>) {
  return ((number == kIndex && (value->template emplace<kIndex>(), true)) || ...);
}

template <typename Variant>
Status ReadType(Reader* reader, Variant* value) {
  uint32_t number = 0;
  TESSERA_RETURN_IF_ERROR(reader->Number(&number));
  const bool known =
      SetType(number, value, std::make_index_sequence<std::variant_size_v<Variant>>());
  return known ? OkStatus() : DataLoss(reader->where, ": unknown type of value ", number);
}

Status ReadElements(Reader* reader, GgufNoArray*) {
  return InvalidArgument(reader->where, ": arrays of arrays are not supported");
}
template <typename T>
Status ReadElements(Reader* reader, std::vector<T>* elements) {
  uint64_t count = 0;
  TESSERA_RETURN_IF_ERROR(reader->Count(std::is_same_v<T, std::string> ? 8 : sizeof(T), &count));
  elements->reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    T element{};
    TESSERA_RETURN_IF_ERROR(reader->Element(&element));
    elements->push_back(std::move(element));
  }
  return OkStatus();
}

Status ReadValue(Reader* reader, GgufValue* value) {
  TESSERA_RETURN_IF_ERROR(ReadType(reader, value));
  auto* const array = std::get_if<GgufArray>(value);
  if (array == nullptr) {
    return std::visit([reader](auto& held) { return reader->Element(&held); }, *value);
  }
  TESSERA_RETURN_IF_ERROR(ReadType(reader, array));
  return std::visit([reader](auto& elements) { return ReadElements(reader, &elements); }, *array);
}

Status ReadMetadata(Reader* reader, uint64_t count, const std::string& path,
                    GgufMetadata* metadata) {
  std::unordered_set<std::string> keys;
  for (uint64_t i = 0; i < count; ++i) {
    reader->where = Concat(path, ": metadata ", i);
    std::string key;
    TESSERA_RETURN_IF_ERROR(reader->Text(&key));
    reader->where = Concat(path, ": key ", Quoted(key));
    if (key.empty() || key.size() > kMaxKeyBytes) {
      return DataLoss(reader->where, ": has ", key.size(), " bytes");
    }
    if (!keys.insert(key).second) return DataLoss(reader->where, ": is there twice");
    auto& [name, value] = metadata->emplace_back(std::move(key), GgufValue());
    TESSERA_RETURN_IF_ERROR(ReadValue(reader, &value));
  }
  return OkStatus();
}

Status ReadAlignment(const GgufMetadata& metadata, const std::string& path, int64_t* alignment) {
  for (const auto& [key, value] : metadata) {
    if (key != kGgufAlignmentKey) continue;
    const auto* number = std::get_if<uint32_t>(&value);
    if (number == nullptr || !std::has_single_bit(*number) || *number > kMaxAlignment) {
      return DataLoss(path, ": key '", key, "': is no power of two up to ", kMaxAlignment);
    }
    *alignment = *number;
  }
  return OkStatus();
}

// nullopt: more than 64 bits hold, or rows that are no whole blocks.
std::optional<int64_t> BytesOf(const GgufTensorType& type, const std::vector<int64_t>& shape) {
  int64_t blocks = 1;
  for (size_t i = 0; i < shape.size(); ++i) {
    const bool columns = i + 1 == shape.size();
    if (columns && shape[i] % type.block_size != 0) return std::nullopt;
    const int64_t factor = columns ? shape[i] / type.block_size : shape[i];
    if (__builtin_mul_overflow(blocks, factor, &blocks)) return std::nullopt;
  }
  int64_t bytes = 0;
  const bool overflow = __builtin_mul_overflow(blocks, type.block_bytes, &bytes);
  return overflow ? std::nullopt : std::optional(bytes);
}

// `begin` is then from the begin of the tensors' data.
Status ReadTensor(Reader* reader, GgufTensor* tensor) {
  uint32_t ndim = 0;
  TESSERA_RETURN_IF_ERROR(reader->Number(&ndim));
  if (ndim == 0 || ndim > kMaxDims) {
    return DataLoss(reader->where, ": has ", ndim, " dimensions; there may be 1 to ", kMaxDims);
  }
  for (uint32_t i = 0; i < ndim; ++i) {
    uint64_t size = 0;
    TESSERA_RETURN_IF_ERROR(reader->Number(&size));
    if (size > uint64_t{std::numeric_limits<int64_t>::max()}) {
      return DataLoss(reader->where, ": a dimension of ", size, " is too large");
    }
    tensor->shape.insert(tensor->shape.begin(), static_cast<int64_t>(size));
  }
  uint32_t number = 0;
  uint64_t offset = 0;
  TESSERA_RETURN_IF_ERROR(reader->Number(&number));
  TESSERA_RETURN_IF_ERROR(reader->Number(&offset));
  const GgufTensorType* const type = FindGgufType(number);
  if (type == nullptr) return InvalidArgument(reader->where, ": unknown type ", number);
  tensor->type = *type;
  const std::optional<int64_t> bytes = BytesOf(*type, tensor->shape);
  if (!bytes) {
    return DataLoss(reader->where, ": the shape overflows, or its rows are no whole blocks of ",
                    type->name);
  }
  tensor->nbytes = *bytes;
  if (offset > uint64_t{std::numeric_limits<int64_t>::max()}) {
    return DataLoss(reader->where, ": an offset of ", offset, " is too large");
  }
  tensor->begin = static_cast<int64_t>(offset);
  return OkStatus();
}

// Makes their begins those in the file.
Status Place(int64_t alignment, int64_t file_bytes, const std::string& path, GgufHeader* header) {
  const int64_t data_bytes = std::max<int64_t>(0, file_bytes - header->data_begin);
  std::vector<const GgufTensor*> sorted;
  for (GgufTensor& tensor : header->tensors) {
    if (tensor.begin % alignment != 0) {
      return DataLoss(path, ": tensor '", tensor.name, "': offset ", tensor.begin,
                      " is no multiple of ", alignment);
    }
    if (tensor.begin > data_bytes || tensor.nbytes > data_bytes - tensor.begin) {
      return DataLoss(path, ": tensor '", tensor.name, "': ", tensor.nbytes, " bytes from ",
                      tensor.begin, " on do not lie in the file's ", data_bytes, " bytes of data");
    }
    tensor.begin += header->data_begin;
    if (tensor.nbytes > 0) sorted.push_back(&tensor);
  }
  std::sort(sorted.begin(), sorted.end(),
            [](const auto* a, const auto* b) { return a->begin < b->begin; });
  for (size_t i = 1; i < sorted.size(); ++i) {
    if (sorted[i - 1]->begin + sorted[i - 1]->nbytes <= sorted[i]->begin) continue;
    return DataLoss(path, ": tensors '", sorted[i - 1]->name, "' and '", sorted[i]->name,
                    "' overlap");
  }
  return OkStatus();
}

template <typename T>
void AppendNumber(T value, std::string* out) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <typename T>
void AppendElement(const T& value, std::string* out) {
  if constexpr (std::is_same_v<T, std::string>) {
    AppendNumber(uint64_t{value.size()}, out);
    out->append(value);
  } else if constexpr (std::is_same_v<T, GgufArray>) {
    AppendNumber(static_cast<uint32_t>(value.index()), out);
    std::visit(
        [out](const auto& elements) {
          if constexpr (!std::is_same_v<decltype(elements), const GgufNoArray&>) {
            AppendNumber(uint64_t{elements.size()}, out);
            for (const auto& element : elements) {
              AppendElement<typename std::decay_t<decltype(elements)>::value_type>(element, out);
            }
          }
        },
        value);
  } else {
    AppendNumber(value, out);
  }
}

}  // namespace

bool BeginsAsGguf(std::string_view begin) { return begin.starts_with(kMagic); }

StatusOr<GgufHeader> ParseGgufHeader(std::string_view bytes, int64_t file_bytes,
                                     const std::string& path) {
  if (!BeginsAsGguf(bytes)) return DataLoss(path, ": does not begin with 'GGUF'");
  Reader reader(bytes.substr(kMagic.size()), path);
  uint32_t version = 0;
  TESSERA_RETURN_IF_ERROR(reader.Number(&version));
  if ((version & 0xFFFF) == 0 && version != 0) {
    return InvalidArgument(path, ": is big-endian, which is not supported");
  }
  if (version < 2 || version > kVersion) {
    return InvalidArgument(path, ": is GGUF version ", version, "; 2 and 3 are supported");
  }
  GgufHeader header;
  uint64_t tensors = 0;
  uint64_t values = 0;
  reader.where = path + ": tensors";
  TESSERA_RETURN_IF_ERROR(reader.Count(kLeastTensorBytes, &tensors));
  reader.where = path + ": metadata";
  TESSERA_RETURN_IF_ERROR(reader.Count(kLeastValueBytes, &values));
  TESSERA_RETURN_IF_ERROR(ReadMetadata(&reader, values, path, &header.metadata));
  int64_t alignment = kDefaultAlignment;
  TESSERA_RETURN_IF_ERROR(ReadAlignment(header.metadata, path, &alignment));
  std::unordered_set<std::string> names;
  for (uint64_t i = 0; i < tensors; ++i) {
    reader.where = Concat(path, ": tensor ", i);
    GgufTensor& tensor = header.tensors.emplace_back();
    TESSERA_RETURN_IF_ERROR(reader.Text(&tensor.name));
    reader.where = Concat(path, ": tensor ", Quoted(tensor.name));
    if (Quoted(tensor.name) != "'" + tensor.name + "'" || tensor.name.empty()) {
      return DataLoss(reader.where, ": is no name");
    }
    if (!names.insert(tensor.name).second) return DataLoss(reader.where, ": is there twice");
    TESSERA_RETURN_IF_ERROR(ReadTensor(&reader, &tensor));
  }
  header.data_begin = Aligned(static_cast<int64_t>(kMagic.size() + reader.position()), alignment);
  TESSERA_RETURN_IF_ERROR(Place(alignment, file_bytes, path, &header));
  return header;
}

std::string FormatGgufHeader(const GgufMetadata& metadata, std::vector<GgufTensor>* tensors) {
  std::string out(kMagic);
  AppendNumber(kVersion, &out);
  AppendNumber(uint64_t{tensors->size()}, &out);
  AppendNumber(uint64_t{metadata.size()}, &out);
  for (const auto& [key, value] : metadata) {
    AppendElement(key, &out);
    AppendNumber(static_cast<uint32_t>(value.index()), &out);
    std::visit([&out](const auto& held) { AppendElement(held, &out); }, value);
  }
  int64_t offset = 0;
  for (GgufTensor& tensor : *tensors) {
    AppendElement(tensor.name, &out);
    AppendNumber(static_cast<uint32_t>(tensor.shape.size()), &out);
    for (auto size = tensor.shape.rbegin(); size != tensor.shape.rend(); ++size) {
      AppendNumber(static_cast<uint64_t>(*size), &out);
    }
    AppendNumber(tensor.type.number, &out);
    AppendNumber(static_cast<uint64_t>(offset), &out);
    tensor.begin = offset;
    tensor.nbytes = BytesOf(tensor.type, tensor.shape).value_or(0);
    offset = GgufAligned(offset + tensor.nbytes);
  }
  out.resize(static_cast<size_t>(GgufAligned(static_cast<int64_t>(out.size()))));
  for (GgufTensor& tensor : *tensors) tensor.begin += static_cast<int64_t>(out.size());
  return out;
}

int64_t GgufAligned(int64_t offset) { return Aligned(offset, kDefaultAlignment); }

}  // namespace tessera::models
