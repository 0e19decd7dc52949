// SPDX-License-Identifier: Apache-2.0
// From one position's logits to the next token.
//
//   std::vector<double> scores = ...;                       // one per token of the vocabulary
//   PenaliseRepetition(1.2, ids_so_far, scores);
//   PenaliseWritten(config, new_ids_so_far, scores);
//   RemoveForbidden(config, ids_so_far, new_ids_so_far.size(), scores);
//   ForceTokens(config, ids_so_far.size(), longest, scores);
//   int64_t id = config.do_sample ? SampleToken(config, u, scores) : LikeliestToken(scores);
//
// Scores are logits in float64. The filters are those of Hugging Face's `generate`, in its order:
// repetition penalties (the prompt's first), forbidden and forced tokens, temperature, top-k,
// top-p, min-p, typical-p, epsilon and eta. OpenAI's penalties and biases come before forbidden
// tokens.
#ifndef TESSERA_MODELS_GENERATION_TOKEN_CHOICE_H_
#define TESSERA_MODELS_GENERATION_TOKEN_CHOICE_H_

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "models/generation/generation_config.h"

namespace tessera::models {

// Divides the positive scores of tokens that occurred by `penalty` and multiplies their negative
// ones (Keskar et al. 2019, "CTRL"); each token once, however often it occurred. Ids must be valid.
void PenaliseRepetition(double penalty, std::span<const int64_t> occurred,
                        std::span<double> scores);

// Subtracts presence_penalty from the scores of tokens that were written and frequency_penalty as
// often as they were, then adds logit_bias. Ids must be valid.
void PenaliseWritten(const GenerationConfig& config, std::span<const int64_t> written,
                     std::span<double> scores);

// Sets the scores of forbidden tokens to -infinity. `ids` is the text so far; its last `written`
// tokens are new. Forbidden are suppressed tokens, an end of text that comes too early, the last
// token of a bad word, and a token that repeats a run of no_repeat_ngram_size tokens. The rules are
// those of transformers' logits processors.
void RemoveForbidden(const GenerationConfig& config, std::span<const int64_t> ids, size_t written,
                     std::span<double> scores);

// Leaves forced_bos_token_id alone behind a single token, and forced_eos_token_id where one token
// more makes a text of `longest`.
void ForceTokens(const GenerationConfig& config, size_t size, int64_t longest,
                 std::span<double> scores);

// The first token of the greatest score.
int64_t LikeliestToken(std::span<const double> scores);

// Filters the scores and takes the token where the cumulative probability, in order of ids, passes
// `uniform` in [0, 1).
int64_t SampleToken(const GenerationConfig& config, double uniform, std::span<double> scores);

// scores - log(sum(exp(scores))).
void LogSoftmaxInPlace(std::span<double> scores);

// A token's log-probability, and the likeliest tokens there.
struct TokenScores {
  int64_t id = 0;
  double log_p = 0;
  // Ids and log-probabilities, the likeliest first; of equals the lower id.
  std::vector<std::pair<int64_t, double>> likeliest = {};
};

// Of log-probabilities of a position; so many of the likeliest, or all there are.
TokenScores ScoresOf(int64_t id, int64_t likeliest, std::span<const double> log_p);

}  // namespace tessera::models

#endif  // TESSERA_MODELS_GENERATION_TOKEN_CHOICE_H_
