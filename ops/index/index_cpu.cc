// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "core/thread_pool.h"
#include "ops/index/index_kernel.h"

namespace tessera {
namespace {

void TakeCpu(const TakeArgs& args) {
  const size_t bytes = static_cast<size_t>(args.inner) * DTypeSize(args.dtype);
  const int64_t grain =
      std::max<int64_t>(1, 16384 / static_cast<int64_t>(std::max<size_t>(bytes, 1)));
  ParallelFor(args.outer * args.count, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t at = args.indices[i % args.count] - args.begin;
      char* out = static_cast<char*>(args.out) + static_cast<size_t>(i) * bytes;
      if (at < 0 || at >= args.size) {
        std::memset(out, 0, bytes);
      } else {
        const int64_t row = i / args.count * args.size + at;
        std::memcpy(out, static_cast<const char*>(args.x) + static_cast<size_t>(row) * bytes,
                    bytes);
      }
    }
  });
}

template <typename To, typename From>
void AddRow(To* to, const From* from, int64_t n) {
  using Wide = std::conditional_t<std::is_same_v<To, double>, double, float>;
  for (int64_t i = 0; i < n; ++i) {
    to[i] = To(static_cast<Wide>(to[i]) + static_cast<Wide>(from[i]));
  }
}

// Threads share out the columns, so that every element is added to in index order by one thread.
constexpr int64_t kColumns = 64;

template <typename To, typename From>
void PutTyped(const PutArgs& args) {
  const int64_t blocks = (args.inner + kColumns - 1) / kColumns;
  ParallelFor(args.outer * blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const int64_t outer = b / blocks;
      const int64_t column = b % blocks * kColumns;
      const int64_t n = std::min(kColumns, args.inner - column);
      for (int64_t j = 0; j < args.count; ++j) {
        const int64_t at = args.indices[j] - args.begin;
        if (at < 0 || at >= args.size || args.indices[j] == args.skip) continue;
        AddRow(static_cast<To*>(args.x) + (outer * args.size + at) * args.inner + column,
               static_cast<const From*>(args.grad) + (outer * args.count + j) * args.inner + column,
               n);
      }
    }
  });
}

void PutCpu(const PutArgs& args) {
  DispatchFloat(args.x_dtype, "index_add", [&](auto to) {
    DispatchFloat(args.grad_dtype, "index_add",
                  [&](auto from) { PutTyped<decltype(to), decltype(from)>(args); });
  });
}

// Calls f(x element, picked element) for every index; columns are independent of one another.
template <typename T, typename F>
void EachPicked(const GatherArgs& args, F f) {
  const int64_t grain = std::max<int64_t>(1, 8192 / std::max<int64_t>(args.count, 1));
  ParallelFor(args.outer * args.inner, grain, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      const int64_t outer = c / args.inner;
      const int64_t column = c % args.inner;
      for (int64_t j = 0; j < args.count; ++j) {
        const int64_t p = (outer * args.count + j) * args.inner + column;
        const int64_t x = (outer * args.size + args.index[p]) * args.inner + column;
        f(static_cast<T*>(args.x)[x], static_cast<T*>(args.picked)[p]);
      }
    }
  });
}

void GatherCpu(const GatherArgs& args) {
  DispatchAll(args.dtype, "gather", [&](auto zero) {
    using T = decltype(zero);
    EachPicked<T>(args, [](T& x, T& picked) { picked = x; });
  });
}

void ScatterAddCpu(const GatherArgs& args) {
  if (args.dtype == DType::kInt64) {
    return EachPicked<uint64_t>(args, [](uint64_t& x, uint64_t& picked) { x += picked; });
  }
  DispatchFloat(args.dtype, "scatter_add", [&](auto zero) {
    using T = decltype(zero);
    EachPicked<T>(args, [](T& x, T& picked) { AddRow(&x, &picked, 1); });
  });
}

TESSERA_REGISTER_KERNEL(take_kernel, DeviceType::kCpu, TakeCpu);
TESSERA_REGISTER_KERNEL(put_kernel, DeviceType::kCpu, PutCpu);
TESSERA_REGISTER_KERNEL(gather_kernel, DeviceType::kCpu, GatherCpu);
TESSERA_REGISTER_KERNEL(scatter_add_kernel, DeviceType::kCpu, ScatterAddCpu);

}  // namespace
}  // namespace tessera
