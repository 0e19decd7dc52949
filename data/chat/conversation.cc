#include "data/chat/conversation.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "core/file.h"
#include "data/tokenizer/json_text.h"

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

Status CheckMessages(const Json& messages, const std::string& where) {
  if (!messages.is_array() || messages.empty()) {
    return InvalidArgument(where, ": 'messages' must be a list of messages");
  }
  for (size_t i = 0; i < messages.size(); ++i) {
    const Json& message = messages[i];
    if (!message.is_object() || !Has(message, "role") || !message["role"].is_string()) {
      return InvalidArgument(where, ": messages[", i, "] must be an object with a 'role'");
    }
  }
  return OkStatus();
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
  if (Has(record, "system")) chat.messages.push_back(Message("system", record["system"]));
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
    chat.messages.push_back(Message(role->second, turn["value"]));
  }
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
    chat.messages.push_back(Message("system", record["system"]));
  }
  const Json history = Has(record, "history") ? record["history"] : Json::array();
  for (const Json& round : history) {
    if (!round.is_array() || round.size() != 2 || !round[0].is_string() || !round[1].is_string()) {
      return InvalidArgument(where, ": 'history' must be a list of [question, answer]");
    }
    chat.messages.push_back(Message("user", round[0]));
    chat.messages.push_back(Message("assistant", round[1]));
  }
  std::string prompt = record["instruction"].get<std::string>();
  if (Has(record, "input") && record["input"] != "") {
    prompt += "\n" + record["input"].get<std::string>();
  }
  chat.messages.push_back(Message("user", prompt));
  if (Has(record, "output")) chat.messages.push_back(Message("assistant", record["output"]));
  return chat;
}

// As ParseJson, with keys in their order.
StatusOr<Json> ParseInOrder(std::string_view text, const std::string& where) {
  TESSERA_RETURN_IF_ERROR(ParseJson(text, where).status());
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

}  // namespace

StatusOr<Conversation> ConversationOf(const Json& record, const std::string& where) {
  if (record.is_object() && Has(record, "messages")) {
    TESSERA_RETURN_IF_ERROR(CheckMessages(record["messages"], where));
    Conversation chat = {.messages = record["messages"]};
    if (Has(record, "tools")) chat.tools = record["tools"];
    return chat;
  }
  if (record.is_object() && Has(record, "conversations")) return FromShareGpt(record, where);
  if (record.is_object() && Has(record, "instruction")) return FromAlpaca(record, where);
  return InvalidArgument(where, ": has none of 'messages', 'conversations' and 'instruction'");
}

Status ForEachConversation(
    const std::string& path,
    const std::function<Status(const Conversation& chat, const std::string& where)>& visit) {
  TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  std::string_view rest = text;
  if (rest.starts_with("\xEF\xBB\xBF")) rest.remove_prefix(3);
  const auto show = [&](const Json& record, const std::string& where) -> Status {
    TESSERA_ASSIGN_OR_RETURN(const Conversation chat, ConversationOf(record, where));
    return visit(chat, where);
  };
  const size_t first = rest.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && rest[first] == '[') {
    TESSERA_ASSIGN_OR_RETURN(const Json array, ParseInOrder(rest, path));
    for (size_t i = 0; i < array.size(); ++i) {
      TESSERA_RETURN_IF_ERROR(show(array[i], Concat(path, "[", i, "]")));
    }
    return OkStatus();
  }
  for (size_t number = 1; !rest.empty(); ++number) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string where = Concat(path, ":", number);
    TESSERA_ASSIGN_OR_RETURN(const Json record, ParseInOrder(line, where));
    TESSERA_RETURN_IF_ERROR(show(record, where));
  }
  return OkStatus();
}

}  // namespace tessera::data
