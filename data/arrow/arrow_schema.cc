// SPDX-License-Identifier: Apache-2.0
#include "data/arrow/arrow_schema.h"

#include <algorithm>
#include <utility>

namespace tessera::data {
namespace {

constexpr int kMaxDepth = 64;

// The union Type of Schema.fbs.
enum class ArrowTypeId {
  kNone = 0,
  kNull = 1,
  kInt = 2,
  kFloatingPoint = 3,
  kBinary = 4,
  kUtf8 = 5,
  kBool = 6,
  kDecimal = 7,
  kDate = 8,
  kTime = 9,
  kTimestamp = 10,
  kInterval = 11,
  kList = 12,
  kStruct = 13,
  kUnion = 14,
  kFixedSizeBinary = 15,
  kFixedSizeList = 16,
  kMap = 17,
  kDuration = 18,
  kLargeBinary = 19,
  kLargeUtf8 = 20,
  kLargeList = 21,
  kRunEndEncoded = 22,
  kBinaryView = 23,
  kUtf8View = 24,
  kListView = 25,
  kLargeListView = 26,
};

std::string UnsupportedName(ArrowTypeId id) {
  switch (id) {
    case ArrowTypeId::kInterval:
      return "interval";
    case ArrowTypeId::kUnion:
      return "union";
    case ArrowTypeId::kRunEndEncoded:
      return "run-end encoded";
    case ArrowTypeId::kListView:
    case ArrowTypeId::kLargeListView:
      return "list view";
    default:
      return Concat("number ", static_cast<int>(id));
  }
}

Status NoSuch(const char* what, int64_t value) { return DataLoss(what, " ", value, " is unknown"); }

StatusOr<ColumnType> IntType(int bit_width, bool is_signed) {
  const TypeKind first = is_signed ? TypeKind::kInt8 : TypeKind::kUInt8;
  for (int step = 0; step < 4; ++step) {
    if (bit_width == 8 << step) {
      return PlainType(static_cast<TypeKind>(static_cast<int>(first) + step));
    }
  }
  return NoSuch("integer width", bit_width);
}

StatusOr<ColumnType> UnitType(TypeKind kind, int byte_width, int unit, std::string_view zone) {
  if (unit < 0 || unit > 3) return NoSuch("unit of time", unit);
  return ColumnType{.kind = kind,
                    .byte_width = byte_width,
                    .unit = static_cast<TimeUnit>(unit),
                    .zone = std::string(zone)};
}

StatusOr<ColumnType> DecimalType(const FlatTable& type) {
  const auto bits = type.Int<int32_t>(2, 128);
  const auto precision = type.Int<int32_t>(0, 0);
  const auto scale = type.Int<int32_t>(1, 0);
  if (bits != 32 && bits != 64 && bits != 128 && bits != 256) return NoSuch("decimal width", bits);
  if (precision < 1 || precision > 76 || scale < -76 || scale > 76) {
    return DataLoss("no decimal has precision ", precision, " and scale ", scale);
  }
  return ColumnType{.kind = TypeKind::kDecimal,
                    .byte_width = bits / 8,
                    .precision = precision,
                    .scale = scale,
                    .zone = {}};
}

StatusOr<ColumnType> TimeType(const FlatTable& type) {
  const auto bits = type.Int<int32_t>(1, 32);
  if (bits != 32 && bits != 64) return NoSuch("width of a time", bits);
  return UnitType(TypeKind::kTime, bits / 8, type.Int<int16_t>(0, 1), "");
}

// Types whose values lie in one buffer.
StatusOr<ColumnType> FixedType(ArrowTypeId id, const FlatTable& type) {
  switch (id) {
    case ArrowTypeId::kInt:
      return IntType(type.Int<int32_t>(0, 0), type.Int<uint8_t>(1, 0) != 0);
    case ArrowTypeId::kFloatingPoint: {
      const auto precision = type.Int<int16_t>(0, 0);
      if (precision < 0 || precision > 2) return NoSuch("precision", precision);
      return PlainType(static_cast<TypeKind>(static_cast<int>(TypeKind::kFloat16) + precision));
    }
    case ArrowTypeId::kDecimal:
      return DecimalType(type);
    case ArrowTypeId::kDate:
      return PlainType(TypeKind::kDate);
    case ArrowTypeId::kTime:
      return TimeType(type);
    case ArrowTypeId::kTimestamp:
      return UnitType(TypeKind::kTimestamp, 8, type.Int<int16_t>(0, 0), type.String(1));
    case ArrowTypeId::kDuration:
      return UnitType(TypeKind::kDuration, 8, type.Int<int16_t>(0, 1), "");
    case ArrowTypeId::kFixedSizeBinary: {
      const auto width = type.Int<int32_t>(0, 0);
      if (width < 0) return NoSuch("byte width", width);
      return ColumnType{.kind = TypeKind::kFixedBinary, .byte_width = width, .zone = {}};
    }
    default:
      return InvalidArgument("type ", UnsupportedName(id), " is not supported");
  }
}

bool IsExtension(const FlatTable& field, std::string_view name) {
  const FlatVector metadata = field.Vector(6, 4);
  for (size_t i = 0; i < metadata.size(); ++i) {
    const FlatTable pair = metadata.Table(i);
    if (pair.String(0) == "ARROW:extension:name" && pair.String(1) == name) return true;
  }
  return false;
}

ColumnType NestedType(TypeKind kind, const std::vector<ArrowField>& children) {
  ColumnType type = {.kind = kind, .zone = {}};
  for (const ArrowField& child : children) type.children.push_back({child.name, child.type});
  return type;
}

class SchemaParser {
 public:
  StatusOr<ArrowField> Parse(const FlatTable& table, const std::string& prefix, int depth) {
    ArrowField field;
    field.name = table.String(0);
    field.path = prefix.empty() ? field.name : Concat(prefix, ".", field.name);
    const Status set = SetField(table, depth, &field);
    // What is inside has named itself.
    if (!set.ok() && !named_) {
      named_ = true;
      return Failure(set.code(), "column '", field.path, "': ", set.message());
    }
    if (!set.ok()) return set;
    return field;
  }

