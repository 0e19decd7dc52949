// SPDX-License-Identifier: Apache-2.0
// GGML's types of tensors, by their numbers in GGUF files, and which of them are read.
//
//   const GgufTensorType* type = FindGgufType(8);        // Q8_0
//   QuantTypeOf(*type);                                  // QuantType::kQ8_0
//   GgufTypeOf(QuantType::kQ4_0);                        // Q4_0
#ifndef TESSERA_MODELS_HUB_GGUF_GGUF_TYPES_H_
#define TESSERA_MODELS_HUB_GGUF_GGUF_TYPES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/dtype.h"
#include "ops/quantized/quant_type.h"

namespace tessera::models {

// `block_bytes` hold `block_size` elements of a row. `file_type` is general.file_type of a file
// most of whose matrices are of this type; negative: there is none.
struct GgufTensorType {
  uint32_t number;
  std::string_view name;
  int64_t block_size;
  int64_t block_bytes;
  int32_t file_type = -1;
};
inline constexpr GgufTensorType kGgufF32 = {0, "F32", 1, 4, 0};
inline constexpr GgufTensorType kGgufF16 = {1, "F16", 1, 2, 1};
inline constexpr GgufTensorType kGgufBF16 = {30, "BF16", 1, 2, 32};

// nullptr for a number that GGML does not have.
const GgufTensorType* FindGgufType(uint32_t number);
// nullptr for a type that GGML does not have, or that is no weight's.
const GgufTensorType* GgufTypeOf(QuantType type);
const GgufTensorType* GgufTypeOf(DType dtype);

// Of dense types that are read.
std::optional<DType> DenseTypeOf(const GgufTensorType& type);
// Of block types that are read: those whose name ParseQuantType knows.
std::optional<QuantType> QuantTypeOf(const GgufTensorType& type);
// "F32, F16, Q4_0, Q8_0 and BF16": what is read.
std::string ReadGgufTypes();

}  // namespace tessera::models

#endif  // TESSERA_MODELS_HUB_GGUF_GGUF_TYPES_H_
