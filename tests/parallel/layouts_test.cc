// SPDX-License-Identifier: Apache-2.0
// One run on many layouts: ten steps of the real trainer, its data, dropout, uneven targets and
// evaluation included, on ranks as threads, beside the same run in one process.
//
// Equal bit for bit where only the data is spread and `deterministic` is on; within 2e-6 relative
// where tensor parallelism splits sums, context parallelism those over tokens, or ranks sum in
// another order.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <regex>
#include <stdexcept>

#include "base/file.h"
#include "core/thread_communicator.h"
#include "dist/mesh/unshard.h"
#include "dist/store/parameter_shard.h"
#include "models/hub/save_model.h"
#include "nlohmann/json.hpp"
#include "train/run/run_setup.h"
#include "train/trainer.h"

namespace tessera::train {
namespace {

namespace fs = std::filesystem;

constexpr int kMicroBatches = 4;  // of a step, over all ranks

struct Layout {
  int dp = 1;
  int tp = 1;
  bool sequence_parallel = false;
  int64_t accumulation = kMicroBatches;
  bool deterministic = true;
  std::string dtype = "float32";  // or "autocast", of float32 to bfloat16
  std::function<void(RunConfig&)> change = nullptr;
  int pp = 1;
  std::string schedule = {};
  int zero = 0;
  bool cpu_offload = false;
  std::string optimizer = "adamw";
  std::string run = {};  // another run than the usual one (ConfigFor)
  int ep = 1;
  int cp = 1;  // divides dp

