// SPDX-License-Identifier: Apache-2.0
// The message that an assistant's answer is, of the parts that data/chat/answer_reader.h finds.
//
//   AnswerMessage message;
//   for (AnswerPart& part : reader.Finish()) message.Add(std::move(part), "call_0");
//   chat.messages->push_back(message.Json());
#ifndef TESSERA_DATA_CHAT_ANSWER_MESSAGE_H_
#define TESSERA_DATA_CHAT_ANSWER_MESSAGE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "data/chat/answer_reader.h"
#include "data/tokenizer/tokenizer.h"
#include "nlohmann/json.hpp"

namespace tessera::data {

// {"id", "type": "function", "function": {"name", "arguments"}} of a part that is a call.
nlohmann::ordered_json CallJson(const AnswerPart& call, const std::string& id);

class AnswerMessage {
 public:
  // `call_id` is that of a call, and unused for other parts.
  void Add(AnswerPart part, const std::string& call_id);
  int64_t num_calls() const { return static_cast<int64_t>(calls_.size()); }

  // {"role", "content", "reasoning_content", "tool_calls"}; content is null where there are calls
  // and no words, and the last two are there where there are any.
  nlohmann::ordered_json Json() const;

 private:
  std::string content_;
  std::string reasoning_;
  nlohmann::ordered_json calls_ = nlohmann::ordered_json::array();
};

// Whether the last part of a prompt is "<think>" that nothing has closed: the answer begins within
// its reasoning.
bool EndsInReasoning(const Tokenizer& tokenizer, const std::vector<int32_t>& ids);

}  // namespace tessera::data

#endif  // TESSERA_DATA_CHAT_ANSWER_MESSAGE_H_
