// SPDX-License-Identifier: Apache-2.0
// A text that is asked for, and what becomes of it.
#ifndef TESSERA_MODELS_GENERATION_TEXT_REQUEST_H_
#define TESSERA_MODELS_GENERATION_TEXT_REQUEST_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "models/generation/generation_config.h"
#include "models/generation/token_choice.h"

namespace tessera::models {

class TokenGrammar;  // models/generation/grammar/token_grammar.h

struct GenerationResult {
  enum class End { kLength, kEndOfText, kStopString };

  // As given, completed by the model (TextFormat::PreparePrompt), or the one token that an empty
  // prompt begins with.
  std::vector<int64_t> prompt;
  std::vector<int64_t> ids;  // the new tokens, the one that ended the text included
  // The new tokens' text without special tokens, up to a stop string; empty without a tokenizer.
  std::string text;
  End end = End::kLength;
};

// A value that copies share until one of them is changed: many texts of a request have the same
// prompt and configuration, which may be large.
template <typename T>
class Shared {
 public:
  Shared(T value = {}) : value_(std::make_shared<T>(std::move(value))) {}

  const T& operator*() const { return *value_; }
  const T* operator->() const { return value_.get(); }
  // For changes, which other copies do not see.
  T& Own() {
    if (value_.use_count() > 1) value_ = std::make_shared<T>(*value_);
    return *value_;
  }
  std::shared_ptr<const T> pointer() const { return value_; }

 private:
  std::shared_ptr<T> value_;
};

// A prompt, how it is continued, and whom that is told.
struct TextRequest {
  Shared<std::vector<int64_t>> prompt = {};
  Shared<GenerationConfig> config = {};
  // Of the random numbers: the same (seed, row) gives the same text. Messages name it.
  int64_t row = 0;
  // Which of the model's adapters counts (nn::ForwardContext).
  int adapter = 0;
  // Whether the tokens of the prompt, from the second on, get scores of their own. Not of models
  // with an encoder, nor where tokens of a prompt see those behind them.
  bool score_prompt = false;
  // How many of the likeliest tokens scores name beside the one that was taken; -1: new tokens have
  // no scores. Log-probabilities are those of the raw logits, before penalties and temperature.
  int64_t top_scores = -1;
  // Special tokens whose text is a part of the new text: marks that a reader of the text looks for.
  std::vector<int64_t> shown_tokens = {};

  // What the new tokens' text must fit; nullptr: anything. The text ends where it is complete: end
  // tokens come nowhere else, and must come where nothing else may follow. As the limit of new
  // tokens comes near, those are chosen that let the text be completed, where that is possible. It
  // is made with the tokenizer that decodes the text.
  std::shared_ptr<const TokenGrammar> grammar = nullptr;

  // Called before each new token is chosen, with the decoder's tokens so far and the model's logits
  // after them, which it may change: penalties, filters and the grammar come afterwards, and scores
  // are those of the logits before. -infinity forbids a token. A status that is not OK ends the
  // text.
  std::function<Status(std::span<const int64_t> ids, std::span<double> logits)> on_logits = nullptr;
  // Called for each new token as it is chosen, with the text that is certain now (whole characters
  // that no stop string can take back; often none), and its scores or nullptr. A status that is not
  // OK ends the text.
  std::function<Status(int64_t id, std::string_view text, const TokenScores* scores)> on_token =
      nullptr;
  // Called before the first token where the prompt is scored: of tokens 1, 2, ... of the prompt as
  // it is in GenerationResult.
  std::function<Status(const std::vector<TokenScores>& scores)> on_prompt_scores = nullptr;
  // Called once, last: the result, or why there is none.
  std::function<void(StatusOr<GenerationResult> result)> on_end = nullptr;
};

}  // namespace tessera::models

#endif  // TESSERA_MODELS_GENERATION_TEXT_REQUEST_H_
