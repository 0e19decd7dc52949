// SPDX-License-Identifier: Apache-2.0
// Forms of lists that pyarrow no longer writes, and what cannot be a schema.
#include "data/parquet/parquet_schema.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tessera::data {
namespace {

SchemaElement Group(const std::string& name, int num_children, Repetition repetition,
                    ConvertedType converted = ConvertedType::kNone) {
  SchemaElement element;
  element.name = name;
  element.num_children = num_children;
  element.repetition = repetition;
  element.converted = converted;
  return element;
}

SchemaElement Number(const std::string& name, Repetition repetition) {
  SchemaElement element;
  element.name = name;
  element.type = PhysicalType::kInt32;
  element.repetition = repetition;
  return element;
}

// The type of the one column, or the message of the failure.
std::string TextOf(std::vector<SchemaElement> elements) {
  elements.insert(elements.begin(), Group("schema", 1, Repetition::kRequired));
  const auto schema = MakeParquetSchema(elements);
  if (!schema.ok()) return std::string(schema.status().message());
  return TypeText(*schema->columns[0].type);
}

constexpr auto kOptional = Repetition::kOptional;
constexpr auto kRepeated = Repetition::kRepeated;
constexpr auto kRequired = Repetition::kRequired;
constexpr auto kList = ConvertedType::kList;

TEST(ParquetSchemaTest, ReadsListsOfEveryForm) {
  const std::string list = "list<int32>";
  EXPECT_EQ(TextOf({Group("a", 1, kOptional, kList), Group("list", 1, kRepeated),
                    Number("element", kOptional)}),
            list);
  EXPECT_EQ(TextOf({Group("a", 1, kOptional, kList), Number("element", kRepeated)}), list);
  EXPECT_EQ(TextOf({Number("a", kRepeated)}), list);
  EXPECT_EQ(TextOf({Group("a", 1, kRepeated), Number("b", kRequired)}), "list<struct<b: int32>>");
  EXPECT_EQ(TextOf({Group("a", 1, kOptional, kList), Group("element", 2, kRepeated),
                    Number("b", kRequired), Number("c", kOptional)}),
            "list<struct<b: int32, c: int32>>");
  for (const char* const name : {"array", "a_tuple"}) {
    EXPECT_EQ(TextOf({Group("a", 1, kOptional, kList), Group(name, 1, kRepeated),
                      Number("b", kRequired)}),
              "list<struct<b: int32>>");
  }
  EXPECT_EQ(TextOf({Group("a", 1, kOptional, kList), Group("array", 1, kRepeated, kList),
                    Number("array", kRepeated)}),
            "list<list<int32>>");
}

TEST(ParquetSchemaTest, ReadsMapsOfEveryForm) {
  for (const auto converted : {ConvertedType::kMap, ConvertedType::kMapKeyValue}) {
    EXPECT_EQ(TextOf({Group("a", 1, kOptional, converted), Group("map", 2, kRepeated),
                      Number("key", kRequired), Number("value", kOptional)}),
              "map<int32, int32>");
    EXPECT_EQ(TextOf({Group("a", 1, kOptional, converted), Group("map", 1, kRepeated),
                      Number("key", kRequired)}),
              "list<int32>");
  }
}

TEST(ParquetSchemaTest, CountsLevels) {
  const auto schema =
      MakeParquetSchema({Group("schema", 1, kRequired), Group("a", 1, kOptional, kList),
                         Group("list", 1, kRepeated), Number("element", kOptional)});
  ASSERT_TRUE(schema.ok());
  EXPECT_EQ(schema->leaves[0].path, "a.list.element");
  EXPECT_EQ(schema->leaves[0].max_definition, 3);
  EXPECT_EQ(schema->leaves[0].max_repetition, 1);
  EXPECT_EQ(schema->columns[0].valid_definition, 1);
  EXPECT_EQ(schema->columns[0].element_definition, 2);
  EXPECT_EQ(schema->columns[0].children[0].slot_repetition, 1);
}

TEST(ParquetSchemaTest, RefusesWhatIsNoSchema) {
  EXPECT_EQ(TextOf({}), "the footer's schema ends early");
  EXPECT_EQ(TextOf({Number("a", kRequired), Number("b", kRequired)}),
            "the footer's schema is damaged");
  EXPECT_EQ(TextOf({Group("a", 0, kRequired)}), "column 'a': the group has no members");
  EXPECT_EQ(TextOf({Group("a", 1, kOptional, kList), Number("b", kRequired)}),
            "column 'a': the schema says list, but nothing in it is repeated");
  SchemaElement decimal = Number("a", kRequired);
  decimal.converted = ConvertedType::kDecimal;
  decimal.precision = 100;
  EXPECT_EQ(TextOf({decimal}), "column 'a': no decimal has precision 100 and scale 0");
  std::vector<SchemaElement> deep(70, Group("a", 1, kOptional));
  deep.push_back(Number("a", kRequired));
  EXPECT_NE(TextOf(deep).find("nested deeper than 64 levels"), std::string::npos);
}

}  // namespace
}  // namespace tessera::data
