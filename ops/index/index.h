// SPDX-License-Identifier: Apache-2.0
// Picking elements by index, and the embedding look-up.
//
//   Tensor rows = IndexSelect(table_VC, /*dim=*/0, ids_BT);          // [B, T, C]
//   Tensor picked = Gather(logp_NV, /*dim=*/1, target_N1);           // [N, 1]
//
// Indices are int64 in [0, size); one outside throws Error naming it (checked on the CPU). Any
// dtype; gradients flow to the source, and are added up in index order whatever the number of
// threads. Gather and ScatterAdd are PyTorch's gather and scatter_add.
#ifndef TESSERA_OPS_INDEX_INDEX_H_
#define TESSERA_OPS_INDEX_INDEX_H_

#include <cstdint>

#include "core/tensor.h"

namespace tessera {

// Replaces dim by the dims of `indices`: slice indices[i] of x.
Tensor IndexSelect(const Tensor& x, int dim, const Tensor& indices);

// y[.., i, ..] = x[.., index[.., i, ..], ..]; index has x's number of dims, and sizes no larger
// than x's except along dim. The result has index's shape.
Tensor Gather(const Tensor& x, int dim, const Tensor& index);

// x with src added: y[.., index[.., i, ..], ..] += src[.., i, ..]; index has src's shape, and sizes
// as Gather's. Numbers of any dtype: half precision is summed in float32 and rounded once, whole
// numbers in int64, and wrap in narrower dtypes.
Tensor ScatterAdd(const Tensor& x, int dim, const Tensor& index, const Tensor& src);

// x with slices of src added: y[.., indices[i], ..] += src[.., i, ..] along dim, in the order of i.
// `indices` has one dim; src has x's sizes but along dim, where it has one slice for each. Dtypes
// as ScatterAdd's. Gradients flow to x and src.
// (torch.index_add)
Tensor IndexAdd(const Tensor& x, int dim, const Tensor& indices, const Tensor& src);

// A new last dim of `classes`: 1 at the index, 0 elsewhere. Any dtype that holds them.
Tensor OneHot(const Tensor& indices, int64_t classes, DType dtype = DType::kFloat32);

// Rows of weight [V, C] for ids of any shape: [..., C]. A vocabulary-parallel shard holds rows
// [vocab_begin, vocab_begin + rows) of a table of `global_vocab` rows and gives zeros for ids of
// other shards; the sum over shards is the look-up. The gradient is in the dtype that a leaf
// collects its gradient in.
struct EmbeddingOptions {
  int64_t vocab_begin = 0;
  int64_t global_vocab = -1;  // -1: the table is whole
  // This id's row gets no gradient; -1: every row does. Any other number that is no row throws
  // Error.
  int64_t padding_idx = -1;
};
Tensor Embedding(const Tensor& weight, const Tensor& ids, const EmbeddingOptions& options = {});

}  // namespace tessera

#endif  // TESSERA_OPS_INDEX_INDEX_H_