  int world() const { return dp * tp * pp; }
  bool same_bits() const {
    const bool in_order = deterministic ? kSumLeaves % tp == 0 : dp == 1 && tp == 1;
    // Whose statistics of a parameter are sums over what tp cuts.
    const bool sums_parts = tp > 1 && (optimizer == "adafactor" || optimizer == "lamb");
    return in_order && cp == 1 && !sums_parts;
  }
  // Of losses, relative, where sums are split otherwise. Signs and orthogonal matrices amplify it.
  double tolerance() const {
    if (dtype != "float32") return 5e-3;
    if (optimizer == "lion" || optimizer == "muon") return 1e-4;
    if (run == "quantised") return 1e-5;  // a rounding of inputs to eight bits may go the other way
    return optimizer == "adamw" ? 2e-6 : 5e-6;
  }
};

const std::regex kDash("-");

std::ostream& operator<<(std::ostream& out, const Layout& l) {
  return out << "dp" << l.dp << "_tp" << l.tp << (l.sequence_parallel ? "_sp" : "") << "_acc"
             << l.accumulation << (l.deterministic ? "" : "_fast") << "_" << l.dtype
             << (l.ep > 1 ? Concat("_ep", l.ep) : "") << (l.cp > 1 ? Concat("_cp", l.cp) : "")
             << (l.pp > 1 ? Concat("_pp", l.pp) : "") << std::regex_replace(l.schedule, kDash, "")
             << (l.zero > 0 ? Concat("_zero", l.zero) : "") << (l.cpu_offload ? "_offload" : "")
             << (l.optimizer == "adamw" ? "" : "_" + l.optimizer)
             << (l.run.empty() ? "" : "_" + l.run);
}

struct Outcome {
  std::vector<double> losses;  // of every step, then of the evaluations
  std::vector<double> norms;
  std::map<std::string, std::vector<float>> weights;
  std::string adapter;  // the bytes of its folder's file
};

const std::string& Root() {
  static const std::string root = [] {
    const std::string path = testing::TempDir() + "/layouts";
    fs::remove_all(path);
    fs::create_directories(path);
    // Documents of many lengths: with reset_at_documents every row has another number of targets.
    std::ofstream out(path + "/text.jsonl");
    for (int i = 0; i < 400; ++i) {
      out << "{\"text\": \"" << std::string(static_cast<size_t>(1 + i * i % 37), 'a' + i % 26)
          << " number " << i * 7919 % 1000 << "\"}\n";
    }
    // Of several lengths, some above a row's.
    std::ofstream few(path + "/lines.jsonl");
    for (int i = 0; i < 30; ++i) {
      few << "{\"text\": \"the " << i << (i % 3 == 0 ? "th of many lines" : "th line") << "\"}\n";
    }
    // Conversations of several lengths.
    std::ofstream chats(path + "/chats.jsonl");
    for (int i = 0; i < 40; ++i) {
      chats << R"({"messages": [{"role": "user", "content": "in )" << i % 7
            << R"("}, {"role": "assistant", "content": "the user )"
            << std::string(static_cast<size_t>(i * i % 11), 'y') << "\"}]}\n";
    }
    std::ofstream pairs(path + "/pairs.jsonl");
    for (int i = 0; i < 60; ++i) {
      pairs << "{\"prompt\": \"say " << i << "\", \"chosen\": \" "
            << std::string(static_cast<size_t>(1 + i % 7), 'a' + i % 3)
            << "!\", \"rejected\": \" no " << i % 5 << "\"}\n";
    }
    return path;
  }();
  return root;
}

// A model whose weights are quantised.
const std::string& QuantisedFolder() {
  static const std::string folder = [] {
    RunConfig config;
    config.model = "gpt-tiny";
    config.data = {Root() + "/text.jsonl"};
    config.out = Root() + "/quantised_base";
    config.seq_len = 21;
    config.max_steps = 1;
    const RunSetup setup = *PrepareRun(config);
    std::string made = Root() + "/quantised";
    const Status saved = models::SaveModel(*setup.model, made, setup.tokenizer.get(),
                                           {.quantize = QuantType::kQ8_0});
    EXPECT_TRUE(saved.ok()) << saved;
    return made;
  }();
  return folder;
}

RunConfig ConfigFor(const Layout& layout, const std::string& name) {
  RunConfig config;
  config.model = "gpt-tiny";
  config.data = {Root() + "/text.jsonl"};
  config.out = Root() + "/" + name;
  config.options["reset_at_documents"] = true;
  config.seq_len = 21;
  config.batch_size = 2;
  config.gradient_accumulation_steps = layout.accumulation;
  config.max_steps = 10;
  config.lr = 3e-3;
  config.dropout = 0.1;
  config.log_interval = 1;
  config.eval_interval = 5;
  config.eval_batches = 7;  // no multiple of the ranks
  config.threads = 2;
  if (layout.dtype == "autocast") {
    config.autocast = "bfloat16";
  } else {
    config.dtype = layout.dtype;
  }
  config.tp = layout.tp;
  config.sequence_parallel = layout.sequence_parallel;
  config.deterministic = layout.deterministic;
  config.ep = layout.ep;
  config.cp = layout.cp;
  config.pp = layout.pp;
  if (!layout.schedule.empty()) config.schedule = layout.schedule;
  config.zero = layout.zero;
  config.cpu_offload = layout.cpu_offload;
  config.optimizer = layout.optimizer;
  if (layout.optimizer == "lion") config.lr = 3e-4;
  if (layout.optimizer == "lamb" || layout.optimizer == "muon") config.lr = 1e-2;
  if (layout.optimizer == "adafactor") config.lr = 3e-2;
  if (layout.run == "smoothed") config.label_smoothing = 0.2;
  if (layout.run == "noisy") config.neftune_noise_alpha = 5;
  if (layout.run == "lora" || layout.run == "quantised") {
    if (layout.run == "quantised") config.model = QuantisedFolder();
    config.adapter = "lora";
    config.target_modules = "wte,wpe,lm_head,c_attn,c_fc,c_proj";
    config.lora_dropout = 0.1;
  }
  if (layout.run == "dora" || layout.run == "pissa" || layout.run == "olora") {
    config.adapter = layout.run == "dora" ? "dora" : "lora";
    config.target_modules = "all-linear";
    if (layout.run != "dora") config.init_lora_weights = layout.run;
  }
  if (layout.run == "preference") {
    config.options = {};
    config.task = "preference";
    config.options["beta"] = 0.5;
    config.label_smoothing = 0.1;
    config.adapter = "lora";
    config.target_modules = "all-linear";
    config.data = {Root() + "/pairs.jsonl"};
    config.val_fraction = 0.25;
    config.lr = 1e-2;
    config.dropout = 0;
  }
  if (layout.run.starts_with("experts")) {
    config.model = "moe-tiny";
    config.config_overrides = "num_hidden_layers=3,router_z_loss_coef=0.01";
    config.dropout.reset();
    if (layout.run == "experts_lora") {
      config.adapter = "lora";
      config.target_modules = "all-linear";
      config.lora_dropout = 0.1;  // of the rank whose tokens they are
    }
    if (layout.run == "experts_six") config.config_overrides += ",num_experts=6";
    config.static_graph = config.check_reduction = layout.run == "experts_static";
  }
  if (layout.run == "prefix" || layout.run == "projected") {
    config.adapter = "prefix";
    config.pre_seq_len = 5;
    config.prefix_projection = layout.run == "projected";
    if (config.prefix_projection) config.prefix_hidden_size = 7;
    config.lr = 3e-2;
  }
  if (layout.run == "documents" || layout.run == "epochs") {
    config.options["reset_at_documents"] = false;
    config.options["packing"] = false;
    config.data = {Root() + "/lines.jsonl"};  // of some steps and a rest
  }
  if (layout.run == "chat" || layout.run == "lengths") {
    config.options->erase("reset_at_documents");
    config.options["packing"] = layout.run == "chat";
    config.group_by_length = layout.run == "lengths";
    config.task = "chat";
    config.data = {Root() + "/chats.jsonl"};
    config.tokenizer = "data/chat/testdata/tokenizer";
    config.seq_len = 100;
    // Steps of few targets: larger ones make much of what a sum split otherwise rounds.
    if (config.group_by_length) config.lr = 1e-3;
  }
  config.drop_last = config.schedule_by_epoch = layout.run == "epochs";
  if (layout.change) layout.change(config);
  return config;
}

// A rank that fails must not leave the others waiting.
void Require(const Status& status) {
  if (!status.ok()) throw std::runtime_error(Message(status));
}

struct StopAt : TrainerCallback {
  explicit StopAt(int64_t step) : step(step) {}
  void OnStepEnd(const TrainState& state, TrainControl& control) override {
    if (state.step == step) control.Stop("the test");
  }
  int64_t step;
};

// A run in `name`, up to `stop_after` steps or to its end; `resume` continues what lies there.
Outcome RunLayout(const Layout& layout, const std::string& name, int64_t stop_after = 0,
                  bool resume = false) {
  const RunConfig config = ConfigFor(layout, name);
  if (!resume) fs::remove_all(config.out);
  Outcome outcome;
  std::mutex mutex;
  RunRanks(layout.world(), [&](const std::shared_ptr<Communicator>& world) {
    const auto mesh = MakeMesh(config, world);
    Require(mesh.status());
    const auto setup = PrepareRun(config, *mesh);
    Require(setup.status());
    Trainer trainer(setup->config, *setup->model, setup->data, *mesh);
    StopAt stop(stop_after);
    trainer.AddCallback(&stop);
    Require(trainer.Train({.resume = resume, .output = nullptr}).status());
    if (!config.adapter.empty()) Require(trainer.SaveModel(config.out + "/model", nullptr));
    setup->model->VisitParameters([&](nn::Parameter& p) {
      if (p.tensor.device().is_meta()) return;         // quantised
      const dist::GatheredScope gathered({p.tensor});  // what ZeRO-3 has cut; on all ranks
      const Tensor whole = dist::Unshard(p, *mesh);
      std::vector<float> values = CastCopy(whole, DType::kFloat32).ToVector<float>();
      if (mesh->dp()->rank() > 0 || mesh->tp()->rank() > 0 || p.tied_to != nullptr) return;
      const std::lock_guard<std::mutex> lock(mutex);
      outcome.weights[p.name] = std::move(values);
    });
  });
  if (!config.adapter.empty()) {
    outcome.adapter = *ReadFile(config.out + "/model/adapter_model.safetensors");
  }
  std::ifstream in(config.out + "/metrics.jsonl");
  for (std::string line; std::getline(in, line);) {
    const auto row = nlohmann::json::parse(line);
    outcome.losses.push_back(row.value("loss", row.value("val_loss", 0.0)));
    if (row.contains("grad_norm")) outcome.norms.push_back(row["grad_norm"].get<double>());
  }
  if (stop_after == 0) {
    EXPECT_EQ(outcome.losses.size(), 12u);
    EXPECT_EQ(outcome.norms.size(), 10u);
  }
  return outcome;
}

// One process with the whole step's micro-batches.
const Outcome& Reference(const Layout& layout) {
  static auto* references = new std::map<std::string, Outcome>;
  const Layout one = {.deterministic = layout.deterministic,
                      .dtype = layout.dtype,
                      .change = layout.change,
                      .optimizer = layout.optimizer,
                      .run = layout.run};
  const std::string key =
      Concat(one.dtype, one.deterministic, layout.change != nullptr, one.optimizer, one.run);
  auto found = references->find(key);
  if (found == references->end()) {
    found = references->emplace(key, RunLayout(one, "one" + key)).first;
  }
  return found->second;
}

void ExpectClose(const std::vector<double>& actual, const std::vector<double>& expected,
                 double relative) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_NEAR(actual[i], expected[i], relative * std::abs(expected[i])) << i;
  }
}

