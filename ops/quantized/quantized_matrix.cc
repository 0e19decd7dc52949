// SPDX-License-Identifier: Apache-2.0
#include "ops/quantized/quantized_matrix.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "autograd/autograd.h"
#include "core/cpu/row_kernels.h"
#include "core/thread_pool.h"
#include "ops/cast/cast.h"
#include "ops/matmul/product.h"
#include "ops/quantized/quant_blocks.h"
#include "ops/quantized/quantized_kernel.h"
#include "ops/quantized/rows_in_use.h"
#include "ops/reduction/sum.h"
#include "ops/view/view.h"

namespace tessera {
namespace {

constexpr int64_t kRowsAtOnce = 16;

int64_t PaddedColumns(int64_t columns) { return QuantPairs(columns) * kQuantPair; }

// Whether the row can be held.
bool PutRow(QuantType type, const float* x, int64_t columns, uint8_t* to) {
  const QuantLayout& layout = LayoutOf(type);
  if (type != QuantType::kInt8 && type != QuantType::kQ8_0) {
    bool fits = true;
    for (int64_t i = 0; i < columns; i += layout.columns, to += layout.bytes) {
      fits = EncodeBlock(type, x + i, to) && fits;
    }
    return fits;
  }
  // A block of q8_0 is quantised as a row of int8 is.
  const int64_t width = type == QuantType::kInt8 ? columns : kQuantGroup;
  const int64_t pairs = QuantPairs(width);
  std::vector<int8_t> q(static_cast<size_t>(pairs * kQuantPair));
  std::vector<int32_t> offset(static_cast<size_t>(2 * pairs * 2));
  std::vector<float> scale(static_cast<size_t>(pairs * 2));
  bool fits = true;
  for (int64_t i = 0; i < columns; i += width, to += layout.bytes) {
    QuantizedRowsInUse().quantize(QuantType::kInt8, RowType::kFloat32, x + i, width,
                                  {q.data(), nullptr, offset.data(), scale.data()});
    if (type == QuantType::kInt8) {
      std::memcpy(to, q.data(), q.size());
      std::memcpy(to + q.size(), scale.data(), sizeof(float));
      return std::isfinite(scale[0]);
    }
    PutHalf(scale[0], to);
    std::memcpy(to + 2, q.data(), kQuantGroup);
    fits = fits && std::isfinite(HalfAt(to));
  }
  return fits;
}

void GetRow(QuantType type, const uint8_t* from, int64_t columns, float* x) {
  if (type == QuantType::kInt8) {
    float scale;
    std::memcpy(&scale, from + PaddedColumns(columns), sizeof(float));
    for (int64_t i = 0; i < columns; ++i)
      x[i] = static_cast<float>(static_cast<int8_t>(from[i])) * scale;
    return;
  }
  const QuantLayout& layout = LayoutOf(type);
  for (int64_t begin = 0; begin < columns; begin += layout.columns, from += layout.bytes) {
    DecodeBlock(type, from, x + begin);
  }
}

void CheckMatrix(std::string_view op, const QuantizedMatrix& m) {
  TESSERA_CHECK(m.bytes.ndim() == 2 && m.bytes.dtype() == DType::kUInt8 &&
                    m.bytes.is_contiguous() && CanQuantize(m.type, m.columns) &&
                    m.bytes.size(1) == QuantRowBytes(m.type, m.columns),
                op, "bytes ", m.bytes, " are no ", QuantTypeName(m.type), " matrix of ", m.columns,
                " columns");
}

// Rows of `matrix` to the rows of `out`: rows[i], zeros where that is none of its rows; without
// `rows`, all.
void GetRows(const QuantizedMatrix& matrix, const int64_t* rows, int64_t count, const Tensor& out) {
  if (out.device().is_meta()) return;
  const auto* const bytes = matrix.bytes.data<uint8_t>();
  const int64_t columns = matrix.columns, row_bytes = matrix.bytes.size(1);
  auto* const to = static_cast<char*>(out.raw_data());
  ParallelFor(count, kRowsAtOnce, [&](int64_t begin, int64_t end) {
    std::vector<float> row(static_cast<size_t>(columns));
    for (int64_t i = begin; i < end; ++i) {
      const int64_t from = rows == nullptr ? i : rows[i];
      if (from < 0 || from >= matrix.rows()) {
        std::fill(row.begin(), row.end(), 0.0f);
      } else {
        GetRow(matrix.type, bytes + from * row_bytes, columns, row.data());
      }
      char* const at = to + i * BytesOf(out.dtype(), columns);
      if (out.dtype() == DType::kFloat64) {
        std::copy(row.begin(), row.end(), static_cast<double*>(static_cast<void*>(at)));
      } else {
        QuantizedRowsInUse().finish(RowTypeOf(out.dtype()), row.data(), nullptr, columns, at);
      }
    }
  });
}

}  // namespace

std::string_view QuantTypeName(QuantType type) { return LayoutOf(type).name; }

// GGML and its programs write the names in capitals.
std::optional<QuantType> ParseQuantType(std::string_view name) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c; };
  for (const QuantType type : kQuantTypes) {
    if (std::ranges::equal(name, QuantTypeName(type), {}, lower)) return type;
  }
  return std::nullopt;
}

