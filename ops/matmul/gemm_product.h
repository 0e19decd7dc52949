// SPDX-License-Identifier: Apache-2.0
// One product of packed blocks on the CPU: what gemm.cc and gemm_tree.cc run.
//
//   gemm_internal::Product<float>(args, NumThreads()).Run();
#ifndef TESSERA_OPS_MATMUL_GEMM_PRODUCT_H_
#define TESSERA_OPS_MATMUL_GEMM_PRODUCT_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "core/cpu/float_control.h"
#include "core/cpu/scratch.h"
#include "core/thread_pool.h"
#include "ops/matmul/gemm.h"
#include "ops/matmul/gemm_kernel.h"
#include "ops/matmul/gemm_tiles.h"

namespace tessera::gemm_internal {

// Blocks of C's rows and columns, in elements. A packed block of A (kRowBlock x kGemmDepthBlock)
// lives in a core's L2, a packed block of B (kGemmDepthBlock x kColumnBlock) in the shared cache.
inline constexpr int64_t kRowBlock = 192;
inline constexpr int64_t kColumnBlock = 3072;
// Up to this many rows, each thread packs its own columns of B: they are used by it alone.
inline constexpr int64_t kNarrowRows = 96;
inline constexpr int64_t kNarrowColumns = 480;
// Columns that a thread takes at a time when B is read without packing.
inline constexpr int64_t kSkinnyColumns = 2048;
// Indices of k that it goes through before the next columns where B is contiguous along k.
inline constexpr int64_t kSkinnyDepth = 32 * kGemmDepthBlock;
// Elements of C that are kept in float32 until all of k is summed, if C is of half precision.
inline constexpr int64_t kWideElements = int64_t{1} << 20;
// Multiply-adds below which another thread costs more than it brings.
inline constexpr int64_t kSerialProducts = 128 * 1024;

// One per use, since a block of A is packed while the caller's B is in use.
inline constinit thread_local ThreadScratch packed_a_scratch;
inline constinit thread_local ThreadScratch packed_b_scratch;
inline constinit thread_local ThreadScratch sums_scratch;
inline constinit thread_local ThreadScratch wide_c_scratch;

inline int64_t RoundUp(int64_t a, int64_t b) { return CeilDiv(a, b) * b; }

inline int64_t SizeOf(GemmElement element) {
  switch (element) {
    case GemmElement::kBFloat16:
    case GemmElement::kBFloat16Pairs:
    case GemmElement::kFloat16:
      return 2;
    case GemmElement::kFloat64:
      return 8;
    default:
      return 4;
  }
}

// The part of a view that begins at (w, k).
inline GemmView At(const GemmView& view, int64_t w, int64_t k) {
  GemmView part = view;
  part.data = static_cast<const char*>(view.data) +
              (w * view.width_stride + k * view.depth_stride) * SizeOf(view.element);
  return part;
}

// C, and how its elements are laid out.
struct GemmTarget {
  void* data;
  int64_t row_stride;
  int64_t column_stride;
  GemmElement element;

  void* At(int64_t i, int64_t j) const {
    return static_cast<char*>(data) + (i * row_stride + j * column_stride) * SizeOf(element);
  }
};

// Whether a product takes k by pairs: where both operands are bfloat16.
inline bool ByPairs(const GemmArgs& args) {
  return args.a_dtype == DType::kBFloat16 && args.b_dtype == DType::kBFloat16;
}

template <typename E>
const GemmKernels<E>& KernelsOf(const GemmArgs& args) {
  if constexpr (std::is_same_v<E, float>) {
    if (ByPairs(args)) return SelectGemmPairKernels();
  }
  return SelectGemmKernels<E>();
}

inline GemmElement OperandElement(const GemmArgs& args, DType dtype) {
  return ByPairs(args) ? GemmElement::kBFloat16Pairs : GemmElementOf(dtype);
}

// Packed elements for `depth` indices of k.
template <typename E>
int64_t PackedDepth(bool pairs, const GemmKernels<E>& kernels, int64_t depth) {
  if (!pairs) return depth;
  return RoundUp(CeilDiv(depth, 2), kernels.pairs_at_once) * kernels.pair_elements;
}

// While it lives, and `pairs`, this thread's operations take numbers below the normal ones as
// zeros, as instructions for pairs do.
class PairScope {
 public:
  explicit PairScope(bool pairs) : pairs_(pairs) {
    if (pairs) Enter();
  }
  ~PairScope() {
    if (pairs_) Leave();
  }
  PairScope(const PairScope&) = delete;
  PairScope& operator=(const PairScope&) = delete;

