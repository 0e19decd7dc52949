// SPDX-License-Identifier: Apache-2.0
// Tensors across the border.
#ifndef TESSERA_RUNTIME_TENSORS_H_
#define TESSERA_RUNTIME_TENSORS_H_

#include <cstddef>
#include <vector>

#include "base/status.h"
#include "core/bundle.h"
#include "core/dtype.h"
#include "runtime/tessera.h"

namespace tessera::runtime {

// What a model may compute in; float32 by default.
StatusOr<DType> ComputeDType(tsr_dtype dtype);

// Copies. `source` begins messages, which name the tensor.
StatusOr<std::vector<Bundle::Entry>> TensorsOf(const char* source, const tsr_named_tensor* in,
                                               size_t n);

// One block of memory, a handle of its own: tsr_tensors_release.
tsr_named_tensor* ToNamedTensors(const std::vector<Bundle::Entry>& tensors);

}  // namespace tessera::runtime

#endif  // TESSERA_RUNTIME_TENSORS_H_
