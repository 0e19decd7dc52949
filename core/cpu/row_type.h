// SPDX-License-Identifier: Apache-2.0
// The element types that row kernels (tessera_isa_library) compute in float32. float64 and integers
// have plain loops of their own. Raw and free of other headers, for sources of any instruction set.
#ifndef TESSERA_CORE_CPU_ROW_TYPE_H_
#define TESSERA_CORE_CPU_ROW_TYPE_H_

#include <cstdint>

namespace tessera {

enum class RowType : uint8_t { kFloat32, kBFloat16, kFloat16 };

}  // namespace tessera

#endif  // TESSERA_CORE_CPU_ROW_TYPE_H_
