// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <type_traits>
#include <vector>

#include "core/thread_pool.h"
#include "ops/pooling/pooling_kernel.h"

namespace tessera {
namespace {

template <typename T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

// Elements of a window that lie in x: first, first + dilation, ..., below end.
struct Reach {
  int64_t first;
  int64_t end;
};
Reach ReachOf(const PoolDim& dim, int64_t i) {
  int64_t first = i * dim.stride - dim.padding;
  const int64_t end = std::min(first + dim.kernel * dim.dilation, dim.in);
  if (first < 0) first += (-first + dim.dilation - 1) / dim.dilation * dim.dilation;
  return {first, end};
}

template <typename T>
void MaxOfPlane(const MaxPoolArgs& args, const T* x, T* y, int32_t* from) {
  std::vector<Reach> columns;
  for (int64_t w = 0; w < args.w.out; ++w) columns.push_back(ReachOf(args.w, w));
  for (int64_t h = 0; h < args.h.out; ++h) {
    const Reach rows = ReachOf(args.h, h);
    for (const Reach& column : columns) {
      int64_t best = rows.first * args.w.in + column.first;
      Wide<T> largest = static_cast<Wide<T>>(x[best]);
      for (int64_t i = rows.first; i < rows.end; i += args.h.dilation) {
        for (int64_t j = column.first; j < column.end; j += args.w.dilation) {
          const int64_t at = i * args.w.in + j;
          const auto value = static_cast<Wide<T>>(x[at]);
          const bool larger = value > largest || (value != value && largest == largest);
          best = larger ? at : best;
          largest = larger ? value : largest;
        }
      }
      *y++ = x[best];
      *from++ = static_cast<int32_t>(best);
    }
  }
}

int64_t PlanesAtOnce(int64_t elements) { return std::max<int64_t>(1, 4096 / elements); }

void MaxPoolCpu(const MaxPoolArgs& args) {
  const int64_t in = args.h.in * args.w.in;
  const int64_t out = args.h.out * args.w.out;
  DispatchFloat(args.dtype, "max_pool", [&](auto zero) {
    using T = decltype(zero);
    ParallelFor(args.planes, PlanesAtOnce(in), [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) {
        MaxOfPlane(args, static_cast<const T*>(args.x) + p * in, static_cast<T*>(args.y) + p * out,
                   args.from + p * out);
      }
    });
  });
}

void MaxPoolGradCpu(const MaxPoolGradArgs& args) {
  const int64_t in = args.h.in * args.w.in;
  const int64_t out = args.h.out * args.w.out;
  DispatchFloat(args.dtype, "max_pool", [&](auto zero) {
    using T = decltype(zero);
    ParallelFor(args.planes, PlanesAtOnce(in), [&](int64_t begin, int64_t end) {
      std::vector<Wide<T>> sums(static_cast<size_t>(in));
      for (int64_t p = begin; p < end; ++p) {
        std::fill(sums.begin(), sums.end(), Wide<T>{0});
        const T* dy = static_cast<const T*>(args.dy) + p * out;
        for (int64_t i = 0; i < out; ++i) {
          sums[static_cast<size_t>(args.from[p * out + i])] += static_cast<Wide<T>>(dy[i]);
        }
        std::transform(sums.begin(), sums.end(), static_cast<T*>(args.dx) + p * in,
                       [](Wide<T> sum) { return T(sum); });
      }
    });
  });
}

// row[j] = the blend of the plane's rows for row h of the result.
template <typename T>
void BlendRows(const BlendArgs& args, const T* x, int64_t h, Wide<T>* row) {
  std::fill_n(row, args.w.in, Wide<T>{0});
  for (int64_t k = args.h.first[h]; k < args.h.first[h + 1]; ++k) {
    const auto weight = static_cast<Wide<T>>(args.h.weights[k]);
    const T* from = x + (args.h.begin[h] + k - args.h.first[h]) * args.w.in;
    for (int64_t j = 0; j < args.w.in; ++j) row[j] += weight * static_cast<Wide<T>>(from[j]);
  }
}

template <typename T>
void BlendWithinRow(const Blend& blend, const Wide<T>* row, T* y) {
  for (int64_t w = 0; w < blend.out; ++w) {
    Wide<T> sum = 0;
    const Wide<T>* from = row + blend.begin[w];
    for (int64_t k = blend.first[w]; k < blend.first[w + 1]; ++k) {
      sum += static_cast<Wide<T>>(blend.weights[k]) * *from++;
    }
    y[w] = T(sum);
  }
}

void BlendCpu(const BlendArgs& args) {
  const int64_t in = args.h.in * args.w.in;
  const int64_t out = args.h.out * args.w.out;
  DispatchFloat(args.dtype, "blend of planes", [&](auto zero) {
    using T = decltype(zero);
    ParallelFor(args.planes, PlanesAtOnce(in + out), [&](int64_t begin, int64_t end) {
      std::vector<Wide<T>> row(static_cast<size_t>(args.w.in));
      for (int64_t p = begin; p < end; ++p) {
        for (int64_t h = 0; h < args.h.out; ++h) {
          BlendRows(args, static_cast<const T*>(args.x) + p * in, h, row.data());
          BlendWithinRow(args.w, row.data(), static_cast<T*>(args.y) + p * out + h * args.w.out);
        }
      }
    });
  });
}

TESSERA_REGISTER_KERNEL(max_pool_kernel, DeviceType::kCpu, MaxPoolCpu);
TESSERA_REGISTER_KERNEL(max_pool_grad_kernel, DeviceType::kCpu, MaxPoolGradCpu);
TESSERA_REGISTER_KERNEL(blend_kernel, DeviceType::kCpu, BlendCpu);

}  // namespace
}  // namespace tessera
