// SPDX-License-Identifier: Apache-2.0
#include "models/generation/token_choice.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace tessera::models {
namespace {

constexpr double kRemoved = -std::numeric_limits<double>::infinity();

// Keeps the k greatest, and those equal to the least of them.
void KeepTopK(int64_t k, std::span<double> scores) {
  if (k <= 0 || k >= static_cast<int64_t>(scores.size())) return;
  std::vector<double> sorted(scores.begin(), scores.end());
  std::nth_element(sorted.begin(), sorted.begin() + (k - 1), sorted.end(), std::greater<>());
  const double least = sorted[static_cast<size_t>(k - 1)];
  for (double& score : scores) {
    if (score < least) score = kRemoved;
  }
}

// Keeps the fewest tokens whose probabilities reach `top_p`, and at least one: the least likely
// ones go as long as together they have at most 1 - top_p (Holtzman et al. 2020).
void KeepTopP(double top_p, std::span<double> scores) {
  if (top_p >= 1) return;
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return scores[a] < scores[b]; });
  std::vector<double> log_p(scores.begin(), scores.end());
  LogSoftmaxInPlace(log_p);
  double cumulative = 0;
  for (size_t i = 0; i + 1 < order.size(); ++i) {
    cumulative += std::exp(log_p[order[i]]);
    if (cumulative > 1 - top_p) break;
    scores[order[i]] = kRemoved;
  }
}

// Of log-probabilities, in nats.
double Entropy(std::span<const double> log_p) {
  double entropy = 0;
  for (const double x : log_p) {
    if (x > kRemoved) entropy -= std::exp(x) * x;
  }
  return entropy;
}

// Keeps the tokens that are at least `min_p` times as likely as the likeliest (Nguyen et al. 2024,
// "Turning up the heat").
void KeepMinP(double min_p, std::span<double> scores) {
  if (min_p <= 0) return;
  const double least = *std::max_element(scores.begin(), scores.end()) + std::log(min_p);
  for (double& score : scores) {
    if (score < least) score = kRemoved;
  }
}

// Keeps the fewest tokens that reach `typical_p`, those first whose surprise is nearest to the
// expected one (Meister et al. 2022, "Locally typical sampling"), and all as near as the last.
void KeepTypical(double typical_p, std::span<double> scores) {
  if (typical_p >= 1) return;
  std::vector<double> log_p(scores.begin(), scores.end());
  LogSoftmaxInPlace(log_p);
  const double entropy = Entropy(log_p);
  std::vector<double> distance(scores.size());
  for (size_t i = 0; i < distance.size(); ++i) distance[i] = std::abs(-log_p[i] - entropy);
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return distance[a] < distance[b]; });
  double cumulative = 0;
  double farthest = distance[order.back()];
  for (const size_t i : order) {
    cumulative += std::exp(log_p[i]);
    if (cumulative < typical_p) continue;
    farthest = distance[i];
    break;
  }
  for (size_t i = 0; i < scores.size(); ++i) {
    if (distance[i] > farthest) scores[i] = kRemoved;
  }
}

// Keeps the tokens of at least a probability, and the likeliest. Epsilon is that probability; with
// eta it is less where the entropy is high (Hewitt et al. 2022, "Truncation sampling as language
// model desmoothing").
void KeepAbove(double cutoff, bool eta, std::span<double> scores) {
  if (cutoff <= 0) return;
  std::vector<double> log_p(scores.begin(), scores.end());
  LogSoftmaxInPlace(log_p);
  const double least =
      eta ? std::min(cutoff, std::sqrt(cutoff) * std::exp(-Entropy(log_p))) : cutoff;
  const double greatest = *std::max_element(scores.begin(), scores.end());
  for (size_t i = 0; i < scores.size(); ++i) {
    if (std::exp(log_p[i]) < least && scores[i] < greatest) scores[i] = kRemoved;
  }
}

void Remove(int64_t id, std::span<double> scores) {
  if (id >= 0 && id < std::ssize(scores)) scores[static_cast<size_t>(id)] = kRemoved;
}

// Whether `ids` end with all but the last token of `word`.
bool EndWithBegin(std::span<const int64_t> ids, std::span<const int64_t> word) {
  if (word.size() > ids.size()) return word.size() == 1;
  const auto begin = word.first(word.size() - 1);
  return std::ranges::equal(ids.last(begin.size()), begin);
}

}  // namespace

void PenaliseRepetition(double penalty, std::span<const int64_t> occurred,
                        std::span<double> scores) {
  if (penalty == 1) return;
  const std::unordered_set<int64_t> distinct(occurred.begin(), occurred.end());
  for (int64_t id : distinct) {
    double& score = scores[static_cast<size_t>(id)];
    score = score < 0 ? score * penalty : score / penalty;
  }
}

void PenaliseWritten(const GenerationConfig& config, std::span<const int64_t> written,
                     std::span<double> scores) {
  if (config.presence_penalty != 0 || config.frequency_penalty != 0) {
    std::unordered_map<int64_t, int64_t> counts;
    for (const int64_t id : written) ++counts[id];
    for (const auto& [id, count] : counts) {
      scores[static_cast<size_t>(id)] -=
          config.presence_penalty + config.frequency_penalty * static_cast<double>(count);
    }
  }
  for (const auto& [id, bias] : config.logit_bias) scores[static_cast<size_t>(id)] += bias;
}

