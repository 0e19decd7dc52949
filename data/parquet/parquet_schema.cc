// SPDX-License-Identifier: Apache-2.0
#include "data/parquet/parquet_schema.h"

#include <memory>
#include <utility>

#include "data/parquet/parquet_leaf_type.h"

namespace tessera::data {
namespace {

constexpr int kMaxDepth = 64;

struct Levels {
  int definition = 0;
  int repetition = 0;
  int slot_definition = 0;
  int slot_repetition = 0;
  int depth = 0;

  Levels Optional() const {
    Levels levels = *this;
    ++levels.definition;
    return levels;
  }
  // Inside a repeated node.
  Levels Element() const {
    return {definition + 1, repetition + 1, definition + 1, repetition + 1, depth};
  }
};

bool IsList(const SchemaElement& element) {
  return element.logical.kind == LogicalKind::kList || element.converted == ConvertedType::kList;
}
bool IsMap(const SchemaElement& element) {
  return element.logical.kind == LogicalKind::kMap || element.converted == ConvertedType::kMap ||
         element.converted == ConvertedType::kMapKeyValue;
}

class SchemaBuilder {
 public:
  explicit SchemaBuilder(const std::vector<SchemaElement>& elements) : elements_(elements) {}

  StatusOr<ParquetSchema> Build() {
    if (elements_.empty()) return DataLoss("the footer has no schema");
    const SchemaElement& root = elements_[next_++];
    for (int i = 0; i < root.num_children; ++i) {
      TESSERA_ASSIGN_OR_RETURN(ParquetNode node, Node({}, ""));
      schema_.columns.push_back(std::move(node));
    }
    if (next_ != elements_.size()) return DataLoss("the footer's schema is damaged");
    return std::move(schema_);
  }

 private:
  const SchemaElement* Peek(size_t ahead = 0) const {
    return next_ + ahead < elements_.size() ? &elements_[next_ + ahead] : nullptr;
  }

  // The next element with all below it.
  StatusOr<ParquetNode> Node(const Levels& at, const std::string& prefix) {
    const SchemaElement* const element = Peek();
    if (element == nullptr) return DataLoss("the footer's schema ends early");
    ++next_;
    const std::string path = prefix.empty() ? element->name : Concat(prefix, ".", element->name);
    switch (element->repetition) {
      case Repetition::kRequired:
        return Body(*element, at, path);
      case Repetition::kOptional:
        return Body(*element, at.Optional(), path);
      case Repetition::kRepeated: {
        // Without an annotated group around it: a list that is never null.
        ParquetNode list = NodeAt(*element, at);
        TESSERA_ASSIGN_OR_RETURN(ParquetNode inner, Body(*element, at.Element(), path));
        return ListOf(std::move(list), std::move(inner), at);
      }
    }
    return DataLoss("column '", path, "': no such repetition in the schema");
  }

  static ParquetNode NodeAt(const SchemaElement& element, const Levels& at) {
    ParquetNode node;
    node.name = element.name;
    node.valid_definition = at.definition;
    node.slot_definition = at.slot_definition;
    node.slot_repetition = at.slot_repetition;
    return node;
  }

  // An element without regard to its own repetition.
  StatusOr<ParquetNode> Body(const SchemaElement& element, Levels at, const std::string& path) {
    if (++at.depth > kMaxDepth) {
      return InvalidArgument("column '", path, "' is nested deeper than ", kMaxDepth, " levels");
    }
    if (element.type) return Leaf(element, at, path);
    if (IsMap(element) && element.num_children == 1 && Peek() != nullptr &&
        Peek()->num_children == 2 && Peek()->repetition == Repetition::kRepeated) {
      return Map(element, at, path);
    }
    if (IsList(element) || IsMap(element)) return List(element, at, path);
    return Struct(element, at, path);
  }

