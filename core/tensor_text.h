// SPDX-License-Identifier: Apache-2.0
// A tensor's values as text.
//
//   std::cout << logits_BV;                 // the same as ToString(logits_BV)
//   tensor([[ 0.5000, -1.2500,     nan],
//           [ 2.0000,     inf,  0.1250]], float32[2, 3])
//
// Any dtype, strides and device; of a large tensor only the ends of its dims, with "..." between
// them, are brought to the CPU. Behind the values stand dtype, shape and device, which are all
// there is on meta. Error messages name tensors by the latter alone.
#ifndef TESSERA_CORE_TENSOR_TEXT_H_
#define TESSERA_CORE_TENSOR_TEXT_H_

#include <cstdint>
#include <string>

#include "core/tensor.h"

namespace tessera {

struct TensorTextOptions {
  int digits = 4;           // behind the point
  int64_t most = 1000;      // elements that are all shown
  int64_t edge = 3;         // of a dim of more elements than that: this many at each end
  int64_t line_width = 80;  // longer rows continue on the next line
};

std::string ToString(const Tensor& t, const TensorTextOptions& options);

}  // namespace tessera

#endif  // TESSERA_CORE_TENSOR_TEXT_H_
