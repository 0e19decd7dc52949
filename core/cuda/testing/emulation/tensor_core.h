// SPDX-License-Identifier: Apache-2.0
// The functions of core/cuda/tensor_core.cuh on the CPU, by the PTX manual's drawings of fragments.
// Included by that header only.
#ifndef TESSERA_CORE_CUDA_TESTING_EMULATION_TENSOR_CORE_H_
#define TESSERA_CORE_CUDA_TESTING_EMULATION_TENSOR_CORE_H_

#include <cmath>
#include <cstdint>
#include <cstring>

#include "core/cuda/element.cuh"
#include "core/cuda/testing/emulation/grid.h"

namespace tessera::cuda {
namespace emulation {

// Element `half` (0 or 1) of register `i` of a lane's fragments.
template <typename T>
float FragmentElement(const LaneSlot& slot, int i, int half) {
  T value;
  static_assert(sizeof(value) == 2);
  std::memcpy(&value, slot.in + 4 * i + 2 * half, 2);
  return ToWide(value);
}

// Registers 0-3 of a slot are a's, 4 and 5 are b's; the sums go to `out`.
template <typename T>
void MultiplyFragments(LaneSlot* slots) {
  float a[16][16];
  float b[16][8];
  for (int lane = 0; lane < kWarpLanes; ++lane) {
    const int g = lane / 4;
    for (int half = 0; half < 2; ++half) {
      const int t = lane % 4 * 2 + half;
      for (int i = 0; i < 4; ++i) {
        a[g + i % 2 * 8][t + i / 2 * 8] = FragmentElement<T>(slots[lane], i, half);
      }
      for (int i = 0; i < 2; ++i) b[t + i * 8][g] = FragmentElement<T>(slots[lane], 4 + i, half);
    }
  }
  float c[16][8] = {};
  for (int row = 0; row < 16; ++row) {
    for (int k = 0; k < 16; ++k) {
      for (int column = 0; column < 8; ++column) c[row][column] += a[row][k] * b[k][column];
    }
  }
  for (int lane = 0; lane < kWarpLanes; ++lane) {
    for (int half = 0; half < 2; ++half) {
      std::memcpy(slots[lane].out + 8 * half, &c[lane / 4 + 8 * half][lane % 4 * 2], 8);
    }
  }
}

template <bool kTransposed>
void LoadFragments(LaneSlot* slots) {
  const uint16_t* rows[kWarpLanes];
  for (int lane = 0; lane < kWarpLanes; ++lane) {
    std::memcpy(&rows[lane], slots[lane].in, sizeof(rows[lane]));
    if (reinterpret_cast<uintptr_t>(rows[lane]) % 16 != 0) {
      KernelFault("a row of ldmatrix is not aligned");
    }
  }
  for (int lane = 0; lane < kWarpLanes; ++lane) {
    const int g = lane / 4;
    const int t = lane % 4 * 2;
    uint32_t words[4];
    for (int i = 0; i < 4; ++i) {
      const uint16_t* const* matrix = rows + 8 * i;
      const uint32_t low = kTransposed ? matrix[t][g] : matrix[g][t];
      const uint32_t high = kTransposed ? matrix[t + 1][g] : matrix[g][t + 1];
      words[i] = low | high << 16;
    }
    std::memcpy(slots[lane].out, words, sizeof(words));
  }
}

}  // namespace emulation

inline float Exp2(float x) { return std::exp2(x); }

template <typename T>
void Mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  const uint32_t in[6] = {a[0], a[1], a[2], a[3], b0, b1};
  int lane = 0;
  const emulation::LaneSlot* slots =
      emulation::ExchangeInWarp(in, sizeof(in), emulation::MultiplyFragments<T>, &lane);
  float sums[4];
  std::memcpy(sums, slots[lane].out, sizeof(sums));
  for (int e = 0; e < 4; ++e) c[e] += sums[e];
}

inline void LoadMatrices(uint32_t (&r)[4], const void* row) {
  int lane = 0;
  const emulation::LaneSlot* slots =
      emulation::ExchangeInWarp(&row, sizeof(row), emulation::LoadFragments<false>, &lane);
  std::memcpy(r, slots[lane].out, sizeof(r));
}
inline void LoadMatricesTransposed(uint32_t (&r)[4], const void* row) {
  int lane = 0;
  const emulation::LaneSlot* slots =
      emulation::ExchangeInWarp(&row, sizeof(row), emulation::LoadFragments<true>, &lane);
  std::memcpy(r, slots[lane].out, sizeof(r));
}

inline void BeginCopy16(void* shared, const void* global, bool inside) {
  emulation::BeginCopy(shared, inside ? global : nullptr);
}
inline void CommitCopies() { emulation::CommitCopyGroup(); }
template <int kPending>
void WaitForCopies() {
  emulation::WaitForCopyGroups(kPending);
}

}  // namespace tessera::cuda

#endif  // TESSERA_CORE_CUDA_TESTING_EMULATION_TENSOR_CORE_H_
