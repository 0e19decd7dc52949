// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding (Su et al. 2021, "RoFormer").
//
//   const RotaryOptions options = {.inverse_frequencies = RotaryFrequencies(64, 10000.0)};
//   Tensor q = Rotary(q_BHTD, positions_BT, options);
//
// Pair i of a token's features is rotated by the angle position * inverse_frequencies[i]. With n of
// these, the first 2 n features are rotated and the others stay as they are. x [B, H, T, D] of a
// floating dtype, positions [B, T] int64; angles in float64, products in float32 (float64 for
// float64). The gradient is the opposite rotation. Misuse throws Error.
//
// Positions [B, N, T] have N coordinates: the features are N equal parts, and each is rotated by
// its own coordinate as if it stood alone (ChatGLM-6B: N = 2, place in the text and place in the
// blank). The features of a part are then D / N.
#ifndef TESSERA_OPS_ROTARY_ROTARY_H_
#define TESSERA_OPS_ROTARY_ROTARY_H_

#include <cstdint>
#include <vector>

#include "core/tensor.h"

namespace tessera {

enum class RotaryPairs {
  kHalves,       // feature i with i + n (GPT-NeoX, LLaMA, ChatGLM)
  kInterleaved,  // feature 2i with 2i + 1 (GPT-J, the paper)
};

struct RotaryOptions {
  // Radians per position, of each pair: what configurations call inv_freq. At most 256.
  std::vector<double> inverse_frequencies;
  double scale = 1.0;  // the rotated features are multiplied by it (YaRN's attention factor)
  RotaryPairs pairs = RotaryPairs::kHalves;
};

// The paper's: base^(-2 i / dims) for i = 0 ... dims / 2 - 1; dims even.
std::vector<double> RotaryFrequencies(int64_t dims, double base);

Tensor Rotary(const Tensor& x, const Tensor& positions, const RotaryOptions& options);

}  // namespace tessera

#endif  // TESSERA_OPS_ROTARY_ROTARY_H_