 private:
  __attribute__((noinline)) void Enter() {
    before_ = FloatControl();
    SetFloatControl(before_ | kFlushSubnormals);
  }
  __attribute__((noinline)) void Leave() const { SetFloatControl(before_); }

  const bool pairs_;
  FloatControlWord before_ = 0;
};

// While it lives, this thread may also use tiles.
class TileScope {
 public:
  template <typename E>
  TileScope(const GemmKernels<E>& kernels, bool pairs) : pairs_(pairs), leave_(kernels.leave) {
    if (kernels.enter != nullptr) kernels.enter();
  }
  ~TileScope() {
    if (leave_ != nullptr) leave_();
  }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;

 private:
  const PairScope pairs_;
  void (*leave_)();
};

// One product. `threads` is 1 where the caller has spread a batch over the threads already.
template <typename E>
class Product {
 public:
  Product(const GemmArgs& args, int threads)
      : kernels_(KernelsOf<E>(args)),
        pairs_(ByPairs(args)),
        m_(args.m),
        n_(args.n),
        k_(args.k),
        a_{args.a, args.a_row_stride, args.a_col_stride, OperandElement(args, args.a_dtype)},
        b_{args.b, args.b_col_stride, args.b_row_stride, OperandElement(args, args.b_dtype)},
        c_{args.c, args.c_row_stride, 1, GemmElementOf(args.c_dtype)},
        alpha_(static_cast<E>(args.alpha)),
        accumulate_(args.accumulate),
        packed_b_(static_cast<const E*>(args.packed_b)),
        threads_(threads) {
    // Tiles are wider than high: of a product and its transpose the one with less padding is taken.
    if (packed_b_ == nullptr && Padded(n_, m_) * 5 < Padded(m_, n_) * 4) {
      std::swap(m_, n_);
      std::swap(a_, b_);
      std::swap(c_.row_stride, c_.column_stride);
    }
    direct_ = c_.column_stride == 1 && SizeOf(c_.element) == static_cast<int64_t>(sizeof(E));
  }

  void Run() {
    if (m_ <= kNarrowRows) {
      RunNarrow();
    } else if (direct_) {
      const int64_t blocks = CeilDiv(n_, kColumnBlock);
      const int64_t width = RoundUp(CeilDiv(n_, blocks), kernels_.nr);
      for (int64_t j = 0; j < n_; j += width) {
        RunShared({0, k_}, 0, m_, j, std::min(width, n_ - j), static_cast<E*>(c_.At(0, j)),
                  c_.row_stride, accumulate_);
      }
    } else {
      RunWide();
    }
  }

 protected:
  bool IsSkinny(int64_t rows) const {
    // Of panels that are packed already, a tile of few rows keeps its sums in registers.
    const bool has_panels = packed_b_ != nullptr && kernels_.rows_tile != nullptr;
    return rows <= kSkinnyRows && kernels_.skinny != nullptr && !has_panels;
  }

  // Whether a skinny product reads B where it is.
  bool ReadsInPlace() const {
    return packed_b_ == nullptr &&
           (b_.width_stride == 1 || (b_.depth_stride == 1 && sizeof(E) == sizeof(float)));
  }

  int64_t Padded(int64_t rows, int64_t columns) const {
    const int64_t high = IsSkinny(rows) ? rows : RoundUp(rows, kernels_.mr);
    return high * RoundUp(columns, kernels_.nr);
  }

  int64_t Packed(int64_t depth) const { return PackedDepth(pairs_, kernels_, depth); }

