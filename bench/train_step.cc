// SPDX-License-Identifier: Apache-2.0
// Whole optimizer steps of a preset on random inputs, timed on request: the side of Tessera in
// bench/train_step.py.
//
//   bazel build //bench:train_step
//   echo 5 | bazel-bin/bench/train_step --dropout 0.1
//
// Prints "start" before the model is built, then, for every number N read from standard input,
// takes N steps (forward, backward, clipping, AdamW, as train/trainer.cc) and prints one line of
// JSON: "seconds" of each step, "loss" of the last one, "peak_bytes" and "current_bytes" as the
// allocator counts them, the "allocations" of the last step, and by how much the process's resident
// memory has grown ("growth_bytes"). Under mpirun the ranks train data parallel, or with --zero by
// ZeRO's stages, each on a batch of its own; rank 0 reads and prints.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "autograd/autograd.h"
#include "bench/random_inputs.h"
#include "core/allocator.h"
#include "core/thread_pool.h"
#include "dist/comm/world.h"
#include "dist/mesh/mesh.h"
#include "dist/store/parameter_store.h"
#include "dist/store/zero_init.h"
#include "models/family.h"
#include "models/hub/adapter.h"
#include "models/hub/load_model.h"
#include "models/model.h"
#include "models/model_keys.h"
#include "nlohmann/json.hpp"
#include "nn/running_statistics.h"
#include "ops/elementwise/elementwise.h"
#include "optim/adam/adam.h"
#include "optim/clip.h"
#include "optim/modules/module_parameters.h"
#include "optim/parameter_groups.h"

namespace tessera {
namespace {

struct Flags {
  std::string model = "gpt2";
  std::string dtype = "float32";
  int64_t batch = 4;
  int64_t tokens = 256;
  double dropout = 0;
  int threads = 2;
  double bucket_cap_mb = 25;
  bool overlap = true;
  int zero = 0;
  int64_t lora_r = 0;
  std::string target_modules;
  bool print_config = false;
};

int64_t CountTargets(const models::Bundle& inputs) {
  const Tensor& targets =
      inputs.has(keys::kTargets) ? inputs.at(keys::kTargets) : inputs.at(keys::kLabels);
  const std::vector<int64_t> all = targets.ToVector<int64_t>();
  return std::ssize(all) - std::count(all.begin(), all.end(), -100);
}

dist::ZeroOptions PolicyOf(const Flags& flags) {
  dist::ZeroOptions options{.stage = flags.zero, .bucket_cap_mb = flags.bucket_cap_mb};
  options.overlap = flags.overlap;
  return options;
}

class Steps {
 public:
  Steps(models::Model& model, const Flags& flags, const dist::Group& world)
      : model_(model),
        world_(world),
        store_(
            model, optim::SplitByDecay(optim::ParametersOf(model), {.weight_decay = 0.1}),
            [](std::vector<optim::ParameterGroup> groups) {
              return std::make_unique<optim::AdamW>(std::move(groups),
                                                    optim::AdamOptions{.lr = 1e-4});
            },
            {.data = world}, PolicyOf(flags)),
        inputs_(RandomInputs(model, flags.batch, flags.tokens)),
        targets_(CountTargets(inputs_)) {}

  double Take() {
    models::RunOptions options;
    options.context = {.training = true, .seed = 7, .step = ++step_};
    options.loss_reduction = LossReduction::kSum;
    options.keep_logits = false;
    store_.BeginStep(1);
    store_.BeginMicroBatch(0);
    const Tensor loss = Loss(options);
    const Tensor mean = Mul(loss, 1.0 / static_cast<double>(targets_ * world_->size()));
    Backward(mean);
    store_.FinishGradients();
    store_.Step({.clip_factor = store_.Clip({.max_norm = 1.0}).factor});
    statistics_.Apply(world_);
    return mean.Item();
  }

 private:
  Tensor Loss(const models::RunOptions& options) {
    const nn::RunningStatistics::Scope found(&statistics_);
    return model_.Run(inputs_, options).at(keys::kLoss);
  }

