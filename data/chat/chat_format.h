// How a model folder's conversations look: its chat template, and the special tokens that templates
// ask for.
//
//   TESSERA_ASSIGN_OR_RETURN(const ChatFormat format, ChatFormat::OfFolder("llama-folder"));
//   TESSERA_ASSIGN_OR_RETURN(const Rendering text, format.Render(chat, /*prompts=*/true));
//
// The template is `chat_template.jinja`, or `chat_template` of tokenizer_config.json, there one
// text or a list of named ones, of which `tool_use` serves conversations with tools and `default`
// all others, as do `additional_chat_templates/NAME.jinja`.
#ifndef TESSERA_DATA_CHAT_CHAT_FORMAT_H_
#define TESSERA_DATA_CHAT_CHAT_FORMAT_H_

#include <map>
#include <string>

#include "core/status.h"
#include "data/chat/chat_template.h"
#include "data/chat/conversation.h"
#include "nlohmann/json.hpp"

namespace tessera::data {

class ChatFormat {
 public:
  // NotFound for a folder without a template.
  static StatusOr<ChatFormat> OfFolder(const std::string& folder);

  // `prompts`: what an answer begins with stands at the end (add_generation_prompt).
  StatusOr<Rendering> Render(const Conversation& chat, bool prompts = false) const;

 private:
  std::map<std::string, ChatTemplate> templates_;  // by name
  nlohmann::ordered_json tokens_ = nlohmann::ordered_json::object();
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_CHAT_CHAT_FORMAT_H_
