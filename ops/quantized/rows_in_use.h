// SPDX-License-Identifier: Apache-2.0
// The functions of the instruction set in use.
#ifndef TESSERA_OPS_QUANTIZED_ROWS_IN_USE_H_
#define TESSERA_OPS_QUANTIZED_ROWS_IN_USE_H_

#include "core/cpu_isa.h"
#include "ops/quantized/quantized_rows.h"

namespace tessera {

inline const QuantizedRows& QuantizedRowsInUse() {
#if defined(__aarch64__)
  constexpr IsaTable<const QuantizedRows> kRows{&neon::kQuantizedRows, &neondot::kQuantizedRows};
#else
  constexpr IsaTable<const QuantizedRows> kRows{&baseline::kQuantizedRows, &avx2::kQuantizedRows,
                                                nullptr, &avx512vnni::kQuantizedRows};
#endif
  return *kRows.Select();
}

}  // namespace tessera

#endif  // TESSERA_OPS_QUANTIZED_ROWS_IN_USE_H_
