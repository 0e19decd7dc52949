// SPDX-License-Identifier: Apache-2.0
// A number that stands for a tensor's elements, and of parts of it adds up to that of the whole.
//
//   uint64_t digest = DigestOf(weight);                          // of this tensor
//   for (const PartDigest& part : DigestsOf(checkpoint_tensor)) sum += part.digest;   // mod 2^64
//
// Each element gives a mix of its place in the unsharded tensor and its bits; the digest is their
// sum. So digests do not depend on how ranks cut a tensor, nor on the order of a sum.
#ifndef TESSERA_TRAIN_TRACE_DIGEST_H_
#define TESSERA_TRAIN_TRACE_DIGEST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/bundle.h"
#include "core/tensor.h"
#include "dist/checkpoint/pieces.h"

namespace tessera::train {

// Row-major; of any dtype. Two tensors of other dtypes or shapes may have the same. 0 on meta.
uint64_t DigestOf(const Tensor& t);

struct PartDigest {
  std::string part;  // which elements: ranks that hold the same name it alike
  uint64_t digest = 0;
};
std::vector<PartDigest> DigestsOf(const dist::CheckpointTensor& t);

// Of a micro-batch: of its tensors in their order.
uint64_t BatchDigest(const Bundle& batch);

// 16 hexadecimal digits.
std::string DigestText(uint64_t digest);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_TRACE_DIGEST_H_
