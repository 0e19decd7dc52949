// SPDX-License-Identifier: Apache-2.0
#include "ops/triangle/triangle.h"

#include "ops/elementwise/elementwise.h"
#include "ops/view/view.h"

namespace tessera {
namespace {

Tensor Triangle(const char* name, const Tensor& x, int64_t diagonal, Comparison column_to_row) {
  TESSERA_CHECK(x.ndim() >= 2, name, "matrices are needed, got ", x);
  const Tensor row = Unsqueeze(Arange(x.size(-2), x.device()), 1);
  const Tensor column = Arange(x.size(-1), x.device());
  return Where(Compare(column, Add(row, static_cast<double>(diagonal)), column_to_row), x, 0.0);
}

}  // namespace

Tensor Tril(const Tensor& x, int64_t diagonal) {
  return Triangle("tril", x, diagonal, Comparison::kLessEqual);
}

Tensor Triu(const Tensor& x, int64_t diagonal) {
  return Triangle("triu", x, diagonal, Comparison::kGreaterEqual);
}

}  // namespace tessera
