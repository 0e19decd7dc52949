// SPDX-License-Identifier: Apache-2.0
// Whether two kernels of attention computed the same, up to half precision.
//
//   auto agree = RowsAgree("o", DType::kBFloat16, own, other, rows, head_dim);
//   if (agree.ok() && *agree) ...
//
// Both round probabilities and results to half precision and sum in other orders, so that they
// differ by a few roundings, relative to a row's length. A wrong mask, scale or log-sum-exp differs
// by as much as the results themselves.
#ifndef TESSERA_OPS_ATTENTION_ATTENTION_AGREEMENT_H_
#define TESSERA_OPS_ATTENTION_ATTENTION_AGREEMENT_H_

#include <cstdint>
#include <string_view>

#include "base/status.h"
#include "core/dtype.h"

namespace tessera {

// Rows of `row` elements of bfloat16 or float16. False where `own` cannot tell: not all finite, or
// all zero. A status names the worst row.
StatusOr<bool> RowsAgree(std::string_view name, DType dtype, const void* own, const void* other,
                         int64_t rows, int64_t row);

// Log-sum-exps, float32; -infinity agrees with itself.
StatusOr<bool> LseAgree(const float* own, const float* other, int64_t count);

}  // namespace tessera

#endif  // TESSERA_OPS_ATTENTION_ATTENTION_AGREEMENT_H_
