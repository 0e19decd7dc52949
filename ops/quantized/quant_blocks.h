// SPDX-License-Identifier: Apache-2.0
// GGML's blocks, one at a time, on one thread.
//
//   std::vector<float> x(LayoutOf(type).columns);
//   DecodeBlock(type, bytes, x.data());
//   if (!EncodeBlock(type, x.data(), bytes)) ...  // an infinity, a NaN, or too large
//
// kInt8 has no blocks, and kQ8_0 is encoded as activations are (quantized_rows.h).
#ifndef TESSERA_OPS_QUANTIZED_QUANT_BLOCKS_H_
#define TESSERA_OPS_QUANTIZED_QUANT_BLOCKS_H_

#include <cstdint>

#include "ops/quantized/quant_type.h"

namespace tessera {

// What a block says: column c stands for scale[g] * q[c] - minimum[g], g = c / group.
struct QuantBlock {
  int8_t q[256];
  float scale[16];
  float minimum[16];
};
// A block's float16 numbers, such as its scale.
void PutHalf(float value, uint8_t* to);
float HalfAt(const uint8_t* from);

QuantBlock ReadBlock(QuantType type, const uint8_t* bytes);

void DecodeBlock(QuantType type, const uint8_t* bytes, float* x);

// The scale and the minimum of a group are those of the least squared error among about twenty
// ways of rounding. q4_0, q4_1, q5_0 and q5_1 are GGML's: the scale fits the largest magnitude, or
// the range. False where a number is not finite, or too large for a float16 scale.
bool EncodeBlock(QuantType type, const float* x, uint8_t* bytes);

}  // namespace tessera

#endif  // TESSERA_OPS_QUANTIZED_QUANT_BLOCKS_H_
