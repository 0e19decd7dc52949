#include "models/generation/generate.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "core/random.h"
#include "data/tokenizer/streaming_decoder.h"
#include "models/family.h"
#include "models/generation/beam_search.h"
#include "models/generation/incremental_decoder.h"
#include "models/generation/stop_strings.h"
#include "models/generation/token_choice.h"

namespace tessera::models {
namespace {

using data::StreamingDecoder;

// One sequence on its way.
class Row {
 public:
  // `begin` is what the decoder's text begins with: the prompt itself, or the start of a decoder
  // beside an encoder, which reads the prompt.
  Row(int64_t index, std::vector<int64_t> prompt, std::vector<int64_t> begin, int64_t limit,
      const GenerationConfig& config, const GenerateOptions& options)
      : index_(index),
        limit_(limit),
        config_(config),
        options_(options),
        ids_(std::move(begin)),
        stop_(config.stop_strings) {
    result_.prompt = std::move(prompt);
    if (options.tokenizer != nullptr) {
      decoder_.emplace(*options.tokenizer, data::DecodeOptions{.skip_special = true});
    }
  }

  const std::vector<int64_t>& prompt() const { return result_.prompt; }
  const std::vector<int64_t>& ids() const { return ids_; }
  int64_t limit() const { return limit_; }
  bool done() const { return done_; }
  int64_t last_id() const { return ids_.back(); }

  // Chooses from the logits after the last token.
  int64_t Choose(std::span<double> scores) const {
    PenaliseRepetition(config_.repetition_penalty, ids_, scores);
    if (!config_.do_sample) return LikeliestToken(scores);
    const RandomKey key =
        RandomKey::FromSeed(config_.seed).With("generation").With(static_cast<uint64_t>(index_));
    return SampleToken(config_, UniformDouble(key, result_.ids.size()), scores);
  }

  Status Add(int64_t id) {
    ids_.push_back(id);
    result_.ids.push_back(id);
    std::string text;
    if (decoder_) text = stop_.Push(decoder_->Push(static_cast<int32_t>(id)));
    if (const auto end = EndAfter(id)) {
      done_ = true;
      if (decoder_) text += stop_.Push(decoder_->Finish()) + stop_.Finish();
      result_.end = stop_.found() ? GenerationResult::End::kStopString : *end;
    }
    result_.text += text;
    return options_.on_token ? options_.on_token(index_, id, text) : OkStatus();
  }

  Status Report() const {
    return options_.on_result ? options_.on_result(index_, result_) : OkStatus();
  }

  GenerationResult TakeResult() { return std::move(result_); }

 private:
  std::optional<GenerationResult::End> EndAfter(int64_t id) const {
    const std::vector<int64_t>& eos = config_.eos_token_ids;
    if (stop_.found()) return GenerationResult::End::kStopString;
    if (std::find(eos.begin(), eos.end(), id) != eos.end()) {
      return GenerationResult::End::kEndOfText;
    }
    if (static_cast<int64_t>(result_.ids.size()) == limit_) return GenerationResult::End::kLength;
    return std::nullopt;
  }

