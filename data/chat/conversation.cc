// SPDX-License-Identifier: Apache-2.0
#include "data/chat/conversation.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/json_ordered.h"
#include "base/nearest_name.h"
#include "nlohmann/json.hpp"

namespace tessera::data {
namespace {

using Json = nlohmann::ordered_json;

bool Has(const Json& record, const char* key) {
  return record.contains(key) && !record[key].is_null();
}

Json Message(const char* role, Json content) {
  Json message;
  message["role"] = role;
  message["content"] = std::move(content);
  return message;
}

// JSON that a record holds as a text, or as it is.
StatusOr<Json> Unpacked(const Json& value, const std::string& where) {
  if (!value.is_string()) return value;
  return ParseOrderedJson(value.get<std::string>(), where);
}

// What an assistant's turn calls: {"name": ..., "arguments": {...}}, or a list of these.
StatusOr<Json> CallingMessage(const Json& value, const std::string& where) {
  TESSERA_ASSIGN_OR_RETURN(Json calls, Unpacked(value, where));
  if (calls.is_object()) calls = Json::array({std::move(calls)});
  Json message = Message("assistant", "");
  if (!calls.is_array() || calls.empty()) {
    return InvalidArgument(where, ": must hold a call, or a list of some");
  }
  for (const Json& call : calls) {
    if (!call.is_object() || !Has(call, "name") || !call["name"].is_string()) {
      return InvalidArgument(where, ": a call must be an object with a 'name'");
    }
    Json function;
    function["type"] = "function";
    function["function"] = call;
    message["tool_calls"].push_back(std::move(function));
  }
  return message;
}

// OpenAI's fine-tuning says of an assistant's message whether it is learnt, axolotl by "train" or
// "training" of any turn.
constexpr char kWeight[] = "weight";

Status CheckWeight(const Json& turn, const std::string& where) {
  if (Has(turn, kWeight) && turn[kWeight] != 0 && turn[kWeight] != 1) {
    return InvalidArgument(where, ": '", kWeight, "' must be 0 or 1");
  }
  for (const char* key : {"train", "training"}) {
    if (Has(turn, key) && !turn[key].is_boolean()) {
      return InvalidArgument(where, ": '", key, "' must be true or false");
    }
  }
  return OkStatus();
}

// Gives the message the weight 0 where the turn says that it is not learnt.
void TakeWeight(const Json& turn, Json* message) {
  const bool learnt = !Has(turn, kWeight) || turn[kWeight] != 0;
  const auto is_false = [&](const char* key) { return Has(turn, key) && turn[key] == false; };
  if (learnt && !is_false("train") && !is_false("training")) return;
  if ((*message)["role"] == "assistant") (*message)[kWeight] = 0;
}

Status CheckMessages(const Json& messages, const std::string& key, const std::string& where) {
  if (messages.is_string()) {
    return InvalidArgument(where, ": '", key, "' is a text, and a conversation's is a list of ",
                           R"(messages: [{"role": "user", "content": "..."}])");
  }
  if (!messages.is_array()) {
    return InvalidArgument(where, ": '", key, "' must be a list of messages");
  }
  if (messages.empty()) return InvalidArgument(where, ": '", key, "' is empty");
  for (size_t i = 0; i < messages.size(); ++i) {
    const Json& message = messages[i];
    if (!message.is_object() || !Has(message, "role") || !message["role"].is_string()) {
      return InvalidArgument(where, ": ", key, "[", i, "] must be an object with a 'role'");
    }
    TESSERA_RETURN_IF_ERROR(CheckWeight(message, Concat(where, ": ", key, "[", i, "]")));
  }
  return OkStatus();
}

// OpenAI's messages under ShareGPT's name.
bool AreMessages(const Json& turns) {
  return turns.is_array() && !turns.empty() && turns[0].is_object() && turns[0].contains("role");
}

// The system's words that a record has beside its messages become the first of these.
Status TakeSystem(const Json& record, Json* messages, const std::string& where) {
  if (!Has(record, "system")) return OkStatus();
  const Json& system = record["system"];
  if (!system.is_string()) return InvalidArgument(where, ": 'system' must be a text");
  if (system == "") return OkStatus();
  if (!messages->empty() && (*messages)[0]["role"] == "system") {
    if ((*messages)[0]["content"] == system) return OkStatus();
    return InvalidArgument(where, ": 'system' differs from the system's message; leave one out");
  }
  messages->insert(messages->begin(), Message("system", system));
  return OkStatus();
}

// The messages of OpenAI's record, or of TRL's, whose prompt is not learnt.
StatusOr<Json> MessagesOf(const Json& record, const std::string& where) {
  Json messages = Json::array();
  const std::string_view all = Has(record, "messages") ? "messages" : "conversations";
  for (const char* key : {"messages", "conversations", "prompt", "completion"}) {
    if (!Has(record, key)) continue;
    TESSERA_RETURN_IF_ERROR(CheckMessages(record[key], key, where));
    for (Json message : record[key]) {
      TakeWeight(message, &message);
      if (std::string_view(key) == "prompt" && message["role"] == "assistant") {
        message[kWeight] = 0;
      }
      messages.push_back(std::move(message));
    }
    if (key == all) break;
  }
  TESSERA_RETURN_IF_ERROR(TakeSystem(record, &messages, where));
  return messages;
}

// The arguments of a call as templates take them: OpenAI's interface writes an object as a text.
Status UnpackArguments(Json* messages, const std::string& where) {
  for (size_t i = 0; i < messages->size(); ++i) {
    Json& message = (*messages)[i];
    const auto calls = message.find("tool_calls");
    if (calls == message.end() || !calls->is_array()) continue;
    for (size_t k = 0; k < calls->size(); ++k) {
      Json& call = (*calls)[k];
      if (!call.is_object()) continue;
      const bool wrapped = Has(call, "function") && call["function"].is_object();
      Json& function = wrapped ? call["function"] : call;
      if (!wrapped && !Has(function, "arguments")) continue;
      Json& arguments = function["arguments"];
      if (arguments.is_null() || arguments == "") arguments = Json::object();
      TESSERA_ASSIGN_OR_RETURN(
          arguments, Unpacked(arguments, Concat(where, ": messages[", i, "].tool_calls[", k,
                                                "]: the arguments")));
    }
  }
  return OkStatus();
}

Status CheckTools(const Json& tools, const std::string& where) {
  if (tools.is_null() || tools.is_array()) return OkStatus();
  return InvalidArgument(where, ": 'tools' must be a list");
}

StatusOr<Conversation> FromShareGpt(const Json& record, const std::string& where) {
  static const std::map<std::string, const char*> roles = {
      {"human", "user"},        {"user", "user"},           {"gpt", "assistant"},
      {"chatgpt", "assistant"}, {"assistant", "assistant"}, {"function_call", "assistant"},
      {"observation", "tool"},  {"tool", "tool"},           {"system", "system"}};
  Conversation chat;
  const Json& turns = record["conversations"];
  if (!turns.is_array() || turns.empty()) {
    return InvalidArgument(where, ": 'conversations' must be a list of turns");
  }
  if (Has(record, "tools") && record["tools"] != "") {
    TESSERA_ASSIGN_OR_RETURN(chat.tools, Unpacked(record["tools"], where + ": 'tools'"));
    TESSERA_RETURN_IF_ERROR(CheckTools(chat.tools, where));
  }
  for (size_t i = 0; i < turns.size(); ++i) {
    const Json& turn = turns[i];
    const bool fits = turn.is_object() && Has(turn, "from") && turn["from"].is_string() &&
                      Has(turn, "value") && turn["value"].is_string();
    if (!fits) {
      return InvalidArgument(where, ": conversations[", i,
                             "] must have the texts 'from' and "
                             "'value'");
    }
    const auto role = roles.find(turn["from"].get<std::string>());
    if (role == roles.end()) {
      return InvalidArgument(where, ": conversations[", i, "] is from ", turn["from"].dump(),
                             ", expected human, gpt, system, function_call or observation");
    }
    const std::string turns_where = Concat(where, ": conversations[", i, "]");
    TESSERA_RETURN_IF_ERROR(CheckWeight(turn, turns_where));
    Json message;
    if (turn["from"] == "function_call") {
      TESSERA_ASSIGN_OR_RETURN(message, CallingMessage(turn["value"], turns_where));
    } else {
      message = Message(role->second, turn["value"]);
    }
    TakeWeight(turn, &message);
    chat.messages->push_back(std::move(message));
  }
  TESSERA_RETURN_IF_ERROR(TakeSystem(record, &*chat.messages, where));
  TESSERA_RETURN_IF_ERROR(UnpackArguments(&*chat.messages, where));
  return chat;
}

StatusOr<Conversation> FromAlpaca(const Json& record, const std::string& where) {
  Conversation chat;
  for (const char* key : {"system", "instruction", "input", "output"}) {
    if (Has(record, key) && !record[key].is_string()) {
      return InvalidArgument(where, ": '", key, "' must be a text");
    }
  }
  if (Has(record, "system") && record["system"] != "") {
    chat.messages->push_back(Message("system", record["system"]));
  }
  const Json history = Has(record, "history") ? record["history"] : Json::array();
  for (const Json& round : history) {
    if (!round.is_array() || round.size() != 2 || !round[0].is_string() || !round[1].is_string()) {
      return InvalidArgument(where, ": 'history' must be a list of [question, answer]");
    }
    chat.messages->push_back(Message("user", round[0]));
    chat.messages->push_back(Message("assistant", round[1]));
  }
  std::string prompt = record["instruction"].get<std::string>();
  if (Has(record, "input") && record["input"] != "") {
    prompt += "\n" + record["input"].get<std::string>();
  }
  chat.messages->push_back(Message("user", prompt));
  if (Has(record, "output")) chat.messages->push_back(Message("assistant", record["output"]));
  return chat;
}

// Of a record in any of the forms, without its template variables.
StatusOr<Conversation> FromRecord(const Json& record, const std::string& where) {
  const auto has = [&](const char* key) { return record.is_object() && Has(record, key); };
  const bool turns = !has("messages") && has("conversations");
  if (turns && !AreMessages(record["conversations"])) return FromShareGpt(record, where);
  if (turns || has("messages") || has("prompt")) {
    Conversation chat;
    TESSERA_ASSIGN_OR_RETURN(chat.messages, MessagesOf(record, where));
    TESSERA_RETURN_IF_ERROR(UnpackArguments(&*chat.messages, where));
    if (Has(record, "tools")) chat.tools = record["tools"];
    TESSERA_RETURN_IF_ERROR(CheckTools(chat.tools, where));
    return chat;
  }
  if (has("instruction")) return FromAlpaca(record, where);
  return InvalidArgument(where,
                         ": has none of 'messages', 'prompt', 'conversations' and "
                         "'instruction'");
}

// A request of OpenAI's interface has its settings beside the messages, where nothing here would
// read them.
Status CheckRequest(const Json& request, const std::string& where) {
  const std::vector<std::string> known = {"messages", "tools", kTemplateVariables};
  for (const auto& [key, value] : request.items()) {
    if (value.is_null() || std::find(known.begin(), known.end(), key) != known.end()) continue;
    return InvalidArgument(where, ": unknown key '", key, "'", DidYouMean(key, known),
                           "; there are messages, tools and ", kTemplateVariables,
                           ", and settings are given apart");
  }
  return OkStatus();
}

}  // namespace

StatusOr<Conversation> ConversationOf(const Json& record, const std::string& where) {
  TESSERA_ASSIGN_OR_RETURN(Conversation chat, FromRecord(record, where));
  TESSERA_ASSIGN_OR_RETURN(chat.variables, TemplateVariablesOfRecord(record, where));
  return chat;
}

StatusOr<Conversation> ParseConversation(std::string_view text, const std::string& where) {
  TESSERA_ASSIGN_OR_RETURN(Json record, ParseOrderedJson(text, where));
  if (record.is_array()) record = {{"messages", std::move(record)}};
  if (!record.is_object()) return InvalidArgument(where, ": neither an object nor a list");
  if (record.contains("messages")) TESSERA_RETURN_IF_ERROR(CheckRequest(record, where));
  return ConversationOf(record, where);
}

StatusOr<Json> TemplateVariablesOf(const Json& given) {
  if (!given.is_object()) return InvalidArgument("must be an object");
  for (const char* own : {"messages", "tools", "add_generation_prompt"}) {
    if (given.contains(own)) {
      return InvalidArgument("must not have '", own, "', which the template is given anyway");
    }
  }
  return given;
}

StatusOr<Json> TemplateVariablesOfRecord(const Json& record, const std::string& where) {
  if (!Has(record, kTemplateVariables)) return Json::object();
  auto variables = TemplateVariablesOf(record[kTemplateVariables]);
  if (variables.ok()) return variables;
  return InvalidArgument(where, ": '", kTemplateVariables, "' ", Message(variables.status()));
}

}  // namespace tessera::data
