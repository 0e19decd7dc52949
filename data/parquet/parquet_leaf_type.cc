// SPDX-License-Identifier: Apache-2.0
#include "data/parquet/parquet_leaf_type.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

namespace tessera::data {
namespace {

constexpr int kMaxDecimalBytes = 32;
constexpr int kMaxDecimalDigits = 76;

ColumnType IntegerType(int bit_width, bool is_signed) {
  const int step = bit_width == 8 ? 0 : bit_width == 16 ? 1 : bit_width == 32 ? 2 : 3;
  const TypeKind first = is_signed ? TypeKind::kInt8 : TypeKind::kUInt8;
  return PlainType(static_cast<TypeKind>(static_cast<int>(first) + step));
}

ColumnType TimeType(TypeKind kind, int byte_width, int unit, bool utc) {
  return {.kind = kind,
          .byte_width = byte_width,
          .unit = static_cast<TimeUnit>(unit),
          .zone = utc && kind == TypeKind::kTimestamp ? "UTC" : ""};
}

// The older annotations in the words of the newer ones.
LogicalType LogicalOf(const SchemaElement& element) {
  if (element.logical.kind != LogicalKind::kNone) return element.logical;
  const int converted = static_cast<int>(element.converted);
  switch (element.converted) {
    case ConvertedType::kUtf8:
      return {.kind = LogicalKind::kString};
    case ConvertedType::kEnum:
      return {.kind = LogicalKind::kEnum};
    case ConvertedType::kJson:
      return {.kind = LogicalKind::kJson};
    case ConvertedType::kDecimal:
      return {
          .kind = LogicalKind::kDecimal, .scale = element.scale, .precision = element.precision};
    case ConvertedType::kDate:
      return {.kind = LogicalKind::kDate};
    case ConvertedType::kTimeMillis:
    case ConvertedType::kTimeMicros:
      return {.kind = LogicalKind::kTime, .utc = true, .unit = converted - 6};
    case ConvertedType::kTimestampMillis:
    case ConvertedType::kTimestampMicros:
      return {.kind = LogicalKind::kTimestamp, .utc = true, .unit = converted - 8};
    case ConvertedType::kUInt8:
    case ConvertedType::kUInt16:
    case ConvertedType::kUInt32:
    case ConvertedType::kUInt64:
      return {
          .kind = LogicalKind::kInteger, .bit_width = 8 << (converted - 11), .is_signed = false};
    case ConvertedType::kInt8:
    case ConvertedType::kInt16:
    case ConvertedType::kInt32:
    case ConvertedType::kInt64:
      return {.kind = LogicalKind::kInteger, .bit_width = 8 << (converted - 15)};
    default:
      return {};
  }
}

StatusOr<ColumnType> DecimalType(const SchemaElement& element, const LogicalType& logical) {
  if (logical.precision < 1 || logical.precision > kMaxDecimalDigits || logical.scale < 0 ||
      logical.scale > logical.precision) {
    return DataLoss("no decimal has precision ", logical.precision, " and scale ", logical.scale);
  }
  int width = logical.precision <= 38 ? 16 : kMaxDecimalBytes;
  if (*element.type == PhysicalType::kInt32) width = 4;
  if (*element.type == PhysicalType::kInt64) width = 8;
  if (*element.type == PhysicalType::kFixedLenByteArray) {
    if (element.type_length > kMaxDecimalBytes) {
      return InvalidArgument("decimals of ", element.type_length, " bytes are not supported");
    }
    width = element.type_length <= 16 ? 16 : kMaxDecimalBytes;
  }
  return ColumnType{.kind = TypeKind::kDecimal,
                    .byte_width = width,
                    .precision = logical.precision,
                    .scale = logical.scale,
                    .zone = {}};
}

// What an annotation makes of a number; none: nothing.
std::optional<ColumnType> NumberType(PhysicalType physical, const LogicalType& logical) {
  const bool is32 = physical == PhysicalType::kInt32;
  switch (logical.kind) {
    case LogicalKind::kDate:
      if (is32) return PlainType(TypeKind::kDate);
      break;
    case LogicalKind::kTime:
      if (is32 == (logical.unit == 1)) {
        return TimeType(TypeKind::kTime, is32 ? 4 : 8, logical.unit, false);
      }
      break;
    case LogicalKind::kTimestamp:
      if (!is32) return TimeType(TypeKind::kTimestamp, 8, logical.unit, logical.utc);
      break;
    case LogicalKind::kInteger:
      if (is32 ? logical.bit_width <= 32 : logical.bit_width == 64) {
        return IntegerType(logical.bit_width, logical.is_signed);
      }
      break;
    default:
      break;
  }
  return std::nullopt;
}

ColumnType BytesType(const LogicalType& logical) {
  const bool text = logical.kind == LogicalKind::kString || logical.kind == LogicalKind::kEnum ||
                    logical.kind == LogicalKind::kJson;
  return PlainType(text ? TypeKind::kString : TypeKind::kBinary);
}

ColumnType FixedType(const SchemaElement& element, const LogicalType& logical) {
  if (logical.kind == LogicalKind::kUuid && element.type_length == 16) {
    return PlainType(TypeKind::kUuid);
  }
  if (logical.kind == LogicalKind::kFloat16 && element.type_length == 2) {
    return PlainType(TypeKind::kFloat16);
  }
  return {.kind = TypeKind::kFixedBinary, .byte_width = element.type_length, .zone = {}};
}

// A big-endian number of two's complement, sign-extended into `width` little-endian bytes.
void CopyDecimal(std::string_view big_endian, int width, std::byte* out) {
  const bool negative = !big_endian.empty() && (static_cast<uint8_t>(big_endian[0]) & 0x80) != 0;
  std::memset(out, negative ? 0xFF : 0, static_cast<size_t>(width));
  for (size_t i = 0; i < big_endian.size(); ++i) {
    out[i] = static_cast<std::byte>(big_endian[big_endian.size() - 1 - i]);
  }
}

StatusOr<std::vector<std::byte>> NanosecondsOf(const std::vector<std::byte>& values) {
  constexpr int64_t kEpoch = 2440588;  // the Julian day of 1970-01-01
  constexpr int64_t kPerDay = int64_t{86400} * 1'000'000'000;
  std::vector<std::byte> out(values.size() / 12 * 8);
  for (size_t i = 0; i < out.size() / 8; ++i) {
    int64_t within = 0;
    uint32_t day = 0;
    std::memcpy(&within, &values[i * 12], sizeof(within));
    std::memcpy(&day, &values[i * 12 + 8], sizeof(day));
    int64_t result = 0;
    if (__builtin_mul_overflow(static_cast<int64_t>(day) - kEpoch, kPerDay, &result) ||
        __builtin_add_overflow(result, within, &result)) {
      return DataLoss("a timestamp (INT96) lies outside the years 1677 to 2262");
    }
    std::memcpy(&out[i * 8], &result, sizeof(result));
  }
  return out;
}

}  // namespace

int PhysicalWidth(PhysicalType physical, int type_length) {
  switch (physical) {
    case PhysicalType::kBoolean:
      return 1;
    case PhysicalType::kInt32:
    case PhysicalType::kFloat:
      return 4;
    case PhysicalType::kInt64:
    case PhysicalType::kDouble:
      return 8;
    case PhysicalType::kInt96:
      return 12;
    case PhysicalType::kFixedLenByteArray:
      return type_length;
    case PhysicalType::kByteArray:
      break;
  }
  return 0;
}

StatusOr<ColumnType> LeafType(const SchemaElement& element) {
  const LogicalType logical = LogicalOf(element);
  if ((logical.kind == LogicalKind::kTime || logical.kind == LogicalKind::kTimestamp) &&
      (logical.unit < 1 || logical.unit > 3)) {
    return InvalidArgument("a unit of time that is not supported");
  }
  if (logical.kind == LogicalKind::kInteger && logical.bit_width != 8 && logical.bit_width != 16 &&
      logical.bit_width != 32 && logical.bit_width != 64) {
    return DataLoss("no integer has ", logical.bit_width, " bits");
  }
  if (logical.kind == LogicalKind::kNull) return PlainType(TypeKind::kNull);
  switch (*element.type) {
    case PhysicalType::kBoolean:
      return PlainType(TypeKind::kBool);
    case PhysicalType::kFloat:
      return PlainType(TypeKind::kFloat32);
    case PhysicalType::kDouble:
      return PlainType(TypeKind::kFloat64);
    case PhysicalType::kInt96:
      return TimeType(TypeKind::kTimestamp, 8, 3, false);
    case PhysicalType::kInt32:
    case PhysicalType::kInt64:
      if (logical.kind == LogicalKind::kDecimal) return DecimalType(element, logical);
      return NumberType(*element.type, logical)
          .value_or(PlainType(*element.type == PhysicalType::kInt32 ? TypeKind::kInt32
                                                                    : TypeKind::kInt64));
    case PhysicalType::kByteArray:
      if (logical.kind == LogicalKind::kDecimal) return DecimalType(element, logical);
      return BytesType(logical);
    case PhysicalType::kFixedLenByteArray:
      if (element.type_length < 1) return DataLoss("fixed-size values of no bytes");
      if (logical.kind == LogicalKind::kDecimal) return DecimalType(element, logical);
      return FixedType(element, logical);
  }
  return DataLoss("no such physical type: ", static_cast<int>(*element.type));
}

StatusOr<std::vector<std::byte>> ConvertValues(PhysicalType physical, int type_length,
                                               const ColumnType& type,
                                               std::vector<std::byte> values) {
  if (physical == PhysicalType::kInt96) return NanosecondsOf(values);
  const auto from = static_cast<size_t>(PhysicalWidth(physical, type_length));
  const auto to = static_cast<size_t>(type.byte_width);
  if (type.kind == TypeKind::kDecimal && physical == PhysicalType::kFixedLenByteArray) {
    std::vector<std::byte> out(values.size() / from * to);
    for (size_t i = 0; i < out.size() / to; ++i) {
      CopyDecimal({reinterpret_cast<const char*>(&values[i * from]), from}, type.byte_width,
                  &out[i * to]);
    }
    return out;
  }
  if (to < from) {
    const size_t count = values.size() / from;
    for (size_t i = 0; i < count; ++i) std::memmove(&values[i * to], &values[i * from], to);
    values.resize(count * to);
  }
  return values;
}

StatusOr<std::vector<std::byte>> DecimalsOf(const std::vector<std::string_view>& values,
                                            const ColumnType& type) {
  std::vector<std::byte> out(values.size() * static_cast<size_t>(type.byte_width));
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::ssize(values[i]) > type.byte_width) {
      return DataLoss("a decimal of ", values[i].size(), " bytes is too long for its precision");
    }
    CopyDecimal(values[i], type.byte_width, &out[i * static_cast<size_t>(type.byte_width)]);
  }
  return out;
}

}  // namespace tessera::data
