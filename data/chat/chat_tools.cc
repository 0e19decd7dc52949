// SPDX-License-Identifier: Apache-2.0
#include "data/chat/chat_tools.h"

#include <utility>

namespace tessera::data {
namespace {

using nlohmann::ordered_json;

StatusOr<ChatTool> ToolOf(const ordered_json& json, const std::string& where) {
  // Some clients leave out the wrapping.
  const bool wrapped = json.is_object() && json.contains("function");
  const ordered_json& function = wrapped ? json["function"] : json;
  const std::string path = wrapped ? where + ".function" : where;
  if (!function.is_object()) return InvalidArgument(path, ": must be an object");
  const auto name = function.find("name");
  if (name == function.end() || !name->is_string() || name->get<std::string>().empty()) {
    return InvalidArgument(path, ".name: must be a text");
  }
  ChatTool tool = {.name = *name, .where = path + ".parameters"};
  const auto parameters = function.find("parameters");
  if (parameters != function.end() && !parameters->is_null()) tool.parameters = *parameters;
  tool.strict = function.value("strict", ordered_json()) == true;
  return tool;
}

}  // namespace

StatusOr<std::vector<ChatTool>> ChatToolsOf(const ordered_json* json) {
  std::vector<ChatTool> tools;
  if (json == nullptr || json->is_null()) return tools;
  if (!json->is_array()) return InvalidArgument("tools: must be a list");
  for (size_t i = 0; i < json->size(); ++i) {
    TESSERA_ASSIGN_OR_RETURN(ChatTool tool, ToolOf((*json)[i], Concat("tools[", i, "]")));
    tools.push_back(std::move(tool));
  }
  return tools;
}

}  // namespace tessera::data
