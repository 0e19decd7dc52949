// SPDX-License-Identifier: Apache-2.0
#include "dist/pipeline/simulator.h"

#include <algorithm>
#include <deque>
#include <string>

namespace tessera::dist {
namespace {

// What has become of one micro-batch on one chunk.
struct Progress {
  bool done[8] = {};            // by ActionKind
  double activation_sent = -1;  // when its message arrives; < 0: not sent
  double gradient_sent = -1;
  double forward_end = -1;  // for a neighbour on the same rank
  double backward_end = -1;
};

class Simulator {
 public:
  Simulator(const Schedule& schedule, const ScheduleCosts& costs)
      : schedule_(schedule), costs_(costs), chunks_(schedule.num_chunks()) {}

  StatusOr<Simulation> Run() {
    TESSERA_RETURN_IF_ERROR(CheckShape());
    const auto ranks = static_cast<size_t>(schedule_.stages);
    progress_.resize(static_cast<size_t>(chunks_) * static_cast<size_t>(schedule_.micro_batches));
    next_gradient_.assign(static_cast<size_t>(chunks_), 0);
    lanes_.resize(2 * static_cast<size_t>(chunks_) + 2);
    at_.assign(ranks, 0);
    live_.assign(ranks, 0);
    now_.assign(ranks, 0.0);
    result_.busy.assign(ranks, 0.0);
    result_.begin.assign(ranks, -1.0);
    result_.end.assign(ranks, 0.0);
    result_.peak_live.assign(ranks, 0);
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < schedule_.stages; ++rank) {
        TESSERA_RETURN_IF_ERROR(Advance(rank, &moved));
      }
    }
    TESSERA_RETURN_IF_ERROR(CheckEnd());
    Summarize();
    return result_;
  }

 private:
  Status CheckShape() const {
    if (schedule_.stages < 1 || schedule_.chunks_per_rank < 1 || schedule_.micro_batches < 1 ||
        std::ssize(schedule_.ranks) != schedule_.stages) {
      return InvalidArgument("schedule ", schedule_.name, " has actions of ",
                             schedule_.ranks.size(), " ranks, ", schedule_.stages, " stages, ",
                             schedule_.chunks_per_rank, " chunks per rank and ",
                             schedule_.micro_batches, " micro-batches");
    }
    for (const auto* times : {&costs_.forward, &costs_.input_grad, &costs_.weight_grad}) {
      if (!times->empty() && std::ssize(*times) != chunks_) {
        return InvalidArgument("a simulation has times of ", times->size(),
                               " chunks, the schedule ", chunks_);
      }
    }
    return OkStatus();
  }

  // Takes the actions of a rank until it has to wait for a message.
  Status Advance(int rank, bool* moved) {
    const auto r = static_cast<size_t>(rank);
    const std::vector<Action>& actions = schedule_.ranks[r];
    while (at_[r] < actions.size()) {
      const Action& a = actions[at_[r]];
      if (a.chunk < 0 || a.chunk >= chunks_ || a.micro_batch < 0 ||
          a.micro_batch >= schedule_.micro_batches || schedule_.RankOf(a.chunk) != rank) {
        return Refused(rank, a, "is not of this rank");
      }
      if (Of(a).done[static_cast<int>(a.kind)]) return Refused(rank, a, "comes twice");
      double arrival = 0;
      if (a.kind == ActionKind::kReceiveActivation) {
        if (a.chunk == 0 || schedule_.stages == 1) return Refused(rank, a, "has no sender");
        arrival = Of(a, -1).activation_sent;
      } else if (a.kind == ActionKind::kReceiveGradient) {
        if (a.chunk + 1 == chunks_ || schedule_.stages == 1) {
          return Refused(rank, a, "has no sender");
        }
        arrival = Of(a, 1).gradient_sent;
      }
      if (arrival < 0) return OkStatus();
      TESSERA_RETURN_IF_ERROR(TakeFromLane(rank, a));
      now_[r] = std::max(now_[r], arrival);
      TESSERA_RETURN_IF_ERROR(Take(rank, a));
      ++at_[r];
      *moved = true;
    }
    return OkStatus();
  }