class LayoutsTest : public testing::TestWithParam<Layout> {};

TEST_P(LayoutsTest, GivesTheRunOfOneProcess) {
  const Layout& layout = GetParam();
  const Outcome& expected = Reference(layout);
  const Outcome actual = RunLayout(layout, testing::PrintToString(layout));
  EXPECT_LT(expected.losses[9], expected.losses[0]);
  if (layout.same_bits()) {
    EXPECT_EQ(actual.losses, expected.losses);
    EXPECT_EQ(actual.norms, expected.norms);
    EXPECT_TRUE(actual.weights == expected.weights);
    EXPECT_TRUE(actual.adapter == expected.adapter);
    return;
  }
  EXPECT_EQ(actual.adapter.size(), expected.adapter.size());
  ExpectClose(actual.losses, expected.losses, layout.tolerance());
}

INSTANTIATE_TEST_SUITE_P(Data, LayoutsTest,
                         testing::Values(Layout{.dp = 2, .accumulation = 2},
                                         Layout{.dp = 4, .accumulation = 1},
                                         Layout{.dp = 2, .accumulation = 2, .deterministic = false},
                                         Layout{.dp = 4, .accumulation = 1, .deterministic = false},
                                         Layout{.dp = 2, .accumulation = 2, .dtype = "bfloat16"},
                                         Layout{.dp = 2, .accumulation = 2, .dtype = "float16"}),
                         testing::PrintToStringParamName());

