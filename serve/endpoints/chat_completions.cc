// SPDX-License-Identifier: Apache-2.0
// POST /v1/chat/completions: OpenAI's.
#include <ctime>
#include <memory>
#include <utility>

#include "base/utf8.h"
#include "data/chat/chat_tokens.h"
#include "data/chat/conversation.h"
#include "models/open/answer_config.h"
#include "serve/answer.h"
#include "serve/endpoints/endpoints.h"
#include "serve/text_fields.h"

namespace tessera::serve {
namespace {

using models::GenerationResult;
using models::TextRequest;
using models::TokenScores;
using nlohmann::ordered_json;

constexpr int64_t kMostChoices = 128;
constexpr int64_t kMostLogprobs = 20;

struct ChatRequest {
  models::Shared<std::vector<int64_t>> prompt = {};
  models::Shared<models::GenerationConfig> config = {};
  std::shared_ptr<const models::TokenGrammar> grammar = nullptr;
  int adapter = 0;
  int64_t choices = 1;
  int64_t logprobs = -1;
  bool stream = false;
  bool stream_usage = false;
};

// `content` as one text: templates get no list of parts.
StatusOr<ordered_json> WithTextContent(ordered_json messages) {
  if (!messages.is_array()) return InvalidArgument("must be a list of messages");
  for (ordered_json& message : messages) {
    const auto content = message.is_object() ? message.find("content") : message.end();
    if (content == message.end() || !content->is_array()) continue;
    std::string text;
    for (const ordered_json& part : *content) {
      const bool is_text = part.is_object() && part.value("type", ordered_json()) == "text" &&
                           part.contains("text") && part["text"].is_string();
      if (!is_text) return InvalidArgument("parts of a content must be texts");
      text += part["text"].get<std::string>();
    }
    *content = std::move(text);
  }
  return messages;
}

StatusOr<std::vector<int64_t>> ReadConversation(const Service& service, Fields& fields) {
  const ordered_json* const messages = fields.Any("messages");
  const ordered_json* const tools = fields.Any("tools");
  if (messages == nullptr) return InvalidArgument("messages: is missing");
  ordered_json record;
  auto texts = WithTextContent(*messages);
  if (!texts.ok()) return InvalidArgument("messages: ", texts.status().message());
  record["messages"] = *std::move(texts);
  if (tools != nullptr) record["tools"] = *tools;
  TESSERA_ASSIGN_OR_RETURN(const data::Conversation chat, data::ConversationOf(record, "the body"));
  TESSERA_ASSIGN_OR_RETURN(
      const std::vector<int32_t> ids,
      data::TokenizePrompt(*service.served().chat, service.served().tokenizer, chat));
  return std::vector<int64_t>(ids.begin(), ids.end());
}

StatusOr<ChatRequest> Read(Service& service, Fields& fields) {
  const ServedModel& served = service.served();
  ChatRequest request;
  request.adapter = ModelField(fields, service);
  const nlohmann::json asked = SamplingFields(fields, served);
  request.choices = fields.Integer("n", 1, kMostChoices).value_or(1);
  const bool logprobs = fields.Flag("logprobs").value_or(false);
  const auto top = fields.Integer("top_logprobs", 0, kMostLogprobs);
  if (top && !logprobs) fields.Fail("top_logprobs", "needs `logprobs`: true");
  if (logprobs) request.logprobs = top.value_or(0);
  request.stream = fields.Flag("stream").value_or(false);
  if (asked.value("max_new_tokens", 1) == 0) fields.Fail("max_tokens", "must be at least 1");
  request.stream_usage = StreamUsageField(fields);
  fields.Allow({"user", "metadata", "store"});
  const ordered_json* const choice = fields.Any("tool_choice");
  if (choice == nullptr || *choice != "none") {
    fields.Refuse("tool_choice", "a model may call a tool as it likes: auto or none", "auto");
  }
  fields.Refuse("parallel_tool_calls", "answers are texts", true);
  request.grammar = ResponseFormatField(fields, service);
  const Status count = service.queue().CheckCount(request.choices);
  if (!count.ok()) fields.Fail("n", std::string(count.message()));
  if (served.chat == nullptr) {
    return InvalidArgument("the folder of ", served.name,
                           " has no chat template; use /v1/completions");
  }
  // What the conversation says is asked for first, so that no key of it counts as unknown.
  auto prompt = ReadConversation(service, fields);
  if (!prompt.ok()) fields.Fail("messages", prompt.status());
  TESSERA_RETURN_IF_ERROR(fields.Finish());
  request.prompt = *std::move(prompt);
  TESSERA_ASSIGN_OR_RETURN(models::GenerationConfig config, ConfigOf(served, asked));
  TESSERA_ASSIGN_OR_RETURN(
      request.config,
      models::ConfigOfAnswer(served.model, request.adapter, *served.chat, served.tokenizer,
                             request.prompt->size(), std::move(config)));
  return request;
}

class ChatCompletions : public Answer {
 public:
  ChatCompletions(Service& service, Call call, ChatRequest request)
      : Answer(service, std::move(call), request.stream),
        request_(std::move(request)),
        id_(service.NewId("chatcmpl")),
        model_(service.NameOf(request_.adapter)),
        created_(std::time(nullptr)),
        choices_(static_cast<size_t>(request_.choices)) {}

