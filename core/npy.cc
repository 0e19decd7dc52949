#include "core/npy.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/safetensors_header.h"

namespace tessera {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";

struct Description {
  std::string_view name;
  DType dtype;
};
constexpr Description kDescriptions[] = {
    {"<f4", DType::kFloat32}, {"<f8", DType::kFloat64}, {"<f2", DType::kFloat16},
    {"<i8", DType::kInt64},   {"<i4", DType::kInt32},   {"|u1", DType::kUInt8},
    {"|b1", DType::kBool},
};

struct Header {
  std::string descr;
  bool fortran_order = false;
  std::vector<int64_t> shape;
};

// Reads the Python dictionary {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }. Every
// function skips white space first and returns false when something else stands there.
class HeaderParser {
 public:
  explicit HeaderParser(std::string_view text) : rest_(text) {}

  bool Parse(Header& header) {
    if (!Skip("{")) return false;
    int seen = 0;
    while (!Skip("}")) {
      std::string key;
      if (!String(key) || !Skip(":")) return false;
      int bit = 0;
      bool ok = false;
      if (key == "descr") {
        bit = 1;
        ok = String(header.descr);
      } else if (key == "fortran_order") {
        bit = 2;
        header.fortran_order = Skip("True");
        ok = header.fortran_order || Skip("False");
      } else if (key == "shape") {
        bit = 4;
        ok = Shape(header.shape);
      }
      if (!ok || (seen & bit) != 0) return false;
      seen |= bit;
      if (!Skip(",") && !Peek('}')) return false;
    }
    SkipSpace();
    return seen == 7 && rest_.empty();
  }

 private:
  void SkipSpace() {
    while (!rest_.empty() && (rest_[0] == ' ' || rest_[0] == '\n')) rest_.remove_prefix(1);
  }
  bool Peek(char c) {
    SkipSpace();
    return !rest_.empty() && rest_[0] == c;
  }
  bool Skip(std::string_view token) {
    SkipSpace();
    if (rest_.substr(0, token.size()) != token) return false;
    rest_.remove_prefix(token.size());
    return true;
  }
  bool String(std::string& out) {
    SkipSpace();
    if (rest_.empty() || (rest_[0] != '\'' && rest_[0] != '"')) return false;
    const size_t end = rest_.find(rest_[0], 1);
    if (end == std::string_view::npos) return false;
    out = rest_.substr(1, end - 1);
    rest_.remove_prefix(end + 1);
    return true;
  }
  bool Shape(std::vector<int64_t>& shape) {
    if (!Skip("(")) return false;
    while (!Skip(")")) {
      SkipSpace();
      int64_t size = 0;
      size_t digits = 0;
      for (; digits < rest_.size() && rest_[digits] >= '0' && rest_[digits] <= '9'; ++digits) {
        if (__builtin_mul_overflow(size, 10, &size) ||
            __builtin_add_overflow(size, rest_[digits] - '0', &size)) {
          return false;
        }
      }
      if (digits == 0) return false;
      rest_.remove_prefix(digits);
      shape.push_back(size);
      if (!Skip(",") && !Peek(')')) return false;
    }
    return true;
  }

  std::string_view rest_;
};

uint32_t LittleEndian(std::string_view bytes) {
  uint32_t value = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    value |= uint32_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  }
  return value;
}

absl::StatusOr<DType> DTypeOfDescription(const std::string& descr, const std::string& path) {
  for (const Description& known : kDescriptions) {
    // A single byte has no order: NumPy takes '<u1' for '|u1'.
    if (descr == known.name ||
        (known.name[0] == '|' && descr.size() == 3 && descr.substr(1) == known.name.substr(1))) {
      return known.dtype;
    }
  }
  std::string printable;
  for (char c : descr.substr(0, 40)) printable += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
  return InvalidArgument(path, ": NumPy type '", printable, "' is not supported",
                         descr == "|V2" || descr == "<V2" ? " (bfloat16 is stored this way; use "
                                                            "safetensors)"
                                                          : "");
}

}  // namespace