INSTANTIATE_TEST_SUITE_P(
    Tensor, LayoutsTest,
    testing::Values(Layout{.tp = 2}, Layout{.tp = 3}, Layout{.tp = 4},
                    Layout{.tp = 2, .sequence_parallel = true},
                    Layout{.tp = 3, .sequence_parallel = true},
                    Layout{.tp = 4, .sequence_parallel = true},
                    Layout{.tp = 2, .sequence_parallel = true, .dtype = "bfloat16"},
                    Layout{.tp = 2, .sequence_parallel = true, .dtype = "autocast"}),
    testing::PrintToStringParamName());

INSTANTIATE_TEST_SUITE_P(
    Mixed, LayoutsTest,
    testing::Values(Layout{.dp = 2, .tp = 2, .accumulation = 2},
                    Layout{.dp = 2, .tp = 2, .sequence_parallel = true, .accumulation = 2},
                    Layout{.dp = 2, .tp = 3, .sequence_parallel = true, .accumulation = 2},
                    Layout{.dp = 4, .tp = 2, .accumulation = 1},
                    Layout{.dp = 4, .tp = 2, .sequence_parallel = true, .accumulation = 1},
                    Layout{.dp = 2,
                           .tp = 4,
                           .sequence_parallel = true,
                           .accumulation = 2,
                           .deterministic = false}),
    testing::PrintToStringParamName());

INSTANTIATE_TEST_SUITE_P(
    Pipeline, LayoutsTest,
    testing::Values(Layout{.deterministic = false, .pp = 2, .schedule = "gpipe"},
                    Layout{.deterministic = false, .pp = 2, .schedule = "1f1b"},
                    Layout{.deterministic = false, .pp = 2, .schedule = "interleaved"},
                    Layout{.deterministic = false, .pp = 2, .schedule = "zb-h1"},
                    Layout{.deterministic = false, .pp = 4, .schedule = "zb-h2"},
                    Layout{.dtype = "autocast", .pp = 2, .schedule = "zb-h1"},
                    Layout{.dtype = "bfloat16", .pp = 4}, Layout{.dtype = "float16", .pp = 2}),
    testing::PrintToStringParamName());