  Status Take(int rank, const Action& a) {
    Progress& mine = Of(a);
    const auto has = [&](ActionKind kind) { return mine.done[static_cast<int>(kind)]; };
    const bool alone = schedule_.stages == 1;
    switch (a.kind) {
      case ActionKind::kForward:
        if (a.chunk > 0 && !has(ActionKind::kReceiveActivation) &&
            !(alone && Of(a, -1).forward_end >= 0)) {
          return Refused(rank, a, "comes before its activation");
        }
        Compute(rank, TimeOf(costs_.forward, a.chunk));
        mine.forward_end = now_[static_cast<size_t>(rank)];
        Hold(rank, 1);
        break;
      case ActionKind::kBackward:
      case ActionKind::kInputGradient:
        TESSERA_RETURN_IF_ERROR(TakeBackward(rank, a));
        break;
      case ActionKind::kWeightGradient:
        if (!has(ActionKind::kInputGradient)) {
          return Refused(rank, a, "comes before its input gradient");
        }
        TESSERA_RETURN_IF_ERROR(TakeGradientTurn(rank, a));
        Compute(rank, TimeOf(costs_.weight_grad, a.chunk));
        Hold(rank, -1);
        break;
      case ActionKind::kSendActivation:
        if (!has(ActionKind::kForward)) return Refused(rank, a, "comes before its forward");
        if (a.chunk + 1 == chunks_ || alone) return Refused(rank, a, "has no receiver");
        lanes_[Lane(a.chunk + 1, false)].push_back(a.micro_batch);
        mine.activation_sent = now_[static_cast<size_t>(rank)] + costs_.transfer;
        break;
      case ActionKind::kSendGradient:
        if (mine.backward_end < 0) return Refused(rank, a, "comes before it is computed");
        if (a.chunk == 0 || alone) return Refused(rank, a, "has no receiver");
        lanes_[Lane(a.chunk, true)].push_back(a.micro_batch);
        mine.gradient_sent = now_[static_cast<size_t>(rank)] + costs_.transfer;
        break;
      case ActionKind::kReceiveActivation:
      case ActionKind::kReceiveGradient:
        break;
    }
    mine.done[static_cast<int>(a.kind)] = true;
    return OkStatus();
  }

  Status TakeBackward(int rank, const Action& a) {
    Progress& mine = Of(a);
    const bool whole = a.kind == ActionKind::kBackward;
    if (mine.forward_end < 0) return Refused(rank, a, "comes before its forward");
    if (mine.backward_end >= 0) return Refused(rank, a, "comes after another backward");
    if (a.chunk + 1 < chunks_ && !mine.done[static_cast<int>(ActionKind::kReceiveGradient)] &&
        !(schedule_.stages == 1 && Of(a, 1).backward_end >= 0)) {
      return Refused(rank, a, "comes before its gradient");
    }
    if (whole) TESSERA_RETURN_IF_ERROR(TakeGradientTurn(rank, a));
    Compute(rank, TimeOf(costs_.input_grad, a.chunk) +
                      (whole ? TimeOf(costs_.weight_grad, a.chunk) : 0.0));
    mine.backward_end = now_[static_cast<size_t>(rank)];
    if (whole) Hold(rank, -1);
    return OkStatus();
  }

  Status TakeGradientTurn(int rank, const Action& a) {
    int& next = next_gradient_[static_cast<size_t>(a.chunk)];
    if (a.micro_batch != next) {
      return Refused(rank, a,
                     Concat("adds up gradients out of order: micro-batch ", next, " is next"));
    }
    ++next;
    return OkStatus();
  }

  // Messages between two chunks are received in the order in which they were sent.
  Status TakeFromLane(int rank, const Action& a) {
    if (a.kind != ActionKind::kReceiveActivation && a.kind != ActionKind::kReceiveGradient) {
      return OkStatus();
    }
    const bool gradient = a.kind == ActionKind::kReceiveGradient;
    std::deque<int>& lane = lanes_[Lane(gradient ? a.chunk + 1 : a.chunk, gradient)];
    if (lane.front() != a.micro_batch) {
      return Refused(rank, a, Concat("passes over micro-batch ", lane.front(), ", sent before it"));
    }
    lane.pop_front();
    return OkStatus();
  }
  // Of the cut before `chunk`.
  static size_t Lane(int chunk, bool gradient) {
    return static_cast<size_t>(2 * chunk + (gradient ? 1 : 0));
  }

