// SPDX-License-Identifier: Apache-2.0
// How a strided matrix is given to cuBLASLt, which knows columns that lie one after the other.
//
// cuBLASLt computes D = op(X) op(Y) with all of them column-major. A row-major c [m, n] is a
// column-major D [n, m], so X is b and Y is a: D = b^T a^T.
//
//   std::optional<ColumnMajor> y = AsColumnMajor(m, k, a_row_stride, a_col_stride);
//
// In plain C++, so that it is tested on the host.
#ifndef TESSERA_OPS_MATMUL_PRODUCT_LAYOUT_H_
#define TESSERA_OPS_MATMUL_PRODUCT_LAYOUT_H_

#include <algorithm>
#include <cstdint>
#include <optional>

namespace tessera {

// A stored column-major matrix [rows, columns] whose element (r, c) is at r + c * leading, and
// whether op() transposes it so that op() of it is the transpose of the matrix asked for.
struct ColumnMajor {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t leading = 0;
  bool transpose = false;
};

// The matrix [d0, d1] whose element (i, j) is at i * s0 + j * s1, as op(stored) = its transpose
// [d1, d0]. nullopt where neither dim's elements are adjacent, or rows overlap: a copy is needed.
inline std::optional<ColumnMajor> AsColumnMajor(int64_t d0, int64_t d1, int64_t s0, int64_t s1) {
  if ((s1 == 1 || d1 == 1) && (d0 == 1 || s0 >= std::max<int64_t>(d1, 1))) {
    return ColumnMajor{d1, d0, d0 == 1 ? std::max<int64_t>(d1, 1) : s0, false};
  }
  if ((s0 == 1 || d0 == 1) && (d1 == 1 || s1 >= std::max<int64_t>(d0, 1))) {
    return ColumnMajor{d0, d1, d1 == 1 ? std::max<int64_t>(d0, 1) : s1, true};
  }
  return std::nullopt;
}

}  // namespace tessera

#endif  // TESSERA_OPS_MATMUL_PRODUCT_LAYOUT_H_
