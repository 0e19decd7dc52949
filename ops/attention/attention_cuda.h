// SPDX-License-Identifier: Apache-2.0
// The parts of attention on the GPU; attention_cuda.cc chooses among them.
#ifndef TESSERA_OPS_ATTENTION_ATTENTION_CUDA_H_
#define TESSERA_OPS_ATTENTION_ATTENTION_CUDA_H_

#include "ops/attention/attention_kernel.h"

namespace tessera::cuda {

// Tensor cores, bfloat16 and float16, head_dim a multiple of 8 up to 128 and every row 16-byte
// aligned. dbias is not computed. `delta` is [B, H, Tq] of DeltaRows.
void RunFlashForward(const FlashArgs& args);
void RunFlashBackward(const FlashBackwardArgs& args, const float* delta);

// Few queries (IsDecoding), rows of k and v 16-byte aligned. `workspace` is of DecodePartialBytes.
void RunDecodeForward(const FlashArgs& args, float* workspace);

// Any floating dtype, head_dim and strides, without tensor cores. `delta` is [B, H, Tq] of
// RunDelta.
void RunPlainForward(const FlashArgs& args);
void RunPlainBackward(const FlashBackwardArgs& args, const void* delta);
// delta [B, H, Tq] = sum over d of d_o * o, in the dtype that is computed in, "=".
void RunDelta(const FlashBackwardArgs& args, void* delta);
// dbias "=", summed over broadcast dims in order.
void RunBiasGradient(const FlashBackwardArgs& args, const void* delta);

}  // namespace tessera::cuda

#endif  // TESSERA_OPS_ATTENTION_ATTENTION_CUDA_H_
