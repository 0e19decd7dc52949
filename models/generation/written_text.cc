// SPDX-License-Identifier: Apache-2.0
#include "models/generation/written_text.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "core/random.h"
#include "models/family.h"

namespace tessera::models {
namespace {

template <typename... Parts>
Status TooLong(const Parts&... parts) {
  Status status = InvalidArgument(parts...);
  SetMark(status, kTooLong);
  return status;
}

// How many tokens may follow what the text begins with.
StatusOr<int64_t> Limit(const Model& model, const TextRequest& request, int64_t prompt_size) {
  const GenerationConfig& config = *request.config;
  const int64_t row = request.row;
  const int64_t positions = model.positions_left(request.adapter);
  const int64_t room = positions == 0 ? INT64_MAX : positions - prompt_size;
  if (room < (config.max_new_tokens == 0 ? 0 : 1)) {
    return TooLong("the prompt of row ", row, " has ", prompt_size, " tokens; the model has ",
                   positions, " positions");
  }
  if (config.max_new_tokens) {
    if (*config.max_new_tokens <= room) return *config.max_new_tokens;
    return TooLong("the prompt of row ", row, " has ", prompt_size, " tokens; with ",
                   *config.max_new_tokens, " new ones it exceeds the model's ", positions,
                   " positions");
  }
  if (!config.max_length) return std::min(kDefaultNewTokens, room);
  if (*config.max_length > prompt_size) return std::min(*config.max_length - prompt_size, room);
  return InvalidArgument("the prompt of row ", row, " has ", prompt_size, " tokens; max_length is ",
                         *config.max_length);
}

// The request's own, completed.
StatusOr<std::vector<int64_t>> TakePrompt(const Model& model, TextRequest& request) {
  const GenerationConfig& config = *request.config;
  const int64_t row = request.row;
  std::vector<int64_t> ids = *std::exchange(request.prompt, {});
  if (const auto format = model.text_format(); format != nullptr) {
    auto prepared = format->PreparePrompt(std::move(ids));
    if (!prepared.ok()) {
      return InvalidArgument("the prompt of row ", row, ": ", Message(prepared.status()));
    }
    ids = *std::move(prepared);
  }
  if (ids.empty()) {
    if (!config.bos_token_id && config.eos_token_ids.empty()) {
      return InvalidArgument("the prompt of row ", row,
                             " is empty, and the model names no token to begin with");
    }
    ids.push_back(config.bos_token_id ? *config.bos_token_id : config.eos_token_ids[0]);
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= model.vocab_size()) {
      return InvalidArgument("token id ", ids[i], " (row ", row, ", position ", i,
                             ") is beyond the model's vocabulary of ", model.vocab_size());
    }
  }
  return ids;
}

Status CheckGrammar(const TextRequest& request, const data::Tokenizer* tokenizer) {
  if (request.grammar == nullptr) return OkStatus();
  if (tokenizer == nullptr) return InvalidArgument("a grammar needs a tokenizer");
  if (request.grammar->vocabulary().size() != tokenizer->vocab_size()) {
    return InvalidArgument("the grammar was made with another tokenizer: of ",
                           request.grammar->vocabulary().size(), " tokens, not ",
                           tokenizer->vocab_size());
  }
  if (request.config->num_beams > 1) {
    return InvalidArgument("a grammar is not supported with num_beams above 1");
  }
  return OkStatus();
}

Status CheckConfig(const Model& model, const TextRequest& request,
                   const data::Tokenizer* tokenizer) {
  const GenerationConfig& config = *request.config;
  TESSERA_RETURN_IF_ERROR(config.Validate());
  if (!Generates(model)) return InvalidArgument("this model does not generate text");
  if (config.max_new_tokens == 0 && !request.score_prompt) {
    return InvalidArgument("max_new_tokens must be at least 1, not 0");
  }
  if (!config.stop_strings.empty() && tokenizer == nullptr) {
    return InvalidArgument("stop strings need a tokenizer");
  }
  TESSERA_RETURN_IF_ERROR(CheckGrammar(request, tokenizer));
  std::vector<int64_t> forced = config.forced_eos_token_ids;
  if (config.forced_bos_token_id) forced.push_back(*config.forced_bos_token_id);
  for (const int64_t id : forced) {
    if (id >= 0 && id < model.vocab_size()) continue;
    return InvalidArgument("token id ", id,
                           " (a forced token) is beyond the model's vocabulary of ",
                           model.vocab_size());
  }
  if (model.encoder_decoder() != nullptr && config.decoder_start_token_id) {
    const int64_t start = *config.decoder_start_token_id;
    if (start < 0 || start >= model.vocab_size()) {
      return InvalidArgument("token id ", start,
                             " (decoder_start_token_id) is beyond the model's vocabulary of ",
                             model.vocab_size());
    }
  }
  const auto& bias = config.logit_bias;
  if (!bias.empty() && bias.rbegin()->first >= model.vocab_size()) {
    return InvalidArgument("token id ", bias.rbegin()->first,
                           " (logit_bias) is beyond the model's vocabulary of ",
                           model.vocab_size());
  }
  return OkStatus();
}

// Whether what follows a token of the prompt is told by the logits there.
Status CheckScores(const Model& model, const std::vector<int64_t>& prompt) {
  if (model.encoder_decoder() != nullptr) {
    return InvalidArgument("the prompt is an encoder's: its tokens have no log-probabilities");
  }
  const auto format = model.text_format();
  if (format == nullptr) return OkStatus();
  TESSERA_ASSIGN_OR_RETURN(const TextLayout layout, format->LayoutOf(prompt));
  if (layout.prefix_length <= 1) return OkStatus();
  return InvalidArgument(
      "tokens of this model's prompts see those behind them and have no "
      "log-probabilities");
}

// What TextRequest::on_logits has left: numbers or -infinity, and some token to take.
Status CheckChanged(std::span<const double> logits, int64_t row) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  bool any = false;
  for (size_t id = 0; id < logits.size(); ++id) {
    if (std::isnan(logits[id]) || logits[id] == kInfinity) {
      return InvalidArgument("the logits callback made ", logits[id], " of the logit of token ", id,
                             " (row ", row, "); a logit is a finite number or -infinity");
    }
    any |= logits[id] != -kInfinity;
  }
  if (any) return OkStatus();
  return InvalidArgument("the logits callback has left no token (row ", row, ")");
}

}  // namespace