  const int64_t index_;
  const int64_t limit_;
  const GenerationConfig& config_;
  const GenerateOptions& options_;
  std::vector<int64_t> ids_;  // what the text begins with, and new tokens
  std::optional<StreamingDecoder> decoder_;
  StopStrings stop_;
  GenerationResult result_;
  bool done_ = false;
};

// How many tokens may follow the prompt.
StatusOr<int64_t> Limit(const Model& model, const GenerationConfig& config, int64_t row,
                        int64_t prompt_size, int adapter) {
  const int64_t positions = model.positions_left(adapter);
  const int64_t room = positions == 0 ? INT64_MAX : positions - prompt_size;
  if (room < 1) {
    return InvalidArgument("the prompt of row ", row, " has ", prompt_size,
                           " tokens; the model has ", positions, " positions");
  }
  if (config.max_new_tokens) {
    if (*config.max_new_tokens <= room) return *config.max_new_tokens;
    return InvalidArgument("the prompt of row ", row, " has ", prompt_size, " tokens; with ",
                           *config.max_new_tokens, " new ones it exceeds the model's ", positions,
                           " positions");
  }
  if (!config.max_length) return std::min(kDefaultNewTokens, room);
  if (*config.max_length > prompt_size) return std::min(*config.max_length - prompt_size, room);
  return InvalidArgument("the prompt of row ", row, " has ", prompt_size, " tokens; max_length is ",
                         *config.max_length);
}

StatusOr<std::vector<int64_t>> CheckedPrompt(const Model& model, const GenerationConfig& config,
                                             int64_t row, std::vector<int64_t> given) {
  std::vector<int64_t> ids = std::move(given);
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

Status SearchBeams(const Model& model, const GenerationConfig& config, std::vector<Row>* rows,
                   Lockstep* lockstep, int adapter) {
  for (Row& row : *rows) {
    TESSERA_ASSIGN_OR_RETURN(
        const std::vector<int64_t> ids,
        BeamSearch(model, row.prompt(), row.ids(), row.limit(), config, lockstep, adapter));
    for (int64_t id : ids) TESSERA_RETURN_IF_ERROR(row.Add(id));
    TESSERA_RETURN_IF_ERROR(row.Report());
  }
  return OkStatus();
}

// The texts on their way, at most `slots` at once: as one ends, the next in line takes its place.
class Batch {
 public:
  Batch(const Model& model, std::vector<Row>* rows, const GenerateOptions& options,
        Lockstep* lockstep)
      : decoder_(model, lockstep, options.adapter),
        encodes_(model.encoder_decoder() != nullptr),
        slots_(options.slots > 0 ? static_cast<size_t>(options.slots) : rows->size()),
        next_result_(rows->begin()),
        waiting_(rows->begin()),
        end_(rows->end()) {}

  Status Run() {
    while (!active_.empty() || waiting_ != end_) {
      // New texts are read in a pass of their own: the others' one token would be filled up to
      // their length.
      TESSERA_RETURN_IF_ERROR(active_.size() < slots_ && waiting_ != end_ ? Begin() : Advance());
      DropDone();
      TESSERA_RETURN_IF_ERROR(ReportDone());
    }
    return OkStatus();
  }

 private:
  Status Begin() {
    std::vector<int64_t> places;
    std::vector<std::vector<int64_t>> begins;
    std::vector<std::vector<int64_t>> sources;
    for (; active_.size() < slots_ && waiting_ != end_; ++waiting_) {
      places.push_back(std::ssize(active_));
      begins.push_back(waiting_->ids());
      sources.push_back(waiting_->prompt());
      active_.push_back(&*waiting_);
    }
    if (encodes_) decoder_.Encode(sources);
    return Choose(places, begins);
  }

  Status Advance() {
    std::vector<int64_t> places(active_.size());
    std::iota(places.begin(), places.end(), 0);
    std::vector<std::vector<int64_t>> tokens;
    for (const Row* row : active_) tokens.push_back({row->last_id()});
    return Choose(places, tokens);
  }

  // The next token of the texts in these places.
  Status Choose(const std::vector<int64_t>& places,
                const std::vector<std::vector<int64_t>>& tokens) {
    TESSERA_ASSIGN_OR_RETURN(const Scores scores, decoder_.Feed(places, tokens));
    for (size_t i = 0; i < places.size(); ++i) {
      Row& row = *active_[static_cast<size_t>(places[i])];
      TESSERA_RETURN_IF_ERROR(row.Add(row.Choose(scores[i])));
    }
    return OkStatus();
  }

  void DropDone() {
    std::vector<int64_t> kept;
    for (size_t b = 0; b < active_.size(); ++b) {
      if (!active_[b]->done()) kept.push_back(static_cast<int64_t>(b));
    }
    if (kept.size() == active_.size()) return;
    decoder_.Keep(kept);
    std::erase_if(active_, [](const Row* row) { return row->done(); });
  }

  Status ReportDone() {
    for (; next_result_ != end_ && next_result_->done(); ++next_result_) {
      TESSERA_RETURN_IF_ERROR(next_result_->Report());
    }
    return OkStatus();
  }

  IncrementalDecoder decoder_;
  const bool encodes_;
  const size_t slots_;
  std::vector<Row>::iterator next_result_;
  std::vector<Row>::iterator waiting_;
  const std::vector<Row>::iterator end_;
  std::vector<Row*> active_;  // those of the decoder's rows
};

}  // namespace

StatusOr<std::vector<GenerationResult>> Generate(const Model& model,
                                                 const std::vector<std::vector<int64_t>>& prompts,
                                                 const GenerationConfig& config,
                                                 const GenerateOptions& options) {
  TESSERA_RETURN_IF_ERROR(config.Validate());
  if (!Generates(model)) return InvalidArgument("this model does not generate text");
  if (!config.stop_strings.empty() && options.tokenizer == nullptr) {
    return InvalidArgument("stop strings need a tokenizer");
  }
  std::vector<Row> rows;
  rows.reserve(prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i) {
    const auto index = static_cast<int64_t>(i);
    TESSERA_ASSIGN_OR_RETURN(std::vector<int64_t> prompt,
                             CheckedPrompt(model, config, index, prompts[i]));
    std::vector<int64_t> begin = prompt;
    if (const EncoderDecoder* both = model.encoder_decoder()) begin = {both->decoder_start()};
    TESSERA_ASSIGN_OR_RETURN(
        const int64_t limit,
        Limit(model, config, index, static_cast<int64_t>(begin.size()), options.adapter));
    rows.emplace_back(index, std::move(prompt), std::move(begin), limit, config, options);
  }
  Lockstep lockstep(model, options.largest_over_ranks, options.adapter);
  const Status status = config.num_beams > 1
                            ? SearchBeams(model, config, &rows, &lockstep, options.adapter)
                            : Batch(model, &rows, options, &lockstep).Run();
  lockstep.Finish();
  TESSERA_RETURN_IF_ERROR(status);
  std::vector<GenerationResult> results;
  for (Row& row : rows) results.push_back(row.TakeResult());
  return results;
}

}  // namespace tessera::models
