// SPDX-License-Identifier: Apache-2.0
#include "models/generation/beam_search.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "models/generation/incremental_decoder.h"
#include "models/generation/token_choice.h"

namespace tessera::models {
namespace {

struct Beam {
  std::vector<int64_t> ids;  // prompt and new tokens
  double log_p = 0;
};

struct Candidate {
  double log_p;
  size_t beam;
  int64_t id;
};

struct Finished {
  double score;
  std::vector<int64_t> ids;  // new tokens
};

class Search {
 public:
  Search(const GenerationConfig& config, const std::vector<int64_t>& source, size_t prompt_size,
         int64_t limit)
      : config_(config),
        source_(source),
        width_(static_cast<size_t>(config.num_beams)),
        prompt_size_(prompt_size),
        limit_(limit) {}

  bool IsEnd(int64_t id) const {
    const std::vector<int64_t>& eos = config_.eos_token_ids;
    return std::find(eos.begin(), eos.end(), id) != eos.end();
  }

  // The likeliest continuations of all beams: so many that num_beams of them do not end the text.
  std::vector<Candidate> Best(const std::vector<Beam>& beams, const Scores& scores) const {
    std::vector<Candidate> all;
    for (size_t b = 0; b < beams.size(); ++b) {
      const std::span<double> log_p = scores[b];
      LogSoftmaxInPlace(log_p);
      PenaliseRepetition(1 / config_.encoder_repetition_penalty, source_, log_p);
      PenaliseRepetition(config_.repetition_penalty, beams[b].ids, log_p);
      RemoveForbidden(config_, beams[b].ids, beams[b].ids.size() - prompt_size_, log_p);
      ForceTokens(config_, beams[b].ids.size(), static_cast<int64_t>(prompt_size_) + limit_, log_p);
      for (size_t id = 0; id < log_p.size(); ++id) {
        all.push_back({beams[b].log_p + log_p[id], b, static_cast<int64_t>(id)});
      }
    }
    const size_t wanted = std::max<size_t>(2, 1 + config_.eos_token_ids.size()) * width_;
    const size_t count = std::min(all.size(), wanted);
    std::partial_sort(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count), all.end(),
                      [](const Candidate& a, const Candidate& b) {
                        if (a.log_p != b.log_p) return a.log_p > b.log_p;
                        return std::pair(a.beam, a.id) < std::pair(b.beam, b.id);
                      });
    all.resize(count);
    return all;
  }

  // `length` new tokens, this one included. Returns the beams that continue, with the rows they
  // continue.
  std::vector<Beam> Advance(const std::vector<Beam>& beams, const std::vector<Candidate>& best,
                            int64_t length, std::vector<int64_t>* rows) {
    std::vector<Beam> next;
    rows->clear();
    for (size_t rank = 0; rank < best.size(); ++rank) {
      const Candidate& c = best[rank];
      if (IsEnd(c.id) || length == limit_) {
        if (rank < width_) Finish(beams[c.beam], c, length);
      } else if (next.size() < width_) {
        next.push_back({beams[c.beam].ids, c.log_p});
        next.back().ids.push_back(c.id);
        rows->push_back(static_cast<int64_t>(c.beam));
      }
    }
    return next;
  }

  // Whether no beam can still become better than what is finished.
  bool IsOver(const std::vector<Beam>& beams, int64_t length) const {
    if (beams.empty() || length == limit_) return true;
    if (finished_.size() < width_) return false;
    return config_.early_stopping || Score(beams[0].log_p, length) <= finished_.back().score;
  }

  StatusOr<std::vector<std::vector<int64_t>>> Winners() const {
    const auto count = static_cast<size_t>(config_.num_return_sequences);
    if (finished_.size() < count) {
      return InvalidArgument("num_return_sequences is ", count, ", and there are only ",
                             finished_.size(), " texts");
    }
    std::vector<std::vector<int64_t>> texts;
    for (size_t i = 0; i < count; ++i) texts.push_back(finished_[i].ids);
    return texts;
  }

 private:
  double Score(double log_p, int64_t length) const {
    return log_p / std::pow(static_cast<double>(length), config_.length_penalty);
  }

  void Finish(const Beam& beam, const Candidate& c, int64_t length) {
    Finished text = {
        Score(c.log_p, length),
        {beam.ids.begin() + static_cast<std::ptrdiff_t>(prompt_size_), beam.ids.end()}};
    text.ids.push_back(c.id);
    const auto at =
        std::upper_bound(finished_.begin(), finished_.end(), text,
                         [](const Finished& a, const Finished& b) { return a.score > b.score; });
    finished_.insert(at, std::move(text));
    if (finished_.size() > width_) finished_.pop_back();
  }

  const GenerationConfig& config_;
  const std::vector<int64_t>& source_;
  const size_t width_;
  const size_t prompt_size_;
  const int64_t limit_;
  std::vector<Finished> finished_;  // the best first, at most num_beams
};

// Whether the model reads a text of so many tokens whole, although all but the last one were read.
bool RereadsFor(const Model& model, int adapter, int64_t tokens) {
  const int64_t all = model.prefix(adapter).tokens + tokens;
  return model.rereads_at_length_kind() && model.length_kind(all) != model.length_kind(all - 1);
}

}  // namespace

StatusOr<std::vector<std::vector<int64_t>>> BeamSearch(
    const Model& model, const std::vector<int64_t>& source, const std::vector<int64_t>& prompt,
    int64_t limit, const GenerationConfig& config, Lockstep* lockstep, int adapter) {
  IncrementalDecoder decoder(model, {.lockstep = lockstep});
  if (model.encoder_decoder() != nullptr) decoder.Encode({source}, adapter);
  Search search(config, source, prompt.size(), limit);
  std::vector<Beam> beams = {{prompt, 0.0}};
  std::vector<std::vector<int64_t>> tokens = {prompt};
  for (int64_t length = 1;; ++length) {
    const Scores scores = decoder.Feed(tokens, {.adapter = adapter});
    for (size_t b = 0; b < beams.size(); ++b) {
      TESSERA_RETURN_IF_ERROR(
          scores.CheckFinite(scores[b], static_cast<int64_t>(b), std::ssize(beams[b].ids) - 1));
    }
    std::vector<int64_t> rows;
    beams = search.Advance(beams, search.Best(beams, scores), length, &rows);
    if (search.IsOver(beams, length)) return search.Winners();
    const bool rereads = RereadsFor(model, adapter, std::ssize(beams[0].ids));
    decoder.Keep(rereads ? std::vector<int64_t>() : rows);
    tokens.clear();
    for (const Beam& beam : beams) {
      tokens.push_back(rereads ? beam.ids : std::vector<int64_t>{beam.ids.back()});
    }
  }
}

}  // namespace tessera::models
