// SPDX-License-Identifier: Apache-2.0
// Training loops of one's own: an engine of a configuration, a booster, a pipeline's step in one
// call, and what one rank does for all.
//
//   bazel-bin/examples/training_loops                      one process
//   mpirun -n 2 bazel-bin/examples/training_loops          two: shards, stages
#include <cstdio>
#include <string>

#include <tessera/base/file.h>
#include <tessera/dist/comm/world.h>
#include <tessera/dist/pipeline/execute_pipeline.h>
#include <tessera/models/family.h>
#include <tessera/models/model_keys.h>
#include <tessera/nn/linear.h>
#include <tessera/ops/cross_entropy/cross_entropy.h>
#include <tessera/ops/elementwise/elementwise.h>
#include <tessera/ops/reduction/reduction.h>
#include <tessera/ops/view/view.h>
#include <tessera/optim/adam/adam.h>
#include <tessera/train/boost/booster.h>
#include <tessera/train/boost/coordinator.h>
#include <tessera/train/loop/initialize.h>
#include <tessera/train/ranks/run_on_ranks.h>

#include "nlohmann/json.hpp"

using namespace tessera;
using namespace tessera::train;

namespace {

// Rows of 16 tokens that count round and round.
class CountingRows : public data::Dataset {
 public:
  int64_t size() const override { return 256; }
  StatusOr<data::Batch> MakeBatch(std::span<const data::Sample> samples) const override {
    std::vector<int64_t> ids;
    for (const data::Sample& sample : samples) {
      for (int64_t i = 0; i < 16; ++i) ids.push_back((sample.index + i) % 13);
    }
    const auto rows = std::ssize(samples);
    const Tensor tensor = Tensor::FromVector(ids, {rows, 16});
    return data::Batch{.rows = rows,
                       .tokens = 16 * rows,
                       .targets = 15 * rows,
                       .tensors = {{keys::kInputIds, tensor}, {keys::kLabels, tensor}}};
  }
};

// Called with what the ranks ask of the layers; a preset's name or a folder serves as well.
StatusOr<std::unique_ptr<models::Model>> BuildGpt(const nn::BuildContext& build) {
  return models::BuildModel({{"model_type", "gpt2"},
                             {"vocab_size", 13},
                             {"n_positions", 16},
                             {"n_embd", 32},
                             {"n_layer", 2},
                             {"n_head", 2}},
                            build);
}

RunConfig EngineConfig() {
  RunConfig config;
  config.zero = 2;
  config.gradient_accumulation_steps = 2;
  config.batch_size = 4;
  config.lr = 3e-3;
  config.lr_schedule = "constant";
  return config;
}

// Forward, Backward, Step, a micro-batch at a time; continues from the checkpoint in `folder`.
Status TrainWithEngine(const dist::World& world, const std::string& folder) {
  const CountingRows dataset;
  const Coordinator coordinator(world.communicator);
  TESSERA_ASSIGN_OR_RETURN(const auto engine,
                           Initialize(BuildGpt, EngineConfig(), {.world = world.communicator}));
  TESSERA_ASSIGN_OR_RETURN(const LoadedCheckpoint loaded, engine->LoadCheckpoint(folder));
  const auto loader = engine->MakeLoader(dataset);
  while (engine->global_steps() < 20) {
    TESSERA_ASSIGN_OR_RETURN(const data::Batch batch, loader->Next());
    const Tensor loss = (*engine)(batch.tensors);
    const bool last = engine->IsGradientAccumulationBoundary();
    engine->Backward(loss);
    engine->Step();  // updates after the last micro-batch of a step
    if (last && engine->global_steps() % 10 == 0) {
      coordinator.PrintOnMaster(Concat("engine, step ", engine->global_steps(), ": loss ",
                                       loss.Item(), ", norm ", engine->grad_norm()));
      TESSERA_RETURN_IF_ERROR(engine->SaveCheckpoint(folder, "", {{"by", "training_loops"}}));
    }
  }
  return engine->SaveModel(JoinPath(folder, "model"));
}

// A step at a time; with stages the one way.
Status TrainByBatches(const dist::World& world) {
  const CountingRows dataset;
  const Coordinator coordinator(world.communicator);
  RunConfig config = EngineConfig();
  config.zero = 0;
  config.pp = world.size;
  TESSERA_ASSIGN_OR_RETURN(const auto engine,
                           Initialize(BuildGpt, config, {.world = world.communicator}));
  const auto loader = engine->MakeLoader(dataset);
  while (engine->global_steps() < 20) {
    TESSERA_ASSIGN_OR_RETURN(const double loss, engine->TrainBatch([&] { return loader->Next(); }));
    if (engine->global_steps() % 10 == 0) {
      coordinator.PrintOnMaster(
          Concat("train_batch, step ", engine->global_steps(), ": loss ", loss));
    }
  }
  return OkStatus();
}

// A loss of one's own: of the next token, a mean over what it is given.
Tensor NextTokenLoss(const models::Bundle& outputs, const models::Bundle& batch) {
  const Tensor logits = Slice(outputs.at(keys::kLogits), 1, 0, 15);
  const Tensor next = Slice(batch.at(keys::kInputIds), 1, 1, 15).ContiguousCopy();
  return CrossEntropy(logits, next, {.reduction = LossReduction::kMean});
}

// A plugin says how ranks share the work; the loop stays the same.
Status TrainWithBooster(const dist::World& world) {
  const CountingRows dataset;
  const Coordinator coordinator(world.communicator);
  Booster booster(LowLevelZeroPlugin{.stage = 1, .precision = "fp32", .max_norm = 1.0},
                  {.world = world.communicator});
  TESSERA_ASSIGN_OR_RETURN(
      Boosted boosted, booster.Boost(BuildGpt, {.name = "HybridAdam", .lr = 3e-3}, NextTokenLoss,
                                     {.dataset = &dataset, .batch_size = 8},
                                     optim::CosineAnnealingWarmupLR(3e-3, 20, 2)));
  auto& [model, optimizer, criterion, loader, schedule] = boosted;
  for (int64_t step = 1; step <= 20; ++step) {
    TESSERA_ASSIGN_OR_RETURN(const data::Batch batch, loader->Next());
    const Tensor loss = criterion(model(batch.tensors), batch.tensors);
    booster.Backward(loss, optimizer);
    optimizer.Step();
    schedule.Step();
    if (step % 10 == 0) {
      coordinator.PrintOnMaster(Concat("booster, step ", step, ": loss ", loss.Item()));
    }
  }
  return OkStatus();
}

// The same with stages: passes of a whole step in one call.
Status TrainWithPipeline(const dist::World& world) {
  const CountingRows dataset;
  Booster booster(
      HybridParallelPlugin{.pp_size = world.size, .precision = "fp32", .num_microbatches = 4},
      {.world = world.communicator});
  TESSERA_ASSIGN_OR_RETURN(
      Boosted boosted, booster.Boost(BuildGpt, {.name = "HybridAdam", .lr = 3e-3}, NextTokenLoss,
                                     {.dataset = &dataset, .batch_size = 8}));
  auto& [model, optimizer, criterion, loader, schedule] = boosted;
  for (int64_t step = 1; step <= 20; ++step) {
    TESSERA_ASSIGN_OR_RETURN(const dist::PipelineOutput output,
                             booster.ExecutePipeline([&loader = loader] { return loader->Next(); },
                                                     model, criterion, optimizer));
    optimizer.Step();
    if (step % 10 == 0 && booster.mesh().prints()) {
      std::printf("pipeline, step %d: loss %f\n", static_cast<int>(step), output.loss);
    }
  }
  return OkStatus();
}

constexpr TensorKey kX{"x", KeyElements::kFloating, "[B, 4]", "features"};

// Any modules as a pipeline: this rank's run of four layers, which learn to halve what they get.
Status TrainModules(const dist::World& world) {
  const int layers = 4 / world.size;
  std::vector<std::unique_ptr<nn::ReplicatedLinear>> mine;
  std::vector<dist::PipelineBlock> blocks;
  for (int i = world.rank * layers; i < (world.rank + 1) * layers; ++i) {
    nn::Scope scope = nn::Scope::Root({.seed = 3});
    scope.path = Concat("layers.", i);
    mine.push_back(std::make_unique<nn::ReplicatedLinear>(
        nn::LinearConfig{.in_features = 4, .out_features = 4, .weight_init = nn::Init::Normal(0.6)},
        scope));
    const auto run = [layer = mine.back().get()](const models::Bundle& in) {
      return models::Bundle{{kX, layer->Forward(in.at(kX))}};
    };
    blocks.push_back({mine.back().get(), run, models::BlockKeys{.takes = {kX}, .gives = {kX}}});
  }
  const dist::Stage stage({dist::SequenceOf(blocks)}, world.communicator);
  dist::PipelineExecutor executor(stage, {.schedule = dist::ScheduleKind::kZeroBubbleH1});
  optim::AdamW optimizer({{.parameters = stage.OptimizedParameters()}}, {.lr = 1e-2});
  const auto criterion = [](const models::Bundle& outputs, const models::Bundle& inputs) {
    return Mean(Square(Sub(outputs.at(kX), Mul(inputs.at(kX), 0.5))));
  };
  int64_t drawn = 0;
  const auto data = [&] {
    ++drawn;
    const std::vector<float> x = {1, float(drawn % 3), -1, float(drawn % 2)};
    return models::Bundle{{kX, Tensor::FromVector<float>(x, {1, 4})}};
  };
  for (int step = 1; step <= 200; ++step) {
    const dist::PipelineOutput output =
        dist::ExecutePipeline(data, executor, criterion, &optimizer, {.micro_batches = 6});
    if (step % 100 == 0 && world.rank == 0) {
      std::printf("modules, step %d: loss %f\n", step, output.loss);
    }
  }
  return OkStatus();
}

// What one rank does first, or for all.
Status UseCoordinator(const dist::World& world, const std::string& folder) {
  const Coordinator coordinator(world.communicator);
  TESSERA_RETURN_IF_ERROR(coordinator.OnMaster([&] { return MakeDirectories(folder); }));
  const std::string path = JoinPath(folder, "words.txt");
  {
    const PriorityScope turn = coordinator.PriorityExecution();  // rank 0 goes first
    if (!PathExists(path)) TESSERA_RETURN_IF_ERROR(WriteFileAtomically(path, "one two three\n"));
  }
  TESSERA_ASSIGN_OR_RETURN(const std::string words, ReadFile(path));
  coordinator.PrintOnMaster("words: " + words.substr(0, words.size() - 1));
  coordinator.BlockAll();
  return OkStatus();
}

Status RunAll(const dist::World& world, const std::string& folder) {
  TESSERA_RETURN_IF_ERROR(UseCoordinator(world, folder));
  TESSERA_RETURN_IF_ERROR(TrainWithEngine(world, folder));
  TESSERA_RETURN_IF_ERROR(TrainByBatches(world));
  TESSERA_RETURN_IF_ERROR(TrainWithBooster(world));
  TESSERA_RETURN_IF_ERROR(TrainWithPipeline(world));
  return TrainModules(world);
}

}  // namespace

int main(int argc, char** argv) {
  return train::RunOnRanks({}, [&](const dist::World& world) {
    return RunAll(world, argc > 1 ? argv[1] : "training_loops");
  });
}
