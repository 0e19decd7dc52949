// SPDX-License-Identifier: Apache-2.0
// The functions that an assistant may call, as requests list them (OpenAI's `tools`).
//
//   TESSERA_ASSIGN_OR_RETURN(const std::vector<ChatTool> tools, ChatToolsOf(&body["tools"]));
#ifndef TESSERA_DATA_CHAT_CHAT_TOOLS_H_
#define TESSERA_DATA_CHAT_CHAT_TOOLS_H_

#include <string>
#include <vector>

#include "base/status.h"
#include "nlohmann/json.hpp"

namespace tessera::data {

struct ChatTool {
  std::string name;
  nlohmann::ordered_json parameters = {{"type", "object"}};
  std::string where;  // of the parameters, in the request: "tools[0].function.parameters"
  bool strict = false;
};

// Of a list; nullptr and null give none. What is wrong is named by its path.
StatusOr<std::vector<ChatTool>> ChatToolsOf(const nlohmann::ordered_json* json);

}  // namespace tessera::data

#endif  // TESSERA_DATA_CHAT_CHAT_TOOLS_H_
