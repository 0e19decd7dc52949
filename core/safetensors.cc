// SPDX-License-Identifier: Apache-2.0
#include "core/safetensors.h"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/checksum.h"
#include "core/safetensors_header.h"

namespace tessera {
namespace {

using safetensors_internal::FormatHeader;
using safetensors_internal::Header;
using safetensors_internal::ParseHeader;
using safetensors_internal::TensorBytes;

constexpr int64_t kLengthBytes = 8;

struct DTypeMapping {
  std::string_view name;
  DType dtype;
};
constexpr DTypeMapping kDTypes[] = {
    {"F32", DType::kFloat32}, {"BF16", DType::kBFloat16}, {"F16", DType::kFloat16},
    {"F64", DType::kFloat64}, {"I64", DType::kInt64},     {"I32", DType::kInt32},
    {"U8", DType::kUInt8},    {"BOOL", DType::kBool},
};

std::array<unsigned char, 8> LittleEndian(uint64_t value) {
  std::array<unsigned char, 8> bytes;
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<unsigned char>(value >> (8 * i));
  return bytes;
}

uint64_t FromLittleEndian(const std::byte* bytes) {
  uint64_t value = 0;
  for (int i = 0; i < 8; ++i) value |= std::to_integer<uint64_t>(bytes[i]) << (8 * i);
  return value;
}

// A boolean with any other value is undefined behaviour in C++.
Status CheckBooleans(const TensorView& view, const std::string& where) {
  for (int64_t i = 0; i < view.nbytes; ++i) {
    if (view.data[i] > std::byte{1}) {
      return DataLoss(where, ": element ", i, " is ", std::to_integer<int>(view.data[i]),
                      ", not a boolean");
    }
  }
  return OkStatus();
}

}  // namespace

std::string_view SafetensorsDTypeName(DType dtype) {
  for (const DTypeMapping& mapping : kDTypes) {
    if (mapping.dtype == dtype) return mapping.name;
  }
  return "";
}

std::optional<DType> ParseSafetensorsDType(std::string_view name) {
  for (const DTypeMapping& mapping : kDTypes) {
    if (mapping.name == name) return mapping.dtype;
  }
  return std::nullopt;
}

StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  SafetensorsFile result;
  TESSERA_ASSIGN_OR_RETURN(result.file_, MappedFile::Open(path));
  const int64_t file_bytes = result.file_.size();
  if (file_bytes < kLengthBytes) {
    return DataLoss(path, ": ", file_bytes, " bytes are too few for a safetensors file");
  }
  const uint64_t header_bytes = FromLittleEndian(result.file_.data());
  if (header_bytes > safetensors_internal::kMaxHeaderBytes) {
    return DataLoss(path, ": header of ", header_bytes, " bytes; the safetensors format allows ",
                    safetensors_internal::kMaxHeaderBytes);
  }
  if (static_cast<int64_t>(header_bytes) > file_bytes - kLengthBytes) {
    return DataLoss(path, ": header of ", header_bytes, " bytes is longer than the file of ",
                    file_bytes);
  }
  result.data_offset_ = kLengthBytes + static_cast<int64_t>(header_bytes);
  const std::string_view text(reinterpret_cast<const char*>(result.file_.data()) + kLengthBytes,
                              header_bytes);
  TESSERA_ASSIGN_OR_RETURN(Header header,
                           ParseHeader(text, file_bytes - result.data_offset_, path));
  result.entries_ = std::move(header.entries);
  result.metadata_ = std::move(header.metadata);
  for (size_t i = 0; i < result.entries_.size(); ++i) {
    result.by_name_.emplace(result.entries_[i].name, i);
  }
  return result;
}

const SafetensorsFile::Entry* SafetensorsFile::Find(std::string_view name) const {
  const auto it = by_name_.find(std::string(name));
  return it == by_name_.end() ? nullptr : &entries_[it->second];
}

