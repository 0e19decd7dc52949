// SPDX-License-Identifier: Apache-2.0
#include "core/dtype.h"

#include "base/error.h"

namespace tessera {

std::optional<DType> ParseDType(std::string_view name) {
  for (int i = 0; i < kNumDTypes; ++i) {
    if (DTypeName(static_cast<DType>(i)) == name) return static_cast<DType>(i);
  }
  if (name == "fp32" || name == "float") return DType::kFloat32;
  if (name == "bf16") return DType::kBFloat16;
  if (name == "fp16" || name == "half") return DType::kFloat16;
  if (name == "fp64" || name == "double") return DType::kFloat64;
  return std::nullopt;
}

void ThrowUnsupportedDType(std::string_view operation, DType dtype) {
  throw Error(operation, Concat("dtype ", dtype, " is not supported"));
}

uint16_t Float16::FromFloat(float value) {
  uint32_t u;
  std::memcpy(&u, &value, 4);
  const uint32_t sign = (u >> 16) & 0x8000u;
  u &= 0x7fffffffu;
  if (u > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);   // NaN
  if (u >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7c00u);  // >= 65536, or infinite
  if (u < 0x38800000u) {
    // Below the least normal number: adding 0.5 aligns the significand so that the rounding of
    // float32 addition (to nearest even) leaves the subnormal's bits at the bottom.
    float magnitude;
    std::memcpy(&magnitude, &u, 4);
    const float aligned = magnitude + 0.5f;
    std::memcpy(&u, &aligned, 4);
    return static_cast<uint16_t>(sign | (u - 0x3f000000u));
  }
  // A carry out of the significand raises the exponent, up to infinity: what rounding asks for.
  const uint32_t rounded = u + 0xfffu + ((u >> 13) & 1);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

float Float16::ToFloat(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1f;
  const uint32_t significand = bits & 0x3ffu;
  float value;
  if (exponent == 0) {
    value = static_cast<float>(significand) * 0x1p-24f;
    uint32_t u;
    std::memcpy(&u, &value, 4);
    u |= sign;
    std::memcpy(&value, &u, 4);
    return value;
  }
  const uint32_t u = exponent == 31 ? (sign | 0x7f800000u | (significand << 13))
                                    : (sign | ((exponent + 112) << 23) | (significand << 13));
  std::memcpy(&value, &u, 4);
  return value;
}

}  // namespace tessera