INSTANTIATE_TEST_SUITE_P(
    Zero, LayoutsTest,
    testing::Values(Layout{.deterministic = false, .zero = 1},
                    Layout{.deterministic = false, .zero = 3},
                    Layout{.dp = 2, .accumulation = 2, .zero = 1},
                    Layout{.dp = 2, .accumulation = 2, .zero = 2},
                    Layout{.dp = 4, .accumulation = 1, .zero = 3},
                    Layout{.dp = 2, .accumulation = 2, .zero = 2, .cpu_offload = true},
                    Layout{.dp = 2, .accumulation = 2, .zero = 3, .cpu_offload = true},
                    Layout{.dp = 2, .accumulation = 2, .dtype = "bfloat16", .zero = 3},
                    Layout{.dp = 2, .accumulation = 2, .dtype = "float16", .zero = 2},
                    Layout{.dp = 2, .accumulation = 2, .dtype = "autocast", .zero = 3},
                    Layout{.dp = 4, .accumulation = 1, .deterministic = false, .zero = 2}),
    testing::PrintToStringParamName());

INSTANTIATE_TEST_SUITE_P(
    ThreeAxes, LayoutsTest,
    testing::Values(Layout{.dp = 2, .accumulation = 2, .pp = 2, .schedule = "interleaved"},
                    Layout{.dp = 2, .accumulation = 2, .pp = 2, .schedule = "zb-h1", .zero = 1},
                    Layout{.dp = 2, .tp = 2, .accumulation = 2, .pp = 2, .zero = 1},
                    Layout{.dp = 2, .tp = 2, .sequence_parallel = true, .accumulation = 2, .pp = 2},
                    Layout{.dp = 2, .tp = 2, .accumulation = 2, .zero = 3},
                    Layout{.dp = 4, .accumulation = 1, .pp = 2, .zero = 1, .cpu_offload = true},
                    Layout{.dp = 2, .accumulation = 2, .pp = 2, .zero = 2},
                    Layout{.dp = 2, .accumulation = 2, .pp = 2, .zero = 3},
                    Layout{.tp = 2, .pp = 4, .schedule = "zb-h2"}),
    testing::PrintToStringParamName());

// Tokens of rows on several ranks: rows of 21 are cut unevenly, have documents and dropout.
std::vector<Layout> ContextLayouts() {
  std::vector<Layout> layouts = {
      {.dp = 2, .accumulation = 4, .cp = 2},
      {.dp = 4, .accumulation = 2, .cp = 2},
      {.dp = 4, .accumulation = 4, .cp = 4},
      {.dp = 3, .accumulation = 4, .deterministic = false, .cp = 3},
      {.dp = 2, .accumulation = 4, .dtype = "bfloat16", .cp = 2},
      {.dp = 2, .accumulation = 4, .dtype = "autocast", .cp = 2},
      {.dp = 2, .tp = 2, .accumulation = 4, .cp = 2},
      {.dp = 2, .tp = 3, .sequence_parallel = true, .accumulation = 4, .cp = 2},
      {.dp = 2, .accumulation = 4, .pp = 2, .schedule = "zb-h1", .cp = 2},
      {.dp = 4, .accumulation = 2, .pp = 2, .schedule = "interleaved", .zero = 1, .cp = 2},
      {.dp = 2, .accumulation = 4, .zero = 1, .cp = 2},
      {.dp = 4, .accumulation = 2, .zero = 2, .cp = 2},
      {.dp = 4, .accumulation = 2, .zero = 3, .cp = 2},
      {.dp = 2, .accumulation = 4, .zero = 2, .cpu_offload = true, .cp = 2},
      {.dp = 2, .tp = 2, .sequence_parallel = true, .accumulation = 4, .zero = 3, .cp = 2},
  };
  for (const char* run : {"smoothed", "noisy", "documents", "epochs", "lora", "chat", "lengths",
                          "experts", "quantised", "dora"}) {
    layouts.push_back({.dp = 2, .accumulation = 4, .run = run, .cp = 2});
  }
  // Groups of cp and of ep cut the same ranks, and need not be alike.
  for (const auto& [ep, cp] : {std::pair(2, 2), {4, 2}, {2, 4}}) {
    layouts.push_back(
        {.dp = 4, .accumulation = 4 / (4 / cp), .run = "experts", .ep = ep, .cp = cp});
  }
  for (const char* optimizer : {"adafactor", "muon"}) {
    layouts.push_back({.dp = 2, .accumulation = 4, .zero = 1, .optimizer = optimizer, .cp = 2});
  }
  return layouts;
}

INSTANTIATE_TEST_SUITE_P(Context, LayoutsTest, testing::ValuesIn(ContextLayouts()),
                         testing::PrintToStringParamName());

