// SPDX-License-Identifier: Apache-2.0
#include "data/chat/chat_tokens.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "nlohmann/json.hpp"

namespace tessera::data {
namespace {

using Json = nlohmann::ordered_json;

// Where the bytes of a text lie among its tokens.
class TokenPlaces {
 public:
  TokenPlaces(const Tokenizer& tokenizer, std::string_view text, const std::vector<int32_t>& ids)
      : tokenizer_(tokenizer), text_(text), ids_(ids) {
    size_t at = 0;
    for (const int32_t id : ids) {
      const std::string_view bytes = tokenizer.TokenBytes(id);
      spelled_out_ = spelled_out_ && text.substr(at).starts_with(bytes);
      if (!spelled_out_) break;
      at += bytes.size();
    }
    spelled_out_ = spelled_out_ && at == text.size();
  }

  // Tokens that have a part of the text's bytes [begin, end).
  ChatTokens::Span Of(size_t begin, size_t end) const {
    const Place first = Reach(begin);
    const Place last = Reach(end);
    return {first.token, last.token + (last.bytes > 0 ? 1 : 0)};
  }

 private:
  // Tokens that end at or before a byte, and how many bytes of the one behind them do.
  struct Place {
    size_t token;
    size_t bytes;
  };

  Place Reach(size_t offset) const {
    if (spelled_out_) return Advance({0, offset});
    // A normaliser changed the text, or a blank was put before it. Both texts begin alike, so what
    // their tokens have in common stands for the same text, and the rest has as many bytes.
    const std::vector<int32_t> part = tokenizer_.Encode(text_.substr(0, offset));
    const auto [mine, other] = std::mismatch(ids_.begin(), ids_.end(), part.begin(), part.end());
    size_t bytes = 0;
    for (auto id = other; id != part.end(); ++id) bytes += tokenizer_.TokenBytes(*id).size();
    return Advance({static_cast<size_t>(mine - ids_.begin()), bytes});
  }

  Place Advance(Place place) const {
    while (place.token < ids_.size() && place.bytes > 0) {
      const size_t size = tokenizer_.TokenBytes(ids_[place.token]).size();
      if (size > place.bytes) break;
      place.bytes -= size;
      ++place.token;
    }
    if (place.token == ids_.size()) place.bytes = 0;
    return place;
  }

