// How attention finds its kernels. The arguments are those of the CPU's flash kernel: plain
// pointers, sizes and strides that any device can take.
#ifndef TESSERA_OPS_ATTENTION_ATTENTION_KERNEL_H_
#define TESSERA_OPS_ATTENTION_ATTENTION_KERNEL_H_

#include "core/dtype.h"
#include "core/kernel_table.h"
#include "ops/attention/flash_cpu.h"

namespace tessera {

using AttentionArgs = FlashArgs;
using AttentionGradArgs = FlashBackwardArgs;

inline KernelTable<AttentionArgs> attention_forward{"attention"};
inline KernelTable<AttentionGradArgs> attention_backward{"attention gradient"};

// Workspace of our own backward kernels on the GPU: [B, H, Tq] sums of o * do, in float32 (float64
// for float64).
inline size_t AttentionDeltaBytes(const AttentionGradArgs& args) {
  const FlashArgs& f = args.forward;
  return static_cast<size_t>(f.batch * f.heads * f.q_len) * (f.dtype == DType::kFloat64 ? 8 : 4);
}

}  // namespace tessera

#endif  // TESSERA_OPS_ATTENTION_ATTENTION_KERNEL_H_
