// SPDX-License-Identifier: Apache-2.0
// Whose kernels compute on a GPU, where several can: a setting of the process.
//
//   SetKernelChoice({.alike = true});   // what a run that is to be repeated elsewhere asks for
//
// It may be set at any time and holds for every product and every attention from then on, whatever
// was chosen before. TESSERA_MATMUL_TUNING and TESSERA_ATTENTION win over it (docs/cuda.md).
// Thread-safe.
#ifndef TESSERA_OPS_KERNEL_CHOICE_H_
#define TESSERA_OPS_KERNEL_CHOICE_H_

namespace tessera {

struct KernelChoice {
  // Kernels that every process chooses alike. Otherwise the faster ones, as measured here.
  bool alike = false;
};

void SetKernelChoice(const KernelChoice& choice);
// What this process is set to.
KernelChoice CurrentKernelChoice();

}  // namespace tessera

#endif  // TESSERA_OPS_KERNEL_CHOICE_H_
