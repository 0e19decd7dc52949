// SPDX-License-Identifier: Apache-2.0
// Conversations as files hold them, in the one form that chat templates take.
//
//   TESSERA_RETURN_IF_ERROR(ForEachConversation("chats.jsonl", [&](const Conversation& chat,
//                                                                  const std::string& where) {
//     return Show(chat.messages);       // [{"role": "user", "content": "Hi"}, ...]
//   }));
//
// A record is an object of JSON lines, or of one JSON array:
//   OpenAI's    {"messages": [{"role": "user", "content": "..."}, ...], "tools": [...]}
//   ShareGPT's  {"conversations": [{"from": "human", "value": "..."}, ...], "system": "...",
//               "tools": [...]}, of human (user), gpt (assistant), system, observation (tool), and
//               function_call, whose value is {"name": "...", "arguments": {...}} or a list of
//               these; calls and tools may be JSON in a text
//   Alpaca's    {"instruction": "...", "input": "...", "output": "...", "history": [[q, a], ...],
//               "system": "..."}; input stands behind the instruction on a line of its own
// Keys stay in their order, which templates that print tools show.
#ifndef TESSERA_DATA_CHAT_CONVERSATION_H_
#define TESSERA_DATA_CHAT_CONVERSATION_H_

#include <functional>
#include <string>

#include "base/status.h"
#include "nlohmann/json.hpp"

namespace tessera::data {

// The messages, and the functions that the assistant may call.
struct Conversation {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  nlohmann::ordered_json tools = nullptr;  // null: none
};

// `where` begins messages: path:line or path[index].
StatusOr<Conversation> ConversationOf(const nlohmann::ordered_json& record,
                                      const std::string& where);

// A status of `visit` ends the reading and is returned.
Status ForEachConversation(
    const std::string& path,
    const std::function<Status(const Conversation& chat, const std::string& where)>& visit);

}  // namespace tessera::data

#endif  // TESSERA_DATA_CHAT_CONVERSATION_H_
