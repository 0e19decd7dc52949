// SPDX-License-Identifier: Apache-2.0
#include "train/foreign/yaml_file.h"

#include <yaml-cpp/yaml.h>

#include "base/file.h"
#include "base/json_text.h"
#include "nlohmann/json.hpp"

namespace tessera::train {
namespace {

using Json = nlohmann::json;

// Anchors may make a small file a huge tree.
constexpr int kMostNodes = 100'000;
constexpr int kDeepest = 50;

Json Scalar(const YAML::Node& node) {
  const std::string& text = node.Scalar();
  if (node.Tag() != "?") return text;  // quoted
  if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL") {
    return nullptr;
  }
  // Of YAML 1.1, as Python's reader has them.
  for (const char* yes : {"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"}) {
    if (text == yes) return true;
  }
  for (const char* no : {"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"}) {
    if (text == no) return false;
  }
  const Json number = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return number.is_number() ? number : Json(text);
}

StatusOr<Json> ToJson(const YAML::Node& node, int depth, int* left) {
  if (depth > kDeepest || --*left < 0) return InvalidArgument("it is too large");
  switch (node.Type()) {
    case YAML::NodeType::Undefined:
    case YAML::NodeType::Null:
      return Json();
    case YAML::NodeType::Scalar:
      return Scalar(node);
    case YAML::NodeType::Sequence: {
      Json list = Json::array();
      for (const YAML::Node& item : node) {
        TESSERA_ASSIGN_OR_RETURN(Json value, ToJson(item, depth + 1, left));
        list.push_back(std::move(value));
      }
      return list;
    }
    case YAML::NodeType::Map: {
      Json object = Json::object();
      for (const auto& item : node) {
        if (!item.first.IsScalar()) return InvalidArgument("a key is not a text");
        const std::string& key = item.first.Scalar();
        if (object.contains(key)) {
          return InvalidArgument("'", key, "' is given twice (line ", item.first.Mark().line + 1,
                                 "); keep one of them");
        }
        TESSERA_ASSIGN_OR_RETURN(object[key], ToJson(item.second, depth + 1, left));
      }
      return object;
    }
  }
  return Json();
}

}  // namespace

StatusOr<Json> ReadYaml(const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  try {
    int left = kMostNodes;
    StatusOr<Json> json = ToJson(YAML::Load(text), 0, &left);
    if (!json.ok()) return InvalidArgument(path, ": ", Message(json.status()));
    return json;
  } catch (const YAML::Exception& error) {
    return InvalidArgument(path, ":", error.mark.line + 1, ": not valid YAML: ", error.msg);
  }
}

StatusOr<Json> ReadSettings(const std::string& path) {
  if (path.ends_with(".yaml") || path.ends_with(".yml")) return ReadYaml(path);
  return ReadJsonFile(path, {.unique_keys = true, .comments = true});
}

}  // namespace tessera::train
