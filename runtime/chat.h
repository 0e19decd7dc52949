// SPDX-License-Identifier: Apache-2.0
// Conversations that a host gives, as the model's chat template writes them.
#ifndef TESSERA_RUNTIME_CHAT_H_
#define TESSERA_RUNTIME_CHAT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "data/chat/conversation.h"
#include "runtime/model.h"

namespace tessera::runtime {

struct ChatPrompt {
  data::Conversation chat;
  std::vector<int32_t> ids;
};

// NotFound for a model without a template or a tokenizer. Messages begin with "messages".
StatusOr<ChatPrompt> ChatPromptOf(const tsr_model& model, const char* messages, size_t length);

}  // namespace tessera::runtime

#endif  // TESSERA_RUNTIME_CHAT_H_
