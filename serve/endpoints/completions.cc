// SPDX-License-Identifier: Apache-2.0
// POST /v1/completions: OpenAI's, as lm-evaluation-harness and openai-python use it.
#include <algorithm>
#include <ctime>
#include <memory>
#include <utility>

#include "base/utf8.h"
#include "data/tokenizer/streaming_decoder.h"
#include "models/text_format.h"
#include "serve/answer.h"
#include "serve/endpoints/endpoints.h"
#include "serve/text_fields.h"

namespace tessera::serve {
namespace {

using models::GenerationResult;
using models::TextRequest;
using models::TokenScores;
using nlohmann::ordered_json;

constexpr size_t kMostPrompts = 2048;

struct Prompt {
  models::Shared<std::vector<int64_t>> ids = {};
  std::string text = {};  // for `echo`
  models::Shared<models::GenerationConfig> config = {};
};

struct CompletionRequest {
  std::vector<Prompt> prompts;
  std::shared_ptr<const models::TokenGrammar> grammar = nullptr;
  int adapter = 0;
  int64_t choices = 1;  // of each prompt
  int64_t logprobs = -1;
  bool echo = false;
  bool stream = false;
  bool stream_usage = false;
  bool only_echo = false;  // nothing is written or scored
  bool token_ids = false;
};

StatusOr<Prompt> PromptOf(const Service& service, const ordered_json& json, int adapter,
                          bool echo) {
  Prompt prompt;
  if (json.is_string()) {
    prompt.text = json.get<std::string>();
    TESSERA_ASSIGN_OR_RETURN(prompt.ids, PromptTokens(service, prompt.text, adapter));
    return prompt;
  }
  if (!json.is_array()) return InvalidArgument("must be texts, or lists of token ids");
  TESSERA_ASSIGN_OR_RETURN(prompt.ids, PromptIds(service.served(), json));
  if (echo) {
    TESSERA_ASSIGN_OR_RETURN(prompt.text, TextOfIds(service.served(), *prompt.ids));
  }
  return prompt;
}

// A text, ids, or a list of either.
Status ReadPrompts(const Service& service, const ordered_json& json, CompletionRequest* request) {
  const bool list = json.is_array() && !json.empty() && !json[0].is_number();
  // Before anything is made of them.
  const int64_t prompts = list ? std::ssize(json) : 1;
  TESSERA_RETURN_IF_ERROR(service.queue().CheckCount(prompts * request->choices));
  if (!list) {
    TESSERA_ASSIGN_OR_RETURN(request->prompts.emplace_back(),
                             PromptOf(service, json, request->adapter, request->echo));
    return OkStatus();
  }
  if (json.size() > kMostPrompts) {
    return InvalidArgument("has ", json.size(), " prompts; at most ", kMostPrompts, " may come");
  }
  for (const ordered_json& one : json) {
    auto prompt = PromptOf(service, one, request->adapter, request->echo);
    if (!prompt.ok()) {
      return InvalidArgument("number ", request->prompts.size(), ": ", prompt.status().message());
    }
    request->prompts.push_back(*std::move(prompt));
  }
  return OkStatus();
}

StatusOr<CompletionRequest> ReadCompletion(Service& service, Fields& fields) {
  const ServedModel& served = service.served();
  CompletionRequest request;
  request.adapter = ModelField(fields, service);
  nlohmann::json asked = SamplingFields(fields, served);
  request.choices = ChoicesField(fields, &asked);
  request.logprobs = fields.Integer("logprobs", 0, kMostLogprobs).value_or(-1);
  request.echo = fields.Flag("echo").value_or(false);
  request.stream = fields.Flag("stream").value_or(false);
  const bool scores = request.echo && request.logprobs >= 0;
  const bool writes = asked.value("max_new_tokens", 1) > 0;
  if (!writes && !request.echo) fields.Fail("max_tokens", "0 is for an `echo` of the prompt");
  request.only_echo = !writes && !scores;
  request.token_ids = fields.Flag("return_token_ids").value_or(false);
  request.stream_usage = StreamUsageField(fields);
  request.grammar = ResponseFormatField(fields, service);
  fields.Refuse("suffix", "texts are continued at their end alone");
  if (const auto best = fields.Integer("best_of", 1); best && *best != request.choices) {
    fields.Fail("best_of", "must be as `n` is: every text that is written is an answer");
  }
  if (request.echo && served.model.encoder_decoder() != nullptr) {
    fields.Fail("echo", "this model does not continue its prompt");
  }
  const ordered_json* const prompt = fields.Any("prompt");
  if (prompt == nullptr) fields.Fail("prompt", "is missing");
  TESSERA_RETURN_IF_ERROR(fields.Finish());
  const Status read = ReadPrompts(service, *prompt, &request);
  if (!read.ok()) fields.Fail("prompt", std::string(read.message()));
  TESSERA_RETURN_IF_ERROR(fields.Finish());
  // What must fit a grammar is written without the beams that a folder may ask for.
  if (request.grammar != nullptr) asked["num_beams"] = 1;
  TESSERA_ASSIGN_OR_RETURN(const models::Shared<models::GenerationConfig> config,
                           ConfigOf(served, asked));
  for (Prompt& prompt : request.prompts) {
    prompt.config = ConfigBehindPrompt(served, asked, config, *prompt.ids, request.adapter);
  }
  return request;
}

int64_t Characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; });
}