void RemoveForbidden(const GenerationConfig& config, std::span<const int64_t> ids, size_t written,
                     std::span<double> scores) {
  const std::vector<int64_t>& ends = config.eos_token_ids;
  for (const int64_t id : config.suppress_tokens) Remove(id, scores);
  // A token that is forced behind a single one does not count as the first.
  const bool forced = config.forced_bos_token_id && ids.size() - written == 1;
  if (written == size_t{forced}) {
    for (const int64_t id : config.begin_suppress_tokens) Remove(id, scores);
  }
  const bool too_early = config.min_new_tokens
                             ? static_cast<int64_t>(written) < *config.min_new_tokens
                             : std::ssize(ids) < config.min_length;
  if (too_early) {
    for (const int64_t id : ends) Remove(id, scores);
  }
  for (const std::vector<int64_t>& word : config.bad_words_ids) {
    // An end of text alone is no word.
    if (word.size() == 1 && std::ranges::find(ends, word[0]) != ends.end()) continue;
    if (EndWithBegin(ids, word)) Remove(word.back(), scores);
  }
  const auto size = static_cast<size_t>(config.no_repeat_ngram_size);
  if (size == 0 || ids.size() + 1 < size) return;
  const auto last = ids.last(size - 1);
  for (size_t begin = 0; begin + size <= ids.size(); ++begin) {
    const auto run = ids.subspan(begin, size);
    if (std::ranges::equal(run.first(size - 1), last)) Remove(run.back(), scores);
  }
}

void ForceTokens(const GenerationConfig& config, size_t size, int64_t longest,
                 std::span<double> scores) {
  const auto force = [&](std::span<const int64_t> ids) {
    std::ranges::fill(scores, kRemoved);
    for (const int64_t id : ids) {
      if (id >= 0 && id < std::ssize(scores)) scores[static_cast<size_t>(id)] = 0;
    }
  };
  if (size == 1 && config.forced_bos_token_id) force({&*config.forced_bos_token_id, 1});
  if (static_cast<int64_t>(size) + 1 == longest && !config.forced_eos_token_ids.empty()) {
    force(config.forced_eos_token_ids);
  }
}

int64_t LikeliestToken(std::span<const double> scores) {
  // Of every eighth score, side by side, which is several times as fast.
  std::array<double, 8> most;
  most.fill(-std::numeric_limits<double>::infinity());
  size_t i = 0;
  for (; i + most.size() <= scores.size(); i += most.size()) {
    for (size_t lane = 0; lane < most.size(); ++lane) {
      most[lane] = scores[i + lane] > most[lane] ? scores[i + lane] : most[lane];
    }
  }
  for (; i < scores.size(); ++i) most[0] = std::max(most[0], scores[i]);
  const double greatest = *std::max_element(most.begin(), most.end());
  const auto found = std::find(scores.begin(), scores.end(), greatest);
  return found == scores.end() ? 0 : found - scores.begin();  // none is: no score is a number
}

void LogSoftmaxInPlace(std::span<double> scores) {
  const double greatest = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (double score : scores) sum += std::exp(score - greatest);
  const double shift = greatest + std::log(sum);
  for (double& score : scores) score -= shift;
}

TokenScores ScoresOf(int64_t id, int64_t likeliest, std::span<const double> log_p) {
  TokenScores scores = {.id = id, .log_p = log_p[static_cast<size_t>(id)]};
  const auto most = static_cast<size_t>(std::max<int64_t>(likeliest, 0));
  auto& best = scores.likeliest;
  for (size_t i = 0; i < log_p.size() && most > 0; ++i) {
    if (best.size() == most && log_p[i] <= best.back().second) continue;
    const auto at = std::upper_bound(best.begin(), best.end(), log_p[i],
                                     [](double p, const auto& other) { return p > other.second; });
    best.insert(at, {static_cast<int64_t>(i), log_p[i]});
    if (best.size() > most) best.pop_back();
  }
  return scores;
}

int64_t SampleToken(const GenerationConfig& config, double uniform, std::span<double> scores) {
  // Divided by a temperature near 0, scores become infinite: the likeliest token alone is left.
  const double divided = *std::max_element(scores.begin(), scores.end()) / config.temperature;
  if (!std::isfinite(divided)) return LikeliestToken(scores);
  for (double& score : scores) score /= config.temperature;
  KeepTopK(config.top_k, scores);
  KeepTopP(config.top_p, scores);
  KeepMinP(config.min_p, scores);
  KeepTypical(config.typical_p, scores);
  KeepAbove(config.epsilon_cutoff, /*eta=*/false, scores);
  KeepAbove(config.eta_cutoff, /*eta=*/true, scores);
  const double greatest = *std::max_element(scores.begin(), scores.end());
  double total = 0;
  for (double& score : scores) {
    score = std::exp(score - greatest);
    total += score;
  }
  const double threshold = uniform * total;
  double cumulative = 0;
  int64_t last = 0;
  for (size_t i = 0; i < scores.size(); ++i) {
    if (scores[i] == 0) continue;
    cumulative += scores[i];
    last = static_cast<int64_t>(i);
    if (cumulative > threshold) break;
  }
  return last;
}

}  // namespace tessera::models
