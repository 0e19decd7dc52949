// SPDX-License-Identifier: Apache-2.0
// Trains a GPT-2 whose parameters no rank ever holds whole, with states and parameters off-loaded
// (Colossal-AI's ZeRO-3 GPT-2), on one device or many, at both levels:
//
//   zero3_gpt2 --model gpt2-xl --max_steps 10              the sharded model and optimizer directly
//   zero3_gpt2 --model gpt2-xl --max_steps 10 --config examples/flows/zero3_offload.json
//                                                          an engine that a file describes
//   zero3_gpt2 --model gpt2-xl --max_steps 10 --zero 0     everything on every device, beside it
//
// The last line tells what the device held at most, and the host. `--device_mib` limits the device,
// which a replicated model then exceeds.
#include <string>

#include <tessera/autograd/autograd.h>
#include <tessera/core/allocator.h>
#include <tessera/dist/mesh/mesh.h>
#include <tessera/dist/store/parameter_store.h>
#include <tessera/dist/store/zero_init.h>
#include <tessera/models/hub/load_model.h>
#include <tessera/models/model_keys.h>
#include <tessera/ops/elementwise/elementwise.h>
#include <tessera/optim/adam/adam.h>
#include <tessera/optim/modules/module_parameters.h>
#include <tessera/optim/parameter_groups.h>
#include <tessera/train/boost/coordinator.h>
#include <tessera/train/loop/initialize.h>

#include "dist/store/host_memory.h"
#include "examples/flows/flow_main.h"
#include "train/report/step_report.h"

namespace tessera::flows {
namespace {

using train::Coordinator;

struct Flags {
  std::string model = "gpt2";
  std::string config;
  int64_t zero = 3;
  int64_t batch_size = 8;
  int64_t seq_len = 1024;
  int64_t max_steps = 10;
  double lr = 1e-3;
  double device_mib = 0;

