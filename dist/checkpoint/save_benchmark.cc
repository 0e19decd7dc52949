// SPDX-License-Identifier: Apache-2.0
// How long a step is held up by saving 512 MB of state: by a synchronous save, and by the copy of
// an asynchronous one (its first, which allocates the copy, and later ones).
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/thread_communicator.h"
#include "dist/checkpoint/async_checkpointer.h"
#include "nlohmann/json.hpp"

namespace tessera::dist {
namespace {

constexpr int kTensors = 64;
const Shape kShape = {1024, 2048};  // 8 MB each

std::vector<CheckpointTensor> State() {
  std::vector<CheckpointTensor> tensors;
  for (int i = 0; i < kTensors; ++i) {
    tensors.push_back({"t" + std::to_string(i), Full(kShape, i), Placement::Whole(kShape)});
  }
  return tensors;
}

std::string Directory() {
  const char* root = std::getenv("TMPDIR");
  return std::string(root != nullptr ? root : "/tmp") + "/save_benchmark/checkpoint-1";
}

void Finish(benchmark::State& state) {
  state.SetBytesProcessed(state.iterations() * kTensors * kShape.numel() * 4);
  std::filesystem::remove_all(Directory() + "/..");
}

void BM_SynchronousSave(benchmark::State& state) {
  const std::vector<CheckpointTensor> tensors = State();
  for (auto _ : state) {
    const Status status = SaveCheckpoint(Directory(), 1, tensors, {});
    if (!status.ok()) state.SkipWithError(Message(status).c_str());
  }
  Finish(state);
}
BENCHMARK(BM_SynchronousSave)->Unit(benchmark::kMillisecond)->UseRealTime()->Iterations(3);

void BM_AsynchronousBegin(benchmark::State& state) {
  const std::vector<CheckpointTensor> tensors = State();
  const std::shared_ptr<Communicator> world = SingleProcessCommunicator();
  AsyncCheckpointer saver;
  const auto commit = [&] {
    const Status status = saver.Commit(*world);
    if (!status.ok()) state.SkipWithError(Message(status).c_str());
  };
  const bool first = state.range(0) != 0;
  if (!first) {
    if (!saver.Begin(Directory(), 1, tensors, {}, *world).ok()) state.SkipWithError("begin");
    commit();
  }
  for (auto _ : state) {
    if (!saver.Begin(Directory(), 1, tensors, {}, *world).ok()) state.SkipWithError("begin");
    state.PauseTiming();
    commit();
    state.ResumeTiming();
  }
  Finish(state);
}
BENCHMARK(BM_AsynchronousBegin)
    ->ArgName("first")
    ->Arg(1)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime()
    ->Iterations(1);
BENCHMARK(BM_AsynchronousBegin)
    ->ArgName("first")
    ->Arg(0)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime()
    ->Iterations(3);

void BM_Open(benchmark::State& state) {
  const std::vector<CheckpointTensor> tensors = State();
  if (!SaveCheckpoint(Directory(), 1, tensors, {}).ok()) state.SkipWithError("save");
  for (auto _ : state) {
    if (!Checkpoint::Open(Directory()).ok()) state.SkipWithError("open");
  }
  Finish(state);
}
BENCHMARK(BM_Open)->Unit(benchmark::kMillisecond)->UseRealTime()->Iterations(3);

void BM_Load(benchmark::State& state) {
  const std::vector<CheckpointTensor> tensors = State();
  if (!SaveCheckpoint(Directory(), 1, tensors, {}).ok()) state.SkipWithError("save");
  const Checkpoint checkpoint = *Checkpoint::Open(Directory());
  for (auto _ : state) {
    if (!checkpoint.Load(tensors).ok()) state.SkipWithError("load");
  }
  Finish(state);
}
BENCHMARK(BM_Load)->Unit(benchmark::kMillisecond)->UseRealTime()->Iterations(3);

}  // namespace
}  // namespace tessera::dist
