// SPDX-License-Identifier: Apache-2.0
// What is before the tensors of a GGUF file: metadata, and where each tensor is.
//
//   TESSERA_ASSIGN_OR_RETURN(const GgufHeader header, ParseGgufHeader(bytes, file_bytes, path));
//   const std::string text = FormatGgufHeader(metadata, tensors);
//
// Versions 2 and 3, little-endian (github.com/ggml-org/ggml, docs/gguf.md).
#ifndef TESSERA_MODELS_HUB_GGUF_GGUF_HEADER_H_
#define TESSERA_MODELS_HUB_GGUF_GGUF_HEADER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"
#include "models/hub/gguf/gguf_types.h"

namespace tessera::models {

struct GgufTensor {
  std::string name;
  GgufTensorType type = kGgufF32;
  std::vector<int64_t> shape;  // row-major, as of tensors: the file has it the other way round
  int64_t begin = 0;           // bytes, from the begin of the file
  size_t part = 0;             // of a file in several parts (gguf_file.h), from 0
  int64_t nbytes = 0;
};

// Values of metadata. The place of a type in these lists is its number in the file.
struct GgufNoArray {};  // arrays of arrays are refused
using GgufArray =
    std::variant<std::vector<uint8_t>, std::vector<int8_t>, std::vector<uint16_t>,
                 std::vector<int16_t>, std::vector<uint32_t>, std::vector<int32_t>,
                 std::vector<float>, std::vector<bool>, std::vector<std::string>, GgufNoArray,
                 std::vector<uint64_t>, std::vector<int64_t>, std::vector<double>>;
using GgufValue = std::variant<uint8_t, int8_t, uint16_t, int16_t, uint32_t, int32_t, float, bool,
                               std::string, GgufArray, uint64_t, int64_t, double>;
using GgufMetadata = std::vector<std::pair<std::string, GgufValue>>;

// As keys that count have it.
inline uint32_t GgufCount(int64_t value) { return static_cast<uint32_t>(value); }

inline constexpr std::string_view kGgufAlignmentKey = "general.alignment";

// Whether a file that begins so is one.
bool BeginsAsGguf(std::string_view begin);

struct GgufHeader {
  GgufMetadata metadata;            // in the file's order, as the tensors
  std::vector<GgufTensor> tensors;  // inside the file, aligned, apart from one another
  int64_t data_begin = 0;
};

// `bytes` are the begin of a file of `file_bytes`, up to the tensors or beyond. Takes memory in
// proportion to `bytes`, whatever they say. DataLoss or InvalidArgument with `path` and the key or
// the tensor.
StatusOr<GgufHeader> ParseGgufHeader(std::string_view bytes, int64_t file_bytes,
                                     const std::string& path);

// As bytes, padded up to the tensors; sets where those begin, one behind the other, and nbytes.
// What ParseGgufHeader would refuse (rows that are no whole blocks, say) is not looked for.
std::string FormatGgufHeader(const GgufMetadata& metadata, std::vector<GgufTensor>* tensors);

// The multiple of the writer's alignment that is `offset` or the next.
int64_t GgufAligned(int64_t offset);

}  // namespace tessera::models

#endif  // TESSERA_MODELS_HUB_GGUF_GGUF_HEADER_H_