// Where the tokens of a text begin, in characters of the answer. A token that continues a character
// begins where the character does.
class TextOffsets {
 public:
  // `offset`: of the first token. `follows_text`: as the decoder has it.
  TextOffsets(const data::Tokenizer& tokenizer, int64_t offset, bool follows_text)
      : tokenizer_(tokenizer),
        decoder_(tokenizer, {.skip_special = true}, follows_text),
        begin_(offset),
        end_(offset) {}

  // Passes over a token and returns the text that is certain now. `shown`: a special token's, too.
  std::string Pass(int64_t id, bool shown = false) {
    const auto token = static_cast<int32_t>(id);
    const std::string text = shown ? decoder_.PushShown(token) : decoder_.Push(token);
    const std::string valid = ReplaceInvalidUtf8(text);
    begin_ = end_;
    end_ += Characters(valid);
    // Whole characters begin behind what the decoder had held back.
    const std::string_view own = tokenizer_.TokenBytes(token);
    const bool whole = FindInvalidUtf8(own) == kNoInvalidUtf8 && text.ends_with(own);
    if (whole && !own.empty()) begin_ = end_ - Characters(own);
    return valid;
  }
  // Of the token that was passed over last.
  int64_t begin() const { return begin_; }

 private:
  const data::Tokenizer& tokenizer_;
  data::StreamingDecoder decoder_;
  int64_t begin_, end_;
};

// Of the tokens of a prompt in its echo. The echo shows special tokens that the prompt was given
// with, and not those that the tokenizer added.
std::vector<int64_t> OffsetsInEcho(const data::Tokenizer& tokenizer, const Prompt& prompt) {
  TextOffsets at(tokenizer, 0, /*follows_text=*/false);
  std::string_view rest = prompt.text;
  // Of a tokenizer that changes its texts the tokens may have more characters.
  const int64_t most = Characters(rest);
  std::vector<int64_t> offsets;
  for (const int64_t id : *prompt.ids) {
    const auto token = static_cast<int32_t>(id);
    const bool shown = tokenizer.IsSpecial(token) && rest.starts_with(tokenizer.TokenBytes(token));
    rest.remove_prefix(std::min(at.Pass(id, shown).size(), rest.size()));
    offsets.push_back(std::min(at.begin(), most));
  }
  return offsets;
}

// Whether the new text continues a text, and not a special token.
bool FollowsText(const ServedModel& served, const std::vector<int64_t>& prompt) {
  const std::vector<int64_t> begin = BeginOfText(served, prompt);
  return !begin.empty() && !served.tokenizer.IsSpecial(static_cast<int32_t>(begin.back()));
}

