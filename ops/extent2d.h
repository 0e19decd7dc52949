// SPDX-License-Identifier: Apache-2.0
// Sizes, steps and paddings of pictures.
//
//   Conv2d(x, weight, bias, {.stride = 2, .padding = {1, 0}});
#ifndef TESSERA_OPS_EXTENT2D_H_
#define TESSERA_OPS_EXTENT2D_H_

#include <cstdint>

namespace tessera {

// Of height and of width; one number stands for both.
struct Extent2d {
  Extent2d(int64_t both) : h(both), w(both) {}  // NOLINT(google-explicit-constructor)
  Extent2d(int64_t h, int64_t w) : h(h), w(w) {}
  int64_t h;
  int64_t w;
};

}  // namespace tessera

#endif  // TESSERA_OPS_EXTENT2D_H_
