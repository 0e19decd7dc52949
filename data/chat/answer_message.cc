// SPDX-License-Identifier: Apache-2.0
#include "data/chat/answer_message.h"

#include <algorithm>
#include <utility>

#include "base/utf8.h"

namespace tessera::data {

using nlohmann::ordered_json;

ordered_json CallJson(const AnswerPart& call, const std::string& id) {
  return {{"id", id},
          {"type", "function"},
          {"function", {{"name", call.name}, {"arguments", call.text}}}};
}

void AnswerMessage::Add(AnswerPart part, const std::string& call_id) {
  switch (part.kind) {
    case AnswerPart::Kind::kContent:
      content_ += part.text;
      break;
    case AnswerPart::Kind::kReasoning:
      reasoning_ += part.text;
      break;
    case AnswerPart::Kind::kCall:
      calls_.push_back(CallJson(part, call_id));
      break;
  }
}

ordered_json AnswerMessage::Json() const {
  ordered_json message = {{"role", "assistant"}};
  const std::string text = ReplaceInvalidUtf8(content_);
  const bool silent = text.find_first_not_of(" \t\r\n") == std::string::npos;
  message["content"] = silent && !calls_.empty() ? ordered_json() : ordered_json(text);
  if (!reasoning_.empty()) message["reasoning_content"] = ReplaceInvalidUtf8(reasoning_);
  if (!calls_.empty()) message["tool_calls"] = calls_;
  return message;
}

bool EndsInReasoning(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  constexpr size_t kLooked = 16;
  std::string end;
  for (size_t i = ids.size() - std::min(ids.size(), kLooked); i < ids.size(); ++i) {
    end += tokenizer.TokenBytes(ids[i]);
  }
  end.erase(end.find_last_not_of(" \t\r\n") + 1);
  return end.ends_with("<think>");
}

}  // namespace tessera::data