// Tokens with their log-probabilities, as they come: as text, which takes a fraction of a tree.
class Logprobs {
 public:
  explicit Logprobs(const data::Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // A token without any, as the first of a prompt is. `offset`: where it begins in the text.
  void Add(int64_t id, int64_t offset) { Add(id, offset, nullptr, nullptr); }
  void Add(const TokenScores& scores, int64_t offset) {
    ordered_json top = ordered_json::object();
    for (const auto& [id, log_p] : scores.likeliest) top.emplace(TokenText(tokenizer_, id), log_p);
    if (!scores.likeliest.empty()) top.emplace(TokenText(tokenizer_, scores.id), scores.log_p);
    Add(scores.id, offset, scores.log_p,
        scores.likeliest.empty() ? ordered_json() : std::move(top));
  }
  // That it takes.
  size_t bytes() const {
    return tokens_.capacity() + log_ps_.capacity() + tops_.capacity() + offsets_.capacity();
  }
  // What was added since the last time, as JSON.
  std::string Take() {
    return Concat("{\"tokens\":[", std::exchange(tokens_, {}), "],\"token_logprobs\":[",
                  std::exchange(log_ps_, {}), "],\"top_logprobs\":[", std::exchange(tops_, {}),
                  "],\"text_offset\":[", std::exchange(offsets_, {}), "]}");
  }

 private:
  static void Append(const ordered_json& value, std::string* list) {
    if (!list->empty()) *list += ',';
    *list += JsonText(value);
  }
  void Add(int64_t id, int64_t offset, const ordered_json& log_p, const ordered_json& top) {
    Append(offset, &offsets_);
    Append(TokenText(tokenizer_, id), &tokens_);
    Append(log_p, &log_ps_);
    Append(top, &tops_);
  }

  const data::Tokenizer& tokenizer_;
  std::string tokens_, log_ps_, tops_, offsets_;
};

class Completions : public Answer {
 public:
  Completions(Service& service, Call call, CompletionRequest request)
      : Answer(service, std::move(call), request.stream),
        request_(std::move(request)),
        id_(service.NewId("cmpl")),
        model_(service.NameOf(request_.adapter)),
        created_(std::time(nullptr)) {
    const ServedModel& served = service.served();
    for (size_t i = 0; i < NumTexts(); ++i) {
      const Prompt& prompt = PromptOfText(i);
      const int64_t echoed = request_.echo ? Characters(prompt.text) : 0;
      const bool follows_text = request_.logprobs >= 0 && FollowsText(served, *prompt.ids);
      texts_.push_back({.logprobs = Logprobs(served.tokenizer),
                        .offsets = TextOffsets(served.tokenizer, echoed, follows_text)});
    }
  }

  std::vector<TextRequest> Texts() const {
    std::vector<TextRequest> texts;
    for (size_t i = 0; i < NumTexts(); ++i) {
      texts.push_back({.prompt = PromptOfText(i).ids,
                       .config = PromptOfText(i).config,
                       .row = static_cast<int64_t>(i),
                       .adapter = request_.adapter,
                       .score_prompt = request_.echo && request_.logprobs >= 0,
                       .top_scores = request_.logprobs,
                       .grammar = request_.grammar});
    }
    return texts;
  }

  // All there is to say where nothing is to be written or scored.
  void Echo() {
    for (size_t i = 0; i < NumTexts(); ++i) {
      Text& text = texts_[i];
      if (!Keep(PromptOfText(i).text.size())) return;
      text.whole = PromptOfText(i).text;
      text.finish = "length";
      if (IsFirstOfPrompt(i)) prompt_tokens_ += std::ssize(*PromptOfText(i).ids);
      if (streams()) SendChoice(i, text.whole, text.finish);
    }
    Finish();
  }

 protected:
  void OnPrompt(size_t i, const std::vector<TokenScores>& scores) override {
    Text& text = texts_[i];
    // An empty prompt begins with a token of the model's own, which is not shown.
    const std::vector<int64_t>& ids = *PromptOfText(i).ids;
    const std::vector<int64_t> offsets =
        OffsetsInEcho(service().served().tokenizer, PromptOfText(i));
    if (!ids.empty()) text.logprobs.Add(ids[0], 0);
    for (size_t k = 0; k < scores.size(); ++k) {
      // The model may have completed the prompt with tokens that the echo lacks.
      const bool own = k + 1 >= offsets.size();
      text.logprobs.Add(scores[k], own ? text.offsets.begin() : offsets[k + 1]);
    }
    Keep(text.logprobs.bytes());
  }

  void OnToken(size_t i, int64_t id, std::string_view piece, const TokenScores* scores) override {
    Text& text = texts_[i];
    if (request_.token_ids) text.ids.push_back(id);
    const size_t before = text.logprobs.bytes();
    if (scores != nullptr) {
      text.offsets.Pass(id);
      text.logprobs.Add(*scores, text.offsets.begin());
    }
    Keep(piece.size() + text.logprobs.bytes() - before);
    if (!streams()) return;
    const std::string shown = Echoed(i) + ReplaceInvalidUtf8(piece);
    if (!shown.empty()) SendChoice(i, shown, nullptr);
  }

