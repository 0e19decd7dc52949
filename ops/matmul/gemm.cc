// SPDX-License-Identifier: Apache-2.0
#include "ops/matmul/gemm.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/error.h"
#include "core/thread_pool.h"
#include "ops/matmul/gemm_product.h"

namespace tessera {

using namespace gemm_internal;  // NOLINT(google-build-using-namespace): this library's own

namespace {

void Check(const GemmArgs& args) {
  TESSERA_CHECK(args.m >= 0 && args.n >= 0 && args.k >= 0, "gemm", "negative size: m ", args.m,
                ", n ", args.n, ", k ", args.k);
  const bool floating =
      IsFloating(args.a_dtype) && IsFloating(args.b_dtype) && IsFloating(args.c_dtype);
  const int doubles = (args.a_dtype == DType::kFloat64) + (args.b_dtype == DType::kFloat64) +
                      (args.c_dtype == DType::kFloat64);
  TESSERA_CHECK(floating && (doubles == 0 || doubles == 3), "gemm", "unsupported dtypes ",
                args.a_dtype, ", ", args.b_dtype, " -> ", args.c_dtype);
}

template <typename E>
void PackB(const GemmArgs& args, E* packed) {
  const GemmKernels<E>& kernels = KernelsOf<E>(args);
  const GemmView b{args.b, args.b_col_stride, args.b_row_stride,
                   OperandElement(args, args.b_dtype)};
  const int64_t panels = CeilDiv(args.n, kernels.nr);
  constexpr int64_t kPanelsAtOnce = 8;
  for (int64_t k = 0; k < args.k; k += kGemmDepthBlock) {
    const int64_t depth = std::min(kGemmDepthBlock, args.k - k);
    E* const block = packed + PackedDepth(ByPairs(args), kernels, k) * panels * kernels.nr;
    const int64_t packed_depth = PackedDepth(ByPairs(args), kernels, depth);
    ParallelFor(panels, kPanelsAtOnce, [&](int64_t begin, int64_t end) {
      const int64_t j = begin * kernels.nr;
      const int64_t width = std::min(end * kernels.nr, args.n) - j;
      kernels.pack_b(At(b, j, k), width, depth, block + j * packed_depth);
    });
  }
}

void RunOne(const GemmArgs& args, int threads) {
  if (args.m == 0 || args.n == 0) return;
  if (args.k == 0) {
    if (args.accumulate) return;
    const size_t size = DTypeSize(args.c_dtype);
    for (int64_t i = 0; i < args.m; ++i) {
      std::fill_n(static_cast<char*>(args.c) + i * args.c_row_stride * static_cast<int64_t>(size),
                  static_cast<size_t>(args.n) * size, char{0});
    }
    return;
  }
  if (args.c_dtype == DType::kFloat64) {
    Product<double>(args, threads).Run();
  } else {
    Product<float>(args, threads).Run();
  }
}

}  // namespace

void Gemm(const GemmArgs& args) {
  Check(args);
  RunOne(args, NumThreads());
}

int64_t PackedGemmElements(const GemmArgs& args) {
  Check(args);
  const auto elements = [&](const auto& kernels) {
    return RoundUp(args.n, kernels.nr) * PackedDepth(ByPairs(args), kernels, args.k);
  };
  return args.b_dtype == DType::kFloat64 ? elements(KernelsOf<double>(args))
                                         : elements(KernelsOf<float>(args));
}

void PackGemmB(const GemmArgs& args, void* packed) {
  Check(args);
  if (args.b_dtype == DType::kFloat64) {
    PackB(args, static_cast<double*>(packed));
  } else {
    PackB(args, static_cast<float*>(packed));
  }
}

void BatchedGemm(const GemmArgs& args, const GemmBatch& batch) {
  Check(args);
  TESSERA_CHECK(batch.count >= 0, "gemm", "negative batch count ", batch.count);
  TESSERA_CHECK(args.packed_b == nullptr || batch.b_stride == 0, "gemm",
                "one packed B for products of several");
  const auto product = [&](int64_t i, int threads) {
    GemmArgs one = args;
    const auto size = [](DType dtype) { return static_cast<int64_t>(DTypeSize(dtype)); };
    one.a = static_cast<const char*>(args.a) + i * batch.a_stride * size(args.a_dtype);
    one.b = static_cast<const char*>(args.b) + i * batch.b_stride * size(args.b_dtype);
    one.c = static_cast<char*>(args.c) + i * batch.c_stride * size(args.c_dtype);
    RunOne(one, threads);
  };
  const int threads = NumThreads();
  const int64_t products = std::max<int64_t>(1, args.m * args.n * args.k);
  // Few large products are split inside; many small ones are dealt out to the threads whole.
  if (batch.count < 4 * threads && products > 8 * kSerialProducts) {
    for (int64_t i = 0; i < batch.count; ++i) product(i, threads);
    return;
  }
  const int64_t at_once = std::max<int64_t>(1, kSerialProducts / products);
  ParallelFor(batch.count, at_once, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) product(i, 1);
  });
}

void GroupedGemm(const std::vector<GemmArgs>& products) {
  int64_t all = 0;
  for (const GemmArgs& args : products) {
    Check(args);
    all += args.m * args.n * args.k;
  }
  const int threads = NumThreads();
  // A task is some rows of a product, on one thread: tasks are about alike, and enough that threads
  // end together. Rows of a task share a packed B.
  const int64_t most = std::max(kSerialProducts, all / (int64_t{4} * threads));
  std::vector<GemmArgs> tasks;
  for (const GemmArgs& args : products) {
    const int64_t work = args.m * args.n * args.k;
    const int64_t parts = std::clamp(CeilDiv(work, most), int64_t{1}, CeilDiv(args.m, kRowBlock));
    const int64_t rows = RoundUp(CeilDiv(args.m, parts), kRowBlock / 4);
    for (int64_t i = 0; i < std::max<int64_t>(args.m, 1); i += rows) {
      GemmArgs& part = tasks.emplace_back(args);
      part.m = std::min(rows, args.m - i);
      part.a = static_cast<const char*>(args.a) +
               i * args.a_row_stride * static_cast<int64_t>(DTypeSize(args.a_dtype));
      part.c = static_cast<char*>(args.c) +
               i * args.c_row_stride * static_cast<int64_t>(DTypeSize(args.c_dtype));
    }
  }
  ParallelFor(std::ssize(tasks), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) RunOne(tasks[static_cast<size_t>(i)], 1);
  });
}

}  // namespace tessera
