// SPDX-License-Identifier: Apache-2.0
// POST /: what ChatGLM's own server answers, for every model that generates.
#include <algorithm>
#include <memory>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/utf8.h"
#include "data/chat/chat_tokens.h"
#include "models/open/answer_config.h"
#include "serve/answer.h"
#include "serve/endpoints/endpoints.h"
#include "serve/text_fields.h"

namespace tessera::serve {
namespace {

using models::Conversation;
using models::GenerationResult;
using nlohmann::ordered_json;

// The defaults of its api.py.
constexpr int64_t kMaxLength = 2048;
constexpr double kTopP = 0.7;
constexpr double kTemperature = 0.95;

struct Question {
  std::string prompt;
  std::vector<Conversation::Turn> history;
};

Question ReadQuestion(Fields& fields) {
  Question question;
  const auto prompt = fields.Text("prompt");
  if (!prompt) fields.Fail("prompt", "is missing");
  question.prompt = prompt.value_or("");
  const ordered_json* const history = fields.Any("history");
  if (history == nullptr) return question;
  const bool turns =
      history->is_array() && std::all_of(history->begin(), history->end(), [](const auto& turn) {
        return turn.is_array() && turn.size() == 2 && turn[0].is_string() && turn[1].is_string();
      });
  if (!turns) fields.Fail("history", "must be a list of [question, answer]");
  for (size_t i = 0; turns && i < history->size(); ++i) {
    question.history.emplace_back((*history)[i][0], (*history)[i][1]);
  }
  return question;
}

// As the folder's template writes it, or the model's family, or one line after the other.
StatusOr<std::vector<int64_t>> PromptIds(const Service& service, const Question& question) {
  const ServedModel& served = service.served();
  if (served.chat != nullptr) {
    data::Conversation chat;
    for (const auto& [asked, answered] : question.history) {
      chat.messages->push_back({{"role", "user"}, {"content", asked}});
      chat.messages->push_back({{"role", "assistant"}, {"content", answered}});
    }
    chat.messages->push_back({{"role", "user"}, {"content", question.prompt}});
    TESSERA_ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                             data::TokenizePrompt(*served.chat, served.tokenizer, chat));
    return std::vector<int64_t>(ids.begin(), ids.end());
  }
  std::string text;
  if (served.conversation != nullptr) {
    text = question.history.empty() ? question.prompt
                                    : served.conversation->join(question.prompt, question.history);
  } else {
    for (const auto& [asked, answered] : question.history) {
      text += Concat(asked, "\n", answered, "\n");
    }
    text += question.prompt;
  }
  return PromptTokens(service, text, kBaseModel);
}

class ChatGlm : public Answer {
 public:
  ChatGlm(Service& service, Call call, Question question)
      : Answer(service, std::move(call), /*streams=*/false), question_(std::move(question)) {}

 protected:
  void OnEnd(size_t, const GenerationResult& result) override {
    text_ = ReplaceInvalidUtf8(result.text);
  }

  std::string Whole() override {
    ordered_json history = ordered_json::array();
    for (const auto& [asked, answered] : question_.history) history.push_back({asked, answered});
    history.push_back({question_.prompt, text_});
    return JsonText(
        {{"response", text_}, {"history", std::move(history)}, {"status", 200}, {"time", Now()}});
  }

 private:
  static std::string Now() {
    return absl::FormatTime("%Y-%m-%d %H:%M:%S", absl::Now(), absl::LocalTimeZone());
  }

  const Question question_;
  std::string text_;
};

}  // namespace

void AnswerChatGlm(Service& service, Call call) {
  const ServedModel& served = service.served();
  Fields fields(call.body);
  if (!served.generates) fields.Fail("model", "this model does not generate text");
  Question question = ReadQuestion(fields);
  nlohmann::json asked = {{"temperature", kTemperature}, {"top_p", kTopP}};
  for (const char* key : {"temperature", "top_p", "seed"}) {
    fields.Setting(*models::GenerationConfig::Table().Find(key), &asked);
  }
  int64_t length = fields.Integer("max_length", 1).value_or(kMaxLength);
  if (Refused(service, call, fields)) return;
  const auto prompt = PromptIds(service, question);
  if (!prompt.ok()) return service.Refuse(call.exchange, prompt.status(), "prompt");
  auto config = ConfigOf(served, asked);
  if (!config.ok()) return service.Refuse(call.exchange, config.status());
  config->max_new_tokens.reset();
  if (const int64_t positions = served.model.positions_left(kBaseModel); positions > 0) {
    length = std::min(length, positions);
  }
  config->max_length = length;
  if (served.chat != nullptr) {
    config = models::ConfigOfAnswer(served.model, kBaseModel, *served.chat, served.tokenizer,
                                    prompt->size(), *config);
    if (!config.ok()) return service.Refuse(call.exchange, config.status(), "prompt");
  }
  const auto answer = std::make_shared<ChatGlm>(service, std::move(call), std::move(question));
  Ask(answer, {{.prompt = *prompt, .config = *config, .adapter = kBaseModel}});
}

}  // namespace tessera::serve
