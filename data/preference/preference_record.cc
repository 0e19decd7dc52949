// SPDX-License-Identifier: Apache-2.0
#include "data/preference/preference_record.h"

#include <algorithm>
#include <array>
#include <utility>

#include "nlohmann/json.hpp"

namespace tessera::data {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kPrompt[] = "prompt";
constexpr std::array<const char*, 2> kCompletions = {"chosen", "rejected"};

bool Has(const Json& record, const char* key) {
  return record.contains(key) && !record[key].is_null();
}

// A list of objects with a role.
bool AreMessages(const Json& value) {
  return value.is_array() && !value.empty() &&
         std::all_of(value.begin(), value.end(), [](const Json& message) {
           return message.is_object() && message.contains("role") && message["role"].is_string();
         });
}

Status CheckMember(const Json& record, const char* key, bool messages, const std::string& where) {
  if (!Has(record, key)) return InvalidArgument(where, ": has no '", key, "'");
  if (messages ? AreMessages(record[key]) : record[key].is_string()) return OkStatus();
  return InvalidArgument(
      where, ": '", key, "' is ",
      messages ? "no list of messages, each with a 'role', as 'chosen' is" : "no text");
}

// The messages that both begin with.
Json CommonBegin(const Json& a, const Json& b) {
  Json common = Json::array();
  for (size_t i = 0; i < std::min(a.size(), b.size()) && a[i] == b[i]; ++i) common.push_back(a[i]);
  return common;
}

Json Joined(const Json& a, const Json& b) {
  Json all = a;
  for (const Json& message : b) all.push_back(message);
  return all;
}

}  // namespace

PreferenceEncoder::PreferenceEncoder(const Tokenizer& tokenizer)
    : tokenizer_(tokenizer), begin_(tokenizer.text_begin()) {
  StatusOr<ChatFormat> format = ChatFormat::OfTokenizer(tokenizer);
  if (format.ok()) {
    chats_ = *std::move(format);
  } else {
    no_chats_ = Message(format.status());
  }
}

StatusOr<EncodedPair> PreferenceEncoder::Encode(const Json& record,
                                                const std::string& where) const {
  if (!record.is_object()) return InvalidArgument(where, ": not a JSON object");
  if (!Has(record, "chosen")) return InvalidArgument(where, ": has no 'chosen'");
  const Json& chosen = record["chosen"];
  if (!chosen.is_string() && !AreMessages(chosen)) {
    return InvalidArgument(where,
                           ": 'chosen' is neither a text nor a list of messages, each with a "
                           "'role'");
  }
  return chosen.is_string() ? EncodeTexts(record, where) : EncodeMessages(record, where);
}

StatusOr<EncodedPair> PreferenceEncoder::EncodeTexts(const Json& record,
                                                     const std::string& where) const {
  for (const char* key : {kPrompt, kCompletions[0], kCompletions[1]}) {
    TESSERA_RETURN_IF_ERROR(CheckMember(record, key, /*messages=*/false, where));
  }
  if (!tokenizer_.eos_id()) {
    return InvalidArgument(where,
                           ": completions end with the end-of-text token, and the tokenizer has "
                           "none");
  }
  TESSERA_ASSIGN_OR_RETURN(Prompt prompt,
                           PromptOf(record[kPrompt].get<std::string>(), begin_, where));
  std::array<std::vector<int32_t>, 2> completions;
  for (size_t i = 0; i < 2; ++i) {
    const std::string whole = prompt.text + record[kCompletions[i]].get<std::string>();
    TESSERA_ASSIGN_OR_RETURN(completions[i], Completion(prompt, whole, kCompletions[i], where));
    completions[i].push_back(*tokenizer_.eos_id());
  }
  return EncodedPair{std::move(prompt.ids), std::move(completions[0]), std::move(completions[1])};
}

