// SPDX-License-Identifier: Apache-2.0
// POST /tokenize and /detokenize, GET /tokenizer_info: the tokenizer, for clients that count.
#include <string>
#include <utility>

#include "base/json_text.h"
#include "models/generation/special_tokens.h"
#include "serve/endpoints/endpoints.h"
#include "serve/text_fields.h"

namespace tessera::serve {
namespace {

using nlohmann::ordered_json;

// The text of a token that the tokenizer may have.
ordered_json Content(const data::Tokenizer& tokenizer, std::optional<int32_t> id) {
  return id ? ordered_json(TokenText(tokenizer, *id)) : ordered_json();
}

}  // namespace

void AnswerTokenize(Service& service, Call call) {
  const ServedModel& served = service.served();
  Fields fields(call.body);
  ModelField(fields, service);
  const auto text = fields.Text("prompt");
  if (!text) fields.Fail("prompt", "is missing");
  const bool special = fields.Flag("add_special_tokens").value_or(true);
  const bool strings = fields.Flag("return_token_strs").value_or(false);
  if (Refused(service, call, fields)) return;
  std::vector<int64_t> ids;
  if (special) {
    auto prompt = models::EncodePrompt(served.tokenizer, served.model.config(), *text);
    if (!prompt.ok()) return service.Refuse(call.exchange, prompt.status(), "prompt");
    ids = *std::move(prompt);
  } else {
    const std::vector<int32_t> encoded = served.tokenizer.Encode(*text);
    ids.assign(encoded.begin(), encoded.end());
  }
  // As text: a tree of millions of tokens takes many times as much.
  std::string answer = Concat(R"({"count":)", ids.size(), R"(,"max_model_len":)",
                              served.model.positions_left(kBaseModel), R"(,"tokens":[)");
  for (const int64_t id : ids)
    answer.append(answer.back() == '[' ? "" : ",").append(std::to_string(id));
  if (strings) {
    answer += R"(],"token_strs":[)";
    for (const int64_t id : ids) {
      if (answer.back() != '[') answer += ',';
      answer += JsonQuoted(TokenText(served.tokenizer, id));
    }
  }
  answer += "]}";
  service.RespondJson(call.exchange, std::move(answer));
}

void AnswerDetokenize(Service& service, Call call) {
  const ServedModel& served = service.served();
  Fields fields(call.body);
  ModelField(fields, service);
  const ordered_json* const tokens = fields.Any("tokens");
  if (tokens == nullptr || !tokens->is_array()) fields.Fail("tokens", "must be a list of ids");
  if (Refused(service, call, fields)) return;
  const auto ids = PromptIds(served, *tokens);
  if (!ids.ok()) return service.Refuse(call.exchange, ids.status(), "tokens");
  const auto text = TextOfIds(served, *ids);
  if (!text.ok()) return service.Refuse(call.exchange, text.status(), "tokens");
  service.Respond(call.exchange, 200, {{"prompt", *text}});
}

void AnswerTokenizerInfo(Service& service, Call call) {
  const ServedModel& served = service.served();
  const data::Tokenizer& tokenizer = served.tokenizer;
  ordered_json answer = {{"eos_token", Content(tokenizer, tokenizer.eos_id())},
                         {"bos_token", Content(tokenizer, tokenizer.bos_id())},
                         {"pad_token", Content(tokenizer, tokenizer.pad_id())},
                         {"vocab_size", served.model.vocab_size()}};
  if (served.chat != nullptr) answer["chat_template"] = served.chat->text();
  service.Respond(call.exchange, 200, answer);
}

}  // namespace tessera::serve