// A loss of pairs of rows, and the keys of a prefix, are refused in one line.
TEST(ContextTest, WhatReadsWholeRowsIsRefused) {
  for (const auto& [run, part] : {std::pair("preference", "task 'preference' reads whole rows"),
                                  {"prefix", "prefix adapter"}}) {
    const Layout layout = {.dp = 2, .accumulation = 4, .run = run, .cp = 2};
    const RunConfig config = ConfigFor(layout, "refused");
    fs::remove_all(config.out);
    RunRanks(2, [&, part = std::string(part)](const std::shared_ptr<Communicator>& world) {
      const auto mesh = MakeMesh(config, world);
      Require(mesh.status());
      const auto setup = PrepareRun(config, *mesh);
      Require(setup.status());
      Trainer trainer(setup->config, *setup->model, setup->data, *mesh);
      const Status failed = trainer.Train({.output = nullptr}).status();
      EXPECT_EQ(failed.code(), StatusCode::kInvalidArgument);
      EXPECT_NE(Message(failed).find(part), std::string::npos) << Message(failed);
    });
  }
}

// Every optimizer on every kind of layout; AdamW is above.
std::vector<Layout> OptimizerLayouts() {
  std::vector<Layout> layouts;
  for (const char* optimizer : {"adafactor", "lamb", "lion", "muon"}) {
    for (Layout layout :
         {Layout{.dp = 2, .accumulation = 2}, Layout{.tp = 2},
          Layout{.tp = 3, .sequence_parallel = true}, Layout{.dp = 2, .accumulation = 2, .zero = 1},
          Layout{.dp = 4, .accumulation = 1, .zero = 2},
          Layout{.dp = 4, .accumulation = 1, .zero = 3},
          Layout{.dp = 2, .accumulation = 2, .zero = 2, .cpu_offload = true},
          Layout{.dp = 2, .accumulation = 2, .dtype = "bfloat16", .zero = 1},
          Layout{.dp = 2, .tp = 2, .accumulation = 2, .zero = 3},
          Layout{.dp = 2, .accumulation = 2, .pp = 2, .zero = 1}}) {
      layout.optimizer = optimizer;
      layouts.push_back(layout);
    }
  }
  return layouts;
}

INSTANTIATE_TEST_SUITE_P(Optimizers, LayoutsTest, testing::ValuesIn(OptimizerLayouts()),
                         testing::PrintToStringParamName());

