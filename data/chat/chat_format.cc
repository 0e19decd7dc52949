#include "data/chat/chat_format.h"

#include <filesystem>

#include "core/file.h"
#include "data/tokenizer/json_text.h"

namespace tessera::data {
namespace {

using nlohmann::json;
using Json = nlohmann::ordered_json;

StatusOr<json> ReadObject(const std::string& path) {
  if (!PathExists(path)) return json::object();
  TESSERA_ASSIGN_OR_RETURN(json object, ReadJsonFile(path));
  if (!object.is_object()) return InvalidArgument(path, ": not a JSON object");
  return object;
}

// {"bos_token": "<s>", "pad_token": {"content": "<pad>", ...}} as texts. What a file says last
// counts.
void TakeTokens(const json& object, Json* tokens) {
  for (const auto& [key, value] : object.items()) {
    if (!key.ends_with("_token")) continue;
    const json& text = value.is_object() && value.contains("content") ? value["content"] : value;
    if (text.is_string()) (*tokens)[key] = text.get<std::string>();
  }
}

Status Add(const std::string& name, const std::string& text, const std::string& source,
           std::map<std::string, ChatTemplate>* templates) {
  TESSERA_ASSIGN_OR_RETURN(ChatTemplate parsed, ChatTemplate::Parse(text, source));
  templates->insert_or_assign(name, std::move(parsed));
  return OkStatus();
}

Status AddDeclared(const json& declared, const std::string& source,
                   std::map<std::string, ChatTemplate>* templates) {
  if (declared.is_string()) return Add("default", declared.get<std::string>(), source, templates);
  if (!declared.is_array()) {
    return InvalidArgument(source, ": 'chat_template' must be a text or a list of named ones");
  }
  for (const json& one : declared) {
    const bool fits = one.is_object() && one.contains("name") && one["name"].is_string() &&
                      one.contains("template") && one["template"].is_string();
    if (!fits) {
      return InvalidArgument(source, ": 'chat_template' has an element without name and template");
    }
    const std::string name = one["name"].get<std::string>();
    TESSERA_RETURN_IF_ERROR(
        Add(name, one["template"].get<std::string>(), Concat(source, ": ", name), templates));
  }
  return OkStatus();
}

}  // namespace

StatusOr<ChatFormat> ChatFormat::OfFolder(const std::string& folder) {
  ChatFormat format;
  const std::string config_path = JoinPath(folder, "tokenizer_config.json");
  TESSERA_ASSIGN_OR_RETURN(const json map, ReadObject(JoinPath(folder, "special_tokens_map.json")));
  TESSERA_ASSIGN_OR_RETURN(const json config, ReadObject(config_path));
  TakeTokens(map, &format.tokens_);
  TakeTokens(config, &format.tokens_);
  if (config.contains("chat_template") && !config["chat_template"].is_null()) {
    TESSERA_RETURN_IF_ERROR(AddDeclared(config["chat_template"], config_path, &format.templates_));
  }
  const auto add_file = [&](const std::string& name, const std::string& path) -> Status {
    TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
    return Add(name, text, path, &format.templates_);
  };
  const std::string alone = JoinPath(folder, "chat_template.jinja");
  if (PathExists(alone)) TESSERA_RETURN_IF_ERROR(add_file("default", alone));
  const std::string more = JoinPath(folder, "additional_chat_templates");
  const std::string tools = JoinPath(more, "tool_use.jinja");
  if (PathExists(tools)) TESSERA_RETURN_IF_ERROR(add_file("tool_use", tools));
  if (format.templates_.empty()) {
    return NotFound("'", folder, "' has no chat template (chat_template.jinja, or 'chat_template' ",
                    "of tokenizer_config.json)");
  }
  return format;
}

StatusOr<Rendering> ChatFormat::Render(const Conversation& chat, bool prompts) const {
  auto found = templates_.find(chat.tools.is_null() ? "default" : "tool_use");
  if (found == templates_.end()) found = templates_.find("default");
  if (found == templates_.end()) {
    return InvalidArgument("the folder's chat templates are named ", templates_.begin()->first,
                           " and the like; none of them is the default");
  }
  Json variables = tokens_;
  variables["messages"] = chat.messages;
  variables["tools"] = chat.tools;
  variables["documents"] = nullptr;
  variables["add_generation_prompt"] = prompts;
  return found->second.Render(variables);
}

}  // namespace tessera::data