  void OnEnd(size_t i, const GenerationResult& result) override {
    Text& text = texts_[i];
    text.finish = FinishReason(result);
    const bool continues = service().served().model.encoder_decoder() == nullptr;
    if (request_.token_ids && continues) text.prompt_ids = result.prompt;
    const std::string echoed = Echoed(i);
    if (!Keep(echoed.size())) return;
    if (!streams()) text.whole = echoed + ReplaceInvalidUtf8(result.text);
    if (IsFirstOfPrompt(i)) prompt_tokens_ += std::ssize(result.prompt);
    made_tokens_ += std::ssize(result.ids);
    if (streams()) SendChoice(i, echoed, text.finish);
  }

  std::string Whole() override {
    std::vector<std::string> choices;
    for (size_t i = 0; i < NumTexts(); ++i) {
      choices.push_back(Choice(i, std::exchange(texts_[i].whole, {}), texts_[i].finish));
    }
    return WithChoices(std::move(choices), JsonText(Usage()));
  }

  void Close() override {
    if (request_.stream_usage) SendText(WithChoices({}, JsonText(Usage())));
  }

 private:
  struct Text {
    Logprobs logprobs;
    TextOffsets offsets;  // of new tokens
    std::string whole = {};
    const char* finish = nullptr;
    bool echoed = false;
    std::vector<int64_t> ids = {};         // new ones, those that were sent left out
    std::vector<int64_t> prompt_ids = {};  // once the text has ended
  };

  size_t NumTexts() const {
    return request_.prompts.size() * static_cast<size_t>(request_.choices);
  }
  const Prompt& PromptOfText(size_t i) const {
    return request_.prompts[i / static_cast<size_t>(request_.choices)];
  }
  // A prompt counts once, however many texts continue it.
  bool IsFirstOfPrompt(size_t i) const { return i % static_cast<size_t>(request_.choices) == 0; }
  // The prompt, once, where it is asked for.
  std::string Echoed(size_t i) {
    if (!request_.echo || std::exchange(texts_[i].echoed, true)) return "";
    return PromptOfText(i).text;
  }

  // As JSON.
  std::string Choice(size_t i, std::string_view text, const char* finish) {
    std::string choice =
        Concat("{\"index\":", i, ",\"text\":", JsonText(ordered_json(text)),
               ",\"logprobs\":", request_.logprobs < 0 ? "null" : texts_[i].logprobs.Take(),
               ",\"finish_reason\":", JsonText(finish == nullptr ? ordered_json() : finish));
    if (request_.token_ids) {
      choice += Concat(",\"token_ids\":", JsonText(std::exchange(texts_[i].ids, {})),
                       ",\"prompt_token_ids\":", JsonText(texts_[i].prompt_ids));
    }
    return choice + "}";
  }
  std::string WithChoices(std::vector<std::string> choices, const std::string& usage = {}) const {
    return AnswerJson(
        {{"id", id_}, {"object", "text_completion"}, {"created", created_}, {"model", model_}},
        std::move(choices), usage);
  }
  void SendChoice(size_t i, std::string_view text, const char* finish) {
    SendText(WithChoices({Choice(i, text, finish)}));
  }
  ordered_json Usage() const { return UsageJson(prompt_tokens_, made_tokens_); }

  const CompletionRequest request_;
  const std::string id_, model_;
  const int64_t created_;
  std::vector<Text> texts_;
  int64_t prompt_tokens_ = 0;
  int64_t made_tokens_ = 0;
};

}  // namespace

void AnswerCompletions(Service& service, Call call) {
  Fields fields(call.body);
  if (!service.served().generates) fields.Fail("model", "this model does not generate text");
  StatusOr<CompletionRequest> request = ReadCompletion(service, fields);
  if (!request.ok()) return service.Refuse(call.exchange, request.status(), fields.failed());
  const bool only_echo = request->only_echo;
  const auto answer = std::make_shared<Completions>(service, std::move(call), *std::move(request));
  if (only_echo) return answer->Echo();
  Ask(answer, answer->Texts());
}

}  // namespace tessera::serve
