// SPDX-License-Identifier: Apache-2.0
// Sums of products by the names of dims.
//
//   Tensor scores = Einsum("bhqd,bhkd->bhqk", {q, k});
//   Tensor trace = Einsum("ii->", {a});
//   Tensor y = Einsum("...i,oi->...o", {x, weight});
//   Tensor outer = Einsum("i,j", {a, b});               // without "->": what is once, sorted
//
// A letter names a dim; dims of one name have one size (1 stretches), and those that are not in the
// result are summed over. A letter twice in one operand takes the diagonal. "..." stands for the
// dims without a name, which broadcast. Blanks are ignored. Floating dtypes, all operands alike.
// Operands are taken in pairs from the left, each pair by a matrix product (ops/matmul/matmul.h),
// or by a multiplication where nothing is summed; no order of pairs is searched for. Gradients flow
// to every operand. An equation that is not well formed, or does not fit the operands, throws
// Error.
#ifndef TESSERA_OPS_EINSUM_EINSUM_H_
#define TESSERA_OPS_EINSUM_EINSUM_H_

#include <string_view>
#include <vector>

#include "core/tensor.h"

namespace tessera {

Tensor Einsum(std::string_view equation, const std::vector<Tensor>& operands);

}  // namespace tessera

#endif  // TESSERA_OPS_EINSUM_EINSUM_H_
