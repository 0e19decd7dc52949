// SPDX-License-Identifier: Apache-2.0
#include "models/hub/gguf/gguf_tokenizer.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json_text.h"
#include "models/hub/gguf/gguf_bpe.h"
#include "models/hub/gguf/gguf_sentence_piece.h"
#include "models/hub/gguf/gguf_tokens.h"
#include "nlohmann/json.hpp"

namespace tessera::models {
namespace {

using nlohmann::json;

// In tokenizer_config.json, since a mounted folder has no folders.
Status AddNamedTemplates(const GgufFile& file, const std::vector<std::string>& names,
                         const std::string& chat, FolderTexts* files) {
  json templates = json::array();
  if (!chat.empty()) templates.push_back({{"name", "default"}, {"template", chat}});
  for (const std::string& name : names) {
    std::string text;
    TESSERA_RETURN_IF_ERROR(file.Read(Concat(kGgufTemplateKey, ".", name), &text));
    if (!text.empty()) templates.push_back({{"name", name}, {"template", text}});
  }
  std::string& config_text = (*files)[kTokenizerConfig];
  TESSERA_ASSIGN_OR_RETURN(json config, ParseJson(config_text, file.path()));
  config["chat_template"] = std::move(templates);
  config_text = ConfigText(config);
  return OkStatus();
}

}  // namespace

StatusOr<FolderTexts> TokenizerOfGguf(const GgufFile& file) {
  std::string model = "none";
  TESSERA_RETURN_IF_ERROR(file.Read("tokenizer.ggml.model", &model));
  if (model == "none" || model == "no_vocab") return FolderTexts();
  if (model != "gpt2" && model != "llama") {
    return InvalidArgument(file.path(), ": key 'tokenizer.ggml.model': '", model,
                           "' is not supported; gpt2 and llama are");
  }
  TESSERA_ASSIGN_OR_RETURN(FolderTexts files,
                           model == "gpt2" ? BpeOfGguf(file) : SentencePieceOfGguf(file));
  std::string chat;
  std::vector<std::string> names;
  TESSERA_RETURN_IF_ERROR(file.Read(kGgufTemplateKey, &chat));
  TESSERA_RETURN_IF_ERROR(file.Read(kGgufTemplateNamesKey, &names));
  if (!names.empty()) {
    TESSERA_RETURN_IF_ERROR(AddNamedTemplates(file, names, chat, &files));
  } else if (!chat.empty()) {
    files[std::string(kChatTemplateFile)] = std::move(chat);
  }
  return files;
}

}  // namespace tessera::models
