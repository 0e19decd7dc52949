// SPDX-License-Identifier: Apache-2.0
// A conversation with a model, here or on a server: `tessera generate --chat`.
#ifndef TESSERA_TOOLS_CHAT_H_
#define TESSERA_TOOLS_CHAT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "data/chat/chat_format.h"
#include "data/chat/conversation.h"
#include "data/tokenizer/tokenizer.h"
#include "models/generation/generation_config.h"
#include "models/generation/grammar/token_grammar.h"
#include "models/model.h"

namespace tessera::tools {

// Prints the answer to a conversation as it is written, and returns it. Answers of different turns
// are sampled by other numbers.
using Answer = std::function<StatusOr<std::string>(const data::Conversation& chat, uint64_t turn)>;

// Who answers in this process, and how.
struct ChatPartner {
  const models::Model& model;
  const data::Tokenizer& tokenizer;
  const data::ChatFormat& format;
  models::GenerationConfig config;  // of an answer; the token that ends a turn ends it as well
  std::shared_ptr<const models::TokenGrammar> grammar = nullptr;  // what an answer must fit
};
Answer AnswerOf(ChatPartner partner);

// Answers the conversation in a file: a JSON array of messages, or one object as
// data/chat/conversation.h has them. "-": standard input.
Status AnswerMessages(const Answer& answer, const std::string& path);

// Answers standard input line by line, with all that was said before; `system` (empty: none) begins
// the conversation, /clear forgets it, /exit or the end of input ends it. What cannot be answered
// is said in one line on standard error, and forgotten.
Status Converse(const Answer& answer, const std::string& system);

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_CHAT_H_
