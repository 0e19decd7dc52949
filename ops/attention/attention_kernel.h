// How attention finds its kernels. The arguments are those of the CPU's flash kernel: plain
// pointers, sizes and strides that any device can take.
#ifndef TESSERA_OPS_ATTENTION_ATTENTION_KERNEL_H_
#define TESSERA_OPS_ATTENTION_ATTENTION_KERNEL_H_

#include "core/kernel_table.h"
#include "ops/attention/flash_cpu.h"

namespace tessera {

using AttentionArgs = FlashArgs;
using AttentionGradArgs = FlashBackwardArgs;

inline KernelTable<AttentionArgs> attention_forward{"attention"};
inline KernelTable<AttentionGradArgs> attention_backward{"attention gradient"};

}  // namespace tessera

#endif  // TESSERA_OPS_ATTENTION_ATTENTION_KERNEL_H_