 private:
  Status SetField(const FlatTable& table, int depth, ArrowField* field) {
    // A damaged schema may lead to itself.
    if (depth > kMaxDepth || ++num_fields_ > kMaxFields) {
      return InvalidArgument("the schema is nested deeper than ", kMaxDepth,
                             " levels, or has more than ", kMaxFields, " fields");
    }
    const FlatVector children = table.Vector(5, 4);
    for (size_t i = 0; i < children.size(); ++i) {
      TESSERA_ASSIGN_OR_RETURN(ArrowField child, Parse(children.Table(i), field->path, depth + 1));
      field->children.push_back(std::move(child));
    }
    TESSERA_RETURN_IF_ERROR(SetType(table, field));
    const FlatTable dictionary = table.Table(4);
    return dictionary.present() ? SetDictionary(dictionary, field) : OkStatus();
  }

  static Status SetDictionary(const FlatTable& table, ArrowField* field) {
    auto dictionary = std::make_shared<ArrowDictionary>();
    dictionary->id = table.Int<int64_t>(0, 0);
    const FlatTable index = table.Table(1);
    if (index.present()) {
      TESSERA_ASSIGN_OR_RETURN(const ColumnType type,
                               IntType(index.Int<int32_t>(0, 0), index.Int<uint8_t>(1, 0) != 0));
      dictionary->index_width = type.byte_width;
      dictionary->index_signed = index.Int<uint8_t>(1, 0) != 0;
    }
    dictionary->values = std::make_shared<const ArrowField>(*field);
    field->children.clear();
    field->dictionary = std::move(dictionary);
    return OkStatus();
  }

