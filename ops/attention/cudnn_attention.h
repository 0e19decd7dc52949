// SPDX-License-Identifier: Apache-2.0
// Attention by cuDNN's fused kernels beside our own flash kernels, whichever is chosen
// (ops/attention/attention_choice.h): bfloat16 and float16, full and causal, grouped heads, packed
// operands read where they are. Everything else is `own`'s, and so is all where cuDNN is absent.
//
//   RunChosenForward(args, [&] { RunFlashForward(args); });
//
// The first call of a shape compiles cuDNN's plan, compares both and times them; it waits for the
// GPU and copies results to the host. cuDNN's backward pass is asked for the engine that gives the
// same bits every time, which keeps dS in memory: H Tq Tk half-precision numbers per batch row, up
// to CudnnWorkspaceLimit(); a larger batch is computed in parts. A line on standard error says
// where not even one row fits, and our own kernel computes.
#ifndef TESSERA_OPS_ATTENTION_CUDNN_ATTENTION_H_
#define TESSERA_OPS_ATTENTION_CUDNN_ATTENTION_H_

#include <functional>

#include "ops/attention/attention_kernel.h"

namespace tessera::cuda {

// `own` writes the same outputs. On the current stream of the active GPU.
void RunChosenForward(const FlashArgs& args, const std::function<void()>& own);
// `delta` is memory for [B, H, Tq] float32, which both may write.
void RunChosenBackward(const FlashBackwardArgs& args, float* delta,
                       const std::function<void()>& own);

}  // namespace tessera::cuda

#endif  // TESSERA_OPS_ATTENTION_CUDNN_ATTENTION_H_