  StatusOr<ParquetNode> Leaf(const SchemaElement& element, const Levels& at,
                             const std::string& path) {
    ParquetLeaf leaf;
    leaf.path = path;
    leaf.physical = *element.type;
    leaf.type_length = element.type_length;
    leaf.max_definition = at.definition;
    leaf.max_repetition = at.repetition;
    auto type = LeafType(element);
    if (!type.ok()) {
      return Failure(type.status().code(), "column '", path, "': ", type.status().message());
    }
    leaf.type = std::make_shared<const ColumnType>(*std::move(type));
    ParquetNode node = NodeAt(element, at);
    node.type = leaf.type;
    node.first_leaf = schema_.leaves.size();
    node.num_leaves = 1;
    schema_.leaves.push_back(std::move(leaf));
    return node;
  }

  StatusOr<ParquetNode> Struct(const SchemaElement& element, const Levels& at,
                               const std::string& path) {
    ParquetNode node = NodeAt(element, at);
    node.first_leaf = schema_.leaves.size();
    ColumnType type = {.kind = TypeKind::kStruct, .zone = {}};
    for (int i = 0; i < element.num_children; ++i) {
      TESSERA_ASSIGN_OR_RETURN(ParquetNode child, Node(at, path));
      type.children.push_back({child.name, child.type});
      node.children.push_back(std::move(child));
    }
    node.num_leaves = schema_.leaves.size() - node.first_leaf;
    if (node.num_leaves == 0) return DataLoss("column '", path, "': the group has no members");
    node.type = std::make_shared<const ColumnType>(std::move(type));
    return node;
  }

  StatusOr<ParquetNode> List(const SchemaElement& element, const Levels& at,
                             const std::string& path) {
    const SchemaElement* const repeated = Peek();
    if (element.num_children != 1 || repeated == nullptr ||
        repeated->repetition != Repetition::kRepeated) {
      return DataLoss("column '", path, "': the schema says list, but nothing in it is repeated");
    }
    ++next_;
    const std::string inner_path = Concat(path, ".", repeated->name);
    const SchemaElement* const inner = Peek();
    const bool repeated_is_element =
        repeated->type || repeated->num_children != 1 || IsList(*repeated) || IsMap(*repeated) ||
        repeated->name == "array" || repeated->name == element.name + "_tuple" ||
        (inner != nullptr && inner->repetition == Repetition::kRepeated);
    ParquetNode list = NodeAt(element, at);
    TESSERA_ASSIGN_OR_RETURN(ParquetNode node, repeated_is_element
                                                   ? Body(*repeated, at.Element(), inner_path)
                                                   : Node(Deeper(at.Element()), inner_path));
    return ListOf(std::move(list), std::move(node), at);
  }

  StatusOr<ParquetNode> Map(const SchemaElement& element, const Levels& at,
                            const std::string& path) {
    const std::string inner_path = Concat(path, ".", Peek()->name);
    ++next_;
    ParquetNode map = NodeAt(element, at);
    map.element_definition = at.Element().definition;
    TESSERA_ASSIGN_OR_RETURN(ParquetNode key, Node(Deeper(at.Element()), inner_path));
    TESSERA_ASSIGN_OR_RETURN(ParquetNode value, Node(Deeper(at.Element()), inner_path));
    map.first_leaf = key.first_leaf;
    map.num_leaves = key.num_leaves + value.num_leaves;
    map.type = std::make_shared<const ColumnType>(
        ColumnType{.kind = TypeKind::kMap,
                   .zone = {},
                   .children = {{"key", key.type}, {"value", value.type}}});
    map.children = {std::move(key), std::move(value)};
    return map;
  }

  static Levels Deeper(Levels levels) {
    ++levels.depth;
    return levels;
  }

  static ParquetNode ListOf(ParquetNode list, ParquetNode element, const Levels& at) {
    list.element_definition = at.Element().definition;
    list.first_leaf = element.first_leaf;
    list.num_leaves = element.num_leaves;
    list.type = std::make_shared<const ColumnType>(
        ColumnType{.kind = TypeKind::kList, .zone = {}, .children = {{"element", element.type}}});
    list.children.push_back(std::move(element));
    return list;
  }

  const std::vector<SchemaElement>& elements_;
  size_t next_ = 0;
  ParquetSchema schema_;
};

}  // namespace

StatusOr<ParquetSchema> MakeParquetSchema(const std::vector<SchemaElement>& elements) {
  return SchemaBuilder(elements).Build();
}

}  // namespace tessera::data
