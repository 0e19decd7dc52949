// SPDX-License-Identifier: Apache-2.0
// Communication as differentiable operations: the seams of tensor and sequence parallelism
// (Shoeybi et al. 2019; Korthikanti et al. 2022).
//
//   Tensor h = CopyToGroup(x, tp);                 // into a column-parallel layer
//   Tensor y = ReduceFromGroup(partial, tp);       // out of a row-parallel layer
//
// Every rank of the group calls the same operations in the same order, also backwards. With a group
// of one (or nullptr) each returns its argument. Shares along a dim are `EvenShare`s, so sizes need
// not divide: rank r holds EvenShare(size, group size, r) of a dim of `size`.
#ifndef TESSERA_OPS_COLLECTIVE_COLLECTIVE_H_
#define TESSERA_OPS_COLLECTIVE_COLLECTIVE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "core/communicator.h"
#include "core/tensor.h"

namespace tessera {

using Group = std::shared_ptr<Communicator>;

// Forward: x. Backward: the sum of the ranks' gradients.
Tensor CopyToGroup(const Tensor& x, const Group& group);
// Forward: the sum of the ranks' x. Backward: the gradient as it is.
Tensor ReduceFromGroup(const Tensor& x, const Group& group);

// Forward: this rank's share of x along dim. Backward: the shares' gradients side by side.
Tensor ScatterToGroup(const Tensor& x, int dim, const Group& group);
// Forward: the ranks' shares side by side; `size` is the whole size along dim. Backward: this
// rank's share of the gradient, which is the same on every rank.
Tensor GatherFromGroup(const Tensor& x, int dim, int64_t size, const Group& group);

// Sequence parallelism. Forward: the ranks' shares side by side. Backward: this rank's share of the
// sum of the ranks' gradients.
Tensor AllGatherToGroup(const Tensor& x, int dim, int64_t size, const Group& group);
// Forward: this rank's share of the sum of the ranks' x. Backward: the shares' gradients side by
// side.
Tensor ReduceScatterToGroup(const Tensor& x, int dim, const Group& group);

// Expert parallelism. Forward: rows of x go to the ranks, the first send[0] to rank 0 and so on,
// and receive[r] rows come from rank r, one rank's behind the other's. Backward: gradients go back.
Tensor ExchangeRows(const Tensor& x, const std::vector<int64_t>& send,
                    const std::vector<int64_t>& receive, const Group& group);

}  // namespace tessera

#endif  // TESSERA_OPS_COLLECTIVE_COLLECTIVE_H_
