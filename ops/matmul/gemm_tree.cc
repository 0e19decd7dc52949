// SPDX-License-Identifier: Apache-2.0
// Products whose sums over k are binary trees.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "base/error.h"
#include "core/thread_pool.h"
#include "ops/matmul/gemm_product.h"

namespace tessera {
namespace {

using namespace gemm_internal;  // NOLINT(google-build-using-namespace): this library's own

// Packed elements of B at a time, and the longest run whose leaf is summed while
// a tile of C is in registers.
constexpr int64_t kTreeElements = int64_t{1} << 21;
constexpr int64_t kTreeDepth = 4 * kGemmDepthBlock;
constexpr int64_t kMostLevels = 4;

template <typename E>
class TreeProduct : private Product<E> {
 public:
  using Product<E>::Product;

  // Sums over k in a tree. `leaves` are as TreeGemm's.
  void Run(const std::vector<std::vector<Share>>& leaves) const {
    const int64_t levels = std::bit_width(leaves.size());
    int64_t longest = 0;
    for (const std::vector<Share>& leaf : leaves) {
      for (const Share& run : leaf) longest = std::max(longest, run.count);
    }
    if (longest > kTreeDepth) {
      RunLongLeaves(leaves, levels);
    } else {
      RunShortLeaves(leaves);
    }
  }

 private:
  using Base = Product<E>;
  using Base::a_;
  using Base::b_;
  using Base::c_;
  using Base::direct_;
  using Base::k_;
  using Base::kernels_;
  using Base::kMaxTile;
  using Base::m_;
  using Base::n_;
  using Base::Packed;
  using Base::pairs_;
  using Base::RunShared;
  using Base::Spread;
  using Base::StoreBlock;

  // A block of k, and where it begins in what is packed of all of k.
  struct TreeBlock {
    int64_t k;
    int64_t depth;
    int64_t place;
  };
  using TreeBlocks = std::vector<std::vector<TreeBlock>>;

  // The tree over [begin, end) of `leaves` into `out`. `sum(leaf, to, accumulate)` is to[i] = or +=
  // the sum of a leaf, and may accumulate where `adds(leaf)`; `add(from, to)` adds; `size` elements
  // behind a buffer lies the next one. False: there are no indices.
  template <typename Leaves, typename Adds, typename SumLeaf, typename Add>
  static bool InTree(const Leaves& leaves, size_t begin, size_t end, int64_t size, E* out,
                     const Adds& adds, const SumLeaf& sum, const Add& add) {
    if (end - begin == 1) {
      if (leaves[begin].empty()) return false;
      sum(leaves[begin], out, false);
      return true;
    }
    const size_t middle = begin + (end - begin) / 2;
    const auto half = [&](size_t from, size_t to, E* into) {
      return InTree(leaves, from, to, size, into, adds, sum, add);
    };
    if (!half(begin, middle, out)) return half(middle, end, out);
    if (end - middle == 1 && !leaves[middle].empty() && adds(leaves[middle])) {
      sum(leaves[middle], out, true);
    } else if (half(middle, end, out + size)) {
      add(out + size, out);
    }
    return true;
  }

  // All of k of a tile of C at a time, so that the tree's sums stay in the first-level cache: per
  // range of columns B is packed by all threads, and each task packs its rows of A.
  void RunShortLeaves(const std::vector<std::vector<Share>>& leaves) const {
    const int64_t mr = kernels_.mr, nr = kernels_.nr;
    int64_t depth = 0;
    TreeBlocks blocks;
    for (const std::vector<Share>& leaf : leaves) {
      std::vector<TreeBlock>& own = blocks.emplace_back();
      for (const Share& run : leaf) {
        for (int64_t k = 0; k < run.count; k += kGemmDepthBlock) {
          own.push_back({run.begin + k, std::min(kGemmDepthBlock, run.count - k), depth});
          depth += Packed(own.back().depth);
        }
      }
    }
    const auto all_blocks = [&](const auto& body) {
      for (const std::vector<TreeBlock>& leaf : blocks) {
        for (const TreeBlock& block : leaf) body(block);
      }
    };
    const int64_t most = std::max(nr, kTreeElements / depth / nr * nr);
    const int64_t width = RoundUp(CeilDiv(n_, CeilDiv(n_, most)), nr);
    const int64_t height = RoundUp(std::clamp(kTreeElements / 8 / depth, mr, kRowBlock / 2), mr);
    for (int64_t j0 = 0; j0 < n_; j0 += width) {
      const int64_t columns = std::min(width, n_ - j0);
      E* const b = packed_b_scratch.Get<E>(RoundUp(columns, nr) * depth);
      Spread(CeilDiv(columns, nr), columns * k_, [&](int64_t panel) {
        const int64_t j = panel * nr;
        all_blocks([&](const TreeBlock& block) {
          kernels_.pack_b(At(b_, j0 + j, block.k), std::min(nr, columns - j), block.depth,
                          b + j * depth + block.place * nr);
        });
      });
      Spread(CeilDiv(m_, height), m_ * columns * k_, [&](int64_t task) {
        const int64_t i0 = task * height;
        const int64_t rows = std::min(height, m_ - i0);
        E* const a = packed_a_scratch.Get<E>(RoundUp(rows, mr) * depth);
        const TileScope scope(kernels_, false);
        for (int64_t i = 0; i < rows; i += mr) {
          all_blocks([&](const TreeBlock& block) {
            kernels_.pack_a(At(a_, i0 + i, block.k), std::min(mr, rows - i), block.depth,
                            a + i * depth + block.place * mr);
          });
        }
        for (int64_t j = 0; j < columns; j += nr) {
          for (int64_t i = 0; i < rows; i += mr) {
            alignas(64) E sums[kMostLevels * kMaxTile];
            TreeTile(blocks, a + i * depth, b + j * depth, sums);
            const int64_t high = std::min(mr, rows - i), wide = std::min(nr, columns - j);
            if (!direct_) StoreBlock(i0 + i, high, j0 + j, wide, sums, nr);
            for (int64_t r = 0; r < high && direct_; ++r) {
              std::copy_n(sums + r * nr, wide, static_cast<E*>(c_.At(i0 + i + r, j0 + j)));
            }
          }
        }
      });
    }
  }

