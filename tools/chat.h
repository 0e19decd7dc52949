// A conversation with a model: `tessera generate --chat`.
#ifndef TESSERA_TOOLS_CHAT_H_
#define TESSERA_TOOLS_CHAT_H_

#include <string>

#include "core/status.h"
#include "data/chat/chat_format.h"
#include "data/chat/conversation.h"
#include "data/tokenizer/tokenizer.h"
#include "models/generation/generation_config.h"
#include "models/model.h"

namespace tessera::tools {

// Who answers, and how.
struct ChatPartner {
  const models::Model& model;
  const data::Tokenizer& tokenizer;
  const data::ChatFormat& format;
  models::GenerationConfig config;  // of an answer; the token that ends a turn ends it as well
};

// The conversation in a file: a JSON array of messages, or one object as data/chat/conversation.h
// has them. "-": standard input.
StatusOr<data::Conversation> ReadMessages(const std::string& path);

// Prints the answer to the conversation in a file, as it is written.
Status AnswerMessages(const ChatPartner& partner, const std::string& path);

// Answers standard input line by line, with all that was said before; `system` (empty: none) begins
// the conversation, /clear forgets it, /exit or the end of input ends it. What cannot be answered
// is said in one line on standard error, and forgotten.
Status Converse(const ChatPartner& partner, const std::string& system);

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_CHAT_H_
