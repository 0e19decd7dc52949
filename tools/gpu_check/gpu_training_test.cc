// SPDX-License-Identifier: Apache-2.0
// Training runs on cuda:0 with the real trainer: captured steps, mixed precision, resumption.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <numeric>

#include "core/allocator.h"
#include "core/cuda/runtime.h"
#include "core/device.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduction/sum.h"
#include "train/engine/captured_step.h"
#include "train/run/run_setup.h"
#include "train/trainer.h"

namespace tessera::train {
namespace {

namespace fs = std::filesystem;

using Weights = std::map<std::string, std::vector<float>>;

struct Outcome {
  std::vector<double> losses;  // of every step
  std::vector<double> val_losses;
  Weights weights;
  std::string output;
};

struct StopAt : TrainerCallback {
  explicit StopAt(int64_t step) : step(step) {}
  void OnStepEnd(const TrainState& state, TrainControl& control) override {
    if (state.step == step) control.Stop("the test");
  }
  int64_t step;
};

struct LossesOf : TrainerCallback {
  explicit LossesOf(Outcome* outcome) : outcome(outcome) {}
  void OnStepEnd(const TrainState& state, TrainControl&) override {
    outcome->losses.push_back(state.loss);
  }
  void OnEvaluate(const TrainState& state, TrainControl&) override {
    outcome->val_losses.push_back(state.val_loss.value());
  }
  Outcome* outcome;
};

class GpuTrainingTest : public testing::Test {
 protected:
  void SetUp() override {
    const Status status = CheckDeviceAvailable(Device::Cuda(0));
    if (!status.ok()) GTEST_SKIP() << Message(status);
    root_ = testing::TempDir() + "/gpu_training_" +
            testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(root_);
    fs::create_directories(root_);
    std::ofstream out(root_ + "/text.txt");
    for (int i = 0; i < 600; ++i) {
      out << "line " << i % 17 << " of the song, sung " << i % 5 << " times\n";
    }
  }

  RunConfig Config(const std::string& out) const {
    RunConfig config;
    config.model = "gpt-tiny";
    config.data = {root_ + "/text.txt"};
    config.out = root_ + "/" + out;
    config.device = "cuda:0";
    config.seq_len = 24;
    config.batch_size = 4;
    config.max_steps = 6;
    config.lr = 1e-3;
    config.dropout = 0.1;
    config.eval_batches = 2;
    return config;
  }

  static Outcome Run(const RunConfig& config, int64_t stop_after = 0, bool resume = false) {
    Outcome outcome;
    auto setup = PrepareRun(config);
    EXPECT_TRUE(setup.ok()) << Message(setup.status());
    if (!setup.ok()) return outcome;
    Trainer trainer(setup->config, *setup->model, setup->data);
    LossesOf losses(&outcome);
    StopAt stop(stop_after);
    trainer.AddCallback(&losses);
    trainer.AddCallback(&stop);
    std::FILE* file = std::tmpfile();
    const auto result = trainer.Train({.resume = resume, .output = file});
    EXPECT_TRUE(result.ok()) << Message(result.status());
    outcome.output.resize(static_cast<size_t>(std::ftell(file)));
    std::rewind(file);
    EXPECT_EQ(std::fread(outcome.output.data(), 1, outcome.output.size(), file),
              outcome.output.size());
    std::fclose(file);
    for (const auto& [name, tensor] : setup->model->StateDict()) {
      outcome.weights[name] = CopyTo(tensor, Device::Cpu()).ToVector<float>();
    }
    return outcome;
  }

  static void ExpectEqual(const Outcome& actual, const Outcome& expected) {
    EXPECT_EQ(actual.losses, expected.losses);
    EXPECT_EQ(actual.val_losses, expected.val_losses);
    EXPECT_TRUE(actual.weights == expected.weights);
  }

