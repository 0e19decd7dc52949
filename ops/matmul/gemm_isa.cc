// The tile product, packing and the skinny product for one instruction set.
#include "core/cpu/simd.h"
#include "core/cpu/simd_transpose.h"
#include "ops/matmul/gemm_kernel.h"

namespace tessera::TESSERA_ISA {
namespace {

// Rows and vectors per row of a tile: the accumulators, a row of B and one broadcast of A fill the
// registers (24 + 3 + 1 of 32, or 12 + 3 + 1 of 16).
#if defined(TESSERA_ISA_AVX512)
constexpr int kTileRows = 8;
#else
constexpr int kTileRows = 4;
#endif
constexpr int kTileVectors = 3;

template <typename E>
struct VectorOf;
template <>
struct VectorOf<float> {
  using Type = VecF;
  static constexpr int64_t kWidth = kLanes;
};
template <>
struct VectorOf<double> {
  using Type = VecD;
  static constexpr int64_t kWidth = kLanesD;
};

TESSERA_SIMD VecF Broadcast(float x) { return Set(x); }
TESSERA_SIMD VecD Broadcast(double x) { return SetD(x); }

// ---- One element, whatever its type -------------------------------------------------------------

TESSERA_SIMD float LoadOne(const float* p) { return *p; }
TESSERA_SIMD float LoadOne(const Bf16* p) { return LoadN(p, 1).v[0]; }
TESSERA_SIMD float LoadOne(const F16* p) { return LoadN(p, 1).v[0]; }
TESSERA_SIMD double LoadOne(const double* p) { return *p; }

// Calls f(const T*) with the element type of `data`. E = double has no other element than double.
template <typename F>
TESSERA_SIMD void Dispatch(GemmElement element, const void* data, float, F f) {
  switch (element) {
    case GemmElement::kBFloat16:
      return f(static_cast<const Bf16*>(data));
    case GemmElement::kFloat16:
      return f(static_cast<const F16*>(data));
    default:
      return f(static_cast<const float*>(data));
  }
}
template <typename F>
TESSERA_SIMD void Dispatch(GemmElement, const void* data, double, F f) {
  return f(static_cast<const double*>(data));
}

// ---- Packing ------------------------------------------------------------------------------------

// One panel: dst[k * kPanel + w] = src[w * ws + k * ds] for w < width <= kPanel; zeros above width.
template <int64_t kPanel, typename T, typename E>
TESSERA_SIMD void PackStrided(const T* src, int64_t ws, int64_t ds, int64_t width, int64_t depth,
                              E* dst) {
  for (int64_t k = 0; k < depth; ++k) {
    for (int64_t w = 0; w < width; ++w) dst[k * kPanel + w] = LoadOne(src + w * ws + k * ds);
    for (int64_t w = width; w < kPanel; ++w) dst[k * kPanel + w] = E{0};
  }
}

// A panel contiguous along the depth (ds == 1), by squares of kLanes columns and kLanes deep.
template <int64_t kPanel, typename T>
TESSERA_SIMD void PackColumns(const T* src, int64_t ws, int64_t width, int64_t depth, float* dst) {
  static_assert(kPanel % kLanes == 0);
  for (int64_t w0 = 0; w0 < kPanel; w0 += kLanes) {
    for (int64_t k0 = 0; k0 < depth; k0 += kLanes) {
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

template <int64_t kPanel>
TESSERA_SIMD void PackPanel(const double* src, int64_t ws, int64_t ds, int64_t width, int64_t depth,
                            double* dst) {
  PackStrided<kPanel>(src, ws, ds, width, depth, dst);
}

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

// ---- Products -----------------------------------------------------------------------------------

template <typename E>
void Tile(int64_t depth, const E* a, const E* b, E* c, int64_t c_row_stride, E alpha,
          bool accumulate) {
  using V = typename VectorOf<E>::Type;
  constexpr int64_t kWidth = VectorOf<E>::kWidth;
  V sum[kTileRows][kTileVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kTileVectors; ++j) sum[i][j] = Broadcast(E{0});
  }
  for (int64_t k = 0; k < depth; ++k) {
    V row[kTileVectors];
#pragma GCC unroll 4
    for (int j = 0; j < kTileVectors; ++j) row[j] = Load(b + j * kWidth);
#pragma GCC unroll 8
    for (int i = 0; i < kTileRows; ++i) {
      const V factor = Broadcast(a[i]);
#pragma GCC unroll 4
      for (int j = 0; j < kTileVectors; ++j) sum[i][j] = Fma(factor, row[j], sum[i][j]);
    }
    a += kTileRows;
    b += kTileVectors * kWidth;
  }
  const V scale = Broadcast(alpha);
#pragma GCC unroll 8
  for (int i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kTileVectors; ++j) {
      E* to = c + i * c_row_stride + j * kWidth;
      Store(to, accumulate ? Fma(scale, sum[i][j], Load(to)) : scale * sum[i][j]);
    }
  }
}

// The chain of each element runs over k alone, so that rows of B stream through once, kStep at a
// time, while the sums stay in the first-level cache.
template <int kRows, int kStep, typename T, typename E>
TESSERA_SIMD void SkinnyStep(const E* a, const T* b, int64_t b_row_stride, int64_t width, E* sums) {
  using V = typename VectorOf<E>::Type;
  constexpr int64_t kWidth = VectorOf<E>::kWidth;
  V factor[kRows][kStep];
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int s = 0; s < kStep; ++s) factor[i][s] = Broadcast(a[s * kRows + i]);
  }
  int64_t j = 0;
  for (; j + kWidth <= width; j += kWidth) {
    V row[kStep];
#pragma GCC unroll 4
    for (int s = 0; s < kStep; ++s) row[s] = Load(b + s * b_row_stride + j);
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
      V sum = Load(sums + i * width + j);
#pragma GCC unroll 4
      for (int s = 0; s < kStep; ++s) sum = Fma(factor[i][s], row[s], sum);
      Store(sums + i * width + j, sum);
    }
  }
  if (j == width) return;
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i) {
    V sum = LoadN(sums + i * width + j, width - j);
    for (int s = 0; s < kStep; ++s) {
      sum = Fma(factor[i][s], LoadN(b + s * b_row_stride + j, width - j), sum);
    }
    StoreN(sums + i * width + j, sum, width - j);
  }
}

