// SPDX-License-Identifier: Apache-2.0
// Walking several tensors of one shape at once on the CPU.
//
//   const auto loop = StridedLoop<2>(shape, {dst.strides(), src.strides()});
//   loop.ForEachRow([&](const std::array<int64_t, 2>& offset, int64_t n) {
//     // n elements from offset[k] on, loop.inner_stride(k) apart, of operand k
//   });
//
// Adjacent dims that every operand allows are merged, so contiguous operands give one long row.
// Rows are cut into pieces of at most kRowPiece elements and run in parallel; which piece an
// element falls in depends on shapes and strides alone.
#ifndef TESSERA_CORE_STRIDED_LOOP_H_
#define TESSERA_CORE_STRIDED_LOOP_H_

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/shape.h"
#include "core/thread_pool.h"

namespace tessera {

inline constexpr int64_t kRowPiece = 16384;

template <int kOperands>
class StridedLoop {
 public:
  using Offsets = std::array<int64_t, kOperands>;

  // Strides have the shape's length; 0 repeats.
  StridedLoop(const Shape& shape, const std::array<Shape, kOperands>& strides) {
    for (int d = 0; d < shape.ndim(); ++d) {
      if (shape[d] == 1) continue;
      const int last = shape_.ndim() - 1;
      bool merges = last >= 0;
      for (int k = 0; merges && k < kOperands; ++k) {
        merges = strides_[k][last] == strides[k][d] * shape[d];
      }
      if (merges) {
        shape_[last] *= shape[d];
        for (int k = 0; k < kOperands; ++k) strides_[k][last] = strides[k][d];
      } else {
        shape_.push_back(shape[d]);
        for (int k = 0; k < kOperands; ++k) strides_[k].push_back(strides[k][d]);
      }
    }
    if (shape_.empty()) {
      shape_.push_back(1);
      for (Shape& s : strides_) s.push_back(1);
    }
  }

  int64_t inner_stride(int operand) const { return strides_[operand][-1]; }

  template <typename Row>
  void ForEachRow(Row row) const {
    const int inner = shape_.ndim() - 1;
    const int64_t length = shape_[inner];
    if (shape_.numel() == 0) return;
    const int64_t pieces = (length + kRowPiece - 1) / kRowPiece;
    const int64_t rows = shape_.numel() / length;
    const int64_t grain = std::max<int64_t>(1, kRowPiece / length);
    ParallelFor(rows * pieces, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        int64_t index = i / pieces;
        const int64_t first = i % pieces * kRowPiece;
        Offsets offset;
        for (int k = 0; k < kOperands; ++k) offset[k] = first * strides_[k][inner];
        for (int d = inner - 1; d >= 0; --d) {
          const int64_t at = index % shape_[d];
          index /= shape_[d];
          for (int k = 0; k < kOperands; ++k) offset[k] += at * strides_[k][d];
        }
        row(offset, std::min(kRowPiece, length - first));
      }
    });
  }

 private:
  Shape shape_;
  std::array<Shape, kOperands> strides_;
};

}  // namespace tessera

#endif  // TESSERA_CORE_STRIDED_LOOP_H_
