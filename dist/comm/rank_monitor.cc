// SPDX-License-Identifier: Apache-2.0
#include "dist/comm/rank_monitor.h"

#include <algorithm>

#include "base/status.h"

namespace tessera::dist {
namespace {

// Seconds: after which a wait is worth a question, between questions, and for answers to come.
constexpr double kPatienceChecked = 0.4;
constexpr double kPatience = 2;
constexpr double kBetweenChecked = 0.2;
constexpr double kBetween = 2;
constexpr double kForAnswers = 0.7;
// How long others leave it to the lowest rank to speak, and to ranks nearer to the cause.
constexpr double kForTheLowest = 1.5;
constexpr double kForTheCause = 2.5;
constexpr double kBetweenRanks = 0.2;

}  // namespace

void RankMonitor::Receive(int from, Kind kind, const std::string& text) {
  if (kind == kQuestion) {
    RankState state = rank_.state();
    std::string answer = Concat(text, "\n", EncodeState(state));
    if (answer.size() > kLongestAnswer) {
      for (auto& [id, group] : state.groups) group.last.clear();
      state.waits.clear();
      answer = Concat(text, "\n", EncodeState(state)).substr(0, kLongestAnswer);
    }
    return rank_.send(from, kAnswer, std::move(answer));
  }
  const size_t line = text.find('\n');
  if (line == std::string::npos || text.substr(0, line) != std::to_string(round_)) return;
  if (is_asking_) answers_[static_cast<size_t>(from)] = DecodeState(text.substr(line + 1));
}

void RankMonitor::Ask() {
  is_asking_ = true;
  asked_ = Clock::now();
  ++round_;
  answers_.assign(static_cast<size_t>(rank_.size), std::nullopt);
  for (int r = 0; r < rank_.size; ++r) {
    if (r != rank_.rank) rank_.send(r, kQuestion, std::to_string(round_));
  }
}

void RankMonitor::Plan(const Finding& finding, double delay) {
  const int lowest = *std::min_element(finding.observers.begin(), finding.observers.end());
  if (rank_.rank != lowest) delay += kForTheLowest;
  const auto at = Clock::now() + std::chrono::milliseconds(static_cast<int64_t>(delay * 1000));
  if (report_at_.has_value() && *report_at_ <= at) return;
  report_at_ = at;
  report_ = finding.line;
}

void RankMonitor::Judge() {
  is_asking_ = false;
  const int rank = rank_.rank;
  answers_[static_cast<size_t>(rank)] = rank_.state();
  if (const auto finding = FindEndedRank(rank, answers_)) return Plan(*finding, 0);
  if (rank_.check_collectives) {
    const auto finding = FindCircle(rank, answers_);
    // Twice the same: nothing was on its way between two answers.
    if (finding.has_value() && finding->line == suspicion_) return Plan(*finding, 0);
    suspicion_ = finding.has_value() ? finding->line : "";
  }
  const double limit = rank_.collective_timeout;
  for (const WaitState& wait : rank_.waits()) {
    if (wait.seconds < limit) continue;
    const std::vector<int> missing = MissingRanks(wait, rank, answers_);
    const bool is_near = std::any_of(missing.begin(), missing.end(), [&](int m) {
      const auto& state = answers_[static_cast<size_t>(m)];
      return !state.has_value() || state->waits.empty();
    });
    // Of different groups no two ranks speak at the same time.
    const double delay = (is_near ? 0 : kForTheCause) + kBetweenRanks * std::min(rank, 10);
    Plan(DescribeTimeout(wait, rank, limit, answers_), delay);
    return;
  }
  report_at_.reset();
}

std::optional<std::string> RankMonitor::Poll(double longest) {
  if (report_at_.has_value() && Clock::now() >= *report_at_) return report_;
  if (is_asking_) {
    const auto answered = std::count_if(answers_.begin(), answers_.end(),
                                        [](const auto& state) { return state.has_value(); });
    const bool is_complete = answered + 1 == std::ssize(answers_);
    if (is_complete || SecondsSince(asked_) > kForAnswers) Judge();
    return std::nullopt;
  }
  const bool is_checked = rank_.check_collectives;
  const double limit = rank_.collective_timeout;
  if (SecondsSince(asked_) < (is_checked || limit < kBetween ? kBetweenChecked : kBetween)) {
    return std::nullopt;
  }
  if (longest > std::min(limit, is_checked ? kPatienceChecked : kPatience)) {
    Ask();
  } else {
    suspicion_.clear();
    report_at_.reset();
  }
  return std::nullopt;
}

}  // namespace tessera::dist
