// SPDX-License-Identifier: Apache-2.0
#include "core/cpu/simd.h"
#include "ops/elementwise/log1p_simd.h"
#include "ops/loss/loss_formulas.h"
#include "ops/loss/loss_rows.h"

namespace tessera::TESSERA_ISA {
namespace {

template <PairLoss kLoss, typename T>
void ValuesOf(float parameter, const T* x, const T* t, float* out, int64_t n) {
  const VecF p = Set(parameter);
  ForEachVector(
      n, [&](int64_t i, int64_t lanes) __attribute__((always_inline)) {
        StoreN(out + i, formula::LossOf(kLoss, p, LoadN(x + i, lanes), LoadN(t + i, lanes)), lanes);
      });
}

template <PairLoss kLoss, typename T>
void GradientOf(float parameter, bool by_target, const float* grad, bool repeats, const T* x,
                const T* t, T* out, int64_t n) {
  const VecF p = Set(parameter);
  const VecF same = Set(*grad);
  const auto run = [&](auto slope) __attribute__((always_inline)) {
    ForEachVector(
        n, [&](int64_t i, int64_t lanes) __attribute__((always_inline)) {
          const VecF g = repeats ? same : LoadN(grad + i, lanes);
          StoreN(out + i, g * slope(LoadN(x + i, lanes), LoadN(t + i, lanes)), lanes);
        });
  };
  if (by_target) {
    run([&](VecF a, VecF b)
            __attribute__((always_inline)) { return formula::LossTargetSlope(kLoss, p, a, b); });
  } else {
    run([&](VecF a, VecF b)
            __attribute__((always_inline)) { return formula::LossSlope(kLoss, p, a, b); });
  }
}

// Calls TESSERA_CALL_ with the loss as a constant.
#define TESSERA_EACH_LOSS_(loss)                      \
  switch (loss) {                                     \
    case PairLoss::kSquare:                           \
      return TESSERA_CALL_(PairLoss::kSquare);        \
    case PairLoss::kAbs:                              \
      return TESSERA_CALL_(PairLoss::kAbs);           \
    case PairLoss::kHuber:                            \
      return TESSERA_CALL_(PairLoss::kHuber);         \
    case PairLoss::kLogits:                           \
      return TESSERA_CALL_(PairLoss::kLogits);        \
    case PairLoss::kDivergence:                       \
      return TESSERA_CALL_(PairLoss::kDivergence);    \
    case PairLoss::kLogDivergence:                    \
      return TESSERA_CALL_(PairLoss::kLogDivergence); \
  }

template <typename T>
void ValuesTyped(PairLoss loss, float p, const void* x, const void* t, float* out, int64_t n) {
#define TESSERA_CALL_(kLoss) \
  ValuesOf<kLoss>(p, static_cast<const T*>(x), static_cast<const T*>(t), out, n)
  TESSERA_EACH_LOSS_(loss)
#undef TESSERA_CALL_
}

template <typename T>
void GradientTyped(PairLoss loss, float p, bool by_target, const float* grad, bool repeats,
                   const void* x, const void* t, void* out, int64_t n) {
#define TESSERA_CALL_(kLoss)                                               \
  GradientOf<kLoss>(p, by_target, grad, repeats, static_cast<const T*>(x), \
                    static_cast<const T*>(t), static_cast<T*>(out), n)
  TESSERA_EACH_LOSS_(loss)
#undef TESSERA_CALL_
}

void ValuesRow(PairLoss loss, float p, RowType type, const void* x, const void* t, float* out,
               int64_t n) {
  switch (type) {
    case RowType::kFloat32:
      return ValuesTyped<float>(loss, p, x, t, out, n);
    case RowType::kBFloat16:
      return ValuesTyped<Bf16>(loss, p, x, t, out, n);
    case RowType::kFloat16:
      return ValuesTyped<F16>(loss, p, x, t, out, n);
  }
}

void GradientRow(PairLoss loss, float p, bool by_target, RowType type, const float* grad,
                 bool repeats, const void* x, const void* t, void* out, int64_t n) {
  switch (type) {
    case RowType::kFloat32:
      return GradientTyped<float>(loss, p, by_target, grad, repeats, x, t, out, n);
    case RowType::kBFloat16:
      return GradientTyped<Bf16>(loss, p, by_target, grad, repeats, x, t, out, n);
    case RowType::kFloat16:
      return GradientTyped<F16>(loss, p, by_target, grad, repeats, x, t, out, n);
  }
}

}  // namespace

extern const LossRows kLossRows;
const LossRows kLossRows = {ValuesRow, GradientRow};

}  // namespace tessera::TESSERA_ISA