  // All ranks have ended, and everything was done; else who waits for what, or what is missing.
  Status CheckEnd() const {
    std::string waiting;
    for (int rank = 0; rank < schedule_.stages; ++rank) {
      const auto r = static_cast<size_t>(rank);
      if (at_[r] == schedule_.ranks[r].size()) continue;
      waiting += Concat(waiting.empty() ? "" : "; ", "rank ", rank, " waits in ",
                        schedule_.ranks[r][at_[r]], " (action ", at_[r], ")");
    }
    if (!waiting.empty()) {
      return InvalidArgument("schedule ", schedule_.name, " never ends: ", waiting);
    }
    const bool trains = std::any_of(progress_.begin(), progress_.end(),
                                    [](const Progress& p) { return p.backward_end >= 0; });
    for (int chunk = 0; chunk < chunks_; ++chunk) {
      for (int m = 0; m < schedule_.micro_batches; ++m) {
        TESSERA_RETURN_IF_ERROR(CheckDone(chunk, m, trains));
      }
    }
    return OkStatus();
  }

  Status CheckDone(int chunk, int m, bool trains) const {
    const bool apart = schedule_.stages > 1;
    const Progress& p = progress_[Index(chunk, m)];
    const auto missing = [&](ActionKind kind) { return Missing({kind, m, chunk}); };
    const auto has = [&](ActionKind kind) { return p.done[static_cast<int>(kind)]; };
    if (!has(ActionKind::kForward)) return missing(ActionKind::kForward);
    if (apart && chunk + 1 < chunks_ && !has(ActionKind::kSendActivation)) {
      return missing(ActionKind::kSendActivation);
    }
    if (!trains) return OkStatus();
    if (!has(ActionKind::kBackward) && !has(ActionKind::kInputGradient)) {
      return missing(ActionKind::kBackward);
    }
    if (!has(ActionKind::kBackward) && !has(ActionKind::kWeightGradient)) {
      return missing(ActionKind::kWeightGradient);
    }
    if (apart && chunk > 0 && !has(ActionKind::kSendGradient)) {
      return missing(ActionKind::kSendGradient);
    }
    return OkStatus();
  }

  void Summarize() {
    const auto ranks = static_cast<size_t>(schedule_.stages);
    double busy = 0;
    double spans = 0;
    for (size_t r = 0; r < ranks; ++r) {
      result_.makespan = std::max(result_.makespan, result_.end[r]);
      result_.begin[r] = std::max(result_.begin[r], 0.0);
      busy += result_.busy[r];
      spans += result_.end[r] - result_.begin[r];
    }
    const double all = result_.makespan * static_cast<double>(ranks);
    result_.bubble = all > 0 ? 1 - busy / all : 0;
    result_.inner_bubble = spans > 0 ? 1 - busy / spans : 0;
  }

  Status Refused(int rank, const Action& a, const std::string& why) const {
    return InvalidArgument("schedule ", schedule_.name, ": rank ", rank, ", action ",
                           at_[static_cast<size_t>(rank)], ": ", a, " ", why);
  }
  Status Missing(const Action& a) const {
    return InvalidArgument("schedule ", schedule_.name, ": rank ", schedule_.RankOf(a.chunk),
                           " has no ", a);
  }

  size_t Index(int chunk, int micro_batch) const {
    return static_cast<size_t>(chunk * schedule_.micro_batches + micro_batch);
  }
  // Of the action's micro-batch on its chunk, or on a neighbour.
  Progress& Of(const Action& a, int neighbour = 0) {
    return progress_[Index(a.chunk + neighbour, a.micro_batch)];
  }
  static double TimeOf(const std::vector<double>& times, int chunk) {
    return times.empty() ? 1.0 : times[static_cast<size_t>(chunk)];
  }
  void Compute(int rank, double time) {
    const auto r = static_cast<size_t>(rank);
    if (result_.begin[r] < 0) result_.begin[r] = now_[r];
    now_[r] += time;
    result_.busy[r] += time;
    result_.end[r] = now_[r];
  }
  void Hold(int rank, int change) {
    const auto r = static_cast<size_t>(rank);
    live_[r] += change;
    result_.peak_live[r] = std::max(result_.peak_live[r], live_[r]);
  }

  const Schedule& schedule_;
  const ScheduleCosts& costs_;
  const int chunks_;
  std::vector<Progress> progress_;      // [chunks, micro-batches]
  std::vector<int> next_gradient_;      // of each chunk: whose weight gradients are next
  std::vector<std::deque<int>> lanes_;  // micro-batches sent and not received yet
  std::vector<size_t> at_;              // of each rank: its present action
  std::vector<int> live_;
  std::vector<double> now_;
  Simulation result_;
};

}  // namespace

StatusOr<Simulation> Simulate(const Schedule& schedule, const ScheduleCosts& costs) {
  return Simulator(schedule, costs).Run();
}

}  // namespace tessera::dist
