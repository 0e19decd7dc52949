// SPDX-License-Identifier: Apache-2.0
#include "core/cpu/simd.h"
#include "ops/reduction/reduction_rows.h"

namespace tessera::TESSERA_ISA {
namespace {

template <typename T>
float Row(const T* x, int64_t n) {
  // Four chains hide the latency of addition.
  VecF s0 = Zero(), s1 = Zero(), s2 = Zero(), s3 = Zero();
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    s0 = s0 + Load(x + i);
    s1 = s1 + Load(x + i + kLanes);
    s2 = s2 + Load(x + i + 2 * kLanes);
    s3 = s3 + Load(x + i + 3 * kLanes);
  }
  for (; i < n; i += kLanes) s0 = s0 + LoadN(x + i, n - i);
  return ReduceAdd((s0 + s1) + (s2 + s3));
}

template <typename T>
void Columns(const T* x, int64_t stride, int64_t rows, int64_t n, float* out) {
  int64_t j = 0;
  for (; j + 4 * kLanes <= n; j += 4 * kLanes) {
    VecF s0 = Zero(), s1 = Zero(), s2 = Zero(), s3 = Zero();
    for (int64_t i = 0; i < rows; ++i) {
      const T* row = x + i * stride + j;
      s0 = s0 + Load(row);
      s1 = s1 + Load(row + kLanes);
      s2 = s2 + Load(row + 2 * kLanes);
      s3 = s3 + Load(row + 3 * kLanes);
    }
    Store(out + j, s0);
    Store(out + j + kLanes, s1);
    Store(out + j + 2 * kLanes, s2);
    Store(out + j + 3 * kLanes, s3);
  }
  for (; j < n; j += kLanes) {
    VecF s = Zero();
    for (int64_t i = 0; i < rows; ++i) s = s + LoadN(x + i * stride + j, n - j);
    StoreN(out + j, s, n - j);
  }
}

float SumRow(RowType type, const void* x, int64_t n) {
  switch (type) {
    case RowType::kFloat32:
      return Row(static_cast<const float*>(x), n);
    case RowType::kBFloat16:
      return Row(static_cast<const Bf16*>(x), n);
    case RowType::kFloat16:
      return Row(static_cast<const F16*>(x), n);
  }
  return 0;
}

void SumColumns(RowType type, const void* x, int64_t stride, int64_t rows, int64_t n, float* out) {
  switch (type) {
    case RowType::kFloat32:
      return Columns(static_cast<const float*>(x), stride, rows, n, out);
    case RowType::kBFloat16:
      return Columns(static_cast<const Bf16*>(x), stride, rows, n, out);
    case RowType::kFloat16:
      return Columns(static_cast<const F16*>(x), stride, rows, n, out);
  }
}

}  // namespace

extern const SumRows kSumRows;
const SumRows kSumRows = {SumRow, SumColumns};

}  // namespace tessera::TESSERA_ISA