  std::vector<TextRequest> Texts() const {
    std::vector<TextRequest> texts;
    for (int64_t i = 0; i < request_.choices; ++i) {
      texts.push_back({.prompt = request_.prompt,
                       .config = request_.config,
                       .row = i,
                       .adapter = request_.adapter,
                       .top_scores = request_.logprobs,
                       .grammar = request_.grammar});
    }
    return texts;
  }

 protected:
  void OnToken(size_t i, int64_t, std::string_view piece, const TokenScores* scores) override {
    std::string& logprobs = choices_[i].logprobs;
    const size_t before = logprobs.capacity();
    if (scores != nullptr) {
      logprobs.append(logprobs.empty() ? "" : ",").append(JsonText(ScoresJson(*scores)));
    }
    Keep(piece.size() + logprobs.capacity() - before);
    if (!streams()) return;
    BeginChoice(i);
    if (piece.empty()) return;
    SendChoice(i, {{"content", ReplaceInvalidUtf8(piece)}}, nullptr);
  }

  void OnEnd(size_t i, const GenerationResult& result) override {
    choices_[i].finish = FinishReason(result);
    made_tokens_ += std::ssize(result.ids);
    if (streams()) {
      BeginChoice(i);
      SendChoice(i, ordered_json::object(), choices_[i].finish);
    } else {
      choices_[i].text = ReplaceInvalidUtf8(result.text);
    }
  }

  std::string Whole() override {
    std::vector<std::string> choices;
    for (size_t i = 0; i < choices_.size(); ++i) {
      const ordered_json message = {{"role", "assistant"},
                                    {"content", std::exchange(choices_[i].text, {})}};
      choices.push_back(Choice(i, "message", JsonText(message), choices_[i].finish));
    }
    return WithChoices("chat.completion", std::move(choices), JsonText(Usage()));
  }

  void Close() override {
    if (request_.stream_usage) SendText(WithChoices(kChunk, {}, JsonText(Usage())));
  }

 private:
  static constexpr char kChunk[] = "chat.completion.chunk";
  struct Text {
    std::string text = {};
    std::string logprobs = {};  // elements of a JSON list
    const char* finish = nullptr;
    bool begun = false;
  };

  ordered_json TokenJson(int64_t id, double log_p) {
    const data::Tokenizer& tokenizer = service().served().tokenizer;
    ordered_json bytes = ordered_json::array();
    for (const char c : tokenizer.TokenBytes(static_cast<int32_t>(id))) {
      bytes.push_back(static_cast<unsigned char>(c));
    }
    return {{"token", TokenText(tokenizer, id)}, {"logprob", log_p}, {"bytes", std::move(bytes)}};
  }
  ordered_json ScoresJson(const TokenScores& scores) {
    ordered_json json = TokenJson(scores.id, scores.log_p);
    json["top_logprobs"] = ordered_json::array();
    for (const auto& [id, log_p] : scores.likeliest) {
      json["top_logprobs"].push_back(TokenJson(id, log_p));
    }
    return json;
  }
  // As JSON, with the log-probabilities that were not sent yet.
  std::string Choice(size_t i, std::string_view key, std::string_view value, const char* finish) {
    const std::string logprobs = std::exchange(choices_[i].logprobs, {});
    return Concat(
        "{\"index\":", i, ",\"", key, "\":", value,
        ",\"logprobs\":", request_.logprobs < 0 ? "null" : Concat("{\"content\":[", logprobs, "]}"),
        ",\"finish_reason\":", JsonText(finish == nullptr ? ordered_json() : finish), "}");
  }
  std::string WithChoices(const char* object, std::vector<std::string> choices,
                          const std::string& usage = {}) const {
    return AnswerJson({{"id", id_}, {"object", object}, {"created", created_}, {"model", model_}},
                      std::move(choices), usage);
  }
  void BeginChoice(size_t i) {
    if (std::exchange(choices_[i].begun, true)) return;
    SendText(WithChoices(
        kChunk, {Concat(R"({"index":)", i, R"(,"delta":{"role":"assistant","content":""},)",
                        R"("logprobs":null,"finish_reason":null})")}));
  }
  void SendChoice(size_t i, const ordered_json& delta, const char* finish) {
    SendText(WithChoices(kChunk, {Choice(i, "delta", JsonText(delta), finish)}));
  }
  ordered_json Usage() const { return UsageJson(std::ssize(*request_.prompt), made_tokens_); }

  const ChatRequest request_;
  const std::string id_, model_;
  const int64_t created_;
  std::vector<Text> choices_;
  int64_t made_tokens_ = 0;
};

}  // namespace

void AnswerChatCompletions(Service& service, Call call) {
  Fields fields(call.body);
  if (!service.served().generates) fields.Fail("model", "this model does not generate text");
  StatusOr<ChatRequest> request = Read(service, fields);
  if (!request.ok()) return service.Refuse(call.exchange, request.status(), fields.failed());
  const auto answer =
      std::make_shared<ChatCompletions>(service, std::move(call), *std::move(request));
  Ask(answer, answer->Texts());
}

}  // namespace tessera::serve
