// SPDX-License-Identifier: Apache-2.0
// Matrices of weights as small integers: read at a half to an eighth of float32's bytes.
//
//   TESSERA_ASSIGN_OR_RETURN(const QuantizedMatrix w, Quantize(weight_OI, QuantType::kQ8_0));
//   Tensor y_BTO = QuantizedLinear(x_BTI, w, bias_O);
//   Tensor rows_BTI = QuantizedEmbedding(w, ids_BT, DType::kFloat32);
//
// Rows are outputs, whatever the layout of the weight that they come from
// (ops/quantized/quant_type.h has the bytes of one). Columns are a multiple of the type's block, 32
// or 256; kInt8 has any number of them.
//
// Products turn x into integers too, of 16 bits with a scale of its own for each group of 32, max
// |x| / 32512: what they differ by from products of floats is float32's rounding. (kInt8: of 8
// bits, max |x| / 127 of each row.) The dot products of the integers are exact. Sums over groups
// are float32 in one order, which neither the number of rows of x, nor its place among them, nor
// the number of threads changes: a row has the same bits alone and in any batch. (From zero, group
// after group of the weights: sum = fma(the group's dot product, the product of the two scales,
// sum), and then for types with minima sum = fma(-(the sum of x's integers), minimum * the scale of
// x, sum).) A row of x that has an infinity or a NaN gives NaN.
#ifndef TESSERA_OPS_QUANTIZED_QUANTIZED_MATRIX_H_
#define TESSERA_OPS_QUANTIZED_QUANTIZED_MATRIX_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "core/tensor.h"
#include "ops/index/index.h"
#include "ops/quantized/quant_type.h"

namespace tessera {

// "int8", "q8_0", "q4_k", ...
std::string_view QuantTypeName(QuantType type);
std::optional<QuantType> ParseQuantType(std::string_view name);
// All of them, for messages: "int8, q8_0, ... and iq4_xs".
std::string QuantTypeNames();

// Whether a row of so many columns can be held so.
bool CanQuantize(QuantType type, int64_t columns);
// Bytes of such a row.
int64_t QuantRowBytes(QuantType type, int64_t columns);

struct QuantizedMatrix {
  QuantType type = QuantType::kQ8_0;
  int64_t columns = 0;
  Tensor bytes;  // uint8 [rows, QuantRowBytes(type, columns)], contiguous

  int64_t rows() const { return bytes.size(0); }
};

// Of a matrix [rows, columns] on the CPU, floating, with any strides. InvalidArgument where a
// number is not finite, or too large for the scale. On `meta`: without numbers.
StatusOr<QuantizedMatrix> Quantize(const Tensor& matrix, QuantType type);
// Of one that is had a few rows at a time, so that it need not be held dense: `rows_of(begin,
// count)` gives [count, columns] on the CPU, floating, with any strides. `count` is at most
// QuantizedPieceRows(columns).
StatusOr<QuantizedMatrix> QuantizeRows(QuantType type, int64_t rows, int64_t columns,
                                       const std::function<Tensor(int64_t, int64_t)>& rows_of);
// Rows of about a mebibyte of float32.
int64_t QuantizedPieceRows(int64_t columns);

// Rows [begin, begin + count): a view.
QuantizedMatrix RowsOf(const QuantizedMatrix& matrix, int64_t begin, int64_t count);

// [rows, columns] in `dtype`.
Tensor Dequantize(const QuantizedMatrix& matrix, DType dtype);

// x [..., columns] to [..., rows], plus bias [rows] where defined: float32, bfloat16 or float16,
// all of one dtype. Gradients to x (by the weights as they are held) and to the bias. Throws Error
// for other dtypes and shapes, and on the GPU.
Tensor QuantizedLinear(const Tensor& x, const QuantizedMatrix& weight, const Tensor& bias);

// Rows of the matrix: int64 ids [...] to [..., columns] in `dtype`, otherwise as Embedding
// (ops/index/index.h). No gradient.
Tensor QuantizedEmbedding(const QuantizedMatrix& table, const Tensor& ids, DType dtype,
                          const EmbeddingOptions& options = {});

}  // namespace tessera

#endif  // TESSERA_OPS_QUANTIZED_QUANTIZED_MATRIX_H_
