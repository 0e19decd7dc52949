// SPDX-License-Identifier: Apache-2.0
#include "dist/pipeline/schedule.h"

#include <algorithm>
#include <array>
#include <utility>

namespace tessera::dist {
namespace {

constexpr std::array<std::pair<std::string_view, ScheduleKind>, 5> kNames = {{
    {"gpipe", ScheduleKind::kGPipe},
    {"1f1b", ScheduleKind::kOneForwardOneBackward},
    {"interleaved", ScheduleKind::kInterleaved},
    {"zb-h1", ScheduleKind::kZeroBubbleH1},
    {"zb-h2", ScheduleKind::kZeroBubbleH2},
}};

const char* NameOf(ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward:
      return "forward";
    case ActionKind::kBackward:
      return "backward";
    case ActionKind::kInputGradient:
      return "input gradient";
    case ActionKind::kWeightGradient:
      return "weight gradient";
    case ActionKind::kSendActivation:
      return "sending the activation";
    case ActionKind::kReceiveActivation:
      return "receiving the activation";
    case ActionKind::kSendGradient:
      return "sending the gradient";
    case ActionKind::kReceiveGradient:
      return "receiving the gradient";
  }
  return "";
}

// One rank's forwards and backwards, in the order in which it takes them; k counts its own.
struct Turn {
  int micro_batch;
  int chunk;
};

std::vector<Action> GPipe(const PipelineShape& shape, int rank) {
  std::vector<Action> actions;
  for (int m = 0; m < shape.micro_batches; ++m) actions.push_back({ActionKind::kForward, m, rank});
  for (int m = 0; m < shape.micro_batches; ++m) actions.push_back({ActionKind::kBackward, m, rank});
  return actions;
}

// `ahead` forwards, then a forward and a backward in turn, then the backwards that are left.
template <typename ForwardTurn, typename BackwardTurn>
std::vector<Action> OneForwardOneBackward(int turns, int ahead, ForwardTurn forward,
                                          BackwardTurn backward) {
  std::vector<Action> actions;
  for (int k = 0; k < turns + ahead; ++k) {
    if (k < turns) {
      const Turn f = forward(k);
      actions.push_back({ActionKind::kForward, f.micro_batch, f.chunk});
    }
    if (k >= ahead) {
      const Turn b = backward(k - ahead);
      actions.push_back({ActionKind::kBackward, b.micro_batch, b.chunk});
    }
  }
  return actions;
}

std::vector<Action> Plain1F1B(const PipelineShape& shape, int rank) {
  const auto turn = [rank](int k) { return Turn{k, rank}; };
  const int ahead = std::min(shape.micro_batches, shape.stages - rank - 1);
  return OneForwardOneBackward(shape.micro_batches, ahead, turn, turn);
}

// Micro-batches in groups of `stages`; a rank takes a group through its first chunk, then through
// the next one, and backwards in the opposite order of chunks (Narayanan et al. 2021, figure 4).
std::vector<Action> Interleaved(const PipelineShape& shape, int rank) {
  const int p = shape.stages;
  const int v = shape.chunks_per_rank;
  const auto forward = [=](int k) {
    return Turn{k / (p * v) * p + k % p, k % (p * v) / p * p + rank};
  };
  const auto backward = [=](int k) {
    return Turn{k / (p * v) * p + k % p, (v - 1 - k % (p * v) / p) * p + rank};
  };
  const int turns = shape.micro_batches * v;
  const int ahead = std::min(turns, 2 * (p - rank - 1) + (v - 1) * p);
  return OneForwardOneBackward(turns, ahead, forward, backward);
}

// 1F1B with `ahead` forwards first, whose weight gradients come `delay` micro-batches after their
// input gradients: what fills the time in which a rank waits for the last gradients.
std::vector<Action> ZeroBubble(const PipelineShape& shape, int rank, int ahead, int delay) {
  const auto turn = [rank](int k) { return Turn{k, rank}; };
  std::vector<Action> actions;
  for (const Action& a : OneForwardOneBackward(shape.micro_batches,
                                               std::min(shape.micro_batches, ahead), turn, turn)) {
    if (a.kind != ActionKind::kBackward) {
      actions.push_back(a);
      continue;
    }
    actions.push_back({ActionKind::kInputGradient, a.micro_batch, rank});
    if (a.micro_batch >= delay) {
      actions.push_back({ActionKind::kWeightGradient, a.micro_batch - delay, rank});
    }
  }
  for (int m = std::max(0, shape.micro_batches - delay); m < shape.micro_batches; ++m) {
    actions.push_back({ActionKind::kWeightGradient, m, rank});
  }
  return actions;
}

std::vector<Action> ActionsOf(ScheduleKind kind, const PipelineShape& shape, int rank) {
  const int behind = shape.stages - rank;  // stages from this one on
  switch (kind) {
    case ScheduleKind::kGPipe:
      return GPipe(shape, rank);
    case ScheduleKind::kOneForwardOneBackward:
      return Plain1F1B(shape, rank);
    case ScheduleKind::kInterleaved:
      return Interleaved(shape, rank);
    case ScheduleKind::kZeroBubbleH1:
      return ZeroBubble(shape, rank, behind - 1, rank);
    case ScheduleKind::kZeroBubbleH2:
      return ZeroBubble(shape, rank, 2 * behind - 2, 2 * rank);
  }
  return {};
}

Schedule EmptySchedule(std::string name, const PipelineShape& shape) {
  return {.name = std::move(name),
          .stages = shape.stages,
          .chunks_per_rank = shape.chunks_per_rank,
          .micro_batches = shape.micro_batches,
          .ranks = {}};
}

Status CheckSizes(const PipelineShape& shape) {
  if (shape.stages >= 1 && shape.chunks_per_rank >= 1 && shape.micro_batches >= 1) {
    return OkStatus();
  }
  return InvalidArgument("a pipeline needs at least one stage, chunk and micro-batch, not ",
                         shape.stages, ", ", shape.chunks_per_rank, " and ", shape.micro_batches);
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Action& action) {
  return out << NameOf(action.kind) << " of micro-batch " << action.micro_batch << " on chunk "
             << action.chunk;
}

const std::vector<std::string>& ScheduleNames() {
  static const auto* const names = [] {
    auto* all = new std::vector<std::string>;
    for (const auto& [name, kind] : kNames) all->emplace_back(name);
    return all;
  }();
  return *names;
}

std::string_view ScheduleName(ScheduleKind kind) {
  for (const auto& [name, k] : kNames) {
    if (k == kind) return name;
  }
  return "";
}

StatusOr<ScheduleKind> ParseSchedule(std::string_view name) {
  for (const auto& [known, kind] : kNames) {
    if (known == name) return kind;
  }
  if (name == "zero_bubble") return ScheduleKind::kZeroBubbleH1;
  std::string known;
  for (const std::string& one : ScheduleNames()) known += (known.empty() ? "" : ", ") + one;
  return InvalidArgument("schedule '", name, "' is not known; known are ", known,
                         " (zero_bubble is zb-h1)");
}

Status CheckSchedule(ScheduleKind kind, const PipelineShape& shape) {
  TESSERA_RETURN_IF_ERROR(CheckSizes(shape));
  if (kind != ScheduleKind::kInterleaved) {
    if (shape.chunks_per_rank == 1) return OkStatus();
    return InvalidArgument("schedule ", ScheduleName(kind), " has one chunk per rank, not ",
                           shape.chunks_per_rank, ": several are interleaved's");
  }
  if (shape.chunks_per_rank < 2) {
    return InvalidArgument(
        "schedule interleaved needs at least 2 chunks per rank; with one it is 1f1b");
  }
  if (shape.micro_batches % shape.stages != 0) {
    return InvalidArgument("schedule interleaved needs micro-batches that the stages divide: ",
                           shape.micro_batches, " is no multiple of ", shape.stages);
  }
  return OkStatus();
}

StatusOr<Schedule> MakeSchedule(ScheduleKind kind, const PipelineShape& shape) {
  TESSERA_RETURN_IF_ERROR(CheckSchedule(kind, shape));
  Schedule schedule = EmptySchedule(std::string(ScheduleName(kind)), shape);
  for (int rank = 0; rank < shape.stages; ++rank) {
    schedule.ranks.push_back(ActionsOf(kind, shape, rank));
  }
  InsertTransfers(&schedule);
  return schedule;
}

StatusOr<Schedule> MakeForwardSchedule(const PipelineShape& shape) {
  TESSERA_RETURN_IF_ERROR(CheckSizes(shape));
  Schedule schedule = EmptySchedule("forward", shape);
  for (int rank = 0; rank < shape.stages; ++rank) {
    std::vector<Action> actions;
    for (int m = 0; m < shape.micro_batches; ++m) {
      for (int v = 0; v < shape.chunks_per_rank; ++v) {
        actions.push_back({ActionKind::kForward, m, v * shape.stages + rank});
      }
    }
    // Groups of micro-batches go through one chunk after the other, so that no rank waits for a
    // micro-batch to come round.
    std::stable_sort(actions.begin(), actions.end(), [&](const Action& a, const Action& b) {
      const int group_a = a.micro_batch / shape.stages;
      const int group_b = b.micro_batch / shape.stages;
      return group_a != group_b ? group_a < group_b : a.chunk < b.chunk;
    });
    schedule.ranks.push_back(std::move(actions));
  }
  InsertTransfers(&schedule);
  return schedule;
}

void InsertTransfers(Schedule* schedule) {
  const int last = schedule->num_chunks() - 1;
  const bool alone = schedule->stages == 1;  // neighbours lie on one rank
  for (std::vector<Action>& actions : schedule->ranks) {
    std::vector<Action> with;
    for (const Action& a : actions) {
      const auto add = [&](ActionKind kind, bool there_is_one) {
        if (there_is_one && !alone) with.push_back({kind, a.micro_batch, a.chunk});
      };
      const bool forward = a.kind == ActionKind::kForward;
      const bool backward = a.kind == ActionKind::kBackward || a.kind == ActionKind::kInputGradient;
      add(ActionKind::kReceiveActivation, forward && a.chunk > 0);
      add(ActionKind::kReceiveGradient, backward && a.chunk < last);
      with.push_back(a);
      add(ActionKind::kSendActivation, forward && a.chunk < last);
      add(ActionKind::kSendGradient, backward && a.chunk > 0);
    }
    actions = std::move(with);
  }
}

}  // namespace tessera::dist
