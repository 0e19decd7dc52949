#include "core/cpu/simd.h"
#include "ops/bias_gelu/bias_gelu_rows.h"
#include "ops/elementwise/gelu_simd.h"

namespace tessera::TESSERA_ISA {
namespace {

template <typename T>
void Forward(const BiasGeluRow& r) {
  const T* x = static_cast<const T*>(r.x);
  const T* bias = static_cast<const T*>(r.bias);
  T* y = static_cast<T*>(r.out);
  for (int64_t i = 0; i < r.n; i += kLanes) {
    const int64_t lanes = r.n - i;
    const VecF u = LoadN(x + i, lanes) + LoadN(bias + i, lanes);
    StoreN(y + i, r.tanh ? GeluTanh(u) : Gelu(u), lanes);
  }
}

template <typename T>
void Backward(const BiasGeluRow& r) {
  const T* x = static_cast<const T*>(r.x);
  const T* bias = static_cast<const T*>(r.bias);
  const T* dy = static_cast<const T*>(r.dy);
  T* dx = static_cast<T*>(r.out);
  for (int64_t i = 0; i < r.n; i += kLanes) {
    const int64_t lanes = r.n - i;
    const VecF u = LoadN(x + i, lanes) + LoadN(bias + i, lanes);
    const VecF g = LoadN(dy + i, lanes);
    StoreN(dx + i, r.tanh ? GeluTanhGrad(g, u) : GeluGrad(g, u), lanes);
  }
}

void ForwardRow(const BiasGeluRow& row) {
  switch (row.type) {
    case RowType::kFloat32:
      return Forward<float>(row);
    case RowType::kBFloat16:
      return Forward<Bf16>(row);
    case RowType::kFloat16:
      return Forward<F16>(row);
  }
}

void BackwardRow(const BiasGeluRow& row) {
  switch (row.type) {
    case RowType::kFloat32:
      return Backward<float>(row);
    case RowType::kBFloat16:
      return Backward<Bf16>(row);
    case RowType::kFloat16:
      return Backward<F16>(row);
  }
}

}  // namespace

extern const BiasGeluRows kBiasGeluRows;
const BiasGeluRows kBiasGeluRows = {ForwardRow, BackwardRow};

}  // namespace tessera::TESSERA_ISA
