// SPDX-License-Identifier: Apache-2.0
// POST /v1/chat/completions: OpenAI's.
#include <algorithm>
#include <ctime>
#include <memory>
#include <utility>

#include "base/utf8.h"
#include "data/chat/answer_message.h"
#include "data/chat/answer_reader.h"
#include "data/chat/chat_tokens.h"
#include "data/chat/conversation.h"
#include "models/open/answer_config.h"
#include "serve/answer.h"
#include "serve/endpoints/endpoints.h"
#include "serve/text_fields.h"
#include "serve/tool_fields.h"

namespace tessera::serve {
namespace {

using data::AnswerMessage;
using data::AnswerPart;
using data::AnswerReader;
using data::AnswerReaderOptions;
using models::GenerationResult;
using models::TextRequest;
using models::TokenScores;
using nlohmann::ordered_json;

struct ChatRequest {
  models::Shared<std::vector<int64_t>> prompt = {};
  models::Shared<models::GenerationConfig> config = {};
  std::shared_ptr<const models::TokenGrammar> grammar = nullptr;
  int adapter = 0;
  int64_t choices = 1;
  int64_t logprobs = -1;
  bool stream = false;
  bool stream_usage = false;
  AnswerReaderOptions reading = {};
  std::vector<int64_t> marks = {};  // the special tokens among those that `reading` looks for
};

// `content` as one text: templates get no list of parts, and an empty text where clients write null
// (templates would print "None") or leave out what an answer says that only calls tools.
StatusOr<ordered_json> WithTextContent(ordered_json messages) {
  if (!messages.is_array()) return InvalidArgument("must be a list of messages");
  for (size_t i = 0; i < messages.size(); ++i) {
    ordered_json& message = messages[i];
    if (!message.is_object()) continue;
    if (message.contains("tool_calls") && !message.contains("content")) message["content"] = "";
    const auto content = message.find("content");
    if (content == message.end()) continue;
    if (content->is_null()) *content = "";
    if (content->is_string()) continue;
    if (!content->is_array()) {
      return InvalidArgument("'content' of message ", i, " must be a text, not ", content->dump());
    }
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

// What the template is given beside the conversation.
ordered_json TemplateVariables(Fields& fields) {
  const ordered_json* const given = fields.Any(data::kTemplateVariables);
  if (given == nullptr) return ordered_json::object();
  auto variables = data::TemplateVariablesOf(*given);
  if (variables.ok()) return *std::move(variables);
  fields.Fail(data::kTemplateVariables, std::string(variables.status().message()));
  return ordered_json::object();
}

// Where the answer begins: what is constrained neither reasons nor says anything before a call.
// Appends to the prompt what the model would write before.
void BeginAnswer(const data::Tokenizer& tokenizer, const ToolFields& tools, bool constrained,
                 std::vector<int32_t>* ids, AnswerReaderOptions* reading) {
  using Begin = AnswerReaderOptions::Begin;
  const bool inside = reading->reasons && data::EndsInReasoning(tokenizer, *ids);
  if (inside && !constrained) reading->begin = Begin::kReasoning;
  std::string before = inside && constrained ? "\n</think>\n\n" : "";
  if (tools.grammar != nullptr) {
    reading->begin = Begin::kCall;
    if (!tools.form->bare) before += tools.form->begin;
    if (!tools.form->end.empty()) before += '\n';
  }
  if (constrained) reading->reasons = false;
  if (before.empty()) return;
  const std::vector<int32_t> more = tokenizer.Encode(before);
  ids->insert(ids->end(), more.begin(), more.end());
}

StatusOr<std::vector<int32_t>> ReadConversation(const Service& service, Fields& fields) {
  const ordered_json* const messages = fields.Any("messages");
  const ordered_json* const tools = fields.Any("tools");
  if (messages == nullptr) return InvalidArgument("messages: is missing");
  ordered_json record;
  auto texts = WithTextContent(*messages);
  if (!texts.ok()) return InvalidArgument("messages: ", texts.status().message());
  record["messages"] = *std::move(texts);
  if (tools != nullptr) record["tools"] = *tools;
  TESSERA_ASSIGN_OR_RETURN(data::Conversation chat, data::ConversationOf(record, "the body"));
  chat.variables = TemplateVariables(fields);
  TESSERA_RETURN_IF_ERROR(fields.status());
  return data::TokenizePrompt(*service.served().chat, service.served().tokenizer, chat);
}

StatusOr<ChatRequest> ReadChat(Service& service, Fields& fields) {
  const ServedModel& served = service.served();
  ChatRequest request;
  request.adapter = ModelField(fields, service);
  nlohmann::json asked = SamplingFields(fields, served);
  request.choices = ChoicesField(fields, &asked);
  const bool logprobs = fields.Flag("logprobs").value_or(false);
  const auto top = fields.Integer("top_logprobs", 0, kMostLogprobs);
  if (top.value_or(0) > 0 && !logprobs) fields.Fail("top_logprobs", "needs `logprobs`: true");
  if (logprobs) request.logprobs = top.value_or(0);
  request.stream = fields.Flag("stream").value_or(false);
  if (asked.value("max_new_tokens", 1) == 0) fields.Fail("max_tokens", "must be at least 1");
  request.stream_usage = StreamUsageField(fields);
  fields.Refuse("echo", "an answer does not repeat the conversation");
  fields.Allow({"metadata", "store"});
  request.grammar = ResponseFormatField(fields, service);
  const Status count = service.queue().CheckCount(request.choices);
  if (!count.ok()) fields.Fail("n", std::string(count.message()));
  if (served.chat == nullptr) {
    return InvalidArgument("the folder of ", served.name,
                           " has no chat template; use /v1/completions");
  }
  const std::string chat_template = served.chat->text(fields.Any("tools") != nullptr);
  const ToolFields tools = ReadToolFields(fields, service, chat_template);
  if (tools.grammar != nullptr) {
    if (request.grammar != nullptr) {
      fields.Fail("response_format", "does not go with a `tool_choice` that asks for a call");
    }
    request.grammar = tools.grammar;
  }
  request.reading = {.calls = tools.form, .names = tools.names};
  if (!tools.parallel) request.reading.most_calls = 1;
  request.reading.reasons = data::KnowsReasoning(chat_template);
  for (const std::string& mark : data::MarksOf(tools.form, request.reading.reasons)) {
    if (const auto id = served.tokenizer.FindSpecial(mark)) request.marks.push_back(*id);
  }
  // What the conversation says is asked for first, so that no key of it counts as unknown.
  auto prompt = ReadConversation(service, fields);
  if (!prompt.ok()) fields.Fail("messages", prompt.status());
  TESSERA_RETURN_IF_ERROR(fields.Finish());
  BeginAnswer(served.tokenizer, tools, request.grammar != nullptr, &*prompt, &request.reading);
  request.prompt = std::vector<int64_t>(prompt->begin(), prompt->end());
  // What must fit a grammar is written without the beams that a folder may ask for.
  if (request.grammar != nullptr) asked["num_beams"] = 1;
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
        created_(std::time(nullptr)) {
    for (int64_t i = 0; i < request_.choices; ++i) {
      choices_.push_back({.reader = AnswerReader(request_.reading)});
    }
  }

  std::vector<TextRequest> Texts() const {
    std::vector<TextRequest> texts;
    for (int64_t i = 0; i < request_.choices; ++i) {
      texts.push_back({.prompt = request_.prompt,
                       .config = request_.config,
                       .row = i,
                       .adapter = request_.adapter,
                       .top_scores = request_.logprobs,
                       .shown_tokens = request_.marks,
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
    if (streams()) BeginChoice(i);
    if (!piece.empty()) Take(i, choices_[i].reader.Push(piece));
  }

  void OnEnd(size_t i, const GenerationResult& result) override {
    made_tokens_ += std::ssize(result.ids);
    if (streams()) BeginChoice(i);
    Take(i, choices_[i].reader.Finish());
    choices_[i].finish = FinishReason(result);
    // A call that was asked for is complete even where it takes the last token.
    const bool cut = result.end == GenerationResult::End::kLength && request_.grammar == nullptr;
    if (choices_[i].reader.calls() > 0 && !cut) choices_[i].finish = "tool_calls";
    if (streams()) SendChoice(i, ordered_json::object(), choices_[i].finish);
  }

  std::string Whole() override {
    std::vector<std::string> choices;
    for (size_t i = 0; i < choices_.size(); ++i) {
      choices.push_back(
          Choice(i, "message", JsonText(choices_[i].message.Json()), choices_[i].finish));
    }
    return WithChoices("chat.completion", std::move(choices), JsonText(Usage()));
  }

  void Close() override {
    if (request_.stream_usage) SendText(WithChoices(kChunk, {}, JsonText(Usage())));
  }

 private:
  static constexpr char kChunk[] = "chat.completion.chunk";
  struct Text {
    AnswerReader reader;
    AnswerMessage message = {};  // not of a stream, where parts are sent
    int64_t calls = 0;
    std::string logprobs = {};  // elements of a JSON list
    const char* finish = nullptr;
    bool begun = false;
  };

  // Parts of an answer, as deltas of a stream or for the whole.
  void Take(size_t i, std::vector<AnswerPart> parts) {
    for (AnswerPart& part : parts) {
      if (part.kind == AnswerPart::Kind::kCall) {
        TakeCall(i, std::move(part));
      } else if (streams()) {
        const bool words = part.kind == AnswerPart::Kind::kContent;
        const char* const key = words ? "content" : "reasoning_content";
        SendChoice(i, {{key, ReplaceInvalidUtf8(part.text)}}, nullptr);
      } else {
        choices_[i].message.Add(std::move(part), "");
      }
    }
  }
  void TakeCall(size_t i, AnswerPart call) {
    const std::string id = service().NewCallId();
    if (!streams()) {
      choices_[i].message.Add(std::move(call), id);
      return;
    }
    // The head of a call and its arguments, as clients put them together.
    const int64_t index = choices_[i].calls++;
    ordered_json head = {{"index", index}};
    head.update(data::CallJson(call, id));
    head["function"]["arguments"] = "";
    const ordered_json rest = {{"index", index}, {"function", {{"arguments", call.text}}}};
    SendChoice(i, {{"tool_calls", {std::move(head)}}}, nullptr);
    SendChoice(i, {{"tool_calls", {rest}}}, nullptr);
  }

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
  StatusOr<ChatRequest> request = ReadChat(service, fields);
  if (!request.ok()) return service.Refuse(call.exchange, request.status(), fields.failed());
  const auto answer =
      std::make_shared<ChatCompletions>(service, std::move(call), *std::move(request));
  Ask(answer, answer->Texts());
}

}  // namespace tessera::serve
