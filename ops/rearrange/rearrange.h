// SPDX-License-Identifier: Apache-2.0
// The elements of a tensor in another order, or several times.
//
//   Tensor tiled = Repeat(x_2x3, {2, 1});                     // [4, 3]: x twice, one below the
//   other Tensor kv_BHTD = RepeatInterleave(kv_BGTD, H / G, 1);     // each group's heads side by
//   side Tensor back = Flip(x_BT, {1}); Tensor shifted = Roll(x_BT, /*shift=*/1, /*dim=*/1); // the
//   last element comes first
//
// Every dtype, every device; results are copies. (BroadcastTo, of ops/reduction/sum.h, repeats
// without one.) Negative dims count from the end. Gradients flow through each of them; wrong dims
// and negative numbers of repeats throw Error.
#ifndef TESSERA_OPS_REARRANGE_REARRANGE_H_
#define TESSERA_OPS_REARRANGE_REARRANGE_H_

#include <cstdint>
#include <vector>

#include "core/tensor.h"

namespace tessera {

// The whole of x repeats[d] times along dim d; with more repeats than dims, x has leading dims of
// size 1. (torch.Tensor.repeat, numpy.tile)
Tensor Repeat(const Tensor& x, const std::vector<int64_t>& repeats);
// Each element `repeats` times in a row along dim.
Tensor RepeatInterleave(const Tensor& x, int64_t repeats, int dim);
// Along each of the dims, the last element first.
Tensor Flip(const Tensor& x, const std::vector<int>& dims);
// Element i comes to (i + shift) mod size; a negative shift moves towards the beginning.
Tensor Roll(const Tensor& x, int64_t shift, int dim);

}  // namespace tessera

#endif  // TESSERA_OPS_REARRANGE_REARRANGE_H_
