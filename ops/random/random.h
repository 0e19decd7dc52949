// SPDX-License-Identifier: Apache-2.0
// New tensors of random numbers.
//
//   const RandomKey key = NoiseKey(seed, path, step, micro_batch);        // core/random.h
//   Tensor noise_BC = Randn({B, C}, key);
//   Tensor mask_BT = Compare(Rand({B, T}, key.With("mask")), 0.15, Comparison::kLess);
//   Tensor part = Randn({4, C}, key, {.global_shape = {8, C}, .begin = {4, 0}});   // rows 4 to 7
//
// A number is a function of the key and of the element's row-major index in the *unsharded* tensor,
// so that every device, number of threads and layout has the same bits. Floating dtypes; numbers
// are made in float32 and rounded to others, where they shall be. A key that lies on a GPU (in a
// captured step) serves there alone; on the CPU, and for a part that does not lie inside of
// global_shape, Error is thrown.
#ifndef TESSERA_OPS_RANDOM_RANDOM_H_
#define TESSERA_OPS_RANDOM_RANDOM_H_

#include "core/random.h"
#include "core/tensor.h"

namespace tessera {

struct RandomOptions {
  DType dtype = DType::kFloat32;
  Device device = Device::Cpu();
  Shape global_shape = {};  // of the unsharded tensor; empty: the result's own
  Shape begin = {};         // of the result in it; empty: zeros
};

// Uniform in [0, 1); half precision may round up to 1.
Tensor Rand(const Shape& shape, const RandomKey& key, const RandomOptions& options = {});
// Normal with mean 0 and deviation 1.
Tensor Randn(const Shape& shape, const RandomKey& key, const RandomOptions& options = {});

}  // namespace tessera

#endif  // TESSERA_OPS_RANDOM_RANDOM_H_
