// How ChatGLM-6B is told a conversation.
//
//   ChatPrompt("How are you?", {{"Hello", "Hi!"}})
//
// Without history the question alone; otherwise numbered rounds, each a question and its answer:
//   [Round 0]\n问：Hello\n答：Hi!\n[Round 1]\n问：How are you?\n答：
#ifndef TESSERA_MODELS_GLM_CHAT_PROMPT_H_
#define TESSERA_MODELS_GLM_CHAT_PROMPT_H_

#include <string>
#include <utility>
#include <vector>

namespace tessera::models {

// `history` holds pairs of question and answer, the oldest first. UTF-8.
std::string ChatPrompt(const std::string& query,
                       const std::vector<std::pair<std::string, std::string>>& history = {});

}  // namespace tessera::models

#endif  // TESSERA_MODELS_GLM_CHAT_PROMPT_H_
