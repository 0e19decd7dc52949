// SPDX-License-Identifier: Apache-2.0
#include "core/cpu/philox_simd.h"
#include "core/cpu/simd.h"
#include "ops/dropout/dropout_rows.h"

namespace tessera::TESSERA_ISA {
namespace {

constexpr int64_t kPiece = 512;

// The 24 upper bits as an integer, which float32 holds exactly: compared with p * 2^24.
TESSERA_SIMD Mask Kept(const uint32_t* bits, int64_t lanes, VecF threshold) {
  const VecI word = LoadN(reinterpret_cast<const int32_t*>(bits), lanes);
  return ToFloat(ShiftRight<8>(word)) >= threshold;
}

template <typename T>
void Drop(const DropoutRow& row) {
  const T* x = static_cast<const T*>(row.x);
  T* out = static_cast<T*>(row.out);
  const VecF threshold = Set(row.p * 16777216.0f);
  const VecF scale = Set(static_cast<float>(row.scale));
  uint32_t words[RandomRangeWords(kPiece)];
  for (int64_t begin = 0; begin < row.n; begin += kPiece) {
    const int64_t n = row.n - begin < kPiece ? row.n - begin : kPiece;
    const uint32_t* bits =
        RandomRange(row.key_hi, row.key_lo, row.index + static_cast<uint64_t>(begin), n, words);
    ForEachVector(
        n, [&](int64_t i, int64_t lanes) __attribute__((always_inline)) {
          const VecF v = LoadN(x + begin + i, lanes) * scale;
          StoreN(out + begin + i, Select(Kept(bits + i, lanes, threshold), v, Zero()), lanes);
        });
  }
}

void DropDouble(const DropoutRow& row) {
  const double* x = static_cast<const double*>(row.x);
  double* out = static_cast<double*>(row.out);
  const float threshold = row.p * 16777216.0f;
  uint32_t words[RandomRangeWords(kPiece)];
  for (int64_t begin = 0; begin < row.n; begin += kPiece) {
    const int64_t n = row.n - begin < kPiece ? row.n - begin : kPiece;
    const uint32_t* bits =
        RandomRange(row.key_hi, row.key_lo, row.index + static_cast<uint64_t>(begin), n, words);
    for (int64_t i = 0; i < n; ++i) {
      const bool kept = static_cast<float>(bits[i] >> 8) >= threshold;
      out[begin + i] = kept ? x[begin + i] * row.scale : 0.0;
    }
  }
}

}  // namespace

void DropRow(const DropoutRow& row) {
  switch (row.type) {
    case DropoutType::kFloat32:
      return Drop<float>(row);
    case DropoutType::kBFloat16:
      return Drop<Bf16>(row);
    case DropoutType::kFloat16:
      return Drop<F16>(row);
    case DropoutType::kFloat64:
      return DropDouble(row);
  }
}

}  // namespace tessera::TESSERA_ISA
