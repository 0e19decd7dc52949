// SPDX-License-Identifier: Apache-2.0
// The JSON header of a safetensors file, as text and as entries; core/safetensors.h is the public
// interface.
#ifndef TESSERA_CORE_SAFETENSORS_HEADER_H_
#define TESSERA_CORE_SAFETENSORS_HEADER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "core/safetensors.h"

namespace tessera::safetensors_internal {

struct Header {
  std::vector<SafetensorsFile::Entry> entries;  // sorted by their bytes
  SafetensorsFile::Metadata metadata;
};

// The longest header that the format's own library accepts.
inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;

// Parses and validates the JSON text against a data section of `data_bytes` bytes; messages start
// with `path`.
StatusOr<Header> ParseHeader(std::string_view text, int64_t data_bytes, const std::string& path);

// The bytes that a tensor takes; nullopt when the product overflows or a size is negative.
std::optional<int64_t> TensorBytes(const std::vector<int64_t>& shape, int64_t bits_per_element);

// The header's text for tensors laid out in this order, padded so that the data starts at a
// multiple of 8 bytes. Strings are escaped, not checked.
std::string FormatHeader(const std::vector<SafetensorsFile::Entry>& entries,
                         const SafetensorsFile::Metadata& metadata);

}  // namespace tessera::safetensors_internal

#endif  // TESSERA_CORE_SAFETENSORS_HEADER_H_