// Other runs than the usual one.
std::vector<Layout> RunLayouts() {
  std::vector<Layout> layouts;
  for (const char* run : {"smoothed", "documents", "epochs", "lora", "chat", "lengths",
                          "preference", "prefix", "projected", "experts", "experts_lora"}) {
    for (Layout layout :
         {Layout{.dp = 2, .accumulation = 2}, Layout{.tp = 2, .sequence_parallel = true},
          Layout{.dp = 2, .accumulation = 2, .zero = 3},
          Layout{.dp = 2, .accumulation = 2, .pp = 2, .schedule = "zb-h1"}}) {
      layout.run = run;
      // Refused: what makes a prefix is used by all layers.
      if (layout.run == "projected" && layout.zero == 3) continue;
      layouts.push_back(layout);
    }
  }
  // Where an adapter's parameters are cut, and what does not train beside them.
  for (Layout layout :
       {Layout{.tp = 3}, Layout{.dp = 2, .accumulation = 2, .zero = 1},
        Layout{.dp = 4, .accumulation = 1, .zero = 2},
        Layout{.dp = 2, .accumulation = 2, .dtype = "bfloat16", .zero = 2, .cpu_offload = true},
        Layout{.dp = 2, .tp = 2, .accumulation = 2, .zero = 3}}) {
    for (const char* run : {"lora", "prefix"}) {
      layout.run = run;
      layouts.push_back(layout);
    }
  }
  // Losses of the model's own, of passes that are spread otherwise.
  for (Layout layout : {Layout{.dp = 4, .accumulation = 1, .zero = 2}, Layout{.tp = 2},
                        Layout{.pp = 2, .schedule = "interleaved"},
                        Layout{.dp = 2, .accumulation = 2, .dtype = "bfloat16"}}) {
    layout.run = "experts";
    layouts.push_back(layout);
  }
  // Experts on some of the ranks, of one source of tokens and of several, and what is cut of them.
  for (Layout layout :
       {Layout{.dp = 2, .accumulation = 2, .ep = 2}, Layout{.dp = 4, .accumulation = 1, .ep = 2},
        Layout{.dp = 4, .accumulation = 1, .ep = 4},
        Layout{.dp = 4, .accumulation = 1, .zero = 1, .ep = 2},
        Layout{.dp = 4, .accumulation = 1, .zero = 2, .ep = 2},
        Layout{.dp = 4, .accumulation = 1, .zero = 3, .ep = 2},
        Layout{.dp = 4, .accumulation = 1, .zero = 3, .ep = 4},
        Layout{.dp = 2, .accumulation = 2, .zero = 2, .cpu_offload = true, .ep = 2},
        Layout{.dp = 2, .accumulation = 2, .dtype = "bfloat16", .zero = 1, .ep = 2},
        Layout{.dp = 4, .accumulation = 1, .deterministic = false, .ep = 2},
        Layout{.dp = 4, .accumulation = 1, .deterministic = false, .zero = 3, .ep = 2},
        Layout{.dp = 2, .tp = 2, .sequence_parallel = true, .accumulation = 2, .ep = 2},
        Layout{.dp = 2, .tp = 2, .accumulation = 2, .zero = 3, .ep = 2},
        Layout{.dp = 2, .accumulation = 2, .pp = 2, .schedule = "zb-h1", .ep = 2},
        Layout{.dp = 4, .accumulation = 1, .pp = 2, .zero = 1, .ep = 2},
        Layout{.dp = 4, .accumulation = 1, .zero = 1, .optimizer = "adafactor", .ep = 2},
        Layout{.dp = 2, .accumulation = 2, .zero = 3, .optimizer = "muon", .ep = 2}}) {
    layout.run = "experts";
    layouts.push_back(layout);
  }
  for (const int ep : {2, 4}) {
    layouts.push_back({.dp = 4, .accumulation = 1, .run = "experts_static", .ep = ep});
  }
  // Two ranks have two of six, and two have one.
  for (const int zero : {0, 1, 3}) {
    layouts.push_back({.dp = 4, .accumulation = 1, .zero = zero, .run = "experts_six", .ep = 4});
  }
  for (Layout layout :
       {Layout{.dp = 4, .accumulation = 1, .ep = 2}, Layout{.dp = 4, .accumulation = 1, .ep = 4},
        Layout{.dp = 2, .accumulation = 2, .zero = 3, .ep = 2},
        Layout{.dp = 2, .accumulation = 2, .pp = 2, .ep = 2}}) {
    layout.run = "experts_lora";
    layouts.push_back(layout);
  }
  // Weights that have no elements; ranks that split them round activations elsewhere.
  for (Layout layout :
       {Layout{.dp = 2, .accumulation = 2}, Layout{.dp = 2, .accumulation = 2, .zero = 2},
        Layout{.dp = 2, .accumulation = 2, .zero = 3}, Layout{.pp = 2}}) {
    layout.run = "quantised";
    layouts.push_back(layout);
  }
  // First values that are made of whole weights.
  for (const char* run : {"dora", "pissa", "olora"}) {
    for (Layout layout :
         {Layout{.dp = 2, .accumulation = 2, .zero = 3}, Layout{.tp = 2, .sequence_parallel = true},
          Layout{.dp = 2, .tp = 2, .accumulation = 2, .zero = 3}, Layout{.pp = 2}}) {
      layout.run = run;
      layouts.push_back(layout);
    }
  }
  // What is held on to comes from passes without the adapter, on every layout.
  for (Layout layout : {Layout{.dp = 4, .accumulation = 1, .zero = 1},
                        Layout{.dp = 2, .accumulation = 2, .zero = 2}, Layout{.tp = 3}}) {
    layout.run = "preference";
    layouts.push_back(layout);
  }
  return layouts;
}

INSTANTIATE_TEST_SUITE_P(Runs, LayoutsTest, testing::ValuesIn(RunLayouts()),
                         testing::PrintToStringParamName());

// --- Checkpoints ---------------------------------------------------------------------------------

struct Change {
  Layout from;
  Layout to;
  bool async_save = false;
};

std::ostream& operator<<(std::ostream& out, const Change& c) {
  return out << c.from << "_to_" << c.to << (c.async_save ? "_async" : "");
}

class ChangeTest : public testing::TestWithParam<Change> {};

