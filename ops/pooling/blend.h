// SPDX-License-Identifier: Apache-2.0
// Linear functions of pictures that work on rows and columns apart: averages over windows, and
// interpolation. Each dim is a table of which elements a result is made of, with what weights; the
// gradient is the same function with the tables transposed.
#ifndef TESSERA_OPS_POOLING_BLEND_H_
#define TESSERA_OPS_POOLING_BLEND_H_

#include <cstdint>
#include <vector>

#include "core/tensor.h"

namespace tessera {

// Of one dim. Element i of the result is the sum of weights[i][k] times element begin[i] + k.
struct BlendTable {
  int64_t in = 0;
  std::vector<int64_t> begin;
  std::vector<std::vector<double>> weights;

  int64_t out() const { return static_cast<int64_t>(begin.size()); }
  // Of a result that is x itself, of one element.
  static BlendTable Identity() { return {1, {0}, {{1.0}}}; }
  // Needs begins (and ends) that do not decrease.
  BlendTable Transposed() const;
};

// On the tape. x is [N, C, h.in * w.in elements in one or two dims]; `result` is y's shape.
Tensor BlendPlanes(const char* name, const Tensor& x, const BlendTable& h, const BlendTable& w,
                   const Shape& result);

}  // namespace tessera

#endif  // TESSERA_OPS_POOLING_BLEND_H_
