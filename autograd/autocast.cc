// SPDX-License-Identifier: Apache-2.0
#include "autograd/autocast.h"

#include "base/error.h"

namespace tessera {

AutocastScope::AutocastScope(DType dtype) : ExecutionModeScope(dtype) {
  TESSERA_CHECK(dtype == DType::kFloat32 || IsHalf(dtype), "autocast", "to ", dtype,
                ": use bfloat16, float16 or float32");
}

}  // namespace tessera
