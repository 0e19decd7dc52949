// Rotary position embedding (Su et al. 2021, "RoFormer").
//
//   Tensor q = Rotary(q_BHTD, positions_BT, {.dims = 64, .base = 10000.0});
//
// Pairs of features are rotated by angle position * base^(-2 i / dims), i = 0, 1, ...; features
// from `dims` on stay as they are. x [B, H, T, D] of a floating dtype, positions [B, T] int64;
// angles in float64, products in float32 (float64 for float64). The gradient is the opposite
// rotation.
//
// Positions [B, N, T] have N coordinates: the features are N equal parts, and each is rotated by
// its own coordinate as if it stood alone (ChatGLM-6B: N = 2, place in the text and place in the
// blank). D is then the size of a part, D / N, in what is said of `dims`.
#ifndef TESSERA_OPS_ROTARY_ROTARY_H_
#define TESSERA_OPS_ROTARY_ROTARY_H_

#include <cstdint>

#include "core/tensor.h"

namespace tessera {

enum class RotaryPairs {
  kHalves,       // feature i with i + dims / 2 (GPT-NeoX, LLaMA, ChatGLM)
  kInterleaved,  // feature 2i with 2i + 1 (GPT-J, the paper)
};

struct RotaryOptions {
  int64_t dims = 0;  // even, <= D; 0: D
  double base = 10000.0;
  RotaryPairs pairs = RotaryPairs::kHalves;
};

Tensor Rotary(const Tensor& x, const Tensor& positions, const RotaryOptions& options = {});

}  // namespace tessera

#endif  // TESSERA_OPS_ROTARY_ROTARY_H_
