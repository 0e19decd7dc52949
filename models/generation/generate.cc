// SPDX-License-Identifier: Apache-2.0
#include "models/generation/generate.h"

#include <memory>
#include <optional>
#include <utility>

#include "models/generation/beam_search.h"
#include "models/generation/continuous_batch.h"
#include "models/generation/written_text.h"

namespace tessera::models {
namespace {

// What becomes of the texts: results are told in their order, and nothing after a failure.
class Outcome {
 public:
  Outcome(size_t texts, const GenerateOptions& options) : options_(options), results_(texts) {}

  // Its callbacks refer to this.
  TextRequest Request(int64_t row, std::vector<int64_t> prompt, const GenerationConfig& config) {
    TextRequest request{.prompt = std::move(prompt), .config = config, .row = row};
    request.adapter = options_.adapter;
    request.grammar = options_.grammar;
    request.on_token = [this, row](int64_t id, std::string_view text, const TokenScores*) {
      if (status_.ok() && options_.on_token) status_ = options_.on_token(row, id, text);
      return status_;
    };
    request.on_end = [this, row](StatusOr<GenerationResult> result) {
      status_.Update(result.status());
      if (result.ok()) results_[static_cast<size_t>(row)] = *std::move(result);
    };
    return request;
  }

  void Add(int64_t row, GenerationResult result) {
    results_[static_cast<size_t>(row)] = std::move(result);
  }

  // Tells the results that are there, and those before them. Whether nothing has failed.
  bool Report() {
    for (; status_.ok() && told_ < results_.size() && results_[told_]; ++told_) {
      if (!options_.on_result) continue;
      status_ = options_.on_result(static_cast<int64_t>(told_), *results_[told_]);
    }
    return status_.ok();
  }

  StatusOr<std::vector<GenerationResult>> Take() {
    TESSERA_RETURN_IF_ERROR(status_);
    std::vector<GenerationResult> results;
    for (auto& result : results_) results.push_back(*std::move(result));
    return results;
  }

 private:
  const GenerateOptions& options_;
  std::vector<std::optional<GenerationResult>> results_;
  size_t told_ = 0;
  Status status_;
};

Status SearchBeams(const Model& model, const std::vector<std::unique_ptr<WrittenText>>& texts,
                   const GenerateOptions& options, Lockstep* lockstep, Outcome* outcome) {
  for (size_t i = 0; i < texts.size();) {
    const WrittenText& text = *texts[i];
    TESSERA_ASSIGN_OR_RETURN(const std::vector<std::vector<int64_t>> best,
                             BeamSearch(model, text.prompt(), text.ids(), text.limit(),
                                        *text.request().config, lockstep, options.adapter));
    for (const std::vector<int64_t>& ids : best) {
      for (const int64_t id : ids) TESSERA_RETURN_IF_ERROR(texts[i]->Add(id));
      outcome->Add(texts[i]->request().row, texts[i]->TakeResult());
      ++i;
    }
    if (!outcome->Report()) break;
  }
  return OkStatus();
}

Status WriteOneByOne(const Model& model, std::vector<TextRequest> requests,
                     const GenerateOptions& options, Lockstep* lockstep, Outcome* outcome) {
  std::vector<std::unique_ptr<WrittenText>> texts;
  for (TextRequest& request : requests) {
    TESSERA_ASSIGN_OR_RETURN(auto text,
                             WrittenText::Of(model, std::move(request), options.tokenizer));
    texts.push_back(std::move(text));
  }
  Status status = SearchBeams(model, texts, options, lockstep, outcome);
  lockstep->Finish();
  return status;
}

Status WriteTogether(const Model& model, std::vector<TextRequest> requests,
                     const GenerateOptions& options, Lockstep* lockstep, Outcome* outcome) {
  // Whole prompts that share nothing, so that passes are the same on ranks that go in step.
  ContinuousBatch batch(
      model, {.slots = options.slots, .tokenizer = options.tokenizer, .lockstep = lockstep});
  for (TextRequest& request : requests) {
    TESSERA_RETURN_IF_ERROR(batch.Add(std::move(request)).status());
  }
  while (outcome->Report() && batch.Step()) {
  }
  lockstep->Finish();
  return OkStatus();
}

}  // namespace

StatusOr<std::vector<GenerationResult>> Generate(const Model& model, const Prompts& prompts,
                                                 const GenerationConfig& config,
                                                 const GenerateOptions& options) {
  TESSERA_RETURN_IF_ERROR(config.Validate());
  Outcome outcome(prompts.rows().size() * static_cast<size_t>(config.num_return_sequences),
                  options);
  std::vector<TextRequest> requests;
  for (const std::vector<int64_t>& prompt : prompts.rows()) {
    for (int64_t i = 0; i < config.num_return_sequences; ++i) {
      requests.push_back(outcome.Request(std::ssize(requests), prompt, config));
    }
  }
  Lockstep lockstep(model, options.largest_over_ranks, options.adapter);
  const auto write = config.num_beams > 1 ? WriteOneByOne : WriteTogether;
  TESSERA_RETURN_IF_ERROR(write(model, std::move(requests), options, &lockstep, &outcome));
  return outcome.Take();
}

}  // namespace tessera::models