absl::StatusOr<NpyArray> ReadNpy(const std::string& path) {
  NpyArray array;
  TESSERA_ASSIGN_OR_RETURN(array.file, MappedFile::Open(path));
  const std::string_view bytes(reinterpret_cast<const char*>(array.file.data()),
                               static_cast<size_t>(array.file.size()));
  if (bytes.size() < 10 || bytes.substr(0, kMagic.size()) != kMagic) {
    return InvalidArgument(path, ": not a .npy file");
  }
  const int major = static_cast<unsigned char>(bytes[6]);
  if (major < 1 || major > 3) {
    return InvalidArgument(path, ": .npy version ", major, " is not supported");
  }
  const size_t prefix = major == 1 ? 10 : 12;
  const size_t header_bytes = LittleEndian(bytes.substr(8, prefix - 8));
  if (bytes.size() < prefix || header_bytes > bytes.size() - prefix) {
    return DataLoss(path, ": header of ", header_bytes, " bytes is longer than the file of ",
                    bytes.size());
  }
  Header header;
  if (!HeaderParser(bytes.substr(prefix, header_bytes)).Parse(header)) {
    return InvalidArgument(path, ": the .npy header is not understood");
  }
  if (header.fortran_order && header.shape.size() > 1) {
    return InvalidArgument(path,
                           ": Fortran order is not supported (numpy.ascontiguousarray "
                           "before saving)");
  }
  TESSERA_ASSIGN_OR_RETURN(const DType dtype, DTypeOfDescription(header.descr, path));
  const std::optional<int64_t> nbytes =
      safetensors_internal::TensorBytes(header.shape, 8 * static_cast<int64_t>(DTypeSize(dtype)));
  const size_t data = prefix + header_bytes;
  if (!nbytes.has_value() || static_cast<uint64_t>(*nbytes) != bytes.size() - data) {
    return DataLoss(path, ": ", bytes.size() - data, " bytes of data do not fit the shape");
  }
  array.view = {.dtype = dtype,
                .shape = std::move(header.shape),
                .data = array.file.data() + data,
                .nbytes = *nbytes};
  if (dtype == DType::kBool) {
    for (int64_t i = 0; i < *nbytes; ++i) {
      if (array.view.data[i] > std::byte{1}) {
        return DataLoss(path, ": element ", i, " is not a boolean");
      }
    }
  }
  return array;
}

absl::Status WriteNpy(const std::string& path, const TensorView& view) {
  std::string_view descr;
  for (const Description& known : kDescriptions) {
    if (known.dtype == view.dtype) descr = known.name;
  }
  if (descr.empty()) {
    return InvalidArgument(path, ": NumPy has no type for ", DTypeName(view.dtype));
  }
  const std::optional<int64_t> nbytes = safetensors_internal::TensorBytes(
      view.shape, 8 * static_cast<int64_t>(DTypeSize(view.dtype)));
  if (nbytes != view.nbytes) {
    return InvalidArgument(path, ": ", view.nbytes, " bytes do not fit the shape");
  }
  std::string text = Concat("{'descr': '", descr, "', 'fortran_order': False, 'shape': (");
  for (size_t d = 0; d < view.shape.size(); ++d) text += std::to_string(view.shape[d]) + ", ";
  // A tuple of one keeps its comma: (3,).
  if (!view.shape.empty()) text.resize(text.size() - (view.shape.size() == 1 ? 1 : 2));
  text += "), }";
  const bool small = text.size() + 64 < 65536;
  const size_t prefix = small ? 10 : 12;
  // Data starts at a multiple of 64; the header ends with a line feed.
  text.append(63 - (prefix + text.size()) % 64, ' ').push_back('\n');
  std::string head(kMagic);
  head += small ? '\x01' : '\x02';
  head += '\0';
  for (size_t i = 0; i < prefix - 8; ++i) head += static_cast<char>(text.size() >> (8 * i));
  TESSERA_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  TESSERA_RETURN_IF_ERROR(file.Append(head));
  TESSERA_RETURN_IF_ERROR(file.Append(text));
  TESSERA_RETURN_IF_ERROR(file.Append(view.data, static_cast<size_t>(view.nbytes)));
  return file.Commit();
}

}  // namespace tessera
