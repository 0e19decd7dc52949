// SPDX-License-Identifier: Apache-2.0
// A run whose weights make an operation overflow: every layout names the same operation, module,
// pass and micro-batch.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <mutex>

#include "base/file.h"
#include "core/thread_communicator.h"
#include "dist/store/parameter_shard.h"
#include "nlohmann/json.hpp"
#include "train/run/run_setup.h"
#include "train/trainer.h"

namespace tessera::train {
namespace {

namespace fs = std::filesystem;

constexpr int kMicroBatches = 4;  // of a step, over all ranks

struct Layout {
  const char* name;
  int dp = 1;
  int tp = 1;
  int pp = 1;
  int cp = 1;
  int zero = 0;
  bool sequence_parallel = false;
  const char* schedule = "1f1b";
  bool recomputes = false;
};

std::ostream& operator<<(std::ostream& out, const Layout& layout) { return out << layout.name; }

// From step 3 on the weights of one layer are as large as a float32 can be.
class Planted : public TrainerCallback {
 public:
  Planted(models::Model* model, std::string weight) : model_(*model), weight_(std::move(weight)) {}
  void OnStepBegin(const TrainState& state, TrainControl&) override {
    if (state.step != 2) return;
    nn::Parameter* const p = model_.FindParameter(weight_);
    if (p == nullptr) return;  // another stage's
    const dist::GatheredScope gathered({p->tensor}, dist::GatherFor::kWriting);
    Fill(p->tensor.Detach(), 3e38);
  }

 private:
  models::Model& model_;
  const std::string weight_;
};

class BadStepTest : public testing::TestWithParam<Layout> {
 protected:
  static nlohmann::json Run(const Layout& layout, const std::string& weight) {
    const std::string root = testing::TempDir() + "/bad_step_" + layout.name;
    fs::remove_all(root);
    fs::create_directories(root);
    std::ofstream text(root + "/text.txt");
    for (int i = 0; i < 200; ++i) text << "line " << i % 17 << " of the song\n";
    text.close();
    RunConfig config;
    config.model = "gpt-tiny";
    config.data = {root + "/text.txt"};
    config.out = root + "/run";
    config.seq_len = 16;
    config.batch_size = 2;
    config.gradient_accumulation_steps = kMicroBatches / (layout.dp / layout.cp);
    config.max_steps = 4;
    config.threads = 1;
    config.tp = layout.tp;
    config.pp = layout.pp;
    config.cp = layout.cp;
    config.zero = layout.zero;
    config.sequence_parallel = layout.sequence_parallel;
    config.checkpoint_activations = layout.recomputes;
    if (layout.pp > 1) config.schedule = layout.schedule;
    std::string message;
    std::mutex mutex;
    RunRanks(layout.dp * layout.tp * layout.pp, [&](const std::shared_ptr<Communicator>& world) {
      const auto mesh = MakeMesh(config, world);
      ASSERT_TRUE(mesh.ok()) << Message(mesh.status());
      const auto setup = PrepareRun(config, *mesh);
      ASSERT_TRUE(setup.ok()) << Message(setup.status());
      Trainer trainer(setup->config, *setup->model, setup->data, *mesh);
      Planted planted(setup->model.get(), weight);
      trainer.AddCallback(&planted);
      const Status status = trainer.Train({.output = nullptr}).status();
      const std::lock_guard<std::mutex> lock(mutex);
      if (message.empty()) message = Message(status);
      EXPECT_EQ(message, Message(status));
    });
    EXPECT_NE(message.find("step 3: the loss is "), std::string::npos) << message;
    const StatusOr<std::string> file = ReadFile(config.out + "/bad_step.json");
    EXPECT_TRUE(file.ok()) << message;
    return file.ok() ? nlohmann::json::parse(*file) : nlohmann::json();
  }
};

TEST_P(BadStepTest, NamesWhatOneProcessNames) {
  for (const char* weight : {"transformer.h.1.mlp.c_fc.weight", "transformer.h.0.ln_1.weight"}) {
    SCOPED_TRACE(weight);
    const nlohmann::json one = Run({"reference"}, weight);
    const nlohmann::json bad = Run(GetParam(), weight);
    EXPECT_EQ(bad["module"].get<std::string>().find("transformer.h."), 0u) << bad;
    for (const char* key : {"step", "operation", "module", "pass", "micro_batch", "samples"}) {
      EXPECT_EQ(bad[key], one[key]) << key;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, BadStepTest,
    testing::Values(Layout{.name = "one"}, Layout{.name = "recomputes", .recomputes = true},
                    Layout{.name = "dp2", .dp = 2}, Layout{.name = "dp2_zero1", .dp = 2, .zero = 1},
                    Layout{.name = "dp2_zero2", .dp = 2, .zero = 2},
                    Layout{.name = "dp2_zero3", .dp = 2, .zero = 3}, Layout{.name = "tp2", .tp = 2},
                    Layout{.name = "tp2_sp", .tp = 2, .sequence_parallel = true},
                    Layout{.name = "dp2_tp2", .dp = 2, .tp = 2}, Layout{.name = "pp2", .pp = 2},
                    Layout{.name = "pp2_zb2", .pp = 2, .schedule = "zb-h2"},
                    Layout{.name = "pp2_zb", .pp = 2, .schedule = "zb-h1"},
                    Layout{.name = "cp2", .dp = 2, .cp = 2}),
    [](const testing::TestParamInfo<Layout>& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tessera::train
