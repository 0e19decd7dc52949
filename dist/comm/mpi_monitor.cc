// SPDX-License-Identifier: Apache-2.0
#include "dist/comm/mpi_monitor.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <thread>
#include <utility>

#include "base/status.h"
#include "dist/comm/mpi_runtime.h"

namespace tessera::dist {
namespace {

constexpr int kQuestion = 1;
constexpr int kAnswer = 2;
constexpr size_t kLongestAnswer = 64 << 10;

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

double SecondsSince(MpiMonitor::Clock::time_point t) {
  return std::chrono::duration<double>(MpiMonitor::Clock::now() - t).count();
}

}  // namespace

MpiMonitor::MpiMonitor(MpiRuntime& runtime) : runtime_(runtime), buffer_(kLongestAnswer) {
  Mpi().Comm_dup(Mpi().comm_world, &comm_);
  PostReceive();
}

void MpiMonitor::Close() {
  Mpi().Cancel(&receive_);
  Mpi().Wait(&receive_, MPI_STATUS_IGNORE);
}

void MpiMonitor::PostReceive() {
  Mpi().Irecv(buffer_.data(), static_cast<int>(buffer_.size()), Mpi().byte_type, MPI_ANY_SOURCE,
              MPI_ANY_TAG, comm_, &receive_);
}

std::vector<WaitState> MpiMonitor::Waits(bool blocked_only) const {
  std::vector<WaitState> waits;
  for (const MpiOperationPtr& operation : runtime_.in_flight_) {
    const MpiOperation& o = *operation;
    if (o.done || o.call.operation == "end") continue;
    if (!o.is_waited && (blocked_only || !o.call.is_collective())) continue;
    WaitState wait;
    wait.group = o.group->id;
    wait.number = o.call.number;
    wait.text = DescribeCall(o.call, o.group->name);
    wait.thread = std::hash<std::thread::id>()(o.thread);
    wait.seconds = SecondsSince(o.since);
    wait.members = o.call.is_collective()
                       ? o.group->world
                       : std::vector<int>{o.group->world[static_cast<size_t>(o.call.peer)]};
    waits.push_back(std::move(wait));
  }
  return waits;
}

RankState MpiMonitor::OwnState() const {
  RankState state;
  state.has_ended = has_ended_;
  state.main_thread = std::hash<std::thread::id>()(runtime_.main_thread_);
  for (const auto& [id, weak] : runtime_.groups_) {
    const auto group = weak.lock();
    if (group == nullptr) continue;
    state.groups[id] = {group->last_call.number, std::hash<std::thread::id>()(group->last_thread),
                        DescribeCall(group->last_call, group->name)};
  }
  state.waits = Waits(true);
  return state;
}

void MpiMonitor::SendTo(int rank, int tag, std::string text) {
  Outgoing& message = outgoing_.emplace_back();
  message.text = std::move(text);
  Mpi().Isend(message.text.data(), static_cast<int>(message.text.size()), Mpi().byte_type, rank,
              tag, comm_, &message.request);
}

void MpiMonitor::ReadMessages() {
  for (;;) {
    int flag = 0;
    MPI_Status status;
    Mpi().Test(&receive_, &flag, &status);
    if (flag == 0) return;
    int bytes = 0;
    Mpi().Get_count(&status, Mpi().byte_type, &bytes);
    const std::string text(buffer_.data(), static_cast<size_t>(bytes));
    const int from = status.MPI_SOURCE;
    PostReceive();
    if (status.MPI_TAG == kQuestion) {
      RankState state = OwnState();
      std::string answer = Concat(text, "\n", EncodeState(state));
      if (answer.size() > kLongestAnswer) {
        for (auto& [id, group] : state.groups) group.last.clear();
        state.waits.clear();
        answer = Concat(text, "\n", EncodeState(state)).substr(0, kLongestAnswer);
      }
      SendTo(from, kAnswer, std::move(answer));
      continue;
    }
    const size_t line = text.find('\n');
    if (line == std::string::npos || text.substr(0, line) != std::to_string(round_)) continue;
    if (is_asking_) answers_[static_cast<size_t>(from)] = DecodeState(text.substr(line + 1));
  }
}

void MpiMonitor::Ask() {
  is_asking_ = true;
  asked_ = Clock::now();
  ++round_;
  const MpiGroup& world = *runtime_.world_;
  answers_.assign(static_cast<size_t>(world.size), std::nullopt);
  for (int r = 0; r < world.size; ++r) {
    if (r != world.rank) SendTo(r, kQuestion, std::to_string(round_));
  }
}

void MpiMonitor::Plan(const Finding& finding, double delay) {
  const int lowest = *std::min_element(finding.observers.begin(), finding.observers.end());
  if (runtime_.world_->rank != lowest) delay += kForTheLowest;
  const auto at = Clock::now() + std::chrono::milliseconds(static_cast<int64_t>(delay * 1000));
  if (report_at_.has_value() && *report_at_ <= at) return;
  report_at_ = at;
  report_ = finding.line;
}

void MpiMonitor::Judge() {
  is_asking_ = false;
  const int rank = runtime_.world_->rank;
  answers_[static_cast<size_t>(rank)] = OwnState();
  if (const auto finding = FindEndedRank(rank, answers_)) return Plan(*finding, 0);
  if (runtime_.options_.check_collectives) {
    const auto finding = FindCircle(rank, answers_);
    // Twice the same: nothing was on its way between two answers.
    if (finding.has_value() && finding->line == suspicion_) return Plan(*finding, 0);
    suspicion_ = finding.has_value() ? finding->line : "";
  }
  const double limit = runtime_.options_.collective_timeout;
  for (const WaitState& wait : Waits(false)) {
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

std::optional<std::string> MpiMonitor::Poll() {
  ReadMessages();
  std::erase_if(outgoing_, [](Outgoing& message) {
    int flag = 0;
    Mpi().Test(&message.request, &flag, MPI_STATUS_IGNORE);
    return flag != 0;
  });
  if (report_at_.has_value() && Clock::now() >= *report_at_) return report_;
  if (is_asking_) {
    const auto answered = std::count_if(answers_.begin(), answers_.end(),
                                        [](const auto& state) { return state.has_value(); });
    const bool is_complete = answered + 1 == std::ssize(answers_);
    if (is_complete || SecondsSince(asked_) > kForAnswers) Judge();
    return std::nullopt;
  }
  const bool is_checked = runtime_.options_.check_collectives;
  const double limit = runtime_.options_.collective_timeout;
  if (SecondsSince(asked_) < (is_checked || limit < kBetween ? kBetweenChecked : kBetween)) {
    return std::nullopt;
  }
  double longest = 0;
  for (const MpiOperationPtr& o : runtime_.in_flight_) {
    if (o->call.operation != "end") longest = std::max(longest, SecondsSince(o->since));
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
