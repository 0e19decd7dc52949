// SPDX-License-Identifier: Apache-2.0
// Element types in kernels: T is float, __nv_bfloat16, __half or double; arithmetic is done in
// Wide<T>, float for all but double. Included by .cu files only.
#ifndef TESSERA_CORE_CUDA_ELEMENT_CUH_
#define TESSERA_CORE_CUDA_ELEMENT_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "core/dtype.h"

namespace tessera::cuda {

using BF16 = __nv_bfloat16;
using F16 = __half;

template <typename T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <typename T>
__device__ __forceinline__ Wide<T> ToWide(T value) {
  if constexpr (std::is_same_v<T, BF16>) {
    return __bfloat162float(value);
  } else if constexpr (std::is_same_v<T, F16>) {
    return __half2float(value);
  } else {
    return value;
  }
}
// Rounds to nearest even.
template <typename T>
__device__ __forceinline__ T FromWide(Wide<T> value) {
  if constexpr (std::is_same_v<T, BF16>) {
    return __float2bfloat16_rn(value);
  } else if constexpr (std::is_same_v<T, F16>) {
    return __float2half_rn(value);
  } else {
    return value;
  }
}

// kCount adjacent elements, read and written at once.
template <typename T, int kCount>
struct alignas(sizeof(T) * kCount) Vec {
  T v[kCount];
};
// How many fill 16 bytes.
template <typename T>
inline constexpr int kVec = 16 / sizeof(T);

template <int kCount, typename T>
__device__ __forceinline__ Vec<T, kCount> LoadVec(const T* p) {
  return *reinterpret_cast<const Vec<T, kCount>*>(p);
}
template <int kCount, typename T>
__device__ __forceinline__ void StoreVec(T* p, const Vec<T, kCount>& v) {
  *reinterpret_cast<Vec<T, kCount>*>(p) = v;
}

inline bool IsAligned(const void* p, size_t bytes) {
  return reinterpret_cast<uintptr_t>(p) % bytes == 0;
}
// nullptr is.
inline bool AreAligned(std::initializer_list<const void*> pointers, size_t bytes = 16) {
  for (const void* p : pointers) {
    if (!IsAligned(p, bytes)) return false;
  }
  return true;
}

template <typename T>
inline constexpr bool kIsHalf = std::is_same_v<T, BF16> || std::is_same_v<T, F16>;

// A value of any dtype in a type that C++ compares and adds.
template <typename T>
__device__ __forceinline__ auto Comparable(T value) {
  if constexpr (kIsHalf<T>) {
    return ToWide(value);
  } else {
    return value;
  }
}

// Calls f(T{}) with the device type of a floating dtype.
template <typename F>
void DispatchCudaFloat(DType dtype, std::string_view operation, F&& f) {
  switch (dtype) {
    case DType::kFloat32:
      return f(float{});
    case DType::kBFloat16:
      return f(BF16{});
    case DType::kFloat16:
      return f(F16{});
    case DType::kFloat64:
      return f(double{});
    default:
      ThrowUnsupportedDType(operation, dtype);
  }
}

// Likewise for half precision and float32 only.
template <typename F>
void DispatchCudaHalf(DType dtype, std::string_view operation, F&& f) {
  switch (dtype) {
    case DType::kBFloat16:
      return f(BF16{});
    case DType::kFloat16:
      return f(F16{});
    default:
      ThrowUnsupportedDType(operation, dtype);
  }
}

// Likewise for every dtype.
template <typename F>
void DispatchCudaAll(DType dtype, std::string_view operation, F&& f) {
  switch (dtype) {
    case DType::kInt64:
      return f(int64_t{});
    case DType::kInt32:
      return f(int32_t{});
    case DType::kUInt8:
      return f(uint8_t{});
    case DType::kBool:
      return f(bool{});
    default:
      return DispatchCudaFloat(dtype, operation, f);
  }
}

// Calls f with an unsigned integer of as many bytes as an element, for kernels that only move.
template <typename F>
void DispatchCudaWord(DType dtype, F&& f) {
  switch (DTypeSize(dtype)) {
    case 1:
      return f(uint8_t{});
    case 2:
      return f(uint16_t{});
    case 4:
      return f(uint32_t{});
    default:
      return f(uint64_t{});
  }
}

// Calls f with the widest word, of 1, 2, 4, 8 or 16 bytes, that fits(bytes) allows, for kernels
// that only move. The smallest is taken unasked.
template <typename Fits, typename F>
void DispatchCudaWidest(const Fits& fits, F&& f) {
  if (fits(sizeof(uint4))) {
    f(uint4{});
  } else if (fits(sizeof(uint2))) {
    f(uint2{});
  } else if (fits(sizeof(uint32_t))) {
    f(uint32_t{});
  } else if (fits(sizeof(uint16_t))) {
    f(uint16_t{});
  } else {
    f(uint8_t{});
  }
}

// Calls f(std::integral_constant<int, kGroup>()) where operands lie so that kGroup elements are
// read at once, else with 1.
template <int kGroup, typename F>
void DispatchCudaGroup(bool groups, F&& f) {
  if (groups) {
    f(std::integral_constant<int, kGroup>());
  } else {
    f(std::integral_constant<int, 1>());
  }
}

}  // namespace tessera::cuda

#endif  // TESSERA_CORE_CUDA_ELEMENT_CUH_