  // Calls body(begin, end) over [0, count), on all threads if the product is worth it.
  template <typename Body>
  void Spread(int64_t count, int64_t products, const Body& body) const {
    if (threads_ == 1 || count == 1 || products < kSerialProducts) {
      for (int64_t i = 0; i < count; ++i) body(i);
      return;
    }
    ParallelFor(count, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) body(i);
    });
  }

  // Columns [j, j + width) of rows [i, i + height) as E in `buffer` (row stride `stride`), and
  // back.
  void LoadBlock(int64_t i, int64_t height, int64_t j, int64_t width, E* buffer,
                 int64_t stride) const {
    for (int64_t r = 0; r < height; ++r) {
      if (c_.column_stride == 1) {
        kernels_.load_row(c_.element, c_.At(i + r, j), width, buffer + r * stride);
      } else {
        for (int64_t x = 0; x < width; ++x) {
          kernels_.load_row(c_.element, c_.At(i + r, j + x), 1, buffer + r * stride + x);
        }
      }
    }
  }
  void StoreBlock(int64_t i, int64_t height, int64_t j, int64_t width, const E* buffer,
                  int64_t stride) const {
    for (int64_t r = 0; r < height; ++r) {
      if (c_.column_stride == 1) {
        kernels_.store_row(c_.element, buffer + r * stride, width, c_.At(i + r, j));
      } else {
        for (int64_t x = 0; x < width; ++x) {
          kernels_.store_row(c_.element, buffer + r * stride + x, 1, c_.At(i + r, j + x));
        }
      }
    }
  }

  // One panel of A times one panel of B into `height` x `width` of C; whole tiles in place, others
  // by way of a buffer. `next` is what to fetch meanwhile, or nullptr.
  void TileInto(int64_t depth, const E* a, const E* b, int64_t height, int64_t width, E* c,
                int64_t stride, bool accumulate, const E* next) const {
    const int64_t mr = kernels_.mr, nr = kernels_.nr;
    const bool whole = height == mr && next == nullptr;
    if (width == nr && kernels_.rows_tile != nullptr && !whole) {
      const E* const fetched = next == nullptr ? b : next;
      kernels_.rows_tile(height, depth, a, b, c, stride, alpha_, accumulate, fetched);
      return;
    }
    if (height == mr && width == nr) {
      kernels_.tile(depth, a, b, c, stride, alpha_, accumulate);
      return;
    }
    alignas(64) E tile[kMaxTile];
    if (accumulate) {
      std::fill_n(tile, mr * nr, E{0});
      for (int64_t i = 0; i < height; ++i) {
        std::copy(c + i * stride, c + i * stride + width, tile + i * nr);
      }
    }
    kernels_.tile(depth, a, b, tile, nr, alpha_, accumulate);
    for (int64_t i = 0; i < height; ++i) {
      std::copy(tile + i * nr, tile + i * nr + width, c + i * stride);
    }
  }

  // Packed A (`height` rows) times packed B (`width` columns) into C; `depth` is packed.
  void Block(int64_t depth, const E* a, const E* b, int64_t height, int64_t width, E* c,
             int64_t stride, bool accumulate) const {
    const int64_t mr = kernels_.mr, nr = kernels_.nr;
    // Panels come from memory or from the shared cache: a panel's tiles fetch the next one, a share
    // each. Of weights that were packed beforehand the last one fetches what lies behind, which may
    // be another block's.
    const int64_t shares = CeilDiv(nr * static_cast<int64_t>(sizeof(E)), 64);
    for (int64_t j = 0; j < width; j += nr) {
      const bool fetches = packed_b_ != nullptr || j + nr < width;
      for (int64_t i = 0; i < height; i += mr) {
        const int64_t share = i / mr;
        const E* const next = fetches && share < shares
                                  ? b + (j + nr) * depth + share * (nr / shares) * depth
                                  : nullptr;
        TileInto(depth, a + i * depth, b + j * depth, std::min(mr, height - i),
                 std::min(nr, width - j), c + i * stride + j, stride, accumulate, next);
      }
    }
  }

  // Columns [j, j + width) of B as panels of nr columns, one after the other; j is a multiple of
  // nr.
  const E* Panels(int64_t j, int64_t width, int64_t k, int64_t depth) const {
    const int64_t nr = kernels_.nr;
    if (packed_b_ != nullptr) {
      return packed_b_ + Packed(k) * RoundUp(n_, nr) + j * Packed(depth);
    }
    E* const panels = packed_b_scratch.Get<E>(RoundUp(width, nr) * Packed(depth));
    kernels_.pack_b(At(b_, j, k), width, depth, panels);
    return panels;
  }

  // Few rows: a task is a range of columns with all of k.
  void RunNarrow() const {
    const bool skinny = IsSkinny(m_);
    const bool across = skinny && ReadsInPlace() && b_.width_stride == 1;
    const int64_t nr = kernels_.nr;
    const int64_t most = across ? kSkinnyColumns : kNarrowColumns;
    const int64_t least = across ? 8 * nr : nr;
    // Of panels that are packed already, a thread takes one range: the panel that a tile fetches is
    // its own next one, and A is packed once per thread.
    const int64_t share = packed_b_ != nullptr
                              ? CeilDiv(n_, threads_)
                              : std::clamp(CeilDiv(n_, int64_t{4} * threads_), least, most);
    const int64_t width = RoundUp(share, nr);
    Spread(CeilDiv(n_, width), m_ * n_ * k_, [&](int64_t task) {
      const int64_t j = task * width;
      const int64_t columns = std::min(width, n_ - j);
      E* c = nullptr;
      int64_t stride = c_.row_stride;
      if (direct_) {
        c = static_cast<E*>(c_.At(0, j));
      } else {
        stride = columns;
        c = wide_c_scratch.Get<E>(m_ * stride);
        if (accumulate_) LoadBlock(0, m_, j, columns, c, stride);
      }
      {
        const TileScope scope(kernels_, pairs_);
        if (skinny) SkinnyColumns(j, columns, c, stride);
        for (int64_t k = 0; k < k_ && !skinny; k += kGemmDepthBlock) {
          NarrowBlock(j, columns, k, std::min(kGemmDepthBlock, k_ - k), c, stride,
                      accumulate_ || k > 0);
        }
      }
      if (!direct_) StoreBlock(0, m_, j, columns, c, stride);
    });
  }

  // At most kSkinnyRows rows times columns [j, j + columns): straight from B where its columns or
  // rows are contiguous, by way of one packed panel at a time otherwise.
  void SkinnyColumns(int64_t j, int64_t columns, E* c, int64_t stride) const {
    // B is walked in the order of its memory: all of k of a few columns and then the next, or all
    // columns of a block of k.
    const bool in_place = ReadsInPlace();
    const bool along = in_place && b_.width_stride != 1;
    const int64_t step = along ? kernels_.nr / 3 : in_place ? columns : kernels_.nr;
    const int64_t span = along ? kSkinnyDepth : kGemmDepthBlock;
    const int64_t rows = m_ > 4 ? 8 : m_ > 1 ? 4 : 1;
    E* const sums = sums_scratch.Get<E>(rows * step);
    for (int64_t k0 = 0; k0 < k_; k0 += span) {
      const int64_t end = std::min(k0 + span, k_);
      const E* const a = InterleavedRows(rows, k0, end - k0);
      for (int64_t x = 0; x < columns; x += step) {
        const int64_t width = std::min(step, columns - x);
        for (int64_t k = k0; k < end; k += kGemmDepthBlock) {
          const int64_t depth = std::min(kGemmDepthBlock, end - k);
          const E* const factors = a + Packed(k - k0) * rows;
          if (in_place) {
            kernels_.skinny(rows, depth, factors, At(b_, j + x, k), width, sums);
          } else {
            kernels_.skinny(rows, Packed(depth), factors, Panel(j + x, width, k, depth), width,
                            sums);
          }
          for (int64_t i = 0; i < m_; ++i) {
            kernels_.finish_row(width, sums + i * width, c + i * stride + x, alpha_,
                                accumulate_ || k > 0);
          }
        }
      }
    }
  }

  // One packed panel of B, as a view.
  GemmView Panel(int64_t j, int64_t width, int64_t k, int64_t depth) const {
    constexpr GemmElement kOwn = sizeof(E) == 8 ? GemmElement::kFloat64 : GemmElement::kFloat32;
    return {Panels(j, width, k, depth), 1, kernels_.nr, kOwn};
  }

  // Indices [k, k + depth) of A as [packed depth][rows]; rows that A has not are zeros.
  const E* InterleavedRows(int64_t rows, int64_t k, int64_t depth) const {
    const int64_t packed = Packed(depth);
    E* const a = packed_a_scratch.Get<E>(rows * packed + depth);
    if (m_ < rows || (pairs_ && depth % 2 != 0)) std::fill_n(a, rows * packed, E{0});
    if (pairs_ && kernels_.pair_elements == 1) {
      for (int64_t i = 0; i < m_; ++i) {
        for (int64_t x = 0; x < depth; ++x) {
          char* const to = reinterpret_cast<char*>(a + x / 2 * rows + i) + x % 2 * 2;
          std::memcpy(to, At(a_, i, k + x).data, 2);
        }
      }
      return a;
    }
    const int64_t flip = pairs_ ? 1 : 0;
    E* const row = a + rows * packed;
    for (int64_t i = 0; i < m_; ++i) {
      const GemmView part = At(a_, i, k);
      if (part.depth_stride == 1) {
        kernels_.load_row(part.element, part.data, depth, row);
      } else {
        for (int64_t x = 0; x < depth; ++x) {
          kernels_.load_row(part.element, At(part, 0, x).data, 1, row + x);
        }
      }
      for (int64_t x = 0; x < depth; ++x) a[(x ^ flip) * rows + i] = row[x];
    }
    return a;
  }

  void NarrowBlock(int64_t j, int64_t columns, int64_t k, int64_t depth, E* c, int64_t stride,
                   bool accumulate) const {
    const int64_t nr = kernels_.nr;
    E* a = packed_a_scratch.Get<E>(RoundUp(m_, kernels_.mr) * Packed(depth));
    kernels_.pack_a(At(a_, 0, k), m_, depth, a);
    // Rows of B are read in runs of several panels where they are contiguous.
    const int64_t step = packed_b_ != nullptr ? columns : b_.width_stride == 1 ? 5 * nr : nr;
    for (int64_t x = 0; x < columns; x += step) {
      const int64_t width = std::min(step, columns - x);
      Block(Packed(depth), a, Panels(j + x, width, k, depth), m_, width, c + x, stride, accumulate);
    }
  }

  // Columns [j0, j0 + columns) of B as panels, packed by all threads, for `rows` rows.
  const E* PackShared(int64_t j0, int64_t columns, int64_t k, int64_t depth, int64_t rows) const {
    const int64_t nr = kernels_.nr;
    const int64_t panels = CeilDiv(columns, nr);
    E* const b = packed_b_scratch.Get<E>(panels * nr * Packed(depth));
    constexpr int64_t kPanelsAtOnce = 8;
    Spread(CeilDiv(panels, kPanelsAtOnce), rows * columns * depth, [&](int64_t group) {
      const int64_t j = group * kPanelsAtOnce * nr;
      const int64_t width = std::min(kPanelsAtOnce * nr, columns - j);
      kernels_.pack_b(At(b_, j0 + j, k), width, depth, b + j * Packed(depth));
    });
    return b;
  }

  // Rows [i0, i0 + rows) and columns [j0, j0 + columns) into `c`, of a run of k: per block of it, B
  // is packed once by all threads; then each task packs its rows of A and multiplies.
  void RunShared(const Share& run, int64_t i0, int64_t rows, int64_t j0, int64_t columns, E* c,
                 int64_t stride, bool accumulate_first) const {
    const int64_t mr = kernels_.mr, nr = kernels_.nr;
    const int64_t panels = CeilDiv(columns, nr);
    const int64_t tasks_wanted = threads_ == 1 ? 1 : int64_t{4} * threads_;
    // Low blocks let the threads end together. Four times as many of them read B no slower, which
    // is fetched ahead; blocks of few columns would pack A more often.
    const int64_t least_blocks = std::min(4 * tasks_wanted, CeilDiv(rows, kRowBlock / 4));
    const int64_t row_blocks = std::max(CeilDiv(rows, kRowBlock), threads_ == 1 ? 1 : least_blocks);
    const int64_t height = RoundUp(CeilDiv(rows, row_blocks), mr);
    const int64_t row_tasks = CeilDiv(rows, height);
    const int64_t column_tasks = std::min(panels, CeilDiv(tasks_wanted, row_tasks));
    const int64_t task_panels = CeilDiv(panels, column_tasks);
    for (int64_t done = 0; done < run.count; done += kGemmDepthBlock) {
      const int64_t k = run.begin + done;
      const int64_t depth = std::min(kGemmDepthBlock, run.count - done);
      const bool accumulate = accumulate_first || done > 0;
      const E* b = packed_b_ != nullptr ? Panels(j0, columns, k, depth)
                                        : PackShared(j0, columns, k, depth, rows);
      Spread(row_tasks * column_tasks, rows * columns * depth, [&](int64_t task) {
        const int64_t i = task / column_tasks * height;
        const int64_t j = task % column_tasks * task_panels * nr;
        if (j >= columns) return;
        const int64_t task_rows = std::min(height, rows - i);
        const int64_t task_columns = std::min(task_panels * nr, columns - j);
        E* a = packed_a_scratch.Get<E>(RoundUp(task_rows, mr) * Packed(depth));
        kernels_.pack_a(At(a_, i0 + i, k), task_rows, depth, a);
        const TileScope scope(kernels_, pairs_);
        Block(Packed(depth), a, b + j * Packed(depth), task_rows, task_columns, c + i * stride + j,
              stride, accumulate);
      });
    }
  }

  // Many rows of a C that is of half precision or transposed: computed in E by blocks that are
  // converted when all of k is summed.
  void RunWide() const {
    const int64_t blocks = CeilDiv(n_, kColumnBlock);
    const int64_t width = RoundUp(CeilDiv(n_, blocks), kernels_.nr);
    const int64_t row_groups = CeilDiv(m_ * width, kWideElements);
    const int64_t height = RoundUp(CeilDiv(m_, row_groups), kernels_.mr);
    for (int64_t j = 0; j < n_; j += width) {
      const int64_t columns = std::min(width, n_ - j);
      for (int64_t i = 0; i < m_; i += height) {
        const int64_t rows = std::min(height, m_ - i);
        E* c = wide_c_scratch.Get<E>(rows * columns);
        constexpr int64_t kRowsAtOnce = 16;
        const auto move = [&](bool in) {
          Spread(CeilDiv(rows, kRowsAtOnce), rows * columns * k_, [&](int64_t group) {
            const int64_t r = group * kRowsAtOnce;
            const int64_t count = std::min(kRowsAtOnce, rows - r);
            if (in) {
              LoadBlock(i + r, count, j, columns, c + r * columns, columns);
            } else {
              StoreBlock(i + r, count, j, columns, c + r * columns, columns);
            }
          });
        };
        if (accumulate_) move(true);
        RunShared({0, k_}, i, rows, j, columns, c, columns, accumulate_);
        move(false);
      }
    }
  }

  static constexpr int64_t kMaxTile = 32 * 32;

  const GemmKernels<E>& kernels_;
  bool pairs_;
  int64_t m_, n_, k_;
  GemmView a_, b_;
  GemmTarget c_;
  E alpha_;
  bool accumulate_;
  const E* packed_b_;  // nullptr: B is packed here
  int64_t threads_;
  bool direct_;  // C is written in place: of type E, columns adjacent
};

}  // namespace tessera::gemm_internal

#endif  // TESSERA_OPS_MATMUL_GEMM_PRODUCT_H_
