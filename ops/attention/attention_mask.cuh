// What every attention kernel asks of its arguments: which keys a query sees, the bias, dropout.
// Included by .cu files only.
#ifndef TESSERA_OPS_ATTENTION_ATTENTION_MASK_CUH_
#define TESSERA_OPS_ATTENTION_ATTENTION_MASK_CUH_

#include "core/cuda/element.cuh"
#include "core/cuda/random.cuh"
#include "ops/attention/flash_kernel.h"

namespace tessera::cuda {

// By the masks beside the limit of a query's keys; i < q_len and j < k_len.
__device__ __forceinline__ bool MasksAllow(const FlashArgs& args, int64_t b, int64_t i, int64_t j) {
  if (j < FlashFirstKey(args, b, i)) return false;
  if (args.key_padding != nullptr && args.key_padding[b * args.k_len + j] == 0) return false;
  return args.key_document == nullptr || FlashSharesDocument(args, b, i, j);
}

template <typename W>
__device__ __forceinline__ W BiasAt(const FlashArgs& args, int64_t b, int64_t h, int64_t i,
                                    int64_t j) {
  if (args.bias == nullptr) return W(0);
  const FlashBiasStrides& s = args.bias_stride;
  const int64_t at = b * s.batch + h * s.head + i * s.query + j * s.key;
  switch (args.bias_dtype) {
    case DType::kBFloat16:
      return ToWide(static_cast<const BF16*>(args.bias)[at]);
    case DType::kFloat16:
      return ToWide(static_cast<const F16*>(args.bias)[at]);
    case DType::kFloat64:
      return static_cast<W>(static_cast<const double*>(args.bias)[at]);
    default:
      return static_cast<const float*>(args.bias)[at];
  }
}

__device__ __forceinline__ DeviceKey DropoutKey(const FlashArgs& args) {
  const FlashDropout& d = args.dropout;
  return Resolved({d.key_hi, d.key_lo, d.key_stored});
}

// 0 for a dropped probability, otherwise 1 / (1 - p). `row` is FlashDropoutIndex of (b, h, i).
template <typename W>
__device__ __forceinline__ W KeptScale(const FlashArgs& args, uint64_t row, int64_t j) {
  const FlashDropout& d = args.dropout;
  if (d.p == 0.0f) return W(1);
  const uint64_t index = row + static_cast<uint64_t>(j);
  const uint32_t word = WordOf(RandomBlock(DropoutKey(args), index / 4), index % 4);
  return Keeps(word, d.p * 16777216.0f) ? W(1) / (W(1) - static_cast<W>(d.p)) : W(0);
}

}  // namespace tessera::cuda

#endif  // TESSERA_OPS_ATTENTION_ATTENTION_MASK_CUH_
