// SPDX-License-Identifier: Apache-2.0
// How a model folder's conversations look: its chat template, and the special tokens that templates
// ask for.
//
//   TESSERA_ASSIGN_OR_RETURN(const ChatFormat format, ChatFormat::OfFolder("llama-folder"));
//   TESSERA_ASSIGN_OR_RETURN(const Rendering text, format.Render(chat, /*prompts=*/true));
//
// The template is `chat_template.jinja`, or `chat_template` of tokenizer_config.json, there one
// text or a list of named ones, of which `tool_use` serves conversations with tools and `default`
// all others; the former may also be `additional_chat_templates/tool_use.jinja`. A tokenizer that
// was loaded from a folder keeps these files, and saves them again.
#ifndef TESSERA_DATA_CHAT_CHAT_FORMAT_H_
#define TESSERA_DATA_CHAT_CHAT_FORMAT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "base/json_member.h"
#include "base/status.h"
#include "data/chat/chat_template.h"
#include "data/chat/conversation.h"
#include "data/tokenizer/tokenizer.h"
#include "nlohmann/json_fwd.hpp"

namespace tessera::data {

// A model folder's template. Immutable; safe from several threads.
class ChatFormat {
 public:
  // NotFound for a folder without a template. Messages begin with the path of a file.
  static StatusOr<ChatFormat> OfFolder(const std::string& folder);
  // Messages begin with a file's name alone: for those who may not know the path.
  static StatusOr<ChatFormat> OfFolderWithoutPath(const std::string& folder);
  // That of the folder which the tokenizer was loaded from.
  static StatusOr<ChatFormat> OfTokenizer(const Tokenizer& tokenizer);

  // `prompts`: what an answer begins with is at the end (add_generation_prompt).
  StatusOr<Rendering> Render(const Conversation& chat, bool prompts = false) const;
  // The template of conversations without tools, or with them; "": none is.
  std::string text(bool tools = false) const;
  // Equal for formats that render alike; part of the key of cached token files.
  uint64_t Fingerprint() const { return fingerprint_; }

 private:
  // The content of a file of the folder; nullopt: there is none.
  using FileReader = std::function<StatusOr<std::optional<std::string>>(const std::string& name)>;
  // `folder` begins messages; "": the name of a file does.
  static StatusOr<ChatFormat> OfFiles(const std::string& folder, const FileReader& read);

  std::map<std::string, ChatTemplate> templates_;  // by name
  OrderedJsonMember tokens_ = OrderedJsonMember::Object();
  uint64_t fingerprint_ = 0;
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_CHAT_CHAT_FORMAT_H_