// Seven steps on one layout, the rest on another, is the run of one process.
TEST_P(ChangeTest, ResumesOnAnotherLayout) {
  Change change = GetParam();
  const Outcome& expected = Reference(change.from);
  const std::string name = testing::PrintToString(change);
  if (change.async_save) {
    change.from.change = [](RunConfig& c) {
      c.async_save = true;
      c.save_interval = 2;
    };
  }
  RunLayout(change.from, name, /*stop_after=*/7);
  const Outcome actual = RunLayout(change.to, name, 0, /*resume=*/true);
  if (change.from.same_bits() && change.to.same_bits()) {
    EXPECT_EQ(actual.losses, expected.losses);
    EXPECT_EQ(actual.norms, expected.norms);
    EXPECT_TRUE(actual.weights == expected.weights);
  } else {
    ExpectClose(actual.losses, expected.losses, change.to.tolerance());
  }
}

const Layout kOne = {};
const Layout kDp2 = {.dp = 2, .accumulation = 2};
const Layout kDp4 = {.dp = 4, .accumulation = 1};
const Layout kTp2 = {.tp = 2};
const Layout kTp3 = {.tp = 3, .sequence_parallel = true};
const Layout kPp2 = {.pp = 2};
const Layout kPp4 = {.pp = 4, .schedule = "zb-h1"};
const Layout kZero1 = {.dp = 2, .accumulation = 2, .zero = 1};
const Layout kZero3 = {.dp = 4, .accumulation = 1, .zero = 3};
const Layout kCp2 = {.dp = 2, .accumulation = 4, .cp = 2};
const Layout kCp4 = {.dp = 4, .accumulation = 4, .zero = 2, .cp = 4};
const Layout kMixed = {.dp = 2, .tp = 4, .sequence_parallel = true, .accumulation = 2};

// Factored states, and states that one rank has all of.
std::vector<Change> OptimizerChanges() {
  std::vector<Change> changes;
  for (const char* optimizer : {"adafactor", "lamb", "lion", "muon"}) {
    for (Change change : {Change{kZero1, kOne}, Change{kOne, kZero3}, Change{kTp2, kZero1}}) {
      change.from.optimizer = change.to.optimizer = optimizer;
      changes.push_back(change);
    }
  }
  return changes;
}

INSTANTIATE_TEST_SUITE_P(Optimizers, ChangeTest, testing::ValuesIn(OptimizerChanges()),
                         testing::PrintToStringParamName());

// Experts move to other ranks.
std::vector<Change> ExpertChanges() {
  std::vector<Change> changes;
  const Layout two = {.dp = 4, .accumulation = 1, .zero = 1, .ep = 2};
  const Layout four = {.dp = 4, .accumulation = 1, .zero = 3, .ep = 4};
  for (Change change : {Change{kOne, two}, Change{two, four}, Change{four, kDp2, true},
                        Change{{.dp = 2, .accumulation = 2, .pp = 2, .ep = 2}, kOne}}) {
    change.from.run = change.to.run = "experts";
    changes.push_back(change);
  }
  return changes;
}

INSTANTIATE_TEST_SUITE_P(Experts, ChangeTest, testing::ValuesIn(ExpertChanges()),
                         testing::PrintToStringParamName());

INSTANTIATE_TEST_SUITE_P(
    Pairs, ChangeTest,
    testing::Values(Change{kOne, kDp4}, Change{kDp4, kOne}, Change{kDp2, kDp4, true},
                    Change{kOne, kTp3}, Change{kTp3, kOne}, Change{kTp2, kTp3, true},
                    Change{kTp2, kDp4}, Change{kDp2, kMixed}, Change{kMixed, kOne, true},
                    Change{kMixed, kTp2}, Change{kOne, kPp2}, Change{kPp2, kPp4, true},
                    Change{kPp4, kDp2},
                    Change{{.run = "epochs"}, {.dp = 2, .accumulation = 2, .run = "epochs"}},
                    Change{{.run = "lora"}, {.dp = 2, .tp = 2, .accumulation = 2, .run = "lora"}},
                    Change{{.run = "projected"},
                           {.dp = 2, .tp = 2, .accumulation = 2, .run = "projected"}},
                    Change{{.run = "documents"}, {.dp = 2, .accumulation = 2, .run = "documents"}},
                    Change{kZero1, kZero3}, Change{kZero3, kOne, true}, Change{kDp4, kZero3},
                    Change{kZero3, kPp2}, Change{kMixed, kZero1}, Change{kOne, kCp2},
                    Change{kCp4, kZero3}, Change{kCp2, kTp3, true}),
    testing::PrintToStringParamName());

}  // namespace
}  // namespace tessera::train