  std::string root_;
};

// Dropout, accumulation, clipping, a schedule of the learning rate, evaluations in between (which
// give the graph's memory back), mixed precision, recomputation: the same bits.
TEST_F(GpuTrainingTest, CapturedStepsAreTheStepsThatAreRun) {
  const std::vector<std::pair<std::string, std::function<void(RunConfig&)>>> cases = {
      {"float32", [](RunConfig&) {}},
      {"accumulation",
       [](RunConfig& c) {
         c.gradient_accumulation_steps = 2;
         c.max_grad_norm = 0.1;
       }},
      {"bfloat16", [](RunConfig& c) { c.dtype = "bfloat16"; }},
      {"float16", [](RunConfig& c) { c.dtype = "float16"; }},
      {"autocast", [](RunConfig& c) { c.autocast = "bfloat16"; }},
      {"recomputed",
       [](RunConfig& c) {
         c.checkpoint_activations = true;
         c.max_steps = 9;
         c.eval_interval = 4;
       }},
  };
  for (const auto& [name, change] : cases) {
    RunConfig config = Config(name);
    change(config);
    const Outcome captured = Run(config);
    EXPECT_NE(captured.output.find("steps are captured as a CUDA graph"), std::string::npos)
        << name << ": " << captured.output;
    config.out += "_plain";
    config.cuda_graph = false;
    const Outcome plain = Run(config);
    EXPECT_EQ(plain.output.find("CUDA graph"), std::string::npos);
    ExpectEqual(captured, plain);
    EXPECT_EQ(captured.losses.size(), static_cast<size_t>(*config.max_steps)) << name;
  }
}

TEST_F(GpuTrainingTest, WhatCannotBeCapturedIsSaidInOneLineAndRunAsItIs) {
  RunConfig config = Config("noise");
  config.neftune_noise_alpha = 5;  // made on the host
  const Outcome captured = Run(config);
  EXPECT_NE(captured.output.find("steps are not captured as a CUDA graph: transformer.wte: copy: "
                                 "between the host and the GPU"),
            std::string::npos)
      << captured.output;
  config.out += "_plain";
  config.cuda_graph = false;
  ExpectEqual(captured, Run(config));
}

constexpr TensorKey kX{"x", KeyElements::kFloating, "[N]", "what is summed"};

// The squares' sum as the loss, the sum as the norm.
struct SumOfSquares : StepRunner {
  StepOutputs Run(const StepInputs& inputs) override {
    const Tensor x = OnDevice(inputs.batches[0], Device::Cuda(0)).at(kX);
    return {{Sum(Mul(x, x))}, Sum(x)};
  }
  std::vector<Tensor> RunPasses(const StepInputs& inputs) override { return Run(inputs).losses; }
  const char* WhyNotCaptured(int64_t) const override { return nullptr; }
  void Undo() override {}
};

// Sums of micro-batches that the host orders are not captured; nor is a step while shapes change.
TEST_F(GpuTrainingTest, StepsOfOtherShapesAndDeterministicSumsRunAsTheyAre) {
  RunConfig config = Config("deterministic");
  config.max_steps = 4;
  config.deterministic = true;
  config.gradient_accumulation_steps = 2;
  EXPECT_NE(Run(config).output.find(
                "steps are not captured as a CUDA graph: deterministic sums of micro-batches"),
            std::string::npos);

  CapturedStep captured(std::make_unique<SumOfSquares>(), Device::Cuda(0),
                        [](const std::string&) {});
  const auto run = [&](int64_t n, double value, uint64_t step) {
    const StepOutputs outputs =
        captured.Run({.batches = {models::Bundle{{kX, Full({n}, value, DType::kFloat32)}}},
                      .shares = Full({1}, 1.0, DType::kFloat64, Device::Cuda(0)),
                      .number = step});
    EXPECT_EQ(outputs.losses[0].Item(), static_cast<double>(n) * value * value) << step;
    EXPECT_EQ(outputs.grad_norm.Item(), static_cast<double>(n) * value) << step;
    return captured.replays();
  };
  std::vector<bool> replays;
  uint64_t step = 0;
  for (const int64_t n : {4, 4, 4, 4, 7, 7, 4, 4, 4}) {
    ++step;
    replays.push_back(run(n, static_cast<double>(step), step));
  }
  EXPECT_EQ(replays,
            (std::vector<bool>{false, false, true, true, false, false, false, false, true}));
}

TEST_F(GpuTrainingTest, ResumesToTheSameBits) {
  RunConfig config = Config("whole");
  const Outcome whole = Run(config);
  config.out = root_ + "/halves";
  const Outcome first = Run(config, /*stop_after=*/4);
  Outcome second = Run(config, 0, /*resume=*/true);
  second.losses.insert(second.losses.begin(), first.losses.begin(), first.losses.end());
  EXPECT_EQ(second.losses, whole.losses);
  EXPECT_TRUE(second.weights == whole.weights);
}

// The CPU's run, as far as other orders of sums allow.
TEST_F(GpuTrainingTest, LossesAreThoseOfTheCpu) {
  RunConfig config = Config("gpu");
  const Outcome gpu = Run(config);
  config.device = "cpu";
  config.out = root_ + "/cpu";
  const Outcome cpu = Run(config);
  ASSERT_EQ(gpu.losses.size(), cpu.losses.size());
  for (size_t i = 0; i < cpu.losses.size(); ++i) {
    EXPECT_NEAR(gpu.losses[i], cpu.losses[i], 2e-5 * cpu.losses[i]) << i;
  }
}

// A scale far beyond float16: steps are left out until it has fallen, and training continues.
TEST_F(GpuTrainingTest, TheScaleFallsAfterOverflowsAndTrainingGoesOn) {
  RunConfig config = Config("overflow");
  config.dtype = "float16";
  config.initial_scale = 4294967296.0;
  config.hysteresis = 1;
  config.backoff_factor = 0.001;
  config.max_steps = 14;
  config.dropout = 0;
  const Outcome outcome = Run(config);
  ASSERT_EQ(outcome.losses.size(), 14u);
  for (const double loss : outcome.losses) EXPECT_TRUE(std::isfinite(loss));
  EXPECT_LT(outcome.losses.back(), outcome.losses.front() - 0.2);
}

// Half precision learns what float32 learns.
TEST_F(GpuTrainingTest, HalfPrecisionLosesNothingThatMatters) {
  RunConfig config = Config("float32");
  config.max_steps = 16;
  config.warmup_steps = 6;
  const auto last = [](const Outcome& o) {
    return std::accumulate(o.losses.end() - 4, o.losses.end(), 0.0) / 4;
  };
  const double reference = last(Run(config));
  for (const char* how : {"bfloat16", "float16", "autocast"}) {
    config.out = root_ + "/" + how;
    config.dtype = std::string(how) == "autocast" ? "float32" : how;
    config.autocast = std::string(how) == "autocast" ? "bfloat16" : "";
    config.initial_scale = config.scales_loss() ? 1024 : RunConfig().initial_scale;
    const Outcome half = Run(config);
    EXPECT_LT(last(half), 0.7 * half.losses[0]) << how;
    EXPECT_NEAR(last(half), reference, 0.005 * reference) << how;
  }
}

bool IsEmulated() { return cuda::Properties(0).name == "Emulated GPU"; }

// GPT-2 in bfloat16 on real text beside float32 on the CPU, over as many steps as a loss needs to
// fall a long way: TESSERA_CHECK_TEXT and TESSERA_CHECK_TOKENIZER (a file, a folder) name another
// text, and GPT-2's own words. In the emulation a small one.
TEST_F(GpuTrainingTest, TwoHundredStepsInBfloat16FollowTheCpu) {
  constexpr int kWindow = 20;
  RunConfig config = Config("gpu");
  const char* const text = std::getenv("TESSERA_CHECK_TEXT");
  const char* const tokenizer = std::getenv("TESSERA_CHECK_TOKENIZER");
  if (text != nullptr) config.data = {text};
  if (tokenizer != nullptr) config.tokenizer = tokenizer;
  config.max_steps = 40;
  if (!IsEmulated()) {
    config.model = "gpt2";
    config.max_steps = 200;
    config.seq_len = 128;
    config.lr = 3e-4;
  }
  config.warmup_steps = 20;
  config.dropout = 0;
  config.dtype = "bfloat16";
  const Outcome gpu = Run(config);
  config.device = "cpu";
  config.dtype = "float32";
  config.out = root_ + "/cpu";
  const Outcome cpu = Run(config);
  const auto mean = [&](const Outcome& o, size_t begin) {
    const auto at = o.losses.begin() + static_cast<std::ptrdiff_t>(begin);
    return std::accumulate(at, at + kWindow, 0.0) / kWindow;
  };
  ASSERT_EQ(gpu.losses.size(), static_cast<size_t>(*config.max_steps));
  ASSERT_EQ(cpu.losses.size(), gpu.losses.size());
  for (size_t begin = 0; begin < cpu.losses.size(); begin += kWindow) {
    std::printf("steps %zu to %zu: %.4f, on the CPU in float32 %.4f\n", begin + 1, begin + kWindow,
                mean(gpu, begin), mean(cpu, begin));
    EXPECT_NEAR(mean(gpu, begin), mean(cpu, begin), 0.01 * mean(cpu, begin));
  }
  EXPECT_LT(mean(cpu, cpu.losses.size() - kWindow), 0.9 * mean(cpu, 0));
}

// What the process holds, on the GPU and of the machine's memory.
struct Held {
  int64_t in_use;
  int64_t reserved;
  int64_t resident;
};

struct HoldingOf : TrainerCallback {
  void OnStepEnd(const TrainState& state, TrainControl&) override {
    if (state.step % every != 0) return;
    const AllocatorStats stats = Allocator::For(Device::Cuda(0)).stats();
    int64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages >> pages;
    held.push_back({stats.current_bytes, stats.reserved_bytes, pages * sysconf(_SC_PAGESIZE)});
  }
  int64_t every = 1;
  std::vector<Held> held;
};

// Captured steps and steps that are run, with evaluations and checkpoints in between.
TEST_F(GpuTrainingTest, TenThousandStepsLeakNothing) {
  constexpr int64_t kMostGrowth = 8 << 20;  // of the host's allocator and its arenas
  for (const bool captured : {true, false}) {
    RunConfig config = Config(captured ? "captured" : "plain");
    config.cuda_graph = captured;
    config.max_steps = IsEmulated() ? 40 : captured ? 10000 : 2000;
    config.eval_interval = *config.max_steps / 5;
    config.save_interval = *config.max_steps / 5;
    config.num_checkpoints = 1;
    config.dtype = "bfloat16";
    auto setup = PrepareRun(config);
    ASSERT_TRUE(setup.ok()) << Message(setup.status());
    Trainer trainer(setup->config, *setup->model, setup->data);
    HoldingOf holding;
    holding.every = *config.max_steps / 10;
    trainer.AddCallback(&holding);
    const auto result = trainer.Train({.output = nullptr});
    ASSERT_TRUE(result.ok()) << Message(result.status());
    ASSERT_EQ(holding.held.size(), 10u);
    // The first fifth makes what is made once; evaluations come behind every other sample. An
    // emulated GPU's memory is the host's own, whose pages are met for a few steps more.
    const Held& early = holding.held[IsEmulated() ? 4 : 2];
    const Held& late = holding.held[8];
    EXPECT_EQ(late.in_use, early.in_use) << config.out;
    EXPECT_EQ(late.reserved, early.reserved) << config.out;
    EXPECT_LE(late.resident, early.resident + kMostGrowth) << config.out;
  }
}

}  // namespace
}  // namespace tessera::train
