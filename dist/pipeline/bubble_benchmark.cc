// SPDX-License-Identifier: Apache-2.0
// The bubble of each schedule as it is measured and as the simulator has it, in one run:
//
//   mpirun -n 2 --bind-to core bazel-bin/dist/pipeline/bubble_benchmark
//   mpirun -n 2 bazel-bin/dist/pipeline/bubble_benchmark --layers 8 --width 256 --steps 5
//
// Trains a GPT on as many stages as there are ranks, one thread each. From the timeline of every
// step: the makespan, the share of it that ranks did not compute (the measured bubble), and the
// mean times of each chunk's actions, with which the simulator runs the same schedule. Schedules
// take turns; the table has the fastest step of each. Then, in virtual time with the block times
// measured by MeasureBlocks, larger pipelines.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "core/batch_keys.h"
#include "core/thread_pool.h"
#include "dist/comm/world.h"
#include "dist/pipeline/executor.h"
#include "dist/pipeline/partition.h"
#include "dist/pipeline/simulator.h"
#include "nlohmann/json.hpp"

namespace tessera::dist {
namespace {

struct Settings {
  int64_t layers = 8;
  int64_t width = 256;
  int64_t tokens = 64;
  int64_t rows = 2;
  int micro_batches = 8;
  int steps = 5;
};

Settings Read(int argc, char** argv) {
  Settings s;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const int value = std::atoi(argv[i + 1]);
    if (name == "--layers") s.layers = value;
    if (name == "--width") s.width = value;
    if (name == "--tokens") s.tokens = value;
    if (name == "--rows") s.rows = value;
    if (name == "--micro-batches") s.micro_batches = value;
    if (name == "--steps") s.steps = value;
  }
  return s;
}

nlohmann::json ConfigOf(const Settings& s) {
  return {{"model_type", "gpt2"}, {"vocab_size", 512}, {"n_positions", s.tokens},
          {"n_embd", s.width},    {"n_head", 4},       {"n_layer", s.layers},
          {"resid_pdrop", 0.0},   {"embd_pdrop", 0.0}, {"attn_pdrop", 0.0}};
}

models::Bundle BatchOf(const Settings& s, int m) {
  const Tensor ids = Empty({s.rows, s.tokens}, DType::kInt64);
  const Tensor targets = Empty({s.rows, s.tokens}, DType::kInt64);
  for (int64_t i = 0; i < ids.numel(); ++i) {
    ids.data<int64_t>()[i] = (i * 7919 + m * 104729) % 512;
    targets.data<int64_t>()[i] = (i * 7919 + m * 104729 + 1) % 512;
  }
  return {{keys::kInputIds, ids}, {keys::kTargets, targets}};
}

models::RunOptions Options(int m) {
  models::RunOptions options;
  options.context = {
      .training = true, .seed = 1, .step = 1, .micro_batch = static_cast<uint64_t>(m)};
  options.keep_logits = false;
  return options;
}

bool Computes(ActionKind kind) {
  return kind == ActionKind::kForward || kind == ActionKind::kBackward ||
         kind == ActionKind::kInputGradient || kind == ActionKind::kWeightGradient;
}

// Of one step, over all ranks.
struct Measured {
  double makespan = 0;
  double bubble = 0;
  ScheduleCosts costs;
};

// [chunks, 3] sums of times (forward, input gradient or whole backward, weight gradient), then busy
// and span of the rank.
Measured Summarize(const StepResult& result, const Schedule& schedule, Communicator& world) {
  const int chunks = schedule.num_chunks();
  const Tensor sums = Zeros({3 * chunks + 1}, DType::kFloat64);
  double* at = sums.data<double>();
  double end = 0;
  double shortest = 1e9;  // receive: of a message that had come already
  bool split = false;
  for (const TimedAction& t : result.timeline) {
    end = std::max(end, t.end);
    const bool receives = t.action.kind == ActionKind::kReceiveActivation ||
                          t.action.kind == ActionKind::kReceiveGradient;
    if (receives) shortest = std::min(shortest, t.end - t.begin);
    if (!Computes(t.action.kind)) continue;
    const int column = t.action.kind == ActionKind::kForward          ? 0
                       : t.action.kind == ActionKind::kWeightGradient ? 2
                                                                      : 1;
    split = split || column == 2;
    at[3 * t.action.chunk + column] += t.end - t.begin;
    at[3 * chunks] += t.end - t.begin;
  }
  world.AllReduce(sums, ReduceOp::kSum)->Wait();
  const Tensor span = Full({1}, end, DType::kFloat64);
  world.AllReduce(span, ReduceOp::kMax)->Wait();
  const Tensor least = Full({1}, shortest, DType::kFloat64);
  world.AllReduce(least, ReduceOp::kMin)->Wait();
  Measured m = {.makespan = span.Item(), .bubble = 0, .costs = {}};
  m.costs.transfer = least.Item();
  m.bubble = 1 - at[3 * chunks] / (m.makespan * world.size());
  for (int c = 0; c < chunks; ++c) {
    const double count = schedule.micro_batches;
    m.costs.forward.push_back(at[3 * c] / count);
    m.costs.input_grad.push_back(at[3 * c + 1] / count);
    m.costs.weight_grad.push_back(split ? at[3 * c + 2] / count : 0.0);
  }
  return m;
}

struct Contender {
  ScheduleKind kind;
  int chunks;
  std::vector<Measured> steps = {};
};

void Replay(const Settings& s, const BlockTimes& times) {
  std::printf(
      "\n| schedule | stages | chunks per rank | micro-batches | bubble | between a rank's "
      "first and last action | greatest live micro-batches |\n|---|---|---|---|---|---|---|\n");
  // A model of 32 layers, with the times of this one's middle layer.
  const size_t layer = static_cast<size_t>(s.layers) / 2;
  BlockTimes large;
  const auto extend = [&](const std::vector<double>& from, std::vector<double>* to) {
    to->push_back(from.front());
    to->insert(to->end(), 32, from[layer]);
    to->push_back(from.back());
  };
  extend(times.forward, &large.forward);
  extend(times.input_grad, &large.input_grad);
  extend(times.weight_grad, &large.weight_grad);
  for (const int stages : {4, 8}) {
    for (const auto& [kind, chunks] : {std::pair(ScheduleKind::kGPipe, 1),
                                       {ScheduleKind::kOneForwardOneBackward, 1},
                                       {ScheduleKind::kInterleaved, 2},
                                       {ScheduleKind::kInterleaved, 4},
                                       {ScheduleKind::kZeroBubbleH1, 1},
                                       {ScheduleKind::kZeroBubbleH2, 1}}) {
      const int micro_batches = 4 * stages;
      const auto cuts = CutBlocks(large.Total(), stages * chunks);
      const auto schedule = MakeSchedule(kind, {stages, chunks, micro_batches});
      const BlockTimes of_chunks = large.OfChunks(*cuts);
      const auto found = Simulate(*schedule, {.forward = of_chunks.forward,
                                              .input_grad = of_chunks.input_grad,
                                              .weight_grad = of_chunks.weight_grad});
      const int live = *std::max_element(found->peak_live.begin(), found->peak_live.end());
      std::printf("| %s | %d | %d | %d | %.3f | %.3f | %.2f |\n", schedule->name.c_str(), stages,
                  chunks, micro_batches, found->bubble, found->inner_bubble,
                  static_cast<double>(live) / chunks);
    }
  }
}

int Run(int argc, char** argv) {
  SetNumThreads(1);
  const Settings s = Read(argc, argv);
  auto opened = OpenWorld({});
  if (!opened.ok()) {
    std::fprintf(stderr, "error: %s\n", Message(opened.status()).c_str());
    return 1;
  }
  const auto world = opened->communicator;
  const BlockBuilder build = BlocksOf(ConfigOf(s), {.seed = 1});
  const auto times = MeasureBlocks(build, BatchOf(s, 0), Options(0), 5);
  if (!times.ok()) {
    std::fprintf(stderr, "error: %s\n", Message(times.status()).c_str());
    return 1;
  }
  // All ranks cut as rank 0 measured.
  std::vector<double> totals = times->Total();
  const Tensor shared = Tensor::FromVector(totals, {std::ssize(totals)});
  world->Broadcast(shared, 0)->Wait();
  totals = shared.ToVector<double>();

  std::vector<Contender> contenders = {{ScheduleKind::kGPipe, 1},
                                       {ScheduleKind::kOneForwardOneBackward, 1},
                                       {ScheduleKind::kInterleaved, 2},
                                       {ScheduleKind::kZeroBubbleH1, 1},
                                       {ScheduleKind::kZeroBubbleH2, 1}};
  std::vector<models::Bundle> batches;
  for (int m = 0; m < s.micro_batches; ++m) batches.push_back(BatchOf(s, m));
  for (int step = 0; step <= s.steps; ++step) {
    for (Contender& c : contenders) {
      const auto cuts = CutBlocks(totals, world->size() * c.chunks);
      auto stage = BuildStage(ConfigOf(s), {.seed = 1}, *cuts, world);
      PipelineExecutor executor(*stage, {.schedule = c.kind, .record_timeline = true});
      const Schedule schedule = *executor.ScheduleFor(s.micro_batches);
      // The first run touches memory; the second is measured.
      executor.Run(batches, {.run_options = Options});
      stage->ZeroGrad();
      world->Barrier();
      const StepResult result = executor.Run(batches, {.run_options = Options});
      const Measured measured = Summarize(result, schedule, *world);
      if (step > 0) c.steps.push_back(measured);
    }
  }
  if (world->rank() != 0) return 0;
  std::printf(
      "| schedule | step | a message | measured bubble | simulated | makespan: measured / "
      "simulated |\n|---|---|---|---|---|---|\n");
  for (Contender& c : contenders) {
    std::sort(c.steps.begin(), c.steps.end(),
              [](const Measured& a, const Measured& b) { return a.makespan < b.makespan; });
    const Measured& m = c.steps.front();
    const Schedule schedule = *MakeSchedule(c.kind, {world->size(), c.chunks, s.micro_batches});
    const Simulation found = *Simulate(schedule, m.costs);
    std::printf("| %s | %.1f ms | %.0f us | %.4f | %.4f | %.4f |\n", schedule.name.c_str(),
                m.makespan * 1e3, m.costs.transfer * 1e6, m.bubble, found.bubble,
                m.makespan / found.makespan);
  }
  Replay(s, *times);
  return 0;
}

}  // namespace
}  // namespace tessera::dist

int main(int argc, char** argv) { return tessera::dist::Run(argc, argv); }
