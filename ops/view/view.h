// SPDX-License-Identifier: Apache-2.0
// Views: other shapes onto the same elements, without copying, and the operations that put tensors
// side by side.
//
//   Tensor q = Transpose(Reshape(x_BTC, {B, T, H, D}), 1, 2);   // [B, H, T, D], strided
//   Tensor left = Slice(x, /*dim=*/-1, 0, 64);
//   Tensor both = Cat({a, b}, /*dim=*/1);
//
// Every dtype, every device. Negative dims count from the end. Gradients flow through each of them;
// wrong dims or shapes throw Error.
#ifndef TESSERA_OPS_VIEW_VIEW_H_
#define TESSERA_OPS_VIEW_VIEW_H_

#include <cstdint>
#include <vector>

#include "core/tensor.h"

namespace tessera {

// One size may be -1 and is inferred. A view where strides allow it, otherwise of a copy.
Tensor Reshape(const Tensor& x, const Shape& shape);
// Swaps two dims.
Tensor Transpose(const Tensor& x, int dim0, int dim1);
// Result dim i is x's dim order[i].
Tensor Permute(const Tensor& x, const std::vector<int>& order);
// Elements [begin, begin + length) along dim; a negative `begin` counts from the end.
Tensor Slice(const Tensor& x, int dim, int64_t begin, int64_t length);
// From `begin` to the end: Slice(x, 1, -3) is Python's x[:, -3:].
Tensor Slice(const Tensor& x, int dim, int64_t begin);
// Elements [begin, end) along dim, Python's begin:end: both may count from the end, what lies
// outside of the dim is left out, and `end` before `begin` is nothing.
Tensor SliceTo(const Tensor& x, int dim, int64_t begin, int64_t end);
// Index `at` of dim, which disappears; -1 is the last one. The gradients of many slices of one
// tensor are added up in place: all experts of a stack cost what the stack does.
Tensor Select(const Tensor& x, int dim, int64_t at);
// Inserts a dim of size 1 before `dim` (ndim appends); removes a dim of size 1.
Tensor Unsqueeze(const Tensor& x, int dim);
Tensor Squeeze(const Tensor& x, int dim);
// x itself when contiguous, else a copy.
Tensor Contiguous(const Tensor& x);
// The same elements off the tape.
Tensor Detach(const Tensor& x);

// Side by side along dim; other sizes, dtypes and devices must agree. At least one tensor.
Tensor Cat(const std::vector<Tensor>& tensors, int dim);
// Along a new dim.
Tensor Stack(const std::vector<Tensor>& tensors, int dim);
// Views of the given sizes along dim, which add up to its size.
std::vector<Tensor> Split(const Tensor& x, const std::vector<int64_t>& sizes, int dim);
// `chunks` views of equal size along dim, the last one smaller where its size does not divide, and
// fewer of them where it is used up before. (torch.chunk)
std::vector<Tensor> Chunk(const Tensor& x, int64_t chunks, int dim);
// `before` and `after` elements of `value` around x along dim.
Tensor Pad(const Tensor& x, int dim, int64_t before, int64_t after, double value = 0.0);

}  // namespace tessera

#endif  // TESSERA_OPS_VIEW_VIEW_H_
