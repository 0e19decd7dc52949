// SPDX-License-Identifier: Apache-2.0
// One text on its way: what was read and written so far, and how the next token is chosen.
//
//   TESSERA_ASSIGN_OR_RETURN(auto text, WrittenText::Of(model, request, tokenizer));
//   ... feed text->ids(); then, until text->done(), with the logits after the last of them:
//   TESSERA_RETURN_IF_ERROR(text->Choose(logits));
#ifndef TESSERA_MODELS_GENERATION_WRITTEN_TEXT_H_
#define TESSERA_MODELS_GENERATION_WRITTEN_TEXT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "data/tokenizer/streaming_decoder.h"
#include "data/tokenizer/tokenizer.h"
#include "models/generation/grammar/token_grammar.h"
#include "models/generation/stop_strings.h"
#include "models/generation/text_request.h"
#include "models/model.h"

namespace tessera::models {

// The mark (base/status.h) of a failure for lack of positions.
inline constexpr char kTooLong[] = "too long for the model";

class WrittenText {
 public:
  // InvalidArgument for what Generate refuses (models/generation/generate.h), scores of a prompt
  // that there are none of, and no new tokens without them. `tokenizer` may be null.
  static StatusOr<std::unique_ptr<WrittenText>> Of(const Model& model, TextRequest request,
                                                   const data::Tokenizer* tokenizer);

  const TextRequest& request() const { return request_; }
  // What an encoder reads.
  const std::vector<int64_t>& prompt() const { return result_.prompt; }
  // What the decoder reads: how the text begins, and new tokens.
  const std::vector<int64_t>& ids() const { return ids_; }
  // Of them: what the text begins with; the prompt, or the start of a decoder beside an encoder.
  int64_t begin_size() const { return begin_size_; }
  // How many new tokens there may be.
  int64_t limit() const { return limit_; }
  bool done() const { return done_; }

  // Whether the prompt is to be scored, still.
  bool scores_prompt() const { return request_.score_prompt && !prompt_told_; }
  // The next token of the prompt, with the logits after the one before it.
  void ScorePrompt(std::vector<double> logits);
  // How many were.
  int64_t prompt_scored() const { return std::ssize(prompt_scores_); }
  // The prompt is read again from its beginning.
  void ForgetPromptScores() { prompt_scores_.clear(); }
  // All were scored.
  Status TellPromptScores();

  // Takes the next token by the logits after the last one, which it may write to. What the callback
  // returns.
  Status Choose(std::span<double> logits);
  Status Add(int64_t id, const TokenScores* scores = nullptr);

  GenerationResult TakeResult() { return std::move(result_); }

 private:
  WrittenText(TextRequest request, std::vector<int64_t> prompt, std::vector<int64_t> begin,
              int64_t limit, const data::Tokenizer* tokenizer);
  std::optional<GenerationResult::End> EndAfter(int64_t id) const;
  // The tokens that the grammar lets follow, those that end the text among them.
  StatusOr<TokenMask> AllowedByGrammar() const;

  const TextRequest request_;
  const int64_t limit_;
  const int64_t begin_size_;
  std::vector<int64_t> ids_;
  std::optional<data::StreamingDecoder> decoder_;
  StopStrings stop_;
  std::optional<GrammarText> grammar_;
  GenerationResult result_;
  std::vector<TokenScores> prompt_scores_;
  bool prompt_told_ = false;
  bool done_ = false;
};

}  // namespace tessera::models

#endif  // TESSERA_MODELS_GENERATION_WRITTEN_TEXT_H_