StatusOr<TensorView> SafetensorsFile::Get(std::string_view name) const {
  const Entry* entry = Find(name);
  if (entry == nullptr) return NotFound(path(), ": no tensor '", name, "'");
  const std::string where = Concat(path(), ": tensor '", name, "'");
  const std::optional<DType> dtype = ParseSafetensorsDType(entry->dtype);
  if (!dtype.has_value()) {
    return InvalidArgument(where, ": dtype ", entry->dtype, " is not supported");
  }
  TensorView view{.dtype = *dtype,
                  .shape = entry->shape,
                  .data = file_.data() + data_offset_ + entry->begin,
                  .nbytes = entry->end - entry->begin};
  if (*dtype == DType::kBool) TESSERA_RETURN_IF_ERROR(CheckBooleans(view, where));
  return view;
}

SafetensorsWriter::SafetensorsWriter(std::string path, AtomicFile file, int64_t remaining)
    : path_(std::move(path)), file_(std::move(file)), remaining_(remaining) {}

StatusOr<SafetensorsWriter> SafetensorsWriter::Create(const std::string& path,
                                                      const std::vector<SafetensorsEntry>& entries,
                                                      const SafetensorsFile::Metadata& metadata) {
  std::vector<SafetensorsFile::Entry> laid_out;
  int64_t total = 0;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.name == "__metadata__") {
      return InvalidArgument(path, ": a tensor cannot be named __metadata__");
    }
    const std::optional<int64_t> bytes =
        TensorBytes(entry.shape, 8 * static_cast<int64_t>(DTypeSize(entry.dtype)));
    const int64_t begin = total;
    if (!bytes.has_value() || __builtin_add_overflow(total, *bytes, &total)) {
      return InvalidArgument(path, ": tensor '", entry.name, "' has an impossible shape");
    }
    laid_out.push_back({.name = entry.name,
                        .dtype = std::string(SafetensorsDTypeName(entry.dtype)),
                        .shape = entry.shape,
                        .begin = begin,
                        .end = total});
  }
  const std::string header = FormatHeader(laid_out, metadata);
  if (header.size() > safetensors_internal::kMaxHeaderBytes) {
    return InvalidArgument(path, ": the names and metadata take ", header.size(),
                           " bytes; the safetensors format allows ",
                           safetensors_internal::kMaxHeaderBytes);
  }
  // What the reader would refuse (a duplicate name, text that is not UTF-8) is not written.
  TESSERA_RETURN_IF_ERROR(ParseHeader(header, total, path).status());
  TESSERA_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  SafetensorsWriter writer(path, std::move(file),
                           kLengthBytes + total + static_cast<int64_t>(header.size()));
  TESSERA_RETURN_IF_ERROR(writer.Append(LittleEndian(header.size()).data(), kLengthBytes));
  TESSERA_RETURN_IF_ERROR(writer.Append(header.data(), static_cast<int64_t>(header.size())));
  return writer;
}

Status SafetensorsWriter::Append(const void* bytes, int64_t size) {
  if (size > remaining_) {
    return Internal(path_, ": ", size - remaining_, " bytes more than the tensors' shapes say");
  }
  TESSERA_RETURN_IF_ERROR(file_.Append(bytes, static_cast<size_t>(size)));
  crc32c_ = Crc32c(bytes, static_cast<size_t>(size), crc32c_);
  remaining_ -= size;
  return OkStatus();
}

Status SafetensorsWriter::Commit() {
  if (remaining_ != 0) return Internal(path_, ": ", remaining_, " bytes of tensors are missing");
  return file_.Commit();
}

Status WriteSafetensors(const std::string& path, const std::vector<NamedTensorView>& tensors,
                        const SafetensorsFile::Metadata& metadata) {
  std::vector<SafetensorsEntry> entries;
  for (const NamedTensorView& named : tensors) {
    entries.push_back({named.name, named.tensor.dtype, named.tensor.shape});
  }
  TESSERA_ASSIGN_OR_RETURN(SafetensorsWriter writer,
                           SafetensorsWriter::Create(path, entries, metadata));
  for (const NamedTensorView& named : tensors) {
    TESSERA_RETURN_IF_ERROR(writer.Append(named.tensor.data, named.tensor.nbytes));
  }
  return writer.Commit();
}

}  // namespace tessera