StatusOr<std::unique_ptr<WrittenText>> WrittenText::Of(const Model& model, TextRequest request,
                                                       const data::Tokenizer* tokenizer) {
  TESSERA_RETURN_IF_ERROR(CheckConfig(model, request, tokenizer));
  TESSERA_ASSIGN_OR_RETURN(std::vector<int64_t> prompt, TakePrompt(model, request));
  if (request.score_prompt) TESSERA_RETURN_IF_ERROR(CheckScores(model, prompt));
  std::vector<int64_t> begin = prompt;
  if (const EncoderDecoder* both = model.encoder_decoder()) {
    begin = {request.config->decoder_start_token_id.value_or(both->decoder_start())};
  }
  TESSERA_ASSIGN_OR_RETURN(const int64_t limit, Limit(model, request, std::ssize(begin)));
  return std::unique_ptr<WrittenText>(
      new WrittenText(std::move(request), std::move(prompt), std::move(begin), limit, tokenizer));
}

WrittenText::WrittenText(TextRequest request, std::vector<int64_t> prompt,
                         std::vector<int64_t> begin, int64_t limit,
                         const data::Tokenizer* tokenizer)
    : request_(std::move(request)),
      limit_(limit),
      begin_size_(std::ssize(begin)),
      ids_(std::move(begin)),
      stop_({request_.config.pointer(), &request_.config->stop_strings}) {
  result_.prompt = std::move(prompt);
  if (tokenizer == nullptr) return;
  const bool follows_text = !tokenizer->IsSpecial(static_cast<int32_t>(ids_.back()));
  decoder_.emplace(*tokenizer, data::DecodeOptions{.skip_special = true}, follows_text);
  if (request_.grammar != nullptr) grammar_.emplace(request_.grammar, !follows_text);
}

void WrittenText::ScorePrompt(std::vector<double> logits) {
  LogSoftmaxInPlace(logits);
  const int64_t id = ids_.at(prompt_scores_.size() + 1);
  prompt_scores_.push_back(ScoresOf(id, request_.top_scores, logits));
}