  models::Model& model_;
  const dist::Group world_;
  dist::ParameterStore store_;
  nn::RunningStatistics statistics_;
  models::Bundle inputs_;
  int64_t targets_;
  uint64_t step_ = 0;
};

// The next number of steps that rank 0 reads; 0 at the end.
int64_t NextTurn(const dist::Group& world) {
  const Tensor count = Zeros({1}, DType::kInt64);
  int64_t read = 0;
  if (world->rank() == 0 && std::cin >> read) count.data<int64_t>()[0] = read;
  if (world->size() > 1) world->Broadcast(count, 0)->Wait();
  return count.data<int64_t>()[0];
}

int64_t GreatestResidentBytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<int64_t>(usage.ru_maxrss) * 1024;
}

void Serve(Steps& steps, const dist::Group& world, int64_t bytes_at_start) {
  Allocator& allocator = Allocator::For(Device::Cpu());
  while (const int64_t count = NextTurn(world)) {
    std::string seconds;
    double loss = 0;
    int64_t before = 0;
    for (int64_t i = 0; i < count; ++i) {
      before = allocator.stats().allocations;
      const auto start = std::chrono::steady_clock::now();
      loss = steps.Take();
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
      seconds += (i > 0 ? ", " : "") + std::to_string(taken.count());
    }
    if (world->rank() != 0) continue;
    const AllocatorStats stats = allocator.stats();
    std::printf(
        "{\"seconds\": [%s], \"loss\": %.6f, \"peak_bytes\": %ld, \"current_bytes\": %ld, "
        "\"allocations\": %ld, \"growth_bytes\": %ld}\n",
        seconds.c_str(), loss, stats.peak_bytes, stats.current_bytes, stats.allocations - before,
        GreatestResidentBytes() - bytes_at_start);
    std::fflush(stdout);
  }
}

// LoRA without dropout, its scale that of alpha = 2 r.
Status AddAdapter(models::Model& model, const Flags& flags) {
  if (flags.lora_r == 0) return OkStatus();
  models::AdapterConfig config;
  config.r = flags.lora_r;
  config.lora_alpha = static_cast<double>(2 * flags.lora_r);
  config.target_modules.all_linear = flags.target_modules == "all-linear";
  if (!config.target_modules.all_linear) {
    std::istringstream names(flags.target_modules);
    for (std::string name; std::getline(names, name, ',');) {
      config.target_modules.names.push_back(name);
    }
  }
  TESSERA_ASSIGN_OR_RETURN(const models::AttachedAdapter adapter,
                           models::AttachAdapter(model, config));
  models::TrainOnly(model, adapter);
  return OkStatus();
}

int Run(int argc, char** argv) {
  Flags flags;
  CLI::App app("Times optimizer steps; see the head of bench/train_step.cc.");
  app.add_option("--model", flags.model, "a preset, or the folder of a config.json");
  app.add_option("--dtype", flags.dtype, "float32, bfloat16 or float16");
  app.add_option("--batch", flags.batch, "sequences")->check(CLI::PositiveNumber);
  app.add_option("--tokens", flags.tokens, "tokens of a sequence")->check(CLI::PositiveNumber);
  app.add_option("--dropout", flags.dropout, "every dropout probability");
  app.add_option("--threads", flags.threads, "threads")->check(CLI::PositiveNumber);
  app.add_option("--bucket-cap-mb", flags.bucket_cap_mb, "megabytes of gradients per message");
  app.add_option("--overlap", flags.overlap, "send while the backward pass runs");
  app.add_option("--zero", flags.zero, "ZeRO's stage")->check(CLI::Range(0, 3));
  app.add_option("--lora-r", flags.lora_r, "train LoRA of this rank alone (0: all of the model)");
  app.add_option("--target-modules", flags.target_modules, "LoRA's, at commas, or all-linear");
  app.add_flag("--print-config", flags.print_config, "print the preset's config.json, and end");
  CLI11_PARSE(app, argc, argv);

  const StatusOr<nlohmann::json> config = models::ReadModelConfig(flags.model);
  const auto dtype = ParseDType(flags.dtype);
  if (!config.ok() || !dtype) {
    std::fprintf(stderr, "error: %s\n",
                 config.ok() ? ("no dtype '" + flags.dtype + "'").c_str()
                             : Message(config.status()).c_str());
    return 2;
  }
  if (flags.print_config) {
    std::printf("%s\n", config->dump().c_str());
    return 0;
  }
  const auto world = dist::OpenWorld({});
  if (!world.ok()) {
    std::fprintf(stderr, "error: %s\n", Message(world.status()).c_str());
    return 1;
  }
  SetNumThreads(flags.threads);
  if (world->rank == 0) std::printf("start\n");
  std::fflush(stdout);
  const int64_t bytes_at_start = GreatestResidentBytes();
  nn::BuildContext build{.dtype = *dtype, .seed = 1};
  dist::CutWhileBuilding(PolicyOf(flags), {.data = world->communicator}, &build);
  auto model = models::BuildModel(*config, build);
  if (!model.ok()) {
    std::fprintf(stderr, "error: %s\n", Message(model.status()).c_str());
    return 1;
  }
  (*model)->SetDropout(flags.dropout);
  if (const Status status = AddAdapter(**model, flags); !status.ok()) {
    std::fprintf(stderr, "error: %s\n", Message(status).c_str());
    return 1;
  }
  Steps steps(**model, flags, world->communicator);
  Serve(steps, world->communicator, bytes_at_start);
  return 0;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) { return tessera::Run(argc, argv); }
