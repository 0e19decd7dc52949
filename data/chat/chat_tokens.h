// SPDX-License-Identifier: Apache-2.0
// Conversations as token ids, and which of them the assistant wrote.
//
//   TESSERA_ASSIGN_OR_RETURN(const ChatTokens tokens, TokenizeChat(format, tokenizer, chat));
//   tokens.ids;                    // of the whole conversation, as the template writes it
//   tokens.answers;                // {{12, 20}, {31, 44}}: the assistant's, in order
//   tokens.AssistantMask()[12];    // true
//
// The ids are those of apply_chat_template(tokenize=True): of the rendered text, without the
// special tokens that the tokenizer puts around texts, since templates write their own.
#ifndef TESSERA_DATA_CHAT_CHAT_TOKENS_H_
#define TESSERA_DATA_CHAT_CHAT_TOKENS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/status.h"
#include "data/chat/chat_format.h"
#include "data/chat/conversation.h"
#include "data/tokenizer/tokenizer.h"

namespace tessera::data {

// A conversation in a model's tokens.
struct ChatTokens {
  // Tokens [begin, end).
  struct Span {
    size_t begin;
    size_t end;
    friend bool operator==(const Span&, const Span&) = default;
  };
  std::vector<int32_t> ids;
  // In order, none of them empty. What is before the last is the prompt of the last answer.
  std::vector<Span> answers;

  // For each token whether it is in an answer.
  std::vector<bool> AssistantMask() const;
};

// Where a template has `{% generation %}` blocks, an answer is what one of them encloses, as in
// transformers' return_assistant_tokens_mask: all tokens that have a part of it (there, of a last
// character that is several tokens, the first alone). Of other templates it is what each
// assistant's message adds to the conversation before it with a generation prompt, the token that
// ends the turn included; white space behind that token is the template's. A message whose "weight"
// is 0 has no answer.
//
// InvalidArgument, which names the message, for a template without such blocks that writes the
// beginning of a conversation otherwise than the same messages by themselves (it drops reasoning of
// earlier turns, or moves tools to the last question), and for what the template itself refuses.
StatusOr<ChatTokens> TokenizeChat(const ChatFormat& format, const Tokenizer& tokenizer,
                                  const Conversation& chat);

// A conversation with what an answer begins with behind it (add_generation_prompt).
StatusOr<std::vector<int32_t>> TokenizePrompt(const ChatFormat& format, const Tokenizer& tokenizer,
                                              const Conversation& chat);

// The special token that ends the assistant's turn ("<|im_end|>"), which ends a text that a model
// writes as its end-of-text token does; nullopt where the template writes none.
std::optional<int32_t> EndOfTurn(const ChatFormat& format, const Tokenizer& tokenizer);

}  // namespace tessera::data

#endif  // TESSERA_DATA_CHAT_CHAT_TOKENS_H_
