// SPDX-License-Identifier: Apache-2.0
#include "runtime/chat.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "data/chat/answer_message.h"
#include "data/chat/answer_reader.h"
#include "data/chat/chat_tokens.h"
#include "data/chat/chat_tools.h"
#include "data/tokenizer/streaming_decoder.h"
#include "runtime/border.h"
#include "runtime/give_out.h"
#include "runtime/handles.h"
#include "runtime/tessera.h"

namespace tessera::runtime {

StatusOr<ChatPrompt> ChatPromptOf(const tsr_model& model, const char* messages, size_t length) {
  TESSERA_RETURN_IF_ERROR(CheckArray(messages, length, "messages"));
  TESSERA_RETURN_IF_ERROR(model.chat.status());
  TESSERA_ASSIGN_OR_RETURN(const data::Tokenizer* const tokenizer, TokenizerOf(model));
  ChatPrompt prompt;
  TESSERA_ASSIGN_OR_RETURN(
      prompt.chat, data::ParseConversation({length == 0 ? "" : messages, length}, "messages"));
  TESSERA_ASSIGN_OR_RETURN(prompt.ids, data::TokenizePrompt(*model.chat, *tokenizer, prompt.chat));
  return prompt;
}

namespace {

Status GivePrompt(const tsr_model* model, const char* messages, size_t length, int64_t* ids,
                  size_t capacity, size_t* count) {
  TESSERA_ASSIGN_OR_RETURN(const Pin pin, Pin::Share(model, HandleKind::kModel));
  TESSERA_RETURN_IF_ERROR(CheckGiven(count, "count"));
  TESSERA_RETURN_IF_ERROR(CheckArray(ids, capacity, "ids"));
  TESSERA_ASSIGN_OR_RETURN(const ChatPrompt prompt, ChatPromptOf(*model, messages, length));
  const std::vector<int64_t> all(prompt.ids.begin(), prompt.ids.end());
  return GiveOut(all, ids, capacity, count, "tokens");
}

// How the answer to a prompt is read, and which special tokens are marks in it.
struct Reading {
  data::AnswerReaderOptions options = {};
  std::vector<int32_t> marks = {};
};
StatusOr<Reading> ReadingOf(const tsr_model& model, const ChatPrompt& prompt) {
  Reading reading;
  const bool has_tools = prompt.chat.tools->is_array() && !prompt.chat.tools->empty();
  const std::string chat_template = model.chat->text(has_tools);
  TESSERA_ASSIGN_OR_RETURN(const std::vector<data::ChatTool> tools,
                           data::ChatToolsOf(&*prompt.chat.tools));
  for (const data::ChatTool& tool : tools) reading.options.names.insert(tool.name);
  if (!tools.empty()) reading.options.calls = data::CallFormOf(chat_template);
  reading.options.reasons = data::KnowsReasoning(chat_template);
  if (reading.options.reasons && data::EndsInReasoning(*model.tokenizer, prompt.ids)) {
    reading.options.begin = data::AnswerReaderOptions::Begin::kReasoning;
  }
  for (const std::string& mark : data::MarksOf(reading.options.calls, reading.options.reasons)) {
    if (const auto id = model.tokenizer->FindSpecial(mark)) reading.marks.push_back(*id);
  }
  return reading;
}

// The text of an answer; of special tokens, marks alone have any.
StatusOr<std::string> AnswerText(const tsr_model& model, const Reading& reading, const int64_t* ids,
                                 size_t n) {
  std::string text;
  data::StreamingDecoder decoder(*model.tokenizer, {.skip_special = true}, /*follows_text=*/false);
  for (size_t i = 0; i < n; ++i) {
    if (ids[i] < 0 || ids[i] >= model.model->vocab_size()) {
      return InvalidArgument("ids: ", ids[i], " (position ", i, ") is no token");
    }
    const auto id = static_cast<int32_t>(ids[i]);
    const bool shown = std::ranges::find(reading.marks, id) != reading.marks.end();
    text += shown ? decoder.PushShown(id) : decoder.Push(id);
  }
  return text + decoder.Finish();
}

Status GiveMessage(const tsr_model* model, const char* messages, size_t length, const int64_t* ids,
                   size_t n, char* json, size_t capacity, size_t* json_length) {
  TESSERA_ASSIGN_OR_RETURN(const Pin pin, Pin::Share(model, HandleKind::kModel));
  TESSERA_RETURN_IF_ERROR(CheckGiven(json_length, "json_length"));
  TESSERA_RETURN_IF_ERROR(CheckArray(ids, n, "ids"));
  TESSERA_RETURN_IF_ERROR(CheckArray(json, capacity, "json"));
  TESSERA_ASSIGN_OR_RETURN(const ChatPrompt prompt, ChatPromptOf(*model, messages, length));
  TESSERA_ASSIGN_OR_RETURN(const Reading reading, ReadingOf(*model, prompt));
  TESSERA_ASSIGN_OR_RETURN(const std::string text, AnswerText(*model, reading, ids, n));
  data::AnswerReader reader(reading.options);
  data::AnswerMessage message;
  const auto add = [&](std::vector<data::AnswerPart> parts) {
    for (data::AnswerPart& part : parts) {
      message.Add(std::move(part), Concat("call_", message.num_calls()));
    }
  };
  add(reader.Push(text));
  add(reader.Finish());
  const std::string written = message.Json().dump();
  return GiveOut(std::vector<char>(written.begin(), written.end()), json, capacity, json_length,
                 "bytes of JSON");
}

}  // namespace
}  // namespace tessera::runtime

using tessera::runtime::AtBorder;

tsr_status* tsr_chat_prompt(const tsr_model* model, const char* messages, size_t length,
                            int64_t* ids, size_t capacity, size_t* count) {
  return AtBorder(
      [&] { return tessera::runtime::GivePrompt(model, messages, length, ids, capacity, count); });
}

tsr_status* tsr_chat_message(const tsr_model* model, const char* messages, size_t length,
                             const int64_t* ids, size_t n, char* json, size_t capacity,
                             size_t* json_length) {
  return AtBorder([&] {
    return tessera::runtime::GiveMessage(model, messages, length, ids, n, json, capacity,
                                         json_length);
  });
}
