// SPDX-License-Identifier: Apache-2.0
#include "models/hub/gguf/gguf_tokenizer.h"

#include <string_view>
#include <utility>

#include "base/mounted_folder.h"
#include "data/tokenizer/tokenizer.h"
#include "models/hub/gguf/gguf_bpe.h"
#include "models/hub/gguf/gguf_sentence_piece.h"
#include "models/hub/gguf/gguf_tokens.h"

namespace tessera::models {
namespace {

constexpr std::string_view kTemplateKey = "tokenizer.chat_template";
constexpr std::string_view kTemplateFile = "chat_template.jinja";

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
  TESSERA_RETURN_IF_ERROR(file.Read(kTemplateKey, &chat));
  if (!chat.empty()) files[std::string(kTemplateFile)] = std::move(chat);
  // A tokenizer that cannot be read again is refused; other programs want files of their own.
  const MountedFolder folder(file.path(), MountedTexts(files));
  const auto loaded = data::LoadTokenizer(folder.path());
  if (!loaded.ok()) {
    return InvalidArgument(file.path(),
                           ": its tokenizer cannot be read: ", Message(loaded.status()));
  }
  for (data::TokenizerFile& more : (*loaded)->FilesToSave()) {
    files[more.name] = std::move(more.content);
  }
  return files;
}

}  // namespace tessera::models
