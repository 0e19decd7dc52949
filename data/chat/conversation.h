// SPDX-License-Identifier: Apache-2.0
// Conversations in the one form that chat templates take.
//
//   TESSERA_ASSIGN_OR_RETURN(
//       const Conversation chat,
//       ParseConversation(R"([{"role": "user", "content": "Hi"}])", "the request"));
//   format.Render(chat);
//
// A record is one of these objects:
//   OpenAI's    {"messages": [{"role": "user", "content": "..."}, ...], "tools": [...],
//               "system": "..."}, also under the name "conversations"; an assistant's message with
//               "weight": 0, or axolotl's "train": false or "training": false, is not learnt
//   TRL's       {"prompt": [messages], "completion": [messages], "tools": [...]}, of which the
//               assistant's messages in the prompt are not learnt
//   ShareGPT's  {"conversations": [{"from": "human", "value": "..."}, ...], "system": "...",
//               "tools": [...]}, of human (user), gpt (assistant), system, observation (tool), and
//               function_call, whose value is {"name": "...", "arguments": {...}} or a list of
//               these; calls and tools may be JSON in a text
//   Alpaca's    {"instruction": "...", "input": "...", "output": "...", "history": [[q, a], ...],
//               "system": "..."}; input is behind the instruction on a line of its own
// Each may have "chat_template_kwargs", what else its template may ask for. Keys stay in their
// order, which templates that print tools show.
#ifndef TESSERA_DATA_CHAT_CONVERSATION_H_
#define TESSERA_DATA_CHAT_CONVERSATION_H_

#include <string>
#include <string_view>

#include "base/json_member.h"
#include "base/status.h"
#include "nlohmann/json_fwd.hpp"

namespace tessera::data {

// The messages, and the functions that the assistant may call.
struct Conversation {
  OrderedJsonMember messages = OrderedJsonMember::Array();
  OrderedJsonMember tools = nullptr;  // null: none
  // What else a template may ask for, by name ("enable_thinking").
  OrderedJsonMember variables = OrderedJsonMember::Object();
};

// With the record's template variables. `where` begins messages: path:line or path[index].
StatusOr<Conversation> ConversationOf(const nlohmann::ordered_json& record,
                                      const std::string& where);

// What a record or a request gives the template beside the conversation, an object under this key:
// {"chat_template_kwargs": {"enable_thinking": false}}. The first checks such an object, the second
// finds it in a record, which may have none.
inline constexpr char kTemplateVariables[] = "chat_template_kwargs";
StatusOr<nlohmann::ordered_json> TemplateVariablesOf(const nlohmann::ordered_json& given);
StatusOr<nlohmann::ordered_json> TemplateVariablesOfRecord(const nlohmann::ordered_json& record,
                                                           const std::string& where);

// Of a text that asks for an answer: such a record, or the list of its messages alone. Beside
// `messages` there may be nothing that is not read.
StatusOr<Conversation> ParseConversation(std::string_view text, const std::string& where);

}  // namespace tessera::data

#endif  // TESSERA_DATA_CHAT_CONVERSATION_H_
