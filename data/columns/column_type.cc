// SPDX-License-Identifier: Apache-2.0
#include "data/columns/column_type.h"

namespace tessera::data {
namespace {

struct PlainKind {
  const char* text;
  int byte_width;
};

// In the order of TypeKind.
constexpr PlainKind kPlainKinds[] = {
    {"null", 0},
    {"bool", 1},
    {"int8", 1},
    {"int16", 2},
    {"int32", 4},
    {"int64", 8},
    {"uint8", 1},
    {"uint16", 2},
    {"uint32", 4},
    {"uint64", 8},
    {"halffloat", 2},
    {"float", 4},
    {"double", 8},
    {"decimal", 0},
    {"string", 0},
    {"binary", 0},
    {"fixed_size_binary", 0},
    {"uuid", 16},
    {"date32[day]", 4},
    {"time", 8},
    {"timestamp", 8},
    {"duration", 8},
    {"list", 0},
    {"struct", 0},
    {"map", 0},
};

std::string UnitText(TimeUnit unit) {
  constexpr const char* kTexts[] = {"s", "ms", "us", "ns"};
  return kTexts[static_cast<int>(unit)];
}

}  // namespace

ColumnType PlainType(TypeKind kind) {
  return {.kind = kind, .byte_width = kPlainKinds[static_cast<int>(kind)].byte_width, .zone = {}};
}

std::string TypeText(const ColumnType& type) {
  const char* const name = kPlainKinds[static_cast<int>(type.kind)].text;
  switch (type.kind) {
    case TypeKind::kDecimal:
      return Concat(name, "(", type.precision, ", ", type.scale, ")");
    case TypeKind::kFixedBinary:
      return Concat(name, "[", type.byte_width, "]");
    case TypeKind::kTime:
      return Concat(name, 8 * type.byte_width, "[", UnitText(type.unit), "]");
    case TypeKind::kTimestamp:
      return Concat(name, "[", UnitText(type.unit), type.zone.empty() ? "" : ", tz=", type.zone,
                    "]");
    case TypeKind::kDuration:
      return Concat(name, "[", UnitText(type.unit), "]");
    case TypeKind::kStruct:
      return Concat(name, "<", FieldsText(type.children), ">");
    case TypeKind::kList:
    case TypeKind::kMap: {
      std::string text = Concat(name, "<");
      for (size_t i = 0; i < type.children.size(); ++i) {
        text += Concat(i == 0 ? "" : ", ", TypeText(*type.children[i].type));
      }
      return text + ">";
    }
    default:
      return name;
  }
}

std::string FieldsText(const std::vector<Field>& fields) {
  std::string text;
  for (const Field& field : fields) {
    text += Concat(text.empty() ? "" : ", ", field.name, ": ", TypeText(*field.type));
  }
  return text;
}

}  // namespace tessera::data
