// SPDX-License-Identifier: Apache-2.0
#include "core/cpu/simd.h"
#include "ops/elementwise/elementwise_rows.h"
#include "ops/elementwise/log1p_simd.h"
#include "ops/elementwise/pow_simd.h"
#include "ops/elementwise/sin_cos_simd.h"

namespace tessera::TESSERA_ISA {
namespace {

template <typename F>
TESSERA_SIMD void MapRow(const float* x, float* out, int64_t n, F f) {
  ForEachVector(
      n, [&](int64_t i, int64_t lanes)
             __attribute__((always_inline)) { StoreN(out + i, f(LoadN(x + i, lanes)), lanes); });
}

template <typename F>
TESSERA_SIMD void MapRows(const float* a, bool a_repeats, const float* b, bool b_repeats,
                          float* out, int64_t n, F f) {
  const VecF a0 = Set(*a);
  const VecF b0 = Set(*b);
  int64_t i = 0;
  if (!a_repeats && !b_repeats) {
    for (; i + kLanes <= n; i += kLanes) Store(out + i, f(Load(a + i), Load(b + i)));
  } else {
    for (; i + kLanes <= n; i += kLanes) {
      Store(out + i, f(a_repeats ? a0 : Load(a + i), b_repeats ? b0 : Load(b + i)));
    }
  }
  const int64_t left = n - i;
  if (left > 0 && left < kLanes) {
    const VecF va = a_repeats ? a0 : LoadN(a + i, left);
    const VecF vb = b_repeats ? b0 : LoadN(b + i, left);
    StoreN(out + i, f(va, vb), left);
  }
}

// What rounding took from e^x is in the quotient (W. Kahan): 3 ulp. Not inlined, as Log1p.
__attribute__((noinline)) VecF Expm1(VecF x) {
  const VecF one = Set(1.0f);
  const VecF e = Exp(x);
  const VecF y = (e - one) * (x / Log(e));
  return Select(e == one, x, Select(Abs(x) > Set(20.0f), e - one, y));
}

// Of float32 for completeness: divisions with a remainder are computed in float64.
__attribute__((noinline)) VecF Fmod(VecF a, VecF b) {
  float x[kLanes], y[kLanes];
  Store(x, a);
  Store(y, b);
  for (int i = 0; i < kLanes; ++i) x[i] = formula::Fmod(x[i], y[i]);
  return Load(x);
}

#define TESSERA_CASE_(Op, ...)              \
  case BinaryOp::Op:                        \
    return MapRows(                         \
        a, a_repeats, b, b_repeats, out, n, \
        [](VecF g, VecF x) __attribute__((always_inline)) { return __VA_ARGS__; });

void Binary(BinaryOp op, const float* a, bool a_repeats, const float* b, bool b_repeats, float* out,
            int64_t n) {
  using namespace formula;  // NOLINT(google-build-using-namespace): formulas are written with it
  using V = VecF;
  switch (op) { TESSERA_BINARY_FORMULAS(TESSERA_CASE_) }
}
#undef TESSERA_CASE_

#define TESSERA_CASE_(Op, ...) \
  case UnaryOp::Op:            \
    return MapRow(             \
        x_row, out, n, [=](VecF x) __attribute__((always_inline)) { return __VA_ARGS__; });

void Unary(UnaryOp op, const float* x_row, float* out, int64_t n, float scale_value,
           float shift_value) {
  using namespace formula;  // NOLINT(google-build-using-namespace): formulas are written with it
  using V = VecF;
  // One copy of Pow serves both.
  if (op == UnaryOp::kPow)
    return Binary(BinaryOp::kPower, x_row, false, &scale_value, true, out, n);
  const VecF scale = Set(scale_value);
  const VecF shift = Set(shift_value);
  switch (op) { TESSERA_UNARY_FORMULAS(TESSERA_CASE_) }
}
#undef TESSERA_CASE_

// Elements of 16 bits are worked on as floats, a piece at a time that stays in the nearest cache: a
// function is compiled once instead of once per type.
constexpr int64_t kPiece = 512;

template <typename T>
void Widen(const T* x, float* out, int64_t n) {
  ForEachVector(
      n, [&](int64_t i, int64_t lanes)
             __attribute__((always_inline)) { StoreN(out + i, LoadN(x + i, lanes), lanes); });
}

template <typename T>
void Narrow(const float* x, T* out, int64_t n) {
  ForEachVector(
      n, [&](int64_t i, int64_t lanes)
             __attribute__((always_inline)) { StoreN(out + i, LoadN(x + i, lanes), lanes); });
}

template <typename T>
void NarrowUnary(UnaryOp op, const T* x, T* out, int64_t n, float scale, float shift) {
  alignas(64) float piece[kPiece];
  for (int64_t i = 0; i < n; i += kPiece) {
    const int64_t count = n - i < kPiece ? n - i : kPiece;
    Widen(x + i, piece, count);
    Unary(op, piece, piece, count, scale, shift);
    Narrow(piece, out + i, count);
  }
}

template <typename T>
void NarrowBinary(BinaryOp op, const T* a, bool a_repeats, const T* b, bool b_repeats, T* out,
                  int64_t n) {
  alignas(64) float piece_a[kPiece];
  alignas(64) float piece_b[kPiece];
  if (a_repeats) Widen(a, piece_a, 1);
  if (b_repeats) Widen(b, piece_b, 1);
  for (int64_t i = 0; i < n; i += kPiece) {
    const int64_t count = n - i < kPiece ? n - i : kPiece;
    if (!a_repeats) Widen(a + i, piece_a, count);
    if (!b_repeats) Widen(b + i, piece_b, count);
    float* result = a_repeats ? piece_b : piece_a;
    Binary(op, piece_a, a_repeats, piece_b, b_repeats, result, count);
    Narrow(result, out + i, count);
  }
}

void UnaryRow(UnaryOp op, RowType type, const void* x, void* out, int64_t n, float scale,
              float shift) {
  switch (type) {
    case RowType::kFloat32:
      return Unary(op, static_cast<const float*>(x), static_cast<float*>(out), n, scale, shift);
    case RowType::kBFloat16:
      return NarrowUnary(op, static_cast<const Bf16*>(x), static_cast<Bf16*>(out), n, scale, shift);
    case RowType::kFloat16:
      return NarrowUnary(op, static_cast<const F16*>(x), static_cast<F16*>(out), n, scale, shift);
  }
}

void BinaryRow(BinaryOp op, RowType type, const void* a, bool a_repeats, const void* b,
               bool b_repeats, void* out, int64_t n) {
  if (n <= 0) return;
  switch (type) {
    case RowType::kFloat32:
      return Binary(op, static_cast<const float*>(a), a_repeats, static_cast<const float*>(b),
                    b_repeats, static_cast<float*>(out), n);
    case RowType::kBFloat16:
      return NarrowBinary(op, static_cast<const Bf16*>(a), a_repeats, static_cast<const Bf16*>(b),
                          b_repeats, static_cast<Bf16*>(out), n);
    case RowType::kFloat16:
      return NarrowBinary(op, static_cast<const F16*>(a), a_repeats, static_cast<const F16*>(b),
                          b_repeats, static_cast<F16*>(out), n);
  }
}

}  // namespace

extern const ElementwiseRows kElementwiseRows;
const ElementwiseRows kElementwiseRows = {UnaryRow, BinaryRow};

}  // namespace tessera::TESSERA_ISA
