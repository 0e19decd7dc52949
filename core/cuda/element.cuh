// Element types in kernels: T is float, __nv_bfloat16, __half or double; arithmetic is done in
// Wide<T>, float for all but double. Included by .cu files only.
#ifndef TESSERA_CORE_CUDA_ELEMENT_CUH_
#define TESSERA_CORE_CUDA_ELEMENT_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
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

}  // namespace tessera::cuda

#endif  // TESSERA_CORE_CUDA_ELEMENT_CUH_