std::string QuantTypeNames() {
  std::string names;
  for (const QuantType& type : kQuantTypes) {
    const bool last = &type == std::end(kQuantTypes) - 1;
    names += Concat(names.empty() ? "" : last ? " and " : ", ", QuantTypeName(type));
  }
  return names;
}

bool CanQuantize(QuantType type, int64_t columns) {
  // Sums of 127 * 127 are held in 32 bits.
  if (type == QuantType::kInt8) return columns > 0 && columns <= 128 * 1024;
  return columns > 0 && columns % LayoutOf(type).columns == 0;
}

int64_t QuantRowBytes(QuantType type, int64_t columns) {
  if (type == QuantType::kInt8) {
    return PaddedColumns(columns) + static_cast<int64_t>(sizeof(float));
  }
  return columns / LayoutOf(type).columns * LayoutOf(type).bytes;
}

int64_t QuantizedPieceRows(int64_t columns) {
  constexpr int64_t kNumbers = int64_t{1} << 18;
  return std::max<int64_t>(kRowsAtOnce, kNumbers / std::max<int64_t>(1, columns));
}

StatusOr<QuantizedMatrix> Quantize(const Tensor& matrix, QuantType type) {
  TESSERA_CHECK(matrix.ndim() == 2 && IsFloating(matrix.dtype()) &&
                    (matrix.device().is_cpu() || matrix.device().is_meta()),
                "quantize", "cannot quantize ", matrix);
  const int64_t rows = matrix.size(0), columns = matrix.size(1);
  if (matrix.device().is_meta() && CanQuantize(type, columns)) {
    return QuantizedMatrix{
        type, columns, Empty({rows, QuantRowBytes(type, columns)}, DType::kUInt8, matrix.device())};
  }
  return QuantizeRows(type, rows, columns, [m = matrix.Detach()](int64_t begin, int64_t count) {
    return m.AsStrided({count, m.size(1)}, m.strides(), m.offset() + begin * m.stride(0));
  });
}

StatusOr<QuantizedMatrix> QuantizeRows(QuantType type, int64_t rows, int64_t columns,
                                       const std::function<Tensor(int64_t, int64_t)>& rows_of) {
  if (!CanQuantize(type, columns)) {
    return InvalidArgument("rows of ", columns, " numbers cannot be ", QuantTypeName(type));
  }
  const int64_t row_bytes = QuantRowBytes(type, columns);
  QuantizedMatrix result = {type, columns, Empty({rows, row_bytes}, DType::kUInt8)};
  uint8_t* const to = result.bytes.data<uint8_t>();
  const int64_t at_once = QuantizedPieceRows(columns);
  for (int64_t first = 0; first < rows; first += at_once) {
    const int64_t count = std::min(at_once, rows - first);
    const Tensor wide = CastCopy(rows_of(first, count), DType::kFloat32).ContiguousCopy();
    std::atomic<int64_t> bad = count;
    ParallelFor(count, kRowsAtOnce, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const float* const row = wide.data<float>() + i * columns;
        if (PutRow(type, row, columns, to + (first + i) * row_bytes)) continue;
        int64_t lowest = bad.load();
        while (i < lowest && !bad.compare_exchange_weak(lowest, i)) {
        }
      }
    });
    if (bad < count) {
      return InvalidArgument("row ", first + bad.load(),
                             " has a number that is not finite, or too large");
    }
  }
  return result;
}

