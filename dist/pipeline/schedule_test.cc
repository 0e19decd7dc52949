// SPDX-License-Identifier: Apache-2.0
// Schedules and their simulator: every schedule of a grid is sound, and as long, as idle and as
// full as the formulas of the papers say; a schedule that is broken in any place is refused.
#include "dist/pipeline/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "dist/pipeline/simulator.h"

namespace tessera::dist {
namespace {

constexpr ScheduleKind kKinds[] = {ScheduleKind::kGPipe, ScheduleKind::kOneForwardOneBackward,
                                   ScheduleKind::kInterleaved, ScheduleKind::kZeroBubbleH1,
                                   ScheduleKind::kZeroBubbleH2};

Schedule Make(ScheduleKind kind, const PipelineShape& shape) {
  StatusOr<Schedule> schedule = MakeSchedule(kind, shape);
  EXPECT_TRUE(schedule.ok()) << Message(schedule.status());
  return *std::move(schedule);
}

Simulation Simulated(const Schedule& schedule, const ScheduleCosts& costs = {}) {
  StatusOr<Simulation> simulation = Simulate(schedule, costs);
  EXPECT_TRUE(simulation.ok()) << Message(simulation.status());
  return simulation.ok() ? *simulation : Simulation();
}

int Greatest(const std::vector<int>& values) {
  return *std::max_element(values.begin(), values.end());
}

template <typename Visit>
void ForEachOfTheGrid(Visit visit) {
  for (const ScheduleKind kind : kKinds) {
    for (int p = 1; p <= 8; ++p) {
      for (int m = 1; m <= 32; ++m) {
        for (int v = 1; v <= 4; ++v) {
          const PipelineShape shape = {p, v, m};
          const bool interleaved = kind == ScheduleKind::kInterleaved;
          const bool fits = interleaved ? v > 1 && m % p == 0 : v == 1;
          EXPECT_EQ(CheckSchedule(kind, shape).ok(), fits);
          if (fits) visit(kind, shape);
        }
      }
    }
  }
}

// Counted here without the simulator: everything once, in the order that sums of gradients need.
TEST(ScheduleTest, EveryActionOnceAndGradientsInOrder) {
  ForEachOfTheGrid([](ScheduleKind kind, const PipelineShape& shape) {
    const Schedule s = Make(kind, shape);
    const int chunks = shape.stages * shape.chunks_per_rank;
    std::set<std::tuple<ActionKind, int, int>> seen;
    for (int rank = 0; rank < shape.stages; ++rank) {
      std::vector<int> next(static_cast<size_t>(chunks), 0);
      for (const Action& a : s.ranks[static_cast<size_t>(rank)]) {
        ASSERT_EQ(a.chunk % shape.stages, rank);
        ASSERT_TRUE(seen.insert({a.kind, a.micro_batch, a.chunk}).second);
        if (a.kind == ActionKind::kBackward || a.kind == ActionKind::kWeightGradient) {
          ASSERT_EQ(a.micro_batch, next[static_cast<size_t>(a.chunk)]++);
        }
      }
    }
    const bool split = kind == ScheduleKind::kZeroBubbleH1 || kind == ScheduleKind::kZeroBubbleH2;
    const size_t work = static_cast<size_t>((split ? 3 : 2) * shape.micro_batches * chunks);
    const size_t cuts = shape.stages == 1 ? 0 : static_cast<size_t>(chunks - 1);
    ASSERT_EQ(seen.size(), work + 4 * cuts * static_cast<size_t>(shape.micro_batches));
  });
}

TEST(ScheduleTest, TheWholeGridEndsAndHoldsWhatTheFormulasSay) {
  ForEachOfTheGrid([](ScheduleKind kind, const PipelineShape& shape) {
    const Schedule s = Make(kind, shape);
    const Simulation found = Simulated(s);
    const int p = shape.stages;
    const int m = shape.micro_batches;
    const int v = shape.chunks_per_rank;
    int live = 0;
    switch (kind) {
      case ScheduleKind::kGPipe:
        live = m;
        break;
      case ScheduleKind::kOneForwardOneBackward:
      case ScheduleKind::kZeroBubbleH1:
        live = std::min(m, p);
        break;
      case ScheduleKind::kInterleaved:
        live = std::min(m * v, 2 * (p - 1) + (v - 1) * p + 1);
        break;
      case ScheduleKind::kZeroBubbleH2:
        live = std::min(m, 2 * p - 1);
        break;
    }
    ASSERT_EQ(Greatest(found.peak_live), live) << s.name << " p " << p << " m " << m << " v " << v;
    for (const double busy : found.busy) ASSERT_EQ(busy, 3.0 * m * v);
  });
}

// F, B, W of a rank's blocks; v chunks share them.
TEST(ScheduleTest, IdleTimesOfThePapers) {
  const double f = 2;
  const double b = 2.5;
  const double w = 1.5;
  for (const int p : {2, 3, 4, 8}) {
    const int m = 4 * p;
    for (const int v : {1, 2, 3}) {
      const size_t chunks = static_cast<size_t>(p * v);
      const ScheduleCosts costs = {.forward = std::vector<double>(chunks, f / v),
                                   .input_grad = std::vector<double>(chunks, b / v),
                                   .weight_grad = std::vector<double>(chunks, w / v)};
      const auto idle = [&](ScheduleKind kind) {
        return Simulated(Make(kind, {p, v, m}), costs).makespan - m * (f + b + w);
      };
      if (v > 1) {
        EXPECT_NEAR(idle(ScheduleKind::kInterleaved), (p - 1) * (f + b + w) / v, 1e-9) << p;
        continue;
      }
      EXPECT_NEAR(idle(ScheduleKind::kGPipe), (p - 1) * (f + b + w), 1e-9) << p;
      EXPECT_NEAR(idle(ScheduleKind::kOneForwardOneBackward), (p - 1) * (f + b + w), 1e-9) << p;
      EXPECT_NEAR(idle(ScheduleKind::kZeroBubbleH1), (p - 1) * (f + b - w), 1e-9) << p;
    }
    // Equal times: no rank pauses between its first action and its last.
    const Simulation h2 = Simulated(Make(ScheduleKind::kZeroBubbleH2, {p, 1, m}));
    EXPECT_NEAR(h2.inner_bubble, 0, 1e-12) << p;
    EXPECT_EQ(h2.makespan, 3.0 * m + p - 1) << p;
    EXPECT_GT(Simulated(Make(ScheduleKind::kZeroBubbleH1, {p, 1, m})).inner_bubble, 0) << p;
  }
}

// Two stages, two micro-batches, 1f1b, by hand: forwards take 1, backwards 3, messages 0.5.
TEST(SimulatorTest, ATimelineByHand) {
  const Schedule s = Make(ScheduleKind::kOneForwardOneBackward, {2, 1, 2});
  const Simulation found = Simulated(
      s, {.forward = {1, 1}, .input_grad = {2, 2}, .weight_grad = {1, 1}, .transfer = 0.5});
  // Rank 1: F0 at 1.5, B0 to 5.5, F1 to 6.5, B1 to 9.5. Rank 0: B0 from 6 to 9, B1 from 10 to 13.
  EXPECT_DOUBLE_EQ(found.makespan, 13);
  EXPECT_DOUBLE_EQ(found.begin[1], 1.5);
  EXPECT_DOUBLE_EQ(found.end[1], 9.5);
  EXPECT_DOUBLE_EQ(found.busy[0], 8);
  EXPECT_DOUBLE_EQ(found.bubble, 1 - 16.0 / 26);
  EXPECT_DOUBLE_EQ(found.inner_bubble, 1 - 16.0 / 21);
  EXPECT_EQ(found.peak_live, (std::vector<int>{2, 1}));
}

TEST(SimulatorTest, EveryDroppedOrRepeatedActionIsFound) {
  for (const ScheduleKind kind : kKinds) {
    const int v = kind == ScheduleKind::kInterleaved ? 2 : 1;
    const Schedule sound = Make(kind, {3, v, 6});
    for (size_t rank = 0; rank < sound.ranks.size(); ++rank) {
      for (size_t i = 0; i < sound.ranks[rank].size(); ++i) {
        Schedule dropped = sound;
        auto& actions = dropped.ranks[rank];
        actions.erase(actions.begin() + static_cast<std::ptrdiff_t>(i));
        EXPECT_FALSE(Simulate(dropped).ok()) << sound.name << ": " << sound.ranks[rank][i];
        Schedule repeated = sound;
        repeated.ranks[rank].push_back(sound.ranks[rank][i]);
        EXPECT_FALSE(Simulate(repeated).ok()) << sound.name << ": " << sound.ranks[rank][i];
      }
    }
  }
}

TEST(SimulatorTest, ActionsInAnImpossibleOrderAreFound) {
  // Any action before the one it needs: on a rank, each pair of neighbours of one micro-batch and
  // chunk, and each pair of gradients.
  for (const ScheduleKind kind : kKinds) {
    const int v = kind == ScheduleKind::kInterleaved ? 2 : 1;
    const Schedule sound = Make(kind, {3, v, 6});
    int tried = 0;
    for (size_t rank = 0; rank < sound.ranks.size(); ++rank) {
      const std::vector<Action>& actions = sound.ranks[rank];
      for (size_t i = 0; i < actions.size(); ++i) {
        for (size_t j = i + 1; j < actions.size(); ++j) {
          const bool same = actions[i].chunk == actions[j].chunk &&
                            actions[i].micro_batch == actions[j].micro_batch;
          const bool sums = actions[i].chunk == actions[j].chunk &&
                            actions[i].kind == actions[j].kind &&
                            (actions[i].kind == ActionKind::kBackward ||
                             actions[i].kind == ActionKind::kWeightGradient);
          // What is sent does not hold up what is computed after it.
          const bool free = actions[i].kind == ActionKind::kSendActivation ||
                            actions[j].kind == ActionKind::kSendGradient;
          const bool independent = same && ((actions[i].kind == ActionKind::kReceiveActivation ||
                                             actions[i].kind == ActionKind::kForward) &&
                                            actions[j].kind == ActionKind::kReceiveGradient);
          const bool weights_last = actions[i].kind == ActionKind::kSendGradient;
          if ((!same && !sums) || (same && (free || independent || weights_last))) continue;
          Schedule broken = sound;
          std::swap(broken.ranks[rank][i], broken.ranks[rank][j]);
          EXPECT_FALSE(Simulate(broken).ok())
              << sound.name << ": " << actions[i] << " and " << actions[j];
          ++tried;
        }
      }
    }
    EXPECT_GT(tried, 100) << sound.name;
  }
}

TEST(SimulatorTest, NamesTheRanksThatWait) {
  // Both ranks wait for what the other one does later.
  Schedule s = {.name = "mine", .stages = 2, .chunks_per_rank = 1, .micro_batches = 1, .ranks = {}};
  s.ranks = {{{ActionKind::kReceiveGradient, 0, 0},
              {ActionKind::kForward, 0, 0},
              {ActionKind::kSendActivation, 0, 0},
              {ActionKind::kBackward, 0, 0}},
             {{ActionKind::kReceiveActivation, 0, 1},
              {ActionKind::kForward, 0, 1},
              {ActionKind::kBackward, 0, 1},
              {ActionKind::kSendGradient, 0, 1}}};
  EXPECT_EQ(
      Message(Simulate(s).status()),
      "schedule mine never ends: rank 0 waits in receiving the gradient of micro-batch 0 on "
      "chunk 0 (action 0); rank 1 waits in receiving the activation of micro-batch 0 on chunk "
      "1 (action 0)");
  s.ranks[0] = {{ActionKind::kForward, 0, 1}};
  EXPECT_EQ(Message(Simulate(s).status()),
            "schedule mine: rank 0, action 0: forward of micro-batch 0 on chunk 1 is not of this "
            "rank");
  s.ranks[0] = {{ActionKind::kForward, 5, 0}};
  EXPECT_FALSE(Simulate(s).ok());
  s.ranks.pop_back();
  EXPECT_FALSE(Simulate(s).ok());
}

TEST(SimulatorTest, GradientsOutOfOrderAreFound) {
  Schedule s = {.name = "one", .stages = 1, .chunks_per_rank = 1, .micro_batches = 2, .ranks = {}};
  s.ranks = {{{ActionKind::kForward, 0, 0},
              {ActionKind::kForward, 1, 0},
              {ActionKind::kInputGradient, 1, 0},
              {ActionKind::kInputGradient, 0, 0},
              {ActionKind::kWeightGradient, 0, 0},
              {ActionKind::kWeightGradient, 1, 0}}};
  EXPECT_TRUE(Simulate(s).ok());  // only the weights' order matters
  std::swap(s.ranks[0][4], s.ranks[0][5]);
  EXPECT_EQ(Message(Simulate(s).status()),
            "schedule one: rank 0, action 4: weight gradient of micro-batch 1 on chunk 0 adds up "
            "gradients out of order: micro-batch 0 is next");
}

TEST(SimulatorTest, MessagesThatPassOneAnotherAreFound) {
  Schedule s = Make(ScheduleKind::kGPipe, {2, 1, 2});
  auto& actions = s.ranks[1];  // receive 0, forward 0, receive 1, forward 1, ...
  std::swap(actions[0], actions[2]);
  std::swap(actions[1], actions[3]);
  EXPECT_EQ(
      Message(Simulate(s).status()),
      "schedule gpipe: rank 1, action 0: receiving the activation of micro-batch 1 on chunk 1 "
      "passes over micro-batch 0, sent before it");
}

TEST(SimulatorTest, EvaluationNeedsNoGradients) {
  for (int p = 1; p <= 8; ++p) {
    for (int m = 1; m <= 16; ++m) {
      for (int v = 1; v <= 3; ++v) {
        const auto s = MakeForwardSchedule({p, v, m});
        ASSERT_TRUE(s.ok());
        const Simulation found = Simulated(*s);
        // Full groups follow one another without a pause.
        if (m % p != 0) continue;
        ASSERT_EQ(found.makespan, m * v + p - 1) << p << " " << m << " " << v;
      }
    }
  }
}

TEST(ScheduleTest, NamesAndConditions) {
  for (const ScheduleKind kind : kKinds) {
    EXPECT_EQ(*ParseSchedule(ScheduleName(kind)), kind);
  }
  EXPECT_EQ(*ParseSchedule("zero_bubble"), ScheduleKind::kZeroBubbleH1);
  EXPECT_EQ(Message(ParseSchedule("1F1B").status()),
            "schedule '1F1B' is not known; known are gpipe, 1f1b, interleaved, zb-h1, zb-h2 "
            "(zero_bubble is zb-h1)");
  EXPECT_EQ(
      Message(MakeSchedule(ScheduleKind::kInterleaved, {4, 2, 6}).status()),
      "schedule interleaved needs micro-batches that the stages divide: 6 is no multiple of 4");
  EXPECT_EQ(Message(MakeSchedule(ScheduleKind::kInterleaved, {4, 1, 8}).status()),
            "schedule interleaved needs at least 2 chunks per rank; with one it is 1f1b");
  EXPECT_EQ(Message(MakeSchedule(ScheduleKind::kGPipe, {4, 2, 8}).status()),
            "schedule gpipe has one chunk per rank, not 2: several are interleaved's");
  EXPECT_FALSE(MakeSchedule(ScheduleKind::kGPipe, {0, 1, 8}).ok());
  EXPECT_FALSE(MakeForwardSchedule({2, 1, 0}).ok());
}

}  // namespace
}  // namespace tessera::dist
