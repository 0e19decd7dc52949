// SPDX-License-Identifier: Apache-2.0
// Elementwise functions on the GPU: 16 bytes at a time where operands lie so, any strides else. The
// function is chosen inside the kernel, the same for all threads: memory is what they wait for.
#include <type_traits>

#include "core/cuda/element.cuh"
#include "core/cuda/launch.h"
#include "core/cuda/strided_index.h"
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/elementwise_kernel.h"

namespace tessera::cuda {
namespace {

// The group of an operand at `p`; one element where it repeats.
template <int kGroup, typename T>
__device__ __forceinline__ Vec<T, kGroup> LoadGroup(const T* p, bool repeats) {
  if (kGroup > 1 && repeats) {
    Vec<T, kGroup> v;
#pragma unroll
    for (int k = 0; k < kGroup; ++k) v.v[k] = *p;
    return v;
  }
  return LoadVec<kGroup>(p);
}

template <typename T, int kGroup>
__global__ void UnaryKernel(UnaryOp op, StridedIndex<2> index, T* out, const T* x, bool repeats,
                            Wide<T> scale, Wide<T> shift) {
  for (int64_t i = GridThread(); i < index.numel; i += GridThreads()) {
    int64_t at[2];
    index.Offsets(i, at);
    Vec<T, kGroup> v = LoadGroup<kGroup>(x + at[1], repeats);
#pragma unroll
    for (int k = 0; k < kGroup; ++k) {
      v.v[k] = FromWide<T>(UnaryValue<Wide<T>>(op, ToWide(v.v[k]), scale, shift));
    }
    StoreVec<kGroup>(out + at[0], v);
  }
}

template <typename T, int kGroup>
__global__ void BinaryKernel(BinaryOp op, StridedIndex<3> index, T* out, const T* a, bool a_repeats,
                             const T* b, bool b_repeats) {
  for (int64_t i = GridThread(); i < index.numel; i += GridThreads()) {
    int64_t at[3];
    index.Offsets(i, at);
    const Vec<T, kGroup> va = LoadGroup<kGroup>(a + at[1], a_repeats);
    const Vec<T, kGroup> vb = LoadGroup<kGroup>(b + at[2], b_repeats);
    Vec<T, kGroup> v;
#pragma unroll
    for (int k = 0; k < kGroup; ++k) {
      v.v[k] = FromWide<T>(BinaryValue<Wide<T>>(op, ToWide(va.v[k]), ToWide(vb.v[k])));
    }
    StoreVec<kGroup>(out + at[0], v);
  }
}

__global__ void BinaryIntKernel(BinaryOp op, StridedIndex<3> index, int64_t* out, const int64_t* a,
                                const int64_t* b) {
  for (int64_t i = GridThread(); i < index.numel; i += GridThreads()) {
    int64_t at[3];
    index.Offsets(i, at);
    out[at[0]] = WholeBinaryValue(op, a[at[1]], b[at[2]]);
  }
}

void UnaryCuda(const UnaryArgs& args) {
  const Shape plain = ContiguousStrides(args.shape);
  const StridedIndex<2> index(args.shape, {&plain, &args.x_strides});
  const bool repeats = index.inner_stride(1) == 0;
  DispatchCudaFloat(args.dtype, "unary", [&](auto zero) {
    using T = decltype(zero);
    const T* x = static_cast<const T*>(args.x);
    T* out = static_cast<T*>(args.out);
    const bool aligned = IsAligned(out, 16) && (repeats || IsAligned(x, 16));
    LaunchGroups<kVec<T>>(
        index, aligned, [&](auto group, const StridedIndex<2>& part, int64_t base) {
          constexpr int kGroup = decltype(group)::value;
          Launch("unary", {GridFor(part.numel), kThreads}, UnaryKernel<T, kGroup>, args.op, part,
                 out + base, x + base * index.inner_stride(1), repeats,
                 static_cast<Wide<T>>(args.scale), static_cast<Wide<T>>(args.shift));
        });
  });
}

void BinaryCuda(const BinaryArgs& args) {
  const Shape plain = ContiguousStrides(args.shape);
  const StridedIndex<3> index(args.shape, {&plain, &args.a_strides, &args.b_strides});
  if (args.dtype == DType::kInt64) {
    Launch("binary", {GridFor(index.numel), kThreads}, BinaryIntKernel, args.op, index,
           static_cast<int64_t*>(args.out), static_cast<const int64_t*>(args.a),
           static_cast<const int64_t*>(args.b));
    return;
  }
  const int64_t a_stride = index.inner_stride(1);
  const int64_t b_stride = index.inner_stride(2);
  DispatchCudaFloat(args.dtype, "binary", [&](auto zero) {
    using T = decltype(zero);
    const T* a = static_cast<const T*>(args.a);
    const T* b = static_cast<const T*>(args.b);
    T* out = static_cast<T*>(args.out);
    const bool aligned = IsAligned(out, 16) && (a_stride == 0 || IsAligned(a, 16)) &&
                         (b_stride == 0 || IsAligned(b, 16));
    LaunchGroups<kVec<T>>(
        index, aligned, [&](auto group, const StridedIndex<3>& part, int64_t base) {
          constexpr int kGroup = decltype(group)::value;
          Launch("binary", {GridFor(part.numel), kThreads}, BinaryKernel<T, kGroup>, args.op, part,
                 out + base, a + base * a_stride, a_stride == 0, b + base * b_stride,
                 b_stride == 0);
        });
  });
}

template <typename Word>
__global__ void WhereKernel(StridedIndex<4> index, Word* out, const uint8_t* condition,
                            const Word* a, const Word* b) {
  for (int64_t i = GridThread(); i < index.numel; i += GridThreads()) {
    int64_t at[4];
    index.Offsets(i, at);
    out[at[0]] = condition[at[1]] != 0 ? a[at[2]] : b[at[3]];
  }
}

void WhereCuda(const WhereArgs& args) {
  const Shape plain = ContiguousStrides(args.shape);
  const StridedIndex<4> index(args.shape,
                              {&plain, &args.condition_strides, &args.a_strides, &args.b_strides});
  DispatchCudaWord(args.dtype, [&](auto word) {
    using Word = decltype(word);
    Launch("where", {GridFor(index.numel), kThreads}, WhereKernel<Word>, index,
           static_cast<Word*>(args.out), args.condition, static_cast<const Word*>(args.a),
           static_cast<const Word*>(args.b));
  });
}

template <typename T>
__global__ void CompareKernel(Comparison comparison, StridedIndex<3> index, bool* out, const T* a,
                              const T* b) {
  for (int64_t i = GridThread(); i < index.numel; i += GridThreads()) {
    int64_t at[3];
    index.Offsets(i, at);
    const auto x = Comparable(a[at[1]]);
    const auto y = Comparable(b[at[2]]);
    bool holds = false;
    switch (comparison) {
      case Comparison::kEqual:
        holds = x == y;
        break;
      case Comparison::kNotEqual:
        holds = x != y;
        break;
      case Comparison::kLess:
        holds = x < y;
        break;
      case Comparison::kLessEqual:
        holds = x <= y;
        break;
      case Comparison::kGreater:
        holds = x > y;
        break;
      case Comparison::kGreaterEqual:
        holds = x >= y;
        break;
    }
    out[at[0]] = holds;
  }
}

void CompareCuda(const CompareArgs& args) {
  const Shape plain = ContiguousStrides(args.shape);
  const StridedIndex<3> index(args.shape, {&plain, &args.a_strides, &args.b_strides});
  DispatchCudaAll(args.dtype, "compare", [&](auto zero) {
    using T = decltype(zero);
    Launch("compare", {GridFor(index.numel), kThreads}, CompareKernel<T>,
           static_cast<Comparison>(args.comparison), index, args.out, static_cast<const T*>(args.a),
           static_cast<const T*>(args.b));
  });
}

TESSERA_REGISTER_KERNEL(unary_kernel, DeviceType::kCuda, UnaryCuda);
TESSERA_REGISTER_KERNEL(binary_kernel, DeviceType::kCuda, BinaryCuda);
TESSERA_REGISTER_KERNEL(where_kernel, DeviceType::kCuda, WhereCuda);
TESSERA_REGISTER_KERNEL(compare_kernel, DeviceType::kCuda, CompareCuda);

}  // namespace
}  // namespace tessera::cuda