StatusOr<EncodedPair> PreferenceEncoder::EncodeMessages(const Json& record,
                                                        const std::string& where) const {
  for (const char* key : kCompletions) {
    TESSERA_RETURN_IF_ERROR(CheckMember(record, key, /*messages=*/true, where));
  }
  if (!chats_) return InvalidArgument(where, ": is a conversation; ", no_chats_);
  Conversation chat;
  if (Has(record, "tools")) chat.tools = record["tools"];
  TESSERA_ASSIGN_OR_RETURN(chat.variables, TemplateVariablesOfRecord(record, where));
  std::array<Json, 2> whole;
  // A text beside messages repeats what they begin with (ultrafeedback_binarized).
  if (Has(record, kPrompt) && !record[kPrompt].is_string()) {
    TESSERA_RETURN_IF_ERROR(CheckMember(record, kPrompt, /*messages=*/true, where));
    chat.messages = record[kPrompt];
    for (size_t i = 0; i < 2; ++i) whole[i] = Joined(chat.messages, record[kCompletions[i]]);
  } else {
    chat.messages = CommonBegin(record["chosen"], record["rejected"]);
    for (size_t i = 0; i < 2; ++i) whole[i] = record[kCompletions[i]];
    if (chat.messages->empty()) {
      return InvalidArgument(where,
                             ": has no 'prompt', and 'chosen' and 'rejected' begin with different "
                             "messages");
    }
  }
  TESSERA_ASSIGN_OR_RETURN(std::string begin, Render(chat, /*prompts=*/true, where));
  TESSERA_ASSIGN_OR_RETURN(Prompt prompt, PromptOf(std::move(begin), {}, where));
  std::array<std::vector<int32_t>, 2> completions;
  for (size_t i = 0; i < 2; ++i) {
    chat.messages = whole[i];
    TESSERA_ASSIGN_OR_RETURN(const std::string text, Render(chat, /*prompts=*/false, where));
    TESSERA_ASSIGN_OR_RETURN(completions[i], Completion(prompt, text, kCompletions[i], where));
    if (completions[i].empty()) {
      return InvalidArgument(where, ": '", kCompletions[i], "' has no token");
    }
  }
  return EncodedPair{std::move(prompt.ids), std::move(completions[0]), std::move(completions[1])};
}

StatusOr<PreferenceEncoder::Prompt> PreferenceEncoder::PromptOf(std::string text,
                                                                std::vector<int32_t> front,
                                                                const std::string& where) const {
  Prompt prompt = {.text = std::move(text), .front = front, .ids = std::move(front)};
  tokenizer_.EncodeTo(prompt.text, {}, &prompt.ids);
  if (prompt.ids.empty()) return InvalidArgument(where, ": 'prompt' has no token");
  return prompt;
}

// What `whole` has behind the prompt, of the completion that messages call `name`.
StatusOr<std::vector<int32_t>> PreferenceEncoder::Completion(const Prompt& prompt,
                                                             const std::string& whole,
                                                             const char* name,
                                                             const std::string& where) const {
  if (!whole.starts_with(prompt.text)) {
    return InvalidArgument(where, ": what the chat template writes of '", name,
                           "' does not begin with what it writes of the prompt alone");
  }
  std::vector<int32_t> ids = prompt.front;
  tokenizer_.EncodeTo(whole, {}, &ids);
  const auto behind = std::ssize(prompt.ids);
  if (std::ssize(ids) < behind || !std::equal(prompt.ids.begin(), prompt.ids.end(), ids.begin())) {
    return InvalidArgument(where, ": the tokens of prompt and '", name,
                           "' do not begin with those of the prompt alone; a blank between the two "
                           "belongs to the completion");
  }
  ids.erase(ids.begin(), ids.begin() + behind);
  return ids;
}

StatusOr<std::string> PreferenceEncoder::Render(const Conversation& chat, bool prompts,
                                                const std::string& where) const {
  auto rendering = chats_->Render(chat, prompts);
  if (!rendering.ok()) return InvalidArgument(where, ": ", Message(rendering.status()));
  return std::move(rendering->text);
}

}  // namespace tessera::data
