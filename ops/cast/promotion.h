// SPDX-License-Identifier: Apache-2.0
// The dtype that an operation computes in where its operands have two.
//
//   PromotedDType(DType::kFloat32, DType::kBool) == DType::kFloat32
//   PromotedDType(DType::kInt32, DType::kInt64) == DType::kInt64
//   PromotedDType(DType::kBFloat16, DType::kFloat16) == DType::kFloat32
//
// A floating dtype goes before whole numbers, whole numbers before bool; of two of a kind the wider
// one is taken. bfloat16 and float16, of which neither holds the other, give float32. (PyTorch's
// torch.promote_types)
#ifndef TESSERA_OPS_CAST_PROMOTION_H_
#define TESSERA_OPS_CAST_PROMOTION_H_

#include "core/dtype.h"

namespace tessera {

constexpr DType PromotedDType(DType a, DType b) {
  if (a == b) return a;
  if (IsFloating(a) != IsFloating(b)) return IsFloating(a) ? a : b;
  if (DTypeSize(a) != DTypeSize(b)) return DTypeSize(a) > DTypeSize(b) ? a : b;
  return IsFloating(a) ? DType::kFloat32 : DType::kUInt8;
}

}  // namespace tessera

#endif  // TESSERA_OPS_CAST_PROMOTION_H_