  void TreeTile(const TreeBlocks& blocks, const E* a, const E* b, E* sums) const {
    const int64_t mr = kernels_.mr, nr = kernels_.nr;
    const auto sum = [&](const std::vector<TreeBlock>& leaf, E* to, bool accumulate) {
      const PairScope scope(pairs_);
      for (const TreeBlock& block : leaf) {
        kernels_.tile(Packed(block.depth), a + block.place * mr, b + block.place * nr, to, nr, E{1},
                      accumulate || &block != leaf.data());
      }
    };
    // Numbers below the normal ones count in sums of leaves, as they do in those over ranks.
    const auto adds = [&](const std::vector<TreeBlock>& leaf) {
      return !pairs_ && leaf.size() == 1;
    };
    const auto add = [&](const E* from, E* to) {
      kernels_.finish_row(mr * nr, from, to, E{1}, true);
    };
    InTree(blocks, 0, blocks.size(), mr * nr, sums, adds, sum, add);
  }

  // A leaf at a time, by blocks of C.
  void RunLongLeaves(const std::vector<std::vector<Share>>& leaves, int64_t levels) const {
    const int64_t width = std::min(n_, RoundUp(kColumnBlock / 4, kernels_.nr));
    const int64_t height = RoundUp(CeilDiv(kWideElements / levels, width), kernels_.mr);
    for (int64_t j = 0; j < n_; j += width) {
      const int64_t columns = std::min(width, n_ - j);
      for (int64_t i = 0; i < m_; i += height) {
        const int64_t rows = std::min(height, m_ - i);
        const int64_t size = rows * columns;
        E* const c = wide_c_scratch.Get<E>(levels * size);
        const auto rows_of = [&](const auto& body) { Spread(rows, size * k_, body); };
        const auto sum = [&](const std::vector<Share>& leaf, E* to, bool) {
          for (const Share& run : leaf) {
            RunShared(run, i, rows, j, columns, to, columns, &run != leaf.data());
          }
        };
        const auto adds = [](const std::vector<Share>&) { return false; };
        const auto add = [&](const E* from, E* to) {
          rows_of([&](int64_t r) {
            kernels_.finish_row(columns, from + r * columns, to + r * columns, E{1}, true);
          });
        };
        InTree(leaves, 0, leaves.size(), size, c, adds, sum, add);
        rows_of([&](int64_t r) { StoreBlock(i + r, 1, j, columns, c + r * columns, columns); });
      }
    }
  }
};

}  // namespace

void TreeGemm(const GemmArgs& args, const std::vector<std::vector<Share>>& leaves) {
  const bool wide = args.c_dtype == DType::kFloat64;
  TESSERA_CHECK(!args.accumulate && args.alpha == 1 && args.packed_b == nullptr &&
                    (wide || args.c_dtype == DType::kFloat32),
                "gemm", "a sum in a tree is in full precision, and of nothing else");
  int64_t indices = 0;
  for (const std::vector<Share>& leaf : leaves) {
    for (const Share& run : leaf) indices += run.count;
  }
  TESSERA_CHECK(!leaves.empty() && (leaves.size() & (leaves.size() - 1)) == 0 && indices == args.k,
                "gemm", leaves.size(), " leaves of ", indices, " indices for k ", args.k);
  if (args.m == 0 || args.n == 0 || args.k == 0) return Gemm(args);
  if (wide) {
    TreeProduct<double>(args, NumThreads()).Run(leaves);
  } else {
    TreeProduct<float>(args, NumThreads()).Run(leaves);
  }
}

}  // namespace tessera
