// SPDX-License-Identifier: Apache-2.0
// How ChatGLM-6B is told a conversation: numbered rounds, each a question and its answer.
//
//   ChatPrompt("How are you?", {{"Hello", "Hi!"}})
//   // [Round 0]\n问：Hello\n答：Hi!\n[Round 1]\n问：How are you?\n答：
//
// (THUDM's ptuning/main.py. A question without a conversation may also stand for itself.)
#ifndef TESSERA_MODELS_GLM_CHAT_PROMPT_H_
#define TESSERA_MODELS_GLM_CHAT_PROMPT_H_

#include <string>
#include <utility>
#include <vector>

namespace tessera::models {

// `history` holds pairs of question and answer, the oldest first. UTF-8.
std::string ChatPrompt(const std::string& query,
                       const std::vector<std::pair<std::string, std::string>>& history);

}  // namespace tessera::models

#endif  // TESSERA_MODELS_GLM_CHAT_PROMPT_H_
