// SPDX-License-Identifier: Apache-2.0
// POST /v1/embeddings: OpenAI's. A text's embedding is the mean of what the last layer gives for
// its tokens (or another pooling, where the folder's 1_Pooling says so), of length 1.
#include <bit>
#include <memory>
#include <utility>

#include "data/tokenizer/sequence_pair.h"
#include "models/open/embed.h"
#include "serve/endpoints/endpoints.h"
#include "serve/text_fields.h"

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

StatusOr<std::vector<int64_t>> InputIds(const Service& service, const ordered_json& input,
                                        int adapter) {
  const ServedModel& served = service.served();
  std::vector<int64_t> ids;
  if (input.is_array()) {
    TESSERA_ASSIGN_OR_RETURN(ids, PromptIds(served, input));
  } else if (!input.is_string()) {
    return InvalidArgument("must be texts, or lists of token ids");
  } else if (!served.generates && served.tokenizer.row_template(/*pair=*/false) != nullptr) {
    TESSERA_ASSIGN_OR_RETURN(const data::EncodedRow row,
                             data::EncodePair(served.tokenizer, input.get<std::string>()));
    ids.assign(row.ids.begin(), row.ids.end());
  } else {
    TESSERA_ASSIGN_OR_RETURN(ids, PromptTokens(service, input.get<std::string>(), adapter));
  }
  const int64_t positions = served.model.positions_left(adapter);
  if (ids.empty()) return InvalidArgument("must not be empty");
  if (positions > 0 && std::ssize(ids) > positions) {
    return InvalidArgument("has ", ids.size(), " tokens; the model has ", positions, " positions");
  }
  return ids;
}

// All of a request's, until the last is there.
struct Embeddings {
  Call call;
  int adapter = 0;
  bool base64 = false;
  std::vector<std::vector<int64_t>> inputs = {};
  std::vector<std::string> done = {};  // as JSON
};

std::string EmbeddingJson(const std::vector<float>& embedding, bool base64) {
  if (!base64) return JsonText(embedding);
  static_assert(std::endian::native == std::endian::little);
  return JsonText(Base64({reinterpret_cast<const char*>(embedding.data()), 4 * embedding.size()}));
}

void Respond(Service& service, Embeddings& all) {
  std::string answer = R"({"object":"list","data":[)";
  size_t tokens = 0;
  for (size_t i = 0; i < all.inputs.size(); ++i) {
    tokens += all.inputs[i].size();
    answer += Concat(i == 0 ? "" : ",", R"({"object":"embedding","index":)", i, R"(,"embedding":)",
                     std::exchange(all.done[i], {}), "}");
  }
  const ordered_json usage = {{"prompt_tokens", tokens}, {"total_tokens", tokens}};
  answer += Concat(R"(],"model":)", JsonText(service.NameOf(all.adapter)), R"(,"usage":)",
                   JsonText(usage), "}");
  service.RespondJson(all.call.exchange, std::move(answer));
}

}  // namespace

void AnswerEmbeddings(Service& service, Call call) {
  const ServedModel& served = service.served();
  const auto all = std::make_shared<Embeddings>(Embeddings{.call = std::move(call)});
  Fields fields(all->call.body);
  all->adapter = ModelField(fields, service);
  const std::string format = fields.Text("encoding_format").value_or("float");
  if (format != "float" && format != "base64") {
    fields.Fail("encoding_format", "must be float or base64");
  }
  all->base64 = format == "base64";
  const int64_t size = served.model.hidden_size();
  if (size == 0 || served.model.encoder_decoder() != nullptr) {
    fields.Fail("model", "this model gives no embeddings of texts");
  }
  if (!served.pooling.ok()) fields.Fail("model", Message(served.pooling.status()));
  if (const auto dimensions = fields.Integer("dimensions", 1); dimensions && *dimensions != size) {
    fields.Fail("dimensions", Concat("this model's embeddings have ", size));
  }
  fields.Allow({"user"});
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
    auto ids = InputIds(service, list ? (*input)[i] : *input, all->adapter);
    if (!ids.ok()) {
      const Status status =
          InvalidArgument("input ", all->inputs.size(), ": ", ids.status().message());
      return service.Refuse(all->call.exchange, status, "input");
    }
    all->inputs.push_back(*std::move(ids));
  }
  all->call.body = nullptr;  // was read
  // A text in each turn.
  const auto work = [&service, all](const Status& status) {
    if (!status.ok()) {
      service.Refuse(all->call.exchange, status);
      return false;
    }
    const std::vector<int64_t>& ids = all->inputs[all->done.size()];
    const ServedModel& served = service.served();
    const auto embedding =
        models::Embed(served.model, ids, {.pooling = *served.pooling, .adapter = all->adapter});
    if (!embedding.ok()) {
      service.Refuse(all->call.exchange, embedding.status());
      return false;
    }
    all->done.push_back(EmbeddingJson(*embedding, all->base64));
    if (!all->call.exchange.Reserve(all->done.back().size())) {
      service.Refuse(all->call.exchange, NoRoomForAnswer());
      return false;
    }
    if (all->done.size() < all->inputs.size()) return true;
    Respond(service, *all);
    return false;
  };
  const StatusOr<int64_t> ticket = service.queue().SubmitWork(all->call.client, work);
  if (!ticket.ok()) return service.Refuse(all->call.exchange, ticket.status());
  all->call.exchange.OnGone([&queue = service.queue(), number = *ticket] { queue.Cancel(number); });
}

}  // namespace tessera::serve
