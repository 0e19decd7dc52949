// SPDX-License-Identifier: Apache-2.0
// Element types of tensors.
//
//   DType::kFloat32 ... DTypeSize(DType::kBFloat16) == 2, DTypeName(...) == "bfloat16"
//
// `DispatchFloat` and `DispatchAll` turn a run-time dtype into a C++ type:
//
//   DispatchFloat(x.dtype(), "softmax", [&](auto zero) { using T = decltype(zero); ... });
#ifndef TESSERA_CORE_DTYPE_H_
#define TESSERA_CORE_DTYPE_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

#include "base/text_builder.h"

namespace tessera {

enum class DType : uint8_t {
  kFloat32,
  kBFloat16,
  kFloat16,
  kFloat64,
  kInt64,
  kInt32,
  kUInt8,
  kBool,
};
inline constexpr int kNumDTypes = 8;

// Bytes per element.
constexpr size_t DTypeSize(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
    case DType::kInt64:
      return 8;
    case DType::kFloat32:
    case DType::kInt32:
      return 4;
    case DType::kBFloat16:
    case DType::kFloat16:
      return 2;
    case DType::kUInt8:
    case DType::kBool:
      return 1;
  }
  return 0;
}

// Bytes of so many elements in a row.
constexpr int64_t BytesOf(DType dtype, int64_t elements) {
  return elements * static_cast<int64_t>(DTypeSize(dtype));
}

// "float32", "bfloat16", ...
constexpr std::string_view DTypeName(DType dtype) {
  constexpr std::string_view kNames[] = {"float32", "bfloat16", "float16", "float64",
                                         "int64",   "int32",    "uint8",   "bool"};
  return kNames[static_cast<int>(dtype)];
}

// Accepts the names above and the usual short ones (fp32, bf16, fp16, half, float, double).
std::optional<DType> ParseDType(std::string_view name);

// Whether numbers of this dtype have fractions.
constexpr bool IsFloating(DType d) {
  return d == DType::kFloat32 || d == DType::kBFloat16 || d == DType::kFloat16 ||
         d == DType::kFloat64;
}
// Whether they are floating numbers of 16 bits.
constexpr bool IsHalf(DType d) { return d == DType::kBFloat16 || d == DType::kFloat16; }

// The dtype that arithmetic on `d` accumulates in: float64 stays, every other float is float32.
constexpr DType AccumulateDType(DType d) {
  return d == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
}

// By its name.
inline TextBuilder& operator<<(TextBuilder& text, DType d) { return text << DTypeName(d); }

// A bfloat16 number: the upper half of a float32. Conversion rounds to nearest even; NaN stays NaN.
struct BFloat16 {
  uint16_t bits = 0;
  BFloat16() = default;
  BFloat16(float value) {  // NOLINT(google-explicit-constructor): behaves as an arithmetic type
    uint32_t u;
    std::memcpy(&u, &value, 4);
    if ((u & 0x7fffffffu) > 0x7f800000u) {
      bits = static_cast<uint16_t>((u >> 16) | 0x40);
    } else {
      bits = static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1)) >> 16);
    }
  }
  operator float() const {  // NOLINT(google-explicit-constructor)
    const uint32_t u = static_cast<uint32_t>(bits) << 16;
    float value;
    std::memcpy(&value, &u, 4);
    return value;
  }
};

// An IEEE 754 binary16 number, subnormals included. Conversion rounds to nearest even.
struct Float16 {
  uint16_t bits = 0;
  Float16() = default;
  Float16(float value) : bits(FromFloat(value)) {}  // NOLINT(google-explicit-constructor)
  operator float() const { return ToFloat(bits); }  // NOLINT(google-explicit-constructor)
  static uint16_t FromFloat(float value);
  static float ToFloat(uint16_t bits);
};

template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kFloat32;
};
template <>
struct DTypeOf<BFloat16> {
  static constexpr DType value = DType::kBFloat16;
};
template <>
struct DTypeOf<Float16> {
  static constexpr DType value = DType::kFloat16;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::kFloat64;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType value = DType::kInt64;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = DType::kInt32;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType value = DType::kUInt8;
};
template <>
struct DTypeOf<bool> {
  static constexpr DType value = DType::kBool;
};

// Throws Error: `operation` has nothing for `dtype`.
[[noreturn]] void ThrowUnsupportedDType(std::string_view operation, DType dtype);

// Calls f(T{}) with T the C++ type of a floating dtype; throws Error for any other.
template <typename F>
decltype(auto) DispatchFloat(DType dtype, std::string_view operation, F&& f) {
  switch (dtype) {
    case DType::kFloat32:
      return f(float{});
    case DType::kBFloat16:
      return f(BFloat16{});
    case DType::kFloat16:
      return f(Float16{});
    case DType::kFloat64:
      return f(double{});
    default:
      ThrowUnsupportedDType(operation, dtype);
  }
}

// Calls f(T{}) with T the C++ type of any dtype.
template <typename F>
decltype(auto) DispatchAll(DType dtype, std::string_view operation, F&& f) {
  switch (dtype) {
    case DType::kInt64:
      return f(int64_t{});
    case DType::kInt32:
      return f(int32_t{});
    case DType::kUInt8:
      return f(uint8_t{});
    case DType::kBool:
      return f(bool{});
    default:
      return DispatchFloat(dtype, operation, f);
  }
}

}  // namespace tessera

#endif  // TESSERA_CORE_DTYPE_H_
