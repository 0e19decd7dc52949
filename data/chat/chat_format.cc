// SPDX-License-Identifier: Apache-2.0
#include "data/chat/chat_format.h"

#include <utility>

#include "base/file.h"
#include "base/json_text.h"
#include "nlohmann/json.hpp"

namespace tessera::data {
namespace {

using nlohmann::json;
using Json = nlohmann::ordered_json;

StatusOr<json> ObjectOf(const std::optional<std::string>& text, const std::string& path) {
  if (!text) return json::object();
  TESSERA_ASSIGN_OR_RETURN(json object, ParseJson(*text, path));
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

auto FilesOf(const std::string& folder) {
  return [folder](const std::string& name) -> StatusOr<std::optional<std::string>> {
    const std::string path = JoinPath(folder, name);
    if (!PathExists(path)) return std::optional<std::string>();
    TESSERA_ASSIGN_OR_RETURN(std::string text, ReadFile(path));
    return std::optional(std::move(text));
  };
}

}  // namespace

StatusOr<ChatFormat> ChatFormat::OfFiles(const std::string& folder, const FileReader& read) {
  ChatFormat format;
  const auto object_of = [&](const std::string& name) -> StatusOr<json> {
    TESSERA_ASSIGN_OR_RETURN(const auto text, read(name));
    format.fingerprint_ = HashBytes(text.value_or("") + '\0', format.fingerprint_);
    return ObjectOf(text, JoinPath(folder, name));
  };
  const char* const config_name = "tokenizer_config.json";
  TESSERA_ASSIGN_OR_RETURN(const json map, object_of("special_tokens_map.json"));
  TESSERA_ASSIGN_OR_RETURN(const json config, object_of(config_name));
  TakeTokens(map, &*format.tokens_);
  TakeTokens(config, &*format.tokens_);
  if (config.contains("chat_template") && !config["chat_template"].is_null()) {
    TESSERA_RETURN_IF_ERROR(
        AddDeclared(config["chat_template"], JoinPath(folder, config_name), &format.templates_));
  }
  for (const auto& [name, file] : {std::pair("default", "chat_template.jinja"),
                                   {"tool_use", "additional_chat_templates/tool_use.jinja"}}) {
    TESSERA_ASSIGN_OR_RETURN(const auto text, read(file));
    format.fingerprint_ = HashBytes(text.value_or("") + '\0', format.fingerprint_);
    if (!text) continue;
    TESSERA_RETURN_IF_ERROR(Add(name, *text, JoinPath(folder, file), &format.templates_));
  }
  if (format.templates_.empty()) {
    return NotFound(folder.empty() ? "the tokenizer" : "'" + folder + "'",
                    " has no chat template (chat_template.jinja, or 'chat_template' ",
                    "of tokenizer_config.json)");
  }
  return format;
}

StatusOr<ChatFormat> ChatFormat::OfFolder(const std::string& folder) {
  return OfFiles(folder, FilesOf(folder));
}

StatusOr<ChatFormat> ChatFormat::OfFolderWithoutPath(const std::string& folder) {
  return OfFiles("", FilesOf(folder));
}

StatusOr<ChatFormat> ChatFormat::OfTokenizer(const Tokenizer& tokenizer) {
  const auto read = [&](const std::string& name) -> StatusOr<std::optional<std::string>> {
    for (const TokenizerFile& file : tokenizer.source_files()) {
      if (file.name == name) return std::optional(file.content);
    }
    return std::optional<std::string>();
  };
  return OfFiles("", read);
}

std::string ChatFormat::text(bool tools) const {
  auto found = templates_.find(tools ? "tool_use" : "default");
  if (found == templates_.end()) found = templates_.find("default");
  return found == templates_.end() ? std::string() : found->second.text();
}

StatusOr<Rendering> ChatFormat::Render(const Conversation& chat, bool prompts) const {
  auto found = templates_.find(chat.tools->is_null() ? "default" : "tool_use");
  if (found == templates_.end()) found = templates_.find("default");
  if (found == templates_.end()) {
    return InvalidArgument("the folder's chat templates are named ", templates_.begin()->first,
                           " and the like; none of them is the default");
  }
  Json variables = tokens_;
  variables["documents"] = nullptr;
  variables.update(*chat.variables);
  variables["messages"] = chat.messages;
  variables["tools"] = chat.tools;
  variables["add_generation_prompt"] = prompts;
  return found->second.Render(variables);
}

}  // namespace tessera::data
