// SPDX-License-Identifier: Apache-2.0
// What a model says of the tokens of a given text, and of the one behind it.
#include <algorithm>
#include <cstddef>
#include <limits>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "models/generation/continuous_batch.h"
#include "runtime/border.h"
#include "runtime/context.h"
#include "runtime/generate_options.h"
#include "runtime/listener.h"
#include "runtime/tessera.h"
#include "runtime/text_writer.h"

namespace tessera::runtime {
namespace {

using models::GenerationConfig;
using models::GenerationResult;
using models::TokenScores;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// The scores of all tokens of a text but the first. A batch of its own: the texts that the context
// keeps stay.
StatusOr<std::vector<TokenScores>> ScoresOfText(const Call& call, std::vector<int64_t> ids,
                                                int64_t top) {
  // Bounds the memory of logits, [tokens, vocabulary].
  constexpr int64_t kTokensInPass = 64;
  models::ContinuousBatch batch(*call.model().model, {.tokens_in_pass = kTokensInPass});
  GenerationConfig config;
  config.max_new_tokens = 0;
  const size_t count = ids.size();
  models::TextRequest request{.prompt = std::move(ids), .config = config};
  request.adapter = call.adapter();
  request.score_prompt = true;
  request.top_scores = top;
  std::vector<TokenScores> scores;
  Status status;
  request.on_prompt_scores = [&](const std::vector<TokenScores>& given) {
    scores = given;
    return OkStatus();
  };
  request.on_end = [&](StatusOr<GenerationResult> result) { status.Update(result.status()); };
  TESSERA_RETURN_IF_ERROR(batch.Add(std::move(request)).status());
  while (batch.Step()) {
  }
  TESSERA_RETURN_IF_ERROR(status);
  if (scores.size() + 1 == count) return scores;
  return InvalidArgument("this model's prompts are completed, and have other tokens than `ids`");
}

Status Logprobs(tsr_context* context, const int64_t* ids, size_t n, size_t top, double* logprobs,
                tsr_logprob* likeliest) {
  TESSERA_ASSIGN_OR_RETURN(const Call call, Call::Begin(context));
  TESSERA_RETURN_IF_ERROR(CheckArray(ids, n, "ids"));
  if (n == 0) return InvalidArgument("ids: there is no token");
  TESSERA_RETURN_IF_ERROR(CheckGiven(logprobs, "logprobs"));
  constexpr size_t kMostTop = size_t{1} << 24;
  constexpr size_t kMostTokens = size_t{1} << 32;
  if (top > kMostTop || n > kMostTokens) {
    return InvalidArgument(n, " tokens with ", top, " of the likeliest; there are at most ",
                           kMostTokens, " and ", kMostTop);
  }
  TESSERA_RETURN_IF_ERROR(CheckArray(likeliest, n * top, "likeliest"));
  TESSERA_ASSIGN_OR_RETURN(const std::vector<TokenScores> scores,
                           ScoresOfText(call, {ids, ids + n}, static_cast<int64_t>(top)));
  std::fill_n(likeliest, n * top, tsr_logprob{-1, kNan});
  logprobs[0] = kNan;
  for (size_t i = 1; i < n; ++i) {
    logprobs[i] = scores[i - 1].log_p;
    std::ranges::copy(LogprobsOf(scores[i - 1]), likeliest + i * top);
  }
  return OkStatus();
}

// One token of one text, whatever the folder asks for; what counts new tokens has none to count.
StatusOr<GenerationConfig> ConfigOfStep(const tsr_model& model, const tsr_generate_options& options,
                                        size_t n) {
  TESSERA_ASSIGN_OR_RETURN(GenerationConfig config, ConfigOf(model.generation, options));
  config.max_new_tokens = 1;
  config.max_length.reset();
  config.num_beams = 1;
  config.num_return_sequences = 1;
  config.min_new_tokens.reset();
  config.begin_suppress_tokens.clear();
  config.forced_eos_token_ids.clear();
  config.stop_strings.clear();
  config.seed = static_cast<int64_t>(static_cast<uint64_t>(config.seed) + n);
  return config;
}

Status CheckStep(const tsr_model& model, const tsr_generate_options& options, const double* logits,
                 size_t capacity) {
  TESSERA_RETURN_IF_ERROR(CheckArray(logits, capacity, "logits"));
  if (HasSchema(options)) {
    return InvalidArgument("tsr_generate_options: json_schema does not go with tsr_step");
  }
  if (model.model->encoder_decoder() != nullptr) {
    return InvalidArgument("tsr_step: the model has an encoder; tsr_generate serves it");
  }
  const auto needed = static_cast<size_t>(model.model->vocab_size());
  if (capacity == 0 || capacity >= needed) return OkStatus();
  return Failure(StatusCode::kOutOfRange, needed, " logits do not fit ", capacity);
}

Status Step(tsr_context* context, const int64_t* ids, size_t n, const tsr_generate_options* given,
            int64_t* next, double* logits, size_t capacity) {
  TESSERA_ASSIGN_OR_RETURN(const Call call, Call::Begin(context));
  TESSERA_ASSIGN_OR_RETURN(const tsr_generate_options options,
                           OptionsOf(given, "tsr_generate_options"));
  TESSERA_RETURN_IF_ERROR(CheckArray(ids, n, "ids"));
  TESSERA_RETURN_IF_ERROR(CheckGiven(next, "next"));
  TESSERA_RETURN_IF_ERROR(CheckStep(call.model(), options, logits, capacity));
  TESSERA_ASSIGN_OR_RETURN(GenerationConfig config, ConfigOfStep(call.model(), options, n));
  Listener listener(nullptr, nullptr);
  const auto change = LogitsCallbackOf(options, /*row=*/0, &listener);
  models::TextRequest request{.prompt = std::vector<int64_t>(ids, ids + n),
                              .config = std::move(config)};
  request.adapter = call.adapter();
  std::vector<double> given_logits;
  request.on_logits = [&](std::span<const int64_t> text, std::span<double> values) {
    if (capacity > 0) given_logits.assign(values.begin(), values.end());
    return change == nullptr ? OkStatus() : change(text, values);
  };
  int64_t chosen = 0;
  request.on_token = [&](int64_t id, std::string_view, const TokenScores*) {
    chosen = id;
    return OkStatus();
  };
  Status status;
  request.on_end = [&](StatusOr<GenerationResult> result) { status.Update(result.status()); };
  TextWriter writer(call);
  TESSERA_RETURN_IF_ERROR(writer.Add(std::move(request)));
  while (writer.Step()) {
  }
  TESSERA_RETURN_IF_ERROR(status);
  *next = chosen;
  std::ranges::copy(given_logits, logits);
  return OkStatus();
}

}  // namespace
}  // namespace tessera::runtime

using tessera::runtime::AtBorder;

tsr_status* tsr_logprobs(tsr_context* context, const int64_t* ids, size_t n, size_t top,
                         double* logprobs, tsr_logprob* likeliest) {
  return AtBorder(
      [&] { return tessera::runtime::Logprobs(context, ids, n, top, logprobs, likeliest); });
}

tsr_status* tsr_step(tsr_context* context, const int64_t* ids, size_t n,
                     const tsr_generate_options* options, int64_t* next, double* logits,
                     size_t capacity) {
  return AtBorder(
      [&] { return tessera::runtime::Step(context, ids, n, options, next, logits, capacity); });
}
