// SPDX-License-Identifier: Apache-2.0
#include "models/hub/gguf/gguf_tokenizer.h"

#include <string_view>
#include <utility>

#include "models/hub/gguf/gguf_bpe.h"
#include "models/hub/gguf/gguf_sentence_piece.h"
#include "models/hub/gguf/gguf_tokens.h"

namespace tessera::models {

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
  TESSERA_RETURN_IF_ERROR(file.Read(kGgufTemplateKey, &chat));
  if (!chat.empty()) files[std::string(kChatTemplateFile)] = std::move(chat);
  return files;
}

}  // namespace tessera::models