template <int kRows, typename T, typename E>
void SkinnyRows(int64_t depth, const E* a, const T* b, int64_t b_row_stride, int64_t width,
                E* sums) {
  int64_t k = 0;
  for (; k + 4 <= depth; k += 4) {
    SkinnyStep<kRows, 4>(a + k * kRows, b + k * b_row_stride, b_row_stride, width, sums);
  }
  for (; k < depth; ++k) {
    SkinnyStep<kRows, 1>(a + k * kRows, b + k * b_row_stride, b_row_stride, width, sums);
  }
}

template <typename E>
void Skinny(int64_t rows, int64_t depth, const E* a, const GemmView& b, int64_t width, E* sums) {
  for (int64_t i = 0; i < rows * width; ++i) sums[i] = E{0};
  Dispatch(
      b.element, b.data, E{}, [&](const auto* data) __attribute__((always_inline)) {
        switch (rows) {
          case 1:
            return SkinnyRows<1>(depth, a, data, b.depth_stride, width, sums);
          case 2:
            return SkinnyRows<2>(depth, a, data, b.depth_stride, width, sums);
          case 3:
            return SkinnyRows<3>(depth, a, data, b.depth_stride, width, sums);
          default:
            return SkinnyRows<4>(depth, a, data, b.depth_stride, width, sums);
        }
      });
}

template <typename E>
void FinishRow(int64_t n, const E* s, E* c, E alpha, bool accumulate) {
  using V = typename VectorOf<E>::Type;
  constexpr int64_t kWidth = VectorOf<E>::kWidth;
  const V scale = Broadcast(alpha);
  for (int64_t j = 0; j < n; j += kWidth) {
    const V sum = LoadN(s + j, n - j);
    StoreN(c + j, accumulate ? Fma(scale, sum, LoadN(c + j, n - j)) : scale * sum, n - j);
  }
}

template <typename E>
void LoadRow(GemmElement element, const void* src, int64_t n, E* dst) {
  Dispatch(
      element, src, E{}, [&](const auto* from) __attribute__((always_inline)) {
        for (int64_t j = 0; j < n; j += VectorOf<E>::kWidth)
          StoreN(dst + j, LoadN(from + j, n - j), n - j);
      });
}

template <typename T>
TESSERA_SIMD T* Writable(const T* p) {
  return const_cast<T*>(p);
}

template <typename E>
void StoreRow(GemmElement element, const E* src, int64_t n, void* dst) {
  Dispatch(
      element, dst, E{}, [&](const auto* to) __attribute__((always_inline)) {
        for (int64_t j = 0; j < n; j += VectorOf<E>::kWidth) {
          StoreN(Writable(to) + j, LoadN(src + j, n - j), n - j);
        }
      });
}

template <typename E>
constexpr GemmKernels<E> MakeKernels() {
  constexpr int64_t kPanelB = kTileVectors * VectorOf<E>::kWidth;
  return {kTileRows, kPanelB,      Pack<E, kTileRows>, Pack<E, kPanelB>, Tile<E>,
          Skinny<E>, FinishRow<E>, LoadRow<E>,         StoreRow<E>};
}

}  // namespace

const GemmKernels<float> kGemmFloat = MakeKernels<float>();
const GemmKernels<double> kGemmDouble = MakeKernels<double>();

}  // namespace tessera::TESSERA_ISA
