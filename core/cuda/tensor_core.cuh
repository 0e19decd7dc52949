// SPDX-License-Identifier: Apache-2.0
// Tensor cores of bfloat16 and float16 (T), the loads of their fragments, asynchronous copies to
// shared memory, and powers of two: one function per PTX instruction (PTX ISA, "Matrix
// multiply-accumulate", "Asynchronous copy" and "ex2"). Included by .cu files only.
//
// Fragments of m16n8k16 lie in a warp so: with g = lane / 4 and t = lane % 4, a register holds the
// pair of columns 2t, 2t + 1 (of a) or rows 2t, 2t + 1 (of b), low half first:
//   a[0] (row g, columns 0-7)   a[1] (g + 8, 0-7)   a[2] (g, 8-15)   a[3] (g + 8, 8-15)
//   b0 (rows 0-7, column g)     b1 (rows 8-15, g)
//   c[0], c[1] (row g, columns 2t, 2t + 1)   c[2], c[3] (row g + 8)
#ifndef TESSERA_CORE_CUDA_TENSOR_CORE_CUH_
#define TESSERA_CORE_CUDA_TENSOR_CORE_CUH_

#include <cstdint>
#include <type_traits>

#include "core/cuda/element.cuh"

#if !defined(__CUDACC__)
#include "core/cuda/testing/emulation/tensor_core.h"
#endif

namespace tessera::cuda {

// Two numbers rounded to T, `low` in the lower half.
template <typename T>
__device__ __forceinline__ uint32_t Pack(float low, float high) {
  if constexpr (std::is_same_v<T, BF16>) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&pair);
  } else {
    const __half2 pair = __floats2half2_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&pair);
  }
}

#if defined(__CUDACC__)

// c += a b, in float32; a is 16x16, b 16x8, c 16x8. All lanes of the warp call it.
template <typename T>
__device__ __forceinline__ void Mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                    uint32_t b1) {
  if constexpr (std::is_same_v<T, BF16>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};\n"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};\n"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

__device__ __forceinline__ uint32_t SharedAddress(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// Four 8x8 matrices of 16-bit elements from shared memory; lane l gives the address of row l % 8 of
// matrix l / 8, aligned to 16 bytes, and receives in r[i] the pair of columns 2t, 2t + 1 of row g
// of matrix i. All lanes of the warp call it.
__device__ __forceinline__ void LoadMatrices(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(SharedAddress(row))
               : "memory");
}
// Likewise, each matrix transposed: the pair of rows 2t, 2t + 1 of column g.
__device__ __forceinline__ void LoadMatricesTransposed(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(SharedAddress(row))
               : "memory");
}

// Begins to copy 16 bytes of global memory to shared memory, both aligned to 16; zeros instead, and
// nothing is read, unless `inside`.
__device__ __forceinline__ void BeginCopy16(void* shared, const void* global, bool inside) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(SharedAddress(shared)),
               "l"(global), "r"(inside ? 16 : 0)
               : "memory");
}
// Makes a group of the copies that this thread began since the last group.
__device__ __forceinline__ void CommitCopies() {
  asm volatile("cp.async.commit_group;\n" ::: "memory");
}
// Waits until at most the last kPending groups of this thread are under way. What others copied is
// there after a barrier.
template <int kPending>
__device__ __forceinline__ void WaitForCopies() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kPending) : "memory");
}

// 2^x within 2^-22, subnormal results as 0; -inf gives 0.
__device__ __forceinline__ float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

#endif  // defined(__CUDACC__)

}  // namespace tessera::cuda

#endif  // TESSERA_CORE_CUDA_TENSOR_CORE_CUH_