Status WrittenText::TellPromptScores() {
  prompt_told_ = true;
  done_ = limit_ == 0;
  const std::vector<TokenScores> scores = std::move(prompt_scores_);
  return request_.on_prompt_scores ? request_.on_prompt_scores(scores) : OkStatus();
}

Status WrittenText::Choose(std::span<double> logits) {
  const GenerationConfig& config = *request_.config;
  std::vector<double> log_p;
  if (request_.top_scores >= 0) {
    log_p.assign(logits.begin(), logits.end());
    LogSoftmaxInPlace(log_p);
  }
  if (request_.on_logits) {
    TESSERA_RETURN_IF_ERROR(request_.on_logits(ids_, logits));
    TESSERA_RETURN_IF_ERROR(CheckChanged(logits, request_.row));
  }
  PenaliseRepetition(1 / config.encoder_repetition_penalty, prompt(), logits);
  PenaliseRepetition(config.repetition_penalty, ids_, logits);
  PenaliseWritten(config, result_.ids, logits);
  RemoveForbidden(config, ids_, result_.ids.size(), logits);
  if (grammar_) {
    TESSERA_ASSIGN_OR_RETURN(const TokenMask allowed, AllowedByGrammar());
    // The grammar comes first where other settings forbid all that it allows.
    if (!allowed.Apply(logits)) allowed.Fill(logits);
  } else {
    ForceTokens(config, ids_.size(), begin_size_ + limit_, logits);
  }
  int64_t id = 0;
  if (config.do_sample) {
    const RandomKey key = RandomKey::FromSeed(static_cast<uint64_t>(config.seed))
                              .With("generation")
                              .With(static_cast<uint64_t>(request_.row));
    id = SampleToken(config, UniformDouble(key, result_.ids.size()), logits);
  } else {
    id = LikeliestToken(logits);
  }
  if (log_p.empty()) return Add(id);
  const TokenScores scores = ScoresOf(id, request_.top_scores, log_p);
  return Add(id, &scores);
}

StatusOr<TokenMask> WrittenText::AllowedByGrammar() const {
  TokenMask allowed = grammar_->Allowed(limit_ - std::ssize(result_.ids));
  for (const int64_t id : request_.config->eos_token_ids) allowed.Set(id, grammar_->complete());
  if (!allowed.empty()) return allowed;
  return InvalidArgument("the tokenizer has no token that may follow '", result_.text, "' (row ",
                         request_.row, ")");
}

Status WrittenText::Add(int64_t id, const TokenScores* scores) {
  ids_.push_back(id);
  result_.ids.push_back(id);
  std::string text;
  if (decoder_) {
    const auto token = static_cast<int32_t>(id);
    const bool shown = std::ranges::find(request_.shown_tokens, id) != request_.shown_tokens.end();
    text = stop_.Push(shown ? decoder_->PushShown(token) : decoder_->Push(token));
  }
  if (grammar_) grammar_->Add(static_cast<int32_t>(id));
  if (const auto end = EndAfter(id)) {
    done_ = true;
    if (decoder_) {
      // Push comes first: the stop strings' Finish returns what Push has held back.
      text += stop_.Push(decoder_->Finish());
      text += stop_.Finish();
    }
    result_.end = stop_.found() ? GenerationResult::End::kStopString : *end;
  }
  result_.text += text;
  return request_.on_token ? request_.on_token(id, text, scores) : OkStatus();
}

std::optional<GenerationResult::End> WrittenText::EndAfter(int64_t id) const {
  const std::vector<int64_t>& eos = request_.config->eos_token_ids;
  if (stop_.found()) return GenerationResult::End::kStopString;
  if (std::find(eos.begin(), eos.end(), id) != eos.end()) return GenerationResult::End::kEndOfText;
  if (grammar_ && grammar_->finished() && eos.empty()) return GenerationResult::End::kEndOfText;
  if (std::ssize(result_.ids) < limit_) return std::nullopt;
  // A grammar's text that its last token completes was not cut.
  const bool complete = grammar_ && grammar_->complete();
  return complete ? GenerationResult::End::kEndOfText : GenerationResult::End::kLength;
}

}  // namespace tessera::models