QuantizedMatrix RowsOf(const QuantizedMatrix& matrix, int64_t begin, int64_t count) {
  const Tensor& bytes = matrix.bytes;
  TESSERA_CHECK(begin >= 0 && count >= 0 && begin + count <= matrix.rows(), "rows", "rows [", begin,
                ", ", begin + count, ") of ", matrix.rows());
  return {matrix.type, matrix.columns,
          bytes.AsStrided({count, bytes.size(1)}, bytes.strides(),
                          bytes.offset() + begin * bytes.size(1))};
}

Tensor Dequantize(const QuantizedMatrix& matrix, DType dtype) {
  CheckMatrix("dequantize", matrix);
  Tensor out = Empty({matrix.rows(), matrix.columns}, dtype, matrix.bytes.device());
  GetRows(matrix, nullptr, matrix.rows(), out);
  return out;
}

Tensor QuantizedLinear(const Tensor& given, const QuantizedMatrix& weight, const Tensor& bias) {
  constexpr std::string_view kName = "quantized_linear";
  CheckMatrix(kName, weight);
  const Tensor x = given.Detach().ContiguousCopy();
  TESSERA_CHECK(x.ndim() >= 1 && x.size(-1) == weight.columns &&
                    (x.dtype() == DType::kFloat32 || IsHalf(x.dtype())) &&
                    x.device() == weight.bytes.device(),
                kName, "cannot apply ", QuantTypeName(weight.type), " [", weight.rows(), ", ",
                weight.columns, "] on ", weight.bytes.device(), " to ", x,
                ": the last dim must be the second size, of float32 or half precision");
  TESSERA_CHECK(!bias.defined() || (bias.shape() == Shape{weight.rows()} &&
                                    bias.dtype() == x.dtype() && bias.is_contiguous()),
                kName, "bias ", bias, " is not [", weight.rows(), "] of ", x.dtype());
  Shape shape = x.shape();
  shape[-1] = weight.rows();
  Tensor y = Empty(shape, x.dtype(), x.device());
  const int64_t rows = x.numel() / std::max<int64_t>(1, weight.columns);
  quantized_linear_kernel.Launch(x.device(),
                                 {.type = weight.type,
                                  .dtype = x.dtype(),
                                  .rows = rows,
                                  .columns = weight.columns,
                                  .outputs = weight.rows(),
                                  .row_bytes = weight.bytes.size(1),
                                  .x = x.raw_data(),
                                  .w = static_cast<const uint8_t*>(weight.bytes.raw_data()),
                                  .bias = bias.defined() ? bias.raw_data() : nullptr,
                                  .y = y.raw_data()});
  if (!AnyRequiresGrad({given, bias})) return y;
  Record("quantized linear", {given, bias}, {y},
         [weight, rows, shape = x.shape()](GradContext& ctx) {
           const Tensor dy = Reshape(ctx.grad(), {rows, weight.rows()});
           if (ctx.needs(0)) {
             ctx.set(0, Reshape(Product(dy, Dequantize(weight, dy.dtype())), shape));
           }
           if (ctx.needs(1)) ctx.set(1, SumTo(dy, {weight.rows()}));
         });
  return y;
}

Tensor QuantizedEmbedding(const QuantizedMatrix& table, const Tensor& ids, DType dtype,
                          const EmbeddingOptions& options) {
  constexpr std::string_view kName = "quantized_embedding";
  CheckMatrix(kName, table);
  TESSERA_CHECK(ids.dtype() == DType::kInt64 && ids.device() == table.bytes.device(), kName,
                "ids are ", ids, ", not int64 on the table's device");
  Shape shape(ids.shape().begin(), ids.shape().end());
  shape.push_back(table.columns);
  Tensor out = Empty(shape, dtype, ids.device());
  if (ids.device().is_meta()) return out;
  std::vector<int64_t> rows = ids.ToVector<int64_t>();
  const int64_t vocabulary = options.global_vocab >= 0 ? options.global_vocab : table.rows();
  for (size_t i = 0; i < rows.size(); ++i) {
    TESSERA_CHECK(rows[i] >= 0 && rows[i] < vocabulary, kName, "id ", rows[i], " at position ", i,
                  " is outside of [0, ", vocabulary, ")");
    rows[i] -= options.vocab_begin;
  }
  GetRows(table, rows.data(), std::ssize(rows), out);
  return out;
}

}  // namespace tessera
