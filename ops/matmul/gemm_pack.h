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

// One panel: dst[k * kPanel + w] = src[w * ws + k * ds] for w < width <= kPanel; zeros above width.
template <int64_t kPanel, typename T, typename E>
TESSERA_SIMD void PackStrided(const T* src, int64_t ws, int64_t ds, int64_t width, int64_t depth,
                              E* dst) {
  for (int64_t k = 0; k < depth; ++k) {
    for (int64_t w = 0; w < width; ++w) dst[k * kPanel + w] = LoadOne(src + w * ws + k * ds);
    for (int64_t w = width; w < kPanel; ++w) dst[k * kPanel + w] = E{0};
  }
}

template <typename T>
constexpr bool kIsBf16 = false;
template <>
constexpr bool kIsBf16<Bf16> = true;

// A panel contiguous along the depth (ds == 1), by squares of kLanes columns and kLanes deep.
template <int64_t kPanel, typename T>
__attribute__((noinline)) void PackColumns(const T* src, int64_t ws, int64_t width, int64_t depth,
                                           float* dst) {
  static_assert(kPanel % kLanes == 0);
  for (int64_t w0 = 0; w0 < kPanel; w0 += kLanes) {
    int64_t k0 = 0;
    if constexpr (kIsBf16<T>) {
      // Two depths are one element of 32 bits until they stand in their columns.
      for (; w0 + kLanes <= width && k0 + 2 * kLanes <= depth; k0 += 2 * kLanes) {
        VecF square[kLanes];
#pragma GCC unroll 16
        for (int64_t w = 0; w < kLanes; ++w) {
          const T* const from = src + (w0 + w) * ws + k0;
          square[w] = BitsAsFloat(Load(reinterpret_cast<const int32_t*>(from)));
          __builtin_prefetch(from + kLanes * ws);
        }
        TransposeSquare(square);
        float* to = dst + k0 * kPanel + w0;
#pragma GCC unroll 16
        for (int64_t pair = 0; pair < kLanes; ++pair, to += 2 * kPanel) {
          const VecI bits = BitsAsInt(square[pair]);
          Store(to, BitsAsFloat(ShiftLeft<16>(bits)));
          Store(to + kPanel, BitsAsFloat(bits & SetI(static_cast<int32_t>(0xffff0000u))));
        }
      }
    }
    for (; k0 < depth; k0 += kLanes) {
      const int64_t deep = depth - k0 < kLanes ? depth - k0 : kLanes;
      VecF square[kLanes];
      if (deep == kLanes && w0 + kLanes <= width) {
#pragma GCC unroll 16
        for (int64_t w = 0; w < kLanes; ++w) {
          square[w] = Load(src + (w0 + w) * ws + k0);
          // The rows that follow, or (a harmless guess) those of the next panel.
          __builtin_prefetch(src + (w0 + w + kLanes) * ws + k0);
        }
      } else {
        for (int64_t w = 0; w < kLanes; ++w) {
          square[w] = w0 + w < width ? LoadN(src + (w0 + w) * ws + k0, deep) : Zero();
        }
      }
      TransposeSquare(square);
      float* to = dst + k0 * kPanel + w0;
      if (deep == kLanes) {
#pragma GCC unroll 16
        for (int64_t k = 0; k < kLanes; ++k) Store(to + k * kPanel, square[k]);
      } else {
        for (int64_t k = 0; k < deep; ++k) Store(to + k * kPanel, square[k]);
      }
    }
  }
}

// As PackColumns for a full panel of half a vector: two depths of kLanes make one square.
template <typename T>
TESSERA_SIMD void PackColumnsHalf(const T* src, int64_t ws, int64_t depth, float* dst) {
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
      StoreHalves(to + k * kPanel, to + (k + kLanes) * kPanel, square[k]);
    }
  }
  PackStrided<kPanel>(src + k0, ws, 1, kPanel, depth - k0, dst + k0 * kPanel);
}

// One panel of at most kPanel, whichever way it lies.
template <int64_t kPanel, typename T>
TESSERA_SIMD void PackPanel(const T* src, int64_t ws, int64_t ds, int64_t width, int64_t depth,
                            float* dst) {
  if constexpr (kPanel % kLanes == 0) {
    if (ds == 1) return PackColumns<kPanel>(src, ws, width, depth, dst);
  } else if constexpr (kPanel * 2 == kLanes) {
    if (ds == 1 && width == kPanel) return PackColumnsHalf(src, ws, depth, dst);
  }
  PackStrided<kPanel>(src, ws, ds, width, depth, dst);
}

// Of doubles.
template <int64_t kPanel>
TESSERA_SIMD void PackPanel(const double* src, int64_t ws, int64_t ds, int64_t width, int64_t depth,
                            double* dst) {
  PackStrided<kPanel>(src, ws, ds, width, depth, dst);
}

// All panels of a view (gemm_kernel.h).
template <typename E, int64_t kPanel>
void Pack(const GemmView& view, int64_t width, int64_t depth, E* dst) {
  constexpr int64_t kWidth = VectorOf<E>::kWidth;
  const int64_t ws = view.width_stride, ds = view.depth_stride;
  Dispatch(
      view.element, view.data, E{}, [&](const auto* src) __attribute__((always_inline)) {
        int64_t w = 0;
        if constexpr (kPanel % kWidth == 0) {
          // Rows are read along the whole width, so that long strides cost few translations.
          const int64_t whole = ws == 1 ? width / kPanel * kPanel : 0;
          for (int64_t k = 0; k < depth && whole > 0; ++k) {
            E* to = dst + k * kPanel;
            for (w = 0; w < whole; w += kPanel) {
#pragma GCC unroll 4
              for (int64_t x = 0; x < kPanel; x += kWidth) {
                Store(to + w * depth + x, Load(src + k * ds + w + x));
                __builtin_prefetch(src + (k + 6) * ds + w + x);
              }
            }
          }
        }
        if constexpr (kPanel * 2 == kWidth && sizeof(E) == 4) {
          // The same for panels of half a vector, two at a time.
          const int64_t whole = ws == 1 ? width / kWidth * kWidth : 0;
          for (int64_t k = 0; k < depth && whole > 0; ++k) {
            E* to = dst + k * kPanel;
            for (w = 0; w < whole; w += kWidth) {
              StoreHalves(to + w * depth, to + (w + kPanel) * depth, Load(src + k * ds + w));
              __builtin_prefetch(src + (k + 6) * ds + w);
            }
          }
        }
        for (; w < width; w += kPanel) {
          const int64_t panel = width - w < kPanel ? width - w : kPanel;
          PackPanel<kPanel>(src + w * ws, ws, ds, panel, depth, dst + w * depth);
        }
      });
}

}  // namespace tessera::TESSERA_ISA

#endif  // TESSERA_OPS_MATMUL_GEMM_PACK_H_
