// SPDX-License-Identifier: Apache-2.0
// One step of a reduction over ranks, in host memory.
#ifndef TESSERA_CORE_COMBINE_ELEMENTS_H_
#define TESSERA_CORE_COMBINE_ELEMENTS_H_

#include "core/communicator.h"

namespace tessera {

// into[i] = op(into[i], next[i]) for `count` elements, in `dtype` itself. Of bool, kMax is "any"
// and kMin "all"; it has no sum.
void CombineElements(DType dtype, void* into, const void* next, int64_t count, ReduceOp op);

}  // namespace tessera

#endif  // TESSERA_CORE_COMBINE_ELEMENTS_H_