  static const OptionTable& Table() {
    static const auto* table = new OptionTable(
        OptionTable::Of<Flags>("GPT-2 with ZeRO-3")
            .Add("model", &Flags::model, "a preset or a Hugging Face folder")
            .Add("config", &Flags::config, "of an engine", {.unset = "none: the store itself"})
            .Add("zero", &Flags::zero, "3: cut and off-loaded, 0: replicated", {.least = 0})
            .Add("batch_size", &Flags::batch_size, "rows of a rank", {.least = 1})
            .Add("seq_len", &Flags::seq_len, "tokens of a row", {.least = 2})
            .Add("max_steps", &Flags::max_steps, "optimizer steps", {.least = 1})
            .Add("lr", &Flags::lr, "learning rate", {.least = 0})
            .Add("device_mib", &Flags::device_mib, "the device has so much; 0: all", {.least = 0}));
    return *table;
  }
};

// Rows that count round and round, other ones on every rank.
models::Bundle MakeBatch(const Flags& flags, int64_t step, int rank, int ranks) {
  std::vector<int64_t> ids;
  for (int64_t row = 0; row < flags.batch_size; ++row) {
    const int64_t first = ((step * ranks + rank) * flags.batch_size + row) * 7;
    for (int64_t i = 0; i < flags.seq_len; ++i) ids.push_back((first + i) % 13);
  }
  const Tensor tensor = Tensor::FromVector(ids, {flags.batch_size, flags.seq_len});
  return {{keys::kInputIds, tensor}, {keys::kLabels, tensor}};
}

// A step of one micro-batch on each rank, by whatever does it; the mean loss of this rank's.
using TakeStep = std::function<double(const models::Bundle& batch, int64_t step)>;

Status RunSteps(const Flags& flags, const dist::World& world, const TakeStep& take_step) {
  const Coordinator coordinator(world.communicator);
  const dist::Mesh mesh(world.communicator, {});
  Allocator& device = Allocator::For(world.device);
  Allocator& host = Allocator::For(dist::HostMemoryOf(world.device));
  for (int64_t step = 1; step <= flags.max_steps; ++step) {
    const double mine = take_step(MakeBatch(flags, step, world.rank, world.size), step);
    double sum = 0;
    for (const double loss : train::GatherOverData({mine}, mesh)) sum += loss;
    coordinator.PrintOnMaster(Concat("step ", step, ": loss ", sum / world.size));
  }
  constexpr double kMib = 1 << 20;
  coordinator.PrintOnMaster(Concat("MiB at most: device ",
                                   static_cast<double>(device.stats().peak_bytes) / kMib, ", host ",
                                   static_cast<double>(host.stats().peak_bytes) / kMib));
  return OkStatus();
}

// The sharded model and its optimizer, with nothing around them.
Status TrainWithStore(const Flags& flags, const dist::World& world) {
  const dist::Mesh mesh(world.communicator, {});
  const dist::ZeroOptions policy = {.stage = static_cast<int>(flags.zero),
                                    .offload_optimizer = flags.zero == 3,
                                    .offload_parameters = flags.zero == 3};
  nn::BuildContext build = {.device = world.device, .seed = 42};
  dist::CutWhileBuilding(policy, dist::StoreGroupsOf(mesh), &build);  // ZeroInitContext
  TESSERA_ASSIGN_OR_RETURN(const auto model, models::LoadModel(flags.model, {.build = build}));
  model->set_checkpoint_activations(true);
  dist::ParameterStore store(
      *model, optim::SplitByDecay(optim::ParametersOf(*model), {.weight_decay = 0.1}),
      [&](std::vector<optim::ParameterGroup> groups) {
        return std::make_unique<optim::AdamW>(std::move(groups),
                                              optim::AdamOptions{.lr = flags.lr});
      },
      dist::StoreGroupsOf(mesh), policy);
  store.Start();
  return RunSteps(flags, world, [&](const models::Bundle& batch, int64_t step) {
    models::RunOptions options = {.keep_logits = false};
    options.context = {.training = true,
                       .seed = 42,
                       .step = static_cast<uint64_t>(step),
                       .micro_batch = static_cast<uint64_t>(world.rank)};
    store.BeginStep(/*micro_batches=*/1);
    store.BeginMicroBatch(0);
    const Tensor loss = model->Run(OnDevice(batch, world.device), options).at(keys::kLoss);
    Backward(Mul(loss, 1.0 / world.size));  // gradients are summed over the ranks
    store.FinishGradients();
    const optim::ClipResult clip = store.Clip({.max_norm = 1.0});
    store.Step({.clip_factor = clip.factor});
    return loss.Item();
  });
}

// The same by an engine.
Status TrainWithEngine(const Flags& flags, const dist::World& world) {
  TESSERA_ASSIGN_OR_RETURN(
      const auto engine,
      train::Initialize(flags.model,
                        train::RunSources{.config = flags.config, .flags = {{"lr", flags.lr}}},
                        {.world = world.communicator, .device = world.device}));
  return RunSteps(flags, world, [&](const models::Bundle& batch, int64_t) {
    const Tensor loss = (*engine)(batch);
    engine->Backward(loss);
    engine->Step();
    return loss.Item();
  });
}

Status Train(const Flags& flags, const dist::World& world) {
  if (flags.zero != 0 && flags.zero != 3) {
    return InvalidArgument("zero is ", flags.zero, ", expected 3 or, beside it, 0");
  }
  Allocator::For(world.device).SetLimit(static_cast<int64_t>(flags.device_mib * (1 << 20)));
  return flags.config.empty() ? TrainWithStore(flags, world) : TrainWithEngine(flags, world);
}

}  // namespace
}  // namespace tessera::flows

int main(int argc, char** argv) {
  return tessera::flows::FlowMain<tessera::flows::Flags>(argc, argv, tessera::flows::Train);
}
