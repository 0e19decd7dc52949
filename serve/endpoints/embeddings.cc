// SPDX-License-Identifier: Apache-2.0
// POST /v1/embeddings: OpenAI's. Texts become vectors as models/open/text_encoder.h has it.
#include <bit>
#include <memory>
#include <utility>

#include "models/open/text_encoder.h"
#include "serve/endpoints/endpoints.h"
#include "serve/text_fields.h"
#include "serve/text_rows.h"

namespace tessera::serve {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMostInputs = 2048;  // OpenAI's

std::string Base64(std::string_view bytes) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t bits = 0;
    for (size_t j = 0; j < 3; ++j) {
      bits = bits << 8 | (i + j < bytes.size() ? static_cast<unsigned char>(bytes[i + j]) : 0);
    }
    for (size_t j = 0; j < 4; ++j) {
      const bool there = i + j <= bytes.size();
      text += there ? kDigits[bits >> (18 - 6 * j) & 63] : '=';
    }
  }
  return text;
}

StatusOr<models::EncodedText> RowOf(const ServedModel& served, const ordered_json& input,
                                    const models::TextOptions& options) {
  if (input.is_string()) {
    return served.encoder->TextOf(served.model, served.tokenizer, input.get<std::string>(),
                                  options);
  }
  if (!input.is_array()) return InvalidArgument("must be texts, or lists of token ids");
  TESSERA_ASSIGN_OR_RETURN(std::vector<int64_t> ids, PromptIds(served, input));
  return served.encoder->IdsOf(served.model, std::move(ids), options);
}

std::string EmbeddingJson(const std::vector<float>& embedding, bool base64) {
  if (!base64) return JsonText(embedding);
  static_assert(std::endian::native == std::endian::little);
  return JsonText(Base64({reinterpret_cast<const char*>(embedding.data()), 4 * embedding.size()}));
}

std::string AnswerOf(const Service& service, const TextRows& all,
                     std::vector<std::string> embeddings) {
  std::string answer = R"({"object":"list","data":[)";
  for (size_t i = 0; i < embeddings.size(); ++i) {
    answer += Concat(i == 0 ? "" : ",", R"({"object":"embedding","index":)", i, R"(,"embedding":)",
                     std::exchange(embeddings[i], {}), "}");
  }
  const ordered_json usage = {{"prompt_tokens", all.tokens()}, {"total_tokens", all.tokens()}};
  return answer + Concat(R"(],"model":)", JsonText(service.NameOf(all.adapter)), R"(,"usage":)",
                         JsonText(usage), "}");
}

// How texts are read and vectors made.
struct Asked {
  models::TextOptions text = {};
  models::EmbedOptions embed = {};
  bool base64 = false;
};

Asked AskedBy(Fields& fields, const ServedModel& served, int adapter) {
  Asked asked = {.text = {.adapter = adapter}, .embed = {.adapter = adapter}};
  const std::string format = fields.Text("encoding_format").value_or("float");
  if (format != "float" && format != "base64") {
    fields.Fail("encoding_format", "must be float or base64");
  }
  asked.base64 = format == "base64";
  asked.text.prompt = fields.Text("prompt");
  const auto name = fields.Text("prompt_name");
  asked.text.max_tokens = fields.Integer("truncate_prompt_tokens", 1).value_or(0);
  asked.embed.normalise = fields.Flag("normalize");
  const auto dimensions = fields.Integer("dimensions", 1);
  fields.Allow({"user"});
  if (!served.encoder.ok()) {
    fields.Fail("model", Message(served.encoder.status()));
    return asked;
  }
  if (const Status embeds = served.encoder->CheckEmbeds(served.model); !embeds.ok()) {
    fields.Fail("model", Message(embeds));
    return asked;
  }
  if (name && asked.text.prompt) {
    fields.Fail("prompt_name", "is given beside prompt");
  } else if (name) {
    const StatusOr<std::string> prompt = served.encoder->PromptOf(*name);
    if (!prompt.ok()) fields.Fail("prompt_name", Message(prompt.status()));
    if (prompt.ok()) asked.text.prompt = *prompt;
  }
  const int64_t size = served.encoder->size(served.model);
  asked.embed.dimensions = dimensions.value_or(0);
  if (asked.embed.dimensions > size) {
    fields.Fail("dimensions", Concat("this model's embeddings have ", size));
  }
  return asked;
}

}  // namespace

void AnswerEmbeddings(Service& service, Call call) {
  const ServedModel& served = service.served();
  const auto all = std::make_shared<TextRows>(TextRows{.call = std::move(call)});
  Fields fields(all->call.body);
  all->adapter = ModelField(fields, service);
  const Asked asked = AskedBy(fields, served, all->adapter);
  const ordered_json* const input = fields.Any("input");
  if (input == nullptr) fields.Fail("input", "is missing");
  if (Refused(service, all->call, fields)) return;
  const bool list = input->is_array() && (input->empty() || !(*input)[0].is_number());
  const size_t count = list ? input->size() : 1;
  if (count > kMostInputs) {
    return service.Refuse(all->call.exchange, InvalidArgument("input: at most ", kMostInputs),
                          "input");
  }
  if (count == 0) fields.Fail("input", "must not be empty");
  if (Refused(service, all->call, fields)) return;
  for (size_t i = 0; i < count; ++i) {
    auto row = RowOf(served, list ? (*input)[i] : *input, asked.text);
    if (!row.ok()) {
      const Status status = InvalidArgument("input ", i, ": ", row.status().message());
      return service.Refuse(all->call.exchange, status, "input");
    }
    all->rows.push_back(*std::move(row));
  }
  const auto embeddings = std::make_shared<std::vector<std::string>>();  // as JSON
  all->take = [&service, embeddings, asked, exchange = all->call.exchange](
                  std::span<const models::EncodedText> rows) mutable -> Status {
    const ServedModel& served = service.served();
    TESSERA_ASSIGN_OR_RETURN(const auto vectors,
                             served.encoder->Embed(served.model, rows, asked.embed));
    for (const std::vector<float>& vector : vectors) {
      embeddings->push_back(EmbeddingJson(vector, asked.base64));
      if (!exchange.Reserve(embeddings->back().size())) return NoRoomForAnswer();
    }
    return OkStatus();
  };
  all->respond = [&service, embeddings, all = all.get()] {
    service.RespondJson(all->call.exchange, AnswerOf(service, *all, std::move(*embeddings)));
  };
  WorkInTurns(service, all);
}

}  // namespace tessera::serve
