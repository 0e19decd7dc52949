// SPDX-License-Identifier: Apache-2.0
// How rows of weights are held as small integers.
//
//   kInt8   int8 with a float32 scale for each row
//   kQ8_0   groups of 32: a float16 scale and 32 int8 (GGML's Q8_0: 34 bytes)
//   kQ4_0   groups of 32: a float16 scale and 32 numbers of 4 bits, less 8 (GGML's Q4_0: 18 bytes)
//
// A row's bytes: kQ8_0 and kQ4_0 are GGML's blocks one after the other; kInt8 has the integers,
// zeros up to a multiple of 64, and then the scale.
#ifndef TESSERA_OPS_QUANTIZED_QUANT_TYPE_H_
#define TESSERA_OPS_QUANTIZED_QUANT_TYPE_H_

#include <cstdint>

namespace tessera {

enum class QuantType : uint8_t { kInt8, kQ8_0, kQ4_0 };
inline constexpr QuantType kQuantTypes[] = {QuantType::kInt8, QuantType::kQ8_0, QuantType::kQ4_0};

}  // namespace tessera

#endif  // TESSERA_OPS_QUANTIZED_QUANT_TYPE_H_
