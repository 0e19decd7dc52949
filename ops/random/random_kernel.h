// SPDX-License-Identifier: Apache-2.0
// What a kernel of random numbers is given.
#ifndef TESSERA_OPS_RANDOM_RANDOM_KERNEL_H_
#define TESSERA_OPS_RANDOM_RANDOM_KERNEL_H_

#include "core/kernel_table.h"
#include "core/random.h"
#include "core/shape.h"

namespace tessera {

// out = the numbers that a tensor of `global` sizes has in the box [begin, begin + size), which
// lies inside of it; contiguous, "=".
struct RandomArgs {
  bool normal;  // else uniform in [0, 1)
  Shape global;
  Shape begin;
  Shape size;
  RandomKey key;
  float* out;
};

inline KernelWork WorkOf(const RandomArgs& args) {
  return {.bytes = BytesOfElements(DType::kFloat32, args.size.numel())};
}

inline KernelTable<RandomArgs> random_kernel{"random"};

}  // namespace tessera

#endif  // TESSERA_OPS_RANDOM_RANDOM_KERNEL_H_