  static Status SetType(const FlatTable& table, ArrowField* field) {
    const auto id = static_cast<ArrowTypeId>(table.Int<uint8_t>(2, 0));
    const FlatTable type = table.Table(3);
    switch (id) {
      case ArrowTypeId::kNull:
        field->type = std::make_shared<const ColumnType>(PlainType(TypeKind::kNull));
        return OkStatus();
      case ArrowTypeId::kBool:
        field->layout = ArrowLayout::kBits;
        field->type = std::make_shared<const ColumnType>(PlainType(TypeKind::kBool));
        return OkStatus();
      case ArrowTypeId::kBinary:
      case ArrowTypeId::kLargeBinary:
      case ArrowTypeId::kBinaryView:
        return SetBytes(id, TypeKind::kBinary, field);
      case ArrowTypeId::kUtf8:
      case ArrowTypeId::kLargeUtf8:
      case ArrowTypeId::kUtf8View:
        return SetBytes(id, TypeKind::kString, field);
      case ArrowTypeId::kList:
      case ArrowTypeId::kLargeList:
      case ArrowTypeId::kFixedSizeList:
      case ArrowTypeId::kMap:
        return SetList(id, type, field);
      case ArrowTypeId::kStruct:
        field->layout = ArrowLayout::kStruct;
        field->type =
            std::make_shared<const ColumnType>(NestedType(TypeKind::kStruct, field->children));
        return OkStatus();
      default:
        break;
    }
    field->layout = ArrowLayout::kFixed;
    TESSERA_ASSIGN_OR_RETURN(ColumnType fixed, FixedType(id, type));
    if (id == ArrowTypeId::kDate) field->milliseconds = type.Int<int16_t>(0, 1) == 1;
    if (fixed.kind == TypeKind::kFixedBinary && fixed.byte_width == 16 &&
        IsExtension(table, "arrow.uuid")) {
      fixed = PlainType(TypeKind::kUuid);
    }
    field->type = std::make_shared<const ColumnType>(std::move(fixed));
    return OkStatus();
  }

  static Status SetBytes(ArrowTypeId id, TypeKind kind, ArrowField* field) {
    const bool view = id == ArrowTypeId::kBinaryView || id == ArrowTypeId::kUtf8View;
    const bool large = id == ArrowTypeId::kLargeBinary || id == ArrowTypeId::kLargeUtf8;
    field->layout = view ? ArrowLayout::kViews : ArrowLayout::kStrings;
    field->offset_width = large ? 8 : 4;
    field->type = std::make_shared<const ColumnType>(PlainType(kind));
    return OkStatus();
  }

  static Status SetList(ArrowTypeId id, const FlatTable& type, ArrowField* field) {
    if (field->children.size() != 1) {
      return DataLoss("a list of ", field->children.size(), " types");
    }
    const ArrowField& child = field->children[0];
    field->layout = ArrowLayout::kList;
    if (id == ArrowTypeId::kMap) {
      if (child.layout != ArrowLayout::kStruct || child.children.size() != 2) {
        return DataLoss("a map without keys and values");
      }
      field->type = std::make_shared<const ColumnType>(NestedType(TypeKind::kMap, child.children));
      return OkStatus();
    }
    field->offset_width = id == ArrowTypeId::kLargeList ? 8 : 4;
    if (id == ArrowTypeId::kFixedSizeList) {
      field->layout = ArrowLayout::kFixedList;
      field->list_size = type.Int<int32_t>(0, 0);
      if (field->list_size < 0) return NoSuch("list size", field->list_size);
    }
    field->type = std::make_shared<const ColumnType>(NestedType(TypeKind::kList, field->children));
    return OkStatus();
  }

  static constexpr int kMaxFields = 1 << 20;
  int num_fields_ = 0;
  bool named_ = false;
};

}  // namespace

StatusOr<std::vector<ArrowField>> ParseArrowSchema(const FlatTable& schema) {
  if (schema.Int<int16_t>(0, 0) != 0) {
    return InvalidArgument("big-endian Arrow files are not supported");
  }
  std::vector<ArrowField> fields;
  const FlatVector tables = schema.Vector(1, 4);
  SchemaParser parser;
  for (size_t i = 0; i < tables.size(); ++i) {
    TESSERA_ASSIGN_OR_RETURN(ArrowField field, parser.Parse(tables.Table(i), "", 1));
    fields.push_back(std::move(field));
  }
  return fields;
}

}  // namespace tessera::data
