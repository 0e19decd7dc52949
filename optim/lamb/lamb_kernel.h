// SPDX-License-Identifier: Apache-2.0
// What the kernels of LAMB are given.
#ifndef TESSERA_OPTIM_LAMB_LAMB_KERNEL_H_
#define TESSERA_OPTIM_LAMB_LAMB_KERNEL_H_

#include <vector>

#include "optim/lamb/lamb_update.h"
#include "optim/update_kernel.h"

namespace tessera::optim {

// With u the update before the ratio of norms, as optim/lamb/lamb.h has it.
struct LambArgs {
  const std::vector<UpdateTensor>& tensors;
  UpdateScalars scalars;
  LambUpdate rule;
  double* sums;   // of each chunk of kUpdateChunk elements, tensors in order: {sum w^2, sum u^2}
  double* norms;  // of each tensor, likewise
};

inline KernelWork WorkOf(const LambArgs& args) { return UpdateWork(args.tensors); }

// Writes the moments and `sums` with "=".
inline KernelTable<LambArgs> lamb_moments{"lamb moments"};
// norms = sums over each tensor's chunks, "=" where it has elements.
inline KernelTable<LambArgs> lamb_norms{"lamb norms"};
// w -= lr * sqrt(norms[0] / norms[1]) * u.
inline KernelTable<LambArgs> lamb_apply{"lamb"};

}  // namespace tessera::optim

#endif  // TESSERA_OPTIM_LAMB_LAMB_KERNEL_H_