  const Tokenizer& tokenizer_;
  const std::string_view text_;
  const std::vector<int32_t>& ids_;
  bool spelled_out_ = true;  // the tokens' bytes are the text
};

bool IsAssistants(const Json& message) {
  return message.is_object() && message.contains("role") && message["role"] == "assistant";
}

// OpenAI's fine-tuning has a weight of 0 where an assistant's message is not learnt.
bool IsLearnt(const Json& message) {
  return IsAssistants(message) && (!message.contains("weight") || message["weight"] != 0);
}

// Takes white space, or a special token, off the end of a text.
bool TakeOffEnd(const Tokenizer& tokenizer, std::string_view* text) {
  const size_t kept = text->find_last_not_of(" \t\r\n") + 1;  // npos + 1 is 0
  if (kept < text->size()) {
    text->remove_suffix(text->size() - kept);
    return true;
  }
  for (const SpecialToken& token : tokenizer.special_tokens()) {
    if (token.content.empty() || !text->ends_with(token.content)) continue;
    text->remove_suffix(token.content.size());
    return true;
  }
  return false;
}

// With how many of its bytes the text of the first messages begins the whole text. Some templates
// end every text, so also this part, with a token of its own.
std::optional<size_t> LengthWithin(std::string_view whole, const Tokenizer& tokenizer,
                                   std::string_view part) {
  while (!whole.starts_with(part)) {
    if (!TakeOffEnd(tokenizer, &part)) return std::nullopt;
  }
  return part.size();
}

Status CannotBeTold(size_t message, const char* remedy) {
  return InvalidArgument("messages[", message,
                         "]: the chat template writes the messages up to it otherwise in the ",
                         "whole conversation than by themselves, so that the assistant's part ",
                         "cannot be told", remedy);
}

// What the assistant's messages add to a template's text without marks in it.
StatusOr<std::vector<Rendering::Span>> AddedSpans(const ChatFormat& format,
                                                  const Tokenizer& tokenizer,
                                                  const Conversation& chat,
                                                  std::string_view whole) {
  std::vector<Rendering::Span> spans;
  Conversation part = {.tools = chat.tools, .variables = chat.variables};
  for (size_t k = 0; k < chat.messages->size(); ++k) {
    const Json& message = chat.messages[k];
    if (!IsLearnt(message)) {
      part.messages->push_back(message);
      continue;
    }
    TESSERA_ASSIGN_OR_RETURN(const Rendering before, format.Render(part, /*prompts=*/true));
    part.messages->push_back(message);
    TESSERA_ASSIGN_OR_RETURN(const Rendering after, format.Render(part));
    const std::optional<size_t> end = LengthWithin(whole, tokenizer, after.text);
    const size_t begin = before.text.size();
    const bool tells =
        after.text.starts_with(before.text) && end && (*end > begin || *end == after.text.size());
    if (!tells) {
      return CannotBeTold(k, "; the template can mark it by {% generation %} blocks");
    }
    spans.push_back({begin, *end});
  }
  return spans;
}

// Of what a template marks, the part of messages that are learnt. A mark is of the message behind
// whose predecessors it begins.
StatusOr<std::vector<Rendering::Span>> LearntSpans(const ChatFormat& format,
                                                   const Tokenizer& tokenizer,
                                                   const Conversation& chat,
                                                   const Rendering& whole) {
  std::vector<size_t> turns;  // where what is learnt begins and ends, in turns
  bool learns = true;
  Conversation part = {.tools = chat.tools, .variables = chat.variables};
  for (size_t k = 0; k < chat.messages->size(); ++k) {
    const Json& message = chat.messages[k];
    if (IsAssistants(message) && IsLearnt(message) != learns) {
      learns = !learns;
      Rendering before;
      if (k > 0) {
        TESSERA_ASSIGN_OR_RETURN(before, format.Render(part));
      }
      const std::optional<size_t> begin = LengthWithin(whole.text, tokenizer, before.text);
      if (!begin) return CannotBeTold(k, ", as its 'weight' needs");
      turns.push_back(*begin);
    }
    part.messages->push_back(message);
  }
  std::vector<Rendering::Span> spans;
  for (const Rendering::Span& span : whole.generated) {
    const auto before = std::upper_bound(turns.begin(), turns.end(), span.begin) - turns.begin();
    if (before % 2 == 0) spans.push_back(span);
  }
  return spans;
}

// Without the white space behind the token that ends the turn.
void TrimBehindEnd(const Tokenizer& tokenizer, const std::vector<int32_t>& ids,
                   ChatTokens::Span* span) {
  const auto is_blank = [&](int32_t id) {
    return !tokenizer.IsSpecial(id) &&
           tokenizer.TokenBytes(id).find_first_not_of(" \t\r\n") == std::string_view::npos;
  };
  size_t end = span->end;
  while (end > span->begin && is_blank(ids[end - 1])) --end;
  if (end > span->begin && tokenizer.IsSpecial(ids[end - 1])) span->end = end;
}

}  // namespace

std::vector<bool> ChatTokens::AssistantMask() const {
  std::vector<bool> mask(ids.size(), false);
  for (const Span& span : answers) {
    std::fill(mask.begin() + static_cast<std::ptrdiff_t>(span.begin),
              mask.begin() + static_cast<std::ptrdiff_t>(span.end), true);
  }
  return mask;
}

StatusOr<ChatTokens> TokenizeChat(const ChatFormat& format, const Tokenizer& tokenizer,
                                  const Conversation& chat) {
  TESSERA_ASSIGN_OR_RETURN(const Rendering rendering, format.Render(chat));
  const bool marked = !rendering.generated.empty();
  TESSERA_ASSIGN_OR_RETURN(const std::vector<Rendering::Span> spans,
                           marked ? LearntSpans(format, tokenizer, chat, rendering)
                                  : AddedSpans(format, tokenizer, chat, rendering.text));
  ChatTokens tokens = {.ids = tokenizer.Encode(rendering.text), .answers = {}};
  const TokenPlaces places(tokenizer, rendering.text, tokens.ids);
  for (const Rendering::Span& span : spans) {
    ChatTokens::Span answer = places.Of(span.begin, span.end);
    if (!marked) TrimBehindEnd(tokenizer, tokens.ids, &answer);
    if (answer.begin < answer.end) tokens.answers.push_back(answer);
  }
  return tokens;
}

StatusOr<std::vector<int32_t>> TokenizePrompt(const ChatFormat& format, const Tokenizer& tokenizer,
                                              const Conversation& chat) {
  TESSERA_ASSIGN_OR_RETURN(const Rendering rendering, format.Render(chat, /*prompts=*/true));
  return tokenizer.Encode(rendering.text);
}

std::optional<int32_t> EndOfTurn(const ChatFormat& format, const Tokenizer& tokenizer) {
  Conversation chat;
  chat.messages->push_back({{"role", "user"}, {"content", "a"}});
  chat.messages->push_back({{"role", "assistant"}, {"content", "b"}});
  const auto tokens = TokenizeChat(format, tokenizer, chat);
  if (!tokens.ok() || tokens->answers.empty()) return std::nullopt;
  const size_t end = tokens->answers.back().end;
  for (size_t i = end - 1; i < std::min(end + 1, tokens->ids.size()); ++i) {
    if (tokenizer.IsSpecial(tokens->ids[i])) return tokens->ids[i];
  }
  return std::nullopt;
}

}  // namespace tessera::data
