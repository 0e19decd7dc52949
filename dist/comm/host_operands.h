// SPDX-License-Identifier: Apache-2.0
// What communicators over host memory ask of their operands, and how tensors of other devices and
// of half precision get there.
#ifndef TESSERA_DIST_COMM_HOST_OPERANDS_H_
#define TESSERA_DIST_COMM_HOST_OPERANDS_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/communicator.h"

namespace tessera::dist {

// Throw Error, naming the operation, for misuse that one rank can see alone.
void CheckOperands(std::string_view operation, const Tensor& a, const Tensor& b);
void CheckPeer(std::string_view operation, const Communicator& group, int peer, int tag);
void CheckReducible(std::string_view operation, DType dtype, ReduceOp op);
// `whole` has size() times the elements of `part`.
void CheckParts(std::string_view operation, const Communicator& group, const Tensor& whole,
                const Tensor& part);
void CheckRoot(std::string_view operation, const Communicator& group, int root);

// What reductions of `dtype` compute in: float32 for bfloat16 and float16.
DType ReductionDType(DType dtype);
// `t` on the host in `dtype`: itself where it is that already.
Tensor Staged(const Tensor& t, DType dtype);
Tensor Flat(const Tensor& t);
// Where each of `counts.size()` chunks begins that lie one behind the other: the sum of the counts
// before it.
std::vector<int64_t> ChunkBegins(const std::vector<int64_t>& counts);
char* Bytes(const Tensor& t);

}  // namespace tessera::dist

#endif  // TESSERA_DIST_COMM_HOST_OPERANDS_H_
