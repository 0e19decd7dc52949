// SPDX-License-Identifier: Apache-2.0
// From the number of an element to where it is in each of several tensors: the index arithmetic
// of kernels over strided operands, in plain C++ so that it is tested on the host.
//
//   const StridedIndex<2> index(shape, {dst_strides, src_strides});      // merges dims
//   int64_t at[2]; index.Offsets(i, at);                                  // i in [0, index.numel)
//
// Vectors: `Vectorized(v)` counts in groups of v elements that are adjacent (or repeat) in every
// operand; Offsets then gives the first of a group.
#ifndef TESSERA_CORE_CUDA_STRIDED_INDEX_H_
#define TESSERA_CORE_CUDA_STRIDED_INDEX_H_

#include <cstdint>
#include <type_traits>

#include "core/shape.h"

#if defined(__CUDACC__)
#define TESSERA_HD __host__ __device__ __forceinline__
#else
#define TESSERA_HD inline
#endif

namespace tessera::cuda {

// Division of numbers below 2^31 by a constant as a multiplication: T. Granlund and P. Montgomery,
// "Division by invariant integers using multiplication", PLDI 1994.
struct FastDivider {
  uint32_t divisor = 1;
  uint32_t multiplier = 1;
  uint32_t shift = 0;

  FastDivider() = default;
  // 1 <= divisor < 2^31.
  explicit FastDivider(uint32_t d) : divisor(d) {
    while ((uint64_t{1} << shift) < d) ++shift;
    multiplier = static_cast<uint32_t>(((((uint64_t{1} << shift) - d) << 32) / d) + 1);
  }
  TESSERA_HD uint32_t Divide(uint32_t n) const {
#if defined(__CUDA_ARCH__)
    const uint32_t high = __umulhi(n, multiplier);
#else
    const uint32_t high = static_cast<uint32_t>((static_cast<uint64_t>(n) * multiplier) >> 32);
#endif
    return (high + n) >> shift;
  }
};

template <int kOperands>
struct StridedIndex {
  int ndim = 0;
  bool narrow = true;  // every number fits 31 bits
  int64_t numel = 1;
  int64_t sizes[kMaxDims] = {};
  FastDivider dividers[kMaxDims];
  int64_t strides[kOperands][kMaxDims] = {};

  StridedIndex() = default;
  // Strides have the shape's length; 0 repeats.
  StridedIndex(const Shape& shape, const Shape* const (&operands)[kOperands]) {
    for (int d = 0; d < shape.ndim(); ++d) {
      if (shape[d] == 1) continue;
      const int last = ndim - 1;
      bool merges = last >= 0;
      for (int k = 0; merges && k < kOperands; ++k) {
        merges = strides[k][last] == (*operands[k])[d] * shape[d];
      }
      const int at = merges ? last : ndim++;
      sizes[at] = merges ? sizes[at] * shape[d] : shape[d];
      for (int k = 0; k < kOperands; ++k) strides[k][at] = (*operands[k])[d];
    }
    if (ndim == 0) {
      ndim = 1;
      sizes[0] = 1;
      for (int k = 0; k < kOperands; ++k) strides[k][0] = 1;
    }
    Settle();
  }

  int64_t inner_size() const { return sizes[ndim - 1]; }
  int64_t inner_stride(int k) const { return strides[k][ndim - 1]; }
  bool contiguous() const {
    for (int k = 0; k < kOperands; ++k) {
      if (strides[k][0] != 1) return false;
    }
    return ndim == 1;
  }

  // Whether groups of v elements start at multiples of v and are adjacent or repeat everywhere.
  bool CanVectorize(int v) const {
    if (inner_size() % v != 0) return false;
    for (int k = 0; k < kOperands; ++k) {
      if (inner_stride(k) != 1 && inner_stride(k) != 0) return false;
      // One element that repeats need not be aligned.
      for (int d = 0; inner_stride(k) == 1 && d + 1 < ndim; ++d) {
        if (strides[k][d] % v != 0) return false;
      }
    }
    return true;
  }
  // Counts in groups of v: numel and the last size shrink, the last stride grows.
  StridedIndex Vectorized(int v) const {
    StridedIndex grouped = *this;
    grouped.sizes[ndim - 1] /= v;
    for (int k = 0; k < kOperands; ++k) grouped.strides[k][ndim - 1] *= v;
    grouped.Settle();
    return grouped;
  }

  // The first n elements of the only dim.
  StridedIndex First(int64_t n) const {
    StridedIndex part = *this;
    part.sizes[0] = n;
    part.Settle();
    return part;
  }

  TESSERA_HD void Offsets(int64_t i, int64_t (&offset)[kOperands]) const {
    for (int k = 0; k < kOperands; ++k) offset[k] = 0;
    if (narrow) {
      auto n = static_cast<uint32_t>(i);
      for (int d = ndim - 1; d > 0; --d) {
        const uint32_t quotient = dividers[d].Divide(n);
        const uint32_t at = n - quotient * dividers[d].divisor;
        n = quotient;
        for (int k = 0; k < kOperands; ++k) offset[k] += at * strides[k][d];
      }
      for (int k = 0; k < kOperands; ++k) offset[k] += n * strides[k][0];
    } else {
      for (int d = ndim - 1; d > 0; --d) {
        const int64_t quotient = i / sizes[d];
        const int64_t at = i - quotient * sizes[d];
        i = quotient;
        for (int k = 0; k < kOperands; ++k) offset[k] += at * strides[k][d];
      }
      for (int k = 0; k < kOperands; ++k) offset[k] += i * strides[k][0];
    }
  }

 private:
  void Settle() {
    numel = 1;
    for (int d = 0; d < ndim; ++d) numel *= sizes[d];
    narrow = numel < (int64_t{1} << 31);
    for (int d = 0; narrow && d < ndim; ++d) {
      // An empty dim is never divided by: there is no element.
      dividers[d] = FastDivider(static_cast<uint32_t>(sizes[d] > 0 ? sizes[d] : 1));
    }
  }
};

// Calls launch(group, index, base) so that all elements are covered: by groups of kGroup where
// operands allow it, and one by one where not. `group` is a std::integral_constant; operand k
// begins base * inner_stride(k) elements further on.
template <int kGroup, int kOperands, typename Launch>
void LaunchGroups(const StridedIndex<kOperands>& index, bool aligned, Launch launch) {
  using Group = std::integral_constant<int, kGroup>;
  using One = std::integral_constant<int, 1>;
  if (aligned && index.CanVectorize(kGroup)) {
    launch(Group(), index.Vectorized(kGroup), int64_t{0});
    return;
  }
  bool one_run = aligned && index.ndim == 1 && index.numel > kGroup;
  for (int k = 0; k < kOperands; ++k) {
    one_run = one_run && (index.inner_stride(k) == 0 || index.inner_stride(k) == 1);
  }
  if (!one_run) {
    launch(One(), index, int64_t{0});
    return;
  }
  const int64_t whole = index.numel / kGroup * kGroup;
  launch(Group(), index.First(whole).Vectorized(kGroup), int64_t{0});
  launch(One(), index.First(index.numel - whole), whole);
}

}  // namespace tessera::cuda

#endif  // TESSERA_CORE_CUDA_STRIDED_INDEX_H_
