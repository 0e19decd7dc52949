// SPDX-License-Identifier: Apache-2.0
// Position embeddings of a square grid of patches, for images of another size.
//
//   Tensor positions = ResizePositions(table_1NC, grid, rows, columns);   // [1, 1 + rows*columns,
//   C]
//
// The first position is the class token's and stays; the others are seen as a picture of `grid` x
// `grid` and interpolated bicubically (Keys 1981, a = -0.75, half-pixel centres, borders repeated,
// no antialiasing: what Hugging Face's ViT does).
#ifndef TESSERA_MODELS_VIT_POSITION_TABLE_H_
#define TESSERA_MODELS_VIT_POSITION_TABLE_H_

#include <cstdint>
#include <vector>

#include "core/tensor.h"

namespace tessera::models {

// Row-major [to, from]: sample i of `to` as a combination of `from` samples.
std::vector<double> BicubicWeights(int64_t from, int64_t to);

// Differentiable; the table itself where the size is its own.
Tensor ResizePositions(const Tensor& table, int64_t grid, int64_t rows, int64_t columns);

}  // namespace tessera::models

#endif  // TESSERA_MODELS_VIT_POSITION_TABLE_H_
