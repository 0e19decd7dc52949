// SPDX-License-Identifier: Apache-2.0
// Packing of operands into panels: what GemmKernels::pack_a and pack_b of gemm_kernel.h are.
//
// For sources compiled by tessera_isa_library; see core/cpu/simd.h.
#ifndef TESSERA_OPS_MATMUL_GEMM_PACK_H_
#define TESSERA_OPS_MATMUL_GEMM_PACK_H_

#include "core/cpu/simd.h"
#include "core/cpu/simd_transpose.h"
#include "ops/matmul/gemm_kernel.h"
#include "ops/matmul/gemm_vector.h"

namespace tessera::TESSERA_ISA {

// `flip` is 1 where indices of k are packed by pairs, the odd one first, and 0 elsewhere: index k
// is packed as k ^ flip. An odd depth then has a zero before its last index.

// One panel: dst[(k ^ flip) * panel + w] = src[w * ws + k * ds] for w < width <= panel; zeros
// above width.
template <typename T, typename E>
__attribute__((noinline)) void PackStrided(const T* src, int64_t ws, int64_t ds, int64_t width,
                                           int64_t panel, int64_t depth, int64_t flip, E* dst) {
  for (int64_t k = 0; k < depth + (depth & flip); ++k) {
    E* const to = dst + k * panel;
    const int64_t from = k ^ flip;
    const int64_t there = from < depth ? width : 0;
#pragma GCC unroll 1
    for (int64_t w = 0; w < there; ++w) to[w] = LoadOne(src + w * ws + from * ds);
#pragma GCC unroll 1
    for (int64_t w = there; w < panel; ++w) to[w] = E{0};
  }
}

template <typename T>
constexpr bool kIsBf16 = false;
template <typename T>
constexpr bool kIsF16 = false;
template <>
constexpr bool kIsF16<F16> = true;
template <>
constexpr bool kIsBf16<Bf16> = true;
template <>
constexpr bool kIsBf16<const Bf16&> = true;

// Column k of kLanes rows of numbers of 32 bits into square[k]; of bfloat16, two make one number.
template <typename T>
TESSERA_SIMD void LoadTransposed(const T* from, int64_t stride, VecF (&square)[kLanes]) {
  constexpr int64_t kOne = sizeof(float) / sizeof(T);
#if defined(TESSERA_ISA_AVX2)
  // Halves of rows are put beside each other while they are loaded: a third less to shuffle.
#pragma GCC unroll 2
  for (int64_t k = 0; k < kLanes; k += kLanes / 2) {
    __m256 r[4];
#pragma GCC unroll 4
    for (int64_t w = 0; w < 4; ++w) {
      const T* const at = from + w * stride + k * kOne;
      const T* const upper = at + 4 * stride;
      r[w] = _mm256_insertf128_ps(
          _mm256_castps128_ps256(_mm_loadu_ps(reinterpret_cast<const float*>(at))),
          _mm_loadu_ps(reinterpret_cast<const float*>(upper)), 1);
    }
    const __m256 low01 = _mm256_unpacklo_ps(r[0], r[1]), high01 = _mm256_unpackhi_ps(r[0], r[1]);
    const __m256 low23 = _mm256_unpacklo_ps(r[2], r[3]), high23 = _mm256_unpackhi_ps(r[2], r[3]);
    square[k].v = _mm256_shuffle_ps(low01, low23, 0x44);
    square[k + 1].v = _mm256_shuffle_ps(low01, low23, 0xee);
    square[k + 2].v = _mm256_shuffle_ps(high01, high23, 0x44);
    square[k + 3].v = _mm256_shuffle_ps(high01, high23, 0xee);
  }
#else
#pragma GCC unroll 16
  for (int64_t w = 0; w < kLanes; ++w) {
    if constexpr (kOne == 1) {
      square[w] = Load(from + w * stride);
    } else {
      square[w] = BitsAsFloat(Load(reinterpret_cast<const int32_t*>(from + w * stride)));
    }
  }
  TransposeSquare(square);
#endif
}

// A panel contiguous along the depth (ds == 1), by squares of kLanes columns and kLanes deep.
template <int64_t kPanel, typename T>
__attribute__((noinline)) void PackColumns(const T* src, int64_t ws, int64_t width, int64_t depth,
                                           int64_t flip, float* dst) {
  static_assert(kPanel % kLanes == 0);
  if constexpr (kIsF16<T>) {
    // By way of float32, which costs time where nobody waits for it, instead of code.
    constexpr int64_t kDeep = 64;
    float rows[kPanel * kDeep];
    for (int64_t k = 0; k < depth; k += kDeep) {
      const int64_t deep = depth - k < kDeep ? depth - k : kDeep;
      for (int64_t w = 0; w < width; ++w) {
        ForEachVector(
            deep, [&](int64_t x, int64_t lanes) __attribute__((always_inline)) {
              Store(rows + w * kDeep + x, LoadN(src + w * ws + k + x, lanes));
            });
      }
      PackColumns<kPanel>(static_cast<const float*>(rows), kDeep, width, deep, flip,
                          dst + k * kPanel);
    }
    return;
  }
  for (int64_t w0 = 0; w0 < kPanel; w0 += kLanes) {
    int64_t k0 = 0;
    if constexpr (kIsBf16<T>) {
      // Two depths are one element of 32 bits until they are in their columns.
      for (; w0 + kLanes <= width && k0 + 2 * kLanes <= depth; k0 += 2 * kLanes) {
        VecF square[kLanes];
#pragma GCC unroll 16
        for (int64_t w = 0; w < kLanes; ++w) {
          const T* const from = src + (w0 + w) * ws + k0;
          __builtin_prefetch(from + kPanel * ws, 0, 2);
          __builtin_prefetch(from + 2 * kLanes);
        }
        LoadTransposed(src + w0 * ws + k0, ws, square);
        float* to = dst + k0 * kPanel + w0;
#pragma GCC unroll 16
        for (int64_t pair = 0; pair < kLanes; ++pair, to += 2 * kPanel) {
          const VecI bits = BitsAsInt(square[pair]);
          Store(to + flip * kPanel, BitsAsFloat(ShiftLeft<16>(bits)));
          Store(to + (1 - flip) * kPanel,
                BitsAsFloat(bits & SetI(static_cast<int32_t>(0xffff0000u))));
        }
      }
    }
    for (; k0 < depth; k0 += kLanes) {
      const int64_t deep = depth - k0 < kLanes ? depth - k0 : kLanes;
      VecF square[kLanes];
      const bool whole = deep == kLanes && w0 + kLanes <= width;
      if constexpr (sizeof(T) == sizeof(float)) {
        if (whole) {
#pragma GCC unroll 16
          for (int64_t w = 0; w < kLanes; ++w) {
            // The rows that follow, or (a harmless guess) those of the next panel.
            __builtin_prefetch(src + (w0 + w + kPanel) * ws + k0, 0, 2);
            __builtin_prefetch(src + (w0 + w) * ws + k0 + kLanes);
          }
          LoadTransposed(src + w0 * ws + k0, ws, square);
        }
      }
      if (sizeof(T) != sizeof(float) || !whole) {
        for (int64_t w = 0; w < kLanes; ++w) {
          square[w] = w0 + w < width ? LoadN(src + (w0 + w) * ws + k0, deep) : Zero();
        }
        TransposeSquare(square);
      }
      float* to = dst + k0 * kPanel + w0;
      if (!kIsBf16<T> && deep == kLanes) {
#pragma GCC unroll 16
        for (int64_t k = 0; k < kLanes; ++k) Store(to + (k ^ flip) * kPanel, square[k]);
      } else {
        for (int64_t k = 0; k < deep + (deep & flip); ++k)
          Store(to + (k ^ flip) * kPanel, square[k]);
      }
    }
  }
}

// As PackColumns for a full panel of half a vector: two depths of kLanes make one square.
template <typename T>
TESSERA_SIMD void PackColumnsHalf(const T* src, int64_t ws, int64_t depth, int64_t flip,
                                  float* dst) {
  constexpr int64_t kPanel = kLanes / 2;
  int64_t k0 = 0;
  for (; k0 + 2 * kLanes <= depth; k0 += 2 * kLanes) {
    VecF square[kLanes];
#pragma GCC unroll 8
    for (int64_t w = 0; w < kPanel; ++w) {
      square[w] = Load(src + w * ws + k0);
      square[w + kPanel] = Load(src + w * ws + k0 + kLanes);
    }
    TransposeSquare(square);
    float* to = dst + k0 * kPanel;
#pragma GCC unroll 16
    for (int64_t k = 0; k < kLanes; ++k) {
      StoreHalves(to + (k ^ flip) * kPanel, to + ((k ^ flip) + kLanes) * kPanel, square[k]);
    }
  }
  PackStrided(src + k0, ws, 1, kPanel, kPanel, depth - k0, flip, dst + k0 * kPanel);
}

// One panel of at most kPanel, whichever way it lies.
template <int64_t kPanel, typename T>
TESSERA_SIMD void PackPanel(const T* src, int64_t ws, int64_t ds, int64_t width, int64_t depth,
                            int64_t flip, float* dst) {
  if constexpr (kPanel % kLanes == 0) {
    if (ds == 1) return PackColumns<kPanel>(src, ws, width, depth, flip, dst);
  } else if constexpr (kPanel * 2 == kLanes) {
    if (ds == 1 && width == kPanel) return PackColumnsHalf(src, ws, depth, flip, dst);
  }
  PackStrided(src, ws, ds, width, kPanel, depth, flip, dst);
}

// Of doubles.
template <int64_t kPanel>
TESSERA_SIMD void PackPanel(const double* src, int64_t ws, int64_t ds, int64_t width, int64_t depth,
                            int64_t, double* dst) {
  PackStrided(src, ws, ds, width, kPanel, depth, 0, dst);
}

// All panels of a view (gemm_kernel.h).
template <typename E, int64_t kPanel>
void Pack(const GemmView& view, int64_t width, int64_t depth, E* dst) {
  constexpr int64_t kWidth = VectorOf<E>::kWidth;
  const int64_t ws = view.width_stride, ds = view.depth_stride;
  const int64_t flip = FlipOf(view.element);
  const int64_t packed = depth + (depth & flip);
  Dispatch(
      view.element, view.data, E{}, [&](const auto* src) __attribute__((always_inline)) {
        int64_t w = 0;
        // Rows are read along the whole width, so that long strides cost few translations: whole
        // panels, or pairs of panels of half a vector.
        constexpr bool kHalves = kPanel * 2 == kWidth && sizeof(E) == 4;
        if constexpr (kPanel % kWidth == 0 || kHalves) {
          constexpr int64_t kStep = kHalves ? kWidth : kPanel;
          const int64_t whole = ws == 1 ? width / kStep * kStep : 0;
          for (int64_t k = 0; k < packed && whole > 0; ++k) {
            E* const to = dst + k * kPanel;
            const int64_t from = k ^ flip;
            for (w = 0; w < whole; w += kStep) {
#pragma GCC unroll 4
              for (int64_t x = 0; x < kStep; x += kWidth) {
                typename VectorOf<E>::Type row = Broadcast(E{0});
                if (from < depth) {
                  row = Load(src + from * ds + w + x);
                  __builtin_prefetch(src + (from + 6) * ds + w + x);
                }
                if constexpr (kHalves) {
                  StoreHalves(to + w * packed, to + (w + kPanel) * packed, row);
                } else {
                  Store(to + w * packed + x, row);
                }
              }
            }
          }
        }
        for (; w < width; w += kPanel) {
          const int64_t panel = width - w < kPanel ? width - w : kPanel;
          PackPanel<kPanel>(src + w * ws, ws, ds, panel, depth, flip, dst + w * packed);
        }
      });
}

}  // namespace tessera::TESSERA_ISA

#endif  // TESSERA_OPS_MATMUL_GEMM_PACK_H_
