// SPDX-License-Identifier: Apache-2.0
#include "models/glm/chat_prompt.h"

namespace tessera::models {
namespace {

std::string Round(size_t number, const std::string& question) {
  return "[Round " + std::to_string(number) + "]\n问：" + question + "\n答：";
}

}  // namespace

std::string ChatPrompt(const std::string& query,
                       const std::vector<std::pair<std::string, std::string>>& history) {
  std::string prompt;
  for (size_t i = 0; i < history.size(); ++i) {
    prompt += Round(i, history[i].first) + history[i].second + "\n";
  }
  return prompt + Round(history.size(), query);
}

}  // namespace tessera::models
