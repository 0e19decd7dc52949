// SPDX-License-Identifier: Apache-2.0
// POST /v1/rerank: documents in the order of their relevance for a query, as Jina's, Cohere's and
// vLLM's servers have it.
#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "models/open/text_encoder.h"
#include "serve/endpoints/endpoints.h"
#include "serve/text_fields.h"
#include "serve/text_rows.h"

namespace tessera::serve {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMostDocuments = 2048;

// A text, or an object that holds one.
StatusOr<std::string> DocumentOf(const ordered_json& document) {
  if (document.is_string()) return document.get<std::string>();
  if (document.is_object()) {
    const auto text = document.find("text");
    if (text != document.end() && text->is_string()) return text->get<std::string>();
  }
  return InvalidArgument("must be a text, or an object with a text as 'text'");
}

struct Ranking {
  std::vector<std::string> documents = {};
  std::vector<double> scores = {};
  bool returns_documents = true;
  size_t most = 0;
};

ordered_json ResultsOf(const Ranking& ranking) {
  std::vector<size_t> order(ranking.scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return ranking.scores[a] > ranking.scores[b]; });
  order.resize(std::min(order.size(), ranking.most));
  ordered_json results = ordered_json::array();
  for (const size_t i : order) {
    ordered_json result = {{"index", i}, {"relevance_score", ranking.scores[i]}};
    if (ranking.returns_documents) result["document"] = {{"text", ranking.documents[i]}};
    results.push_back(std::move(result));
  }
  return results;
}

}  // namespace

void AnswerRerank(Service& service, Call call) {
  const ServedModel& served = service.served();
  const auto all = std::make_shared<TextRows>(TextRows{.call = std::move(call)});
  const auto ranking = std::make_shared<Ranking>();
  Fields fields(all->call.body);
  all->adapter = ModelField(fields, service);
  const auto query = fields.Text("query");
  if (!query) fields.Fail("query", "is missing");
  const ordered_json* const documents = fields.Any("documents");
  if (documents == nullptr || !documents->is_array() || documents->empty()) {
    fields.Fail("documents", "must be a list of texts");
  } else if (documents->size() > kMostDocuments) {
    fields.Fail("documents", Concat("at most ", kMostDocuments));
  }
  const auto most = fields.Integer("top_n", 1);
  ranking->returns_documents = fields.Flag("return_documents").value_or(true);
  const models::TextOptions options = {
      .max_tokens = fields.Integer("truncate_prompt_tokens", 1).value_or(0),
      .adapter = all->adapter};
  fields.Allow({"user"});
  if (!served.encoder.ok()) {
    fields.Fail("model", Message(served.encoder.status()));
  } else if (const Status scores = served.encoder->CheckScores(served.model); !scores.ok()) {
    fields.Fail("model", Message(scores));
  }
  if (Refused(service, all->call, fields)) return;
  for (size_t i = 0; i < documents->size(); ++i) {
    const auto document = DocumentOf((*documents)[i]);
    auto row = document.ok() ? served.encoder->PairOf(served.model, served.tokenizer, *query,
                                                      *document, options)
                             : document.status();
    if (!row.ok()) {
      const Status status = InvalidArgument("document ", i, ": ", row.status().message());
      return service.Refuse(all->call.exchange, status, "documents");
    }
    ranking->documents.push_back(*document);
    all->rows.push_back(*std::move(row));
  }
  ranking->most = static_cast<size_t>(most.value_or(std::ssize(*documents)));
  all->take = [&service, ranking,
               adapter = all->adapter](std::span<const models::EncodedText> rows) -> Status {
    const ServedModel& served = service.served();
    TESSERA_ASSIGN_OR_RETURN(const std::vector<double> scores,
                             served.encoder->Score(served.model, rows, adapter));
    ranking->scores.insert(ranking->scores.end(), scores.begin(), scores.end());
    return OkStatus();
  };
  all->respond = [&service, ranking, all = all.get()] {
    const ordered_json answer = {{"id", service.NewId("rerank")},
                                 {"model", service.NameOf(all->adapter)},
                                 {"results", ResultsOf(*ranking)},
                                 {"usage", {{"total_tokens", all->tokens()}}}};
    service.RespondJson(all->call.exchange, JsonText(answer));
  };
  WorkInTurns(service, all);
}

}  // namespace tessera::serve
