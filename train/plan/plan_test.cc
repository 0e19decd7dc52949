// SPDX-License-Identifier: Apache-2.0
// A plan beside the run it is of (train/plan/planned_runs.h): each rank's peak, its host memory and
// what it sends in a step.
//
// TESSERA_PLAN_TRIALS=500 draws so many random configurations instead of a few;
// TESSERA_TEST_SEED=N another series of them.
#include "train/plan/plan.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "models/family.h"
#include "nlohmann/json.hpp"
#include "train/plan/fit.h"
#include "train/plan/machine.h"
#include "train/plan/planned_runs.h"

namespace tessera::train {
namespace {

struct Case {
  std::string name;
  int ranks = 1;
  Settings settings = {};
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

std::vector<Case> Cases() {
  return {
      {"one"},
      {"accumulation", 1, {{"gradient_accumulation_steps", "3"}}},
      {"recomputed", 1, {{"checkpoint_activations", "true"}}},
      {"off_loaded", 1, {{"zero", "2"}, {"cpu_offload", "true"}}},
      {"bfloat16", 1, {{"dtype", "bfloat16"}}},
      {"autocast", 1, {{"autocast", "bfloat16"}}},
      {"lion", 1, {{"optimizer", "lion"}, {"max_grad_norm", "0"}}},
      {"adafactor", 1, {{"optimizer", "adafactor"}}},
      {"evaluated", 1, {{"val_fraction", "0.2"}, {"eval_interval", "3"}, {"eval_batches", "2"}}},
      {"adapter", 1, {{"adapter", "lora"}}},
      {"llama", 1, {{"model", "llama-tiny"}}},
      {"dp2", 2},
      {"dp3_zero2", 3, {{"zero", "2"}}},
      {"dp2_zero1", 2, {{"zero", "1"}}},
      {"dp2_zero3", 2, {{"zero", "3"}}},
      {"dp2_zero3_off_loaded",
       2,
       {{"zero", "3"}, {"cpu_offload", "true"}, {"offload_parameters", "true"}}},
      {"dp4_deterministic", 4, {{"deterministic", "true"}}},
      {"dp2_check_finite", 2, {{"check_finite", "true"}}},
      {"dp2_trace", 2, {{"trace", "digests"}}},
      {"tp2", 2, {{"tp", "2"}}},
      {"tp2_sequence_parallel", 2, {{"tp", "2"}, {"sequence_parallel", "true"}}},
      {"pp2", 2, {{"pp", "2"}, {"gradient_accumulation_steps", "4"}}},
      {"pp2_experts",
       2,
       {{"pp", "2"}, {"model", "moe-tiny"}, {"gradient_accumulation_steps", "4"}}},
      // Where the first step of a plan has fewer micro-batches than the run's.
      {"dp2_zero2_accumulation", 2, {{"zero", "2"}, {"gradient_accumulation_steps", "8"}}},
      {"dp2_deterministic_accumulation",
       2,
       {{"deterministic", "true"}, {"gradient_accumulation_steps", "8"}}},
      {"pp2_accumulation", 2, {{"pp", "2"}, {"gradient_accumulation_steps", "24"}}},
      {"pp2_zb_h1", 2, {{"pp", "2"}, {"gradient_accumulation_steps", "4"}, {"schedule", "zb-h1"}}},
      {"cp2", 2, {{"cp", "2"}, {"model", "llama-tiny"}}},
      {"dp2_tp2_zero1", 4, {{"tp", "2"}, {"zero", "1"}}},
      {"dp2_tp2_pp2_zero1",
       8,
       {{"tp", "2"},
        {"pp", "2"},
        {"zero", "1"},
        {"sequence_parallel", "true"},
        {"gradient_accumulation_steps", "2"}}},
  };
}

class PlannedRunTest : public PlanTest, public testing::WithParamInterface<Case> {};

TEST_P(PlannedRunTest, TakesWhatThePlanSays) {
  Compare(ConfigOf(GetParam().settings), GetParam().ranks);
}

INSTANTIATE_TEST_SUITE_P(Runs, PlannedRunTest, testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

// --- Other tasks ---------------------------------------------------------------------------------

TEST_F(PlanTest, ClassificationWithRowsOfAnyLength) {
  RunConfig config = ReviewRun();
  config.threads = 1;
  config.max_steps = 20;
  config.log_interval = 100;
  config.save_strategy = "no";
  Compare(config, 1);
}

TEST_F(PlanTest, MaskedTokens) {
  RunConfig config = ConfigOf({{"model", "bert-tiny"}, {"config_overrides", kSmallBert}});
  config.tokenizer = Path("words");
  config.seq_len = 24;
  Compare(config, 1, /*exact=*/false);
}

TEST_F(PlanTest, Translation) {
  RunConfig config = ConfigOf({{"model", "t5-mini"}, {"config_overrides", kSmallT5}});
  config.seq_len.reset();
  config.max_steps = 40;
  config.options["target_data"] = Path("lines.txt");
  config.tokenizer = std::string(kTokenizers) + "t5";
  Compare(config, 1, /*exact=*/false);
}

// Experts are taken to get equally many tokens, which they do not.
TEST_F(PlanTest, ExpertsAbout) {
  const RunConfig config = ConfigOf({{"model", "moe-tiny"}});
  const StatusOr<Plan> plan = PlanOf(config, 1);
  ASSERT_TRUE(plan.ok()) << Message(plan.status());
  const auto peak = static_cast<double>(RunRanks(config, 1)[0].peak);
  EXPECT_NEAR(static_cast<double>(plan->peak_bytes()), peak, 0.02 * peak);
}

// --- Checkpoints and figures ---------------------------------------------------------------------

TEST_F(PlanTest, SaysWhatACheckpointHolds) {
  RunConfig config = ConfigOf({{"zero", "1"}, {"tp", "2"}, {"save_strategy", "steps"}});
  const StatusOr<Plan> plan = PlanOf(config, 4);
  ASSERT_TRUE(plan.ok()) << Message(plan.status());
  RunRanks(config, 4);
  const std::vector<int64_t> written = WrittenBytes(config, 4);
  int64_t all = 0;
  for (size_t r = 0; r < written.size(); ++r) {
    EXPECT_EQ(plan->ranks[r].checkpoint_bytes, written[r]) << "rank " << r;
    all += written[r];
  }
  EXPECT_EQ(plan->checkpoint_bytes, all);
}

// Of Narayanan et al. 2021 (docs/planning.md): 72 layers h^2 (1 + s / 6h + V / 12 l h).
TEST_F(PlanTest, FlopsAreThePublishedFormula) {
  const RunConfig config = ConfigOf({{"config_overrides", "n_embd=64,n_layer=4,n_head=2"}});
  const StatusOr<Plan> plan = PlanOf(config, 1);
  ASSERT_TRUE(plan.ok()) << Message(plan.status());
  constexpr double kHidden = 64, kLayers = 4, kTokens = 32;
  const double vocabulary = 257;
  const double expected = 72 * kLayers * kHidden * kHidden *
                          (1 + kTokens / (6 * kHidden) + vocabulary / (12 * kLayers * kHidden));
  EXPECT_NEAR(plan->flops_per_token, expected, 0.02 * expected);
  EXPECT_EQ(plan->tokens_per_step, 2 * 32);
}

TEST_F(PlanTest, DataNeedNotBeThere) {
  RunConfig config = ConfigOf({});
  const StatusOr<Plan> with = PlanOf(config, 1);
  config.data = {Path("absent.txt")};
  const StatusOr<Plan> without = PlanOf(config, 1);
  ASSERT_TRUE(with.ok() && without.ok()) << Message(without.status());
  EXPECT_FALSE(with->data_assumed);
  EXPECT_TRUE(without->data_assumed);
  EXPECT_EQ(with->peak_bytes(), without->peak_bytes());
  EXPECT_EQ(with->tokens_per_step, without->tokens_per_step);
  EXPECT_TRUE(with->steps_per_epoch.has_value());
  EXPECT_FALSE(without->steps_per_epoch.has_value());
}

TEST_F(PlanTest, SomeRanksStandForTheOthers) {
  const RunConfig config =
      ConfigOf({{"zero", "1"}, {"pp", "2"}, {"gradient_accumulation_steps", "2"}});
  const StatusOr<Plan> all = MakePlan(config, {.ranks = 8, .cache = Path("all")});
  const StatusOr<Plan> some =
      MakePlan(config, {.ranks = 8, .cache = Path("some"), .rehearse_all = 1});
  ASSERT_TRUE(all.ok() && some.ok());
  ASSERT_EQ(some->ranks.size(), 8U);
  for (size_t r = 0; r < 8; ++r) {
    EXPECT_EQ(some->ranks[r].axes.rank, static_cast<int>(r));
    const auto peak = static_cast<double>(all->ranks[r].peak_bytes);
    // Pieces of other sizes are rounded up otherwise.
    EXPECT_NEAR(static_cast<double>(some->ranks[r].peak_bytes), peak, 2e-3 * peak);
  }
  EXPECT_EQ(some->checkpoint_bytes, all->checkpoint_bytes);
}

TEST_F(PlanTest, NamesWhatDoesNotFit) {
  RunConfig config = ConfigOf({{"tp", "3"}});
  ExpectContains(Message(PlanOf(config, 4).status()), "tp 3");
  config = ConfigOf({{"model", "no-such-model"}});
  ExpectContains(Message(PlanOf(config, 1).status()), "no-such-model");
}

// --- Machines and layouts ------------------------------------------------------------------------

constexpr char kMachine[] = R"({"float32_flops": 1e12, "memory_bandwidth": 1e11,
                                "link_bandwidth": 1e10, "network_bandwidth": 1e9,
                                "devices_per_node": 2, "device_memory": 16000000})";

// Against a pencil.
// Each rank has a share of the experts, and saving gathers those of the others.
TEST_F(PlanTest, ExpertParallelRunsArePlanned) {
  for (const char* zero : {"0", "1"}) {
    RunConfig config = ConfigOf({{"ep", "2"}, {"zero", zero}});
    config.model = "moe-tiny";
    const auto plan = PlanOf(config, 2);
    ASSERT_TRUE(plan.ok()) << Message(plan.status());
    ASSERT_EQ(plan->ranks.size(), 2u);
    for (const RankPlan& rank : plan->ranks) {
      EXPECT_GT(rank.communication.at("ep").sent, 0);
      EXPECT_GT(rank.peaks.at("save"), 0);
    }
  }
}

// A family whose blocks are not built one by one: its cost is the whole model's.
TEST_F(PlanTest, FamiliesWithoutStagesArePlanned) {
  models::Family family = **models::FamilyOf({{"model_type", "gpt2"}});
  family.model_type = "gpt2_in_one";
  family.presets = {};
  family.has_stages = false;
  ASSERT_TRUE(models::AddFamily(std::make_shared<models::Family>(std::move(family))).ok());
  const std::string sizes =
      R"("vocab_size": 257, "n_positions": 64, "n_embd": 32, "n_layer": 3, "n_head": 2})";
  double flops[2] = {};
  for (const bool in_one : {false, true}) {
    const std::string folder = testing::TempDir() + (in_one ? "/in_one" : "/in_stages");
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/config.json")
        << R"({"model_type": "gpt2)" << (in_one ? "_in_one" : "") << R"(", )" << sizes;
    const auto plan = PlanOf(ConfigOf({{"model", folder}, {"tokenizer", "byte"}}), 1);
    ASSERT_TRUE(plan.ok()) << Message(plan.status());
    EXPECT_GT(plan->ranks.at(0).peak_bytes, 0);
    flops[in_one ? 1 : 0] = plan->flops_per_token;
  }
  // The tied head is counted among the stages alone.
  EXPECT_NEAR(flops[1], flops[0], 0.15 * flops[0]);
}

TEST_F(PlanTest, AStepTakesTheTimeOfItsParts) {
  const auto machine = ReadMachine(Put("machine.json", kMachine));
  ASSERT_TRUE(machine.ok()) << Message(machine.status());
  const auto one = PlanOf(ConfigOf({}), 1);
  ASSERT_TRUE(one.ok()) << Message(one.status());
  const auto time = TimeOf(*one, *machine);
  ASSERT_TRUE(time.ok()) << Message(time.status());
  EXPECT_NEAR(time->compute, one->flops_per_token * 64 / 1e12, 1e-9);
  EXPECT_EQ(time->bubble, 0);
  EXPECT_EQ(time->exposed, 0);
  EXPECT_NEAR(time->seconds, time->compute + time->update, 1e-9);
  // Four micro-batches on two stages: nothing hides a fifth of the time, and stages differ a bit.
  const auto two = PlanOf(ConfigOf({{"pp", "2"}, {"gradient_accumulation_steps", "4"}}), 2);
  ASSERT_TRUE(two.ok()) << Message(two.status());
  const auto piped = TimeOf(*two, *machine);
  ASSERT_TRUE(piped.ok()) << Message(piped.status());
  EXPECT_GT(piped->bubble, 1.0 / 5);
  EXPECT_LT(piped->bubble, 1.0 / 3);
  // All that tensor parallelism sends is waited for: within a node, and between two.
  const auto tp = PlanOf(ConfigOf({{"tp", "2"}}), 2);
  ASSERT_TRUE(tp.ok()) << Message(tp.status());
  const auto sent = static_cast<double>(tp->ranks[0].communication.at("tp").sent);
  Machine apart = *machine;
  EXPECT_NEAR(TimeOf(*tp, apart)->exposed, sent / 1e10, 1e-6);
  apart.devices_per_node = 1;
  EXPECT_NEAR(TimeOf(*tp, apart)->exposed, sent / 1e9, 1e-5);
}

TEST_F(PlanTest, AMachineSaysWhatItLacks) {
  ExpectContains(Message(ReadMachine(Put("bad.json", R"({"memory_bandwith": 1})")).status()),
                 "memory_bandwidth");
  const auto plan = PlanOf(ConfigOf({{"dtype", "bfloat16"}}), 1);
  ASSERT_TRUE(plan.ok()) << Message(plan.status());
  const auto machine = ReadMachine(Put("machine.json", kMachine));
  ExpectContains(Message(TimeOf(*plan, *machine).status()), "bfloat16_flops");
}

TEST_F(PlanTest, LayoutsThatFitKeepTheRowsOfAStep) {
  RunConfig config = ConfigOf({{"batch_size", "4"}});
  const auto plan = PlanOf(config, 2);
  ASSERT_TRUE(plan.ok()) << Message(plan.status());
  const PlanOptions options = {.ranks = 2, .cache = Path("fit")};
  // Less than data parallelism takes.
  const int64_t memory = plan->peak_bytes() * 2 / 3;
  const auto layouts = FindLayouts(config, options, memory, std::nullopt);
  ASSERT_TRUE(layouts.ok()) << Message(layouts.status());
  ASSERT_FALSE(layouts->empty());
  for (const FittedLayout& layout : *layouts) {
    const RunConfig& c = layout.plan.config;
    EXPECT_LE(layout.plan.peak_bytes(), memory) << layout.Flags();
    EXPECT_EQ(c.batch_size * c.accumulation_steps() * 2 / (c.tp * c.pp * c.cp), 8);
    ExpectContains(layout.Flags(), Concat("--tp ", c.tp));
  }
  EXPECT_TRUE(FindLayouts(config, options, 1000, std::nullopt)->empty());
}

TEST(SizesTest, AreBytes) {
  EXPECT_EQ(*ParseBytes("80GiB"), int64_t{80} << 30);
  EXPECT_EQ(*ParseBytes("1.5GB"), 1500000000);
  EXPECT_EQ(*ParseBytes("17"), 17);
  for (const char* bad : {"", "GiB", "80 GiB", "-1", "1e400", "3XB"}) {
    EXPECT_FALSE(ParseBytes(bad).ok()) << bad;
  }
}

// --- Random configurations -----------------------------------------------------------------------

class RandomConfigurations : public PlanTest {
 protected:
  int Draw(int below) { return std::uniform_int_distribution<int>(0, below - 1)(random_); }
  const char* OneOf(const std::vector<const char*>& values) {
    return values[static_cast<size_t>(Draw(static_cast<int>(values.size())))];
  }

  // A family with a small shape, and what its data need.
  Settings DrawModel() {
    const std::string decoder =
        "hidden_size=64,intermediate_size=160,num_hidden_layers=3,num_attention_heads=4,"
        "num_key_value_heads=2,max_position_embeddings=64";
    const std::string with_heads = decoder + ",head_dim=16";
    const std::string words = Path("words");
    const std::vector<Settings> models = {
        {{"model", "gpt-tiny"}},
        {{"model", "llama-tiny"}},
        {{"model", "llama-3.2-1b"}, {"config_overrides", decoder}},
        {{"model", "mistral-7b"}, {"config_overrides", decoder}},
        {{"model", "qwen2.5-0.5b"}, {"config_overrides", decoder}},
        {{"model", "qwen3-0.6b"}, {"config_overrides", with_heads}},
        {{"model", "gemma-2-2b"}, {"config_overrides", with_heads}},
        {{"model", "gemma-3-270m"}, {"config_overrides", with_heads}},
        {{"model", "olmo-2-1b"}, {"config_overrides", decoder}},
        {{"model", "smollm3-3b"}, {"config_overrides", decoder}},
        {{"model", "phi-3-mini"}, {"config_overrides", decoder}},
        {{"model", "glm-4-9b"}, {"config_overrides", with_heads}},
        {{"model", "bert-tiny"}, {"config_overrides", kSmallBert}, {"tokenizer", words}},
        {{"model", "modernbert-mini"}, {"tokenizer", words}},
        {{"model", "t5-mini"},
         {"config_overrides", kSmallT5},
         {"tokenizer", std::string(kTokenizers) + "t5"},
         {"task", "span_corruption"}},
        {{"model", "vit-mini"}, {"data", Pictures()}, {"tokenizer", ""}},
    };
    return models[static_cast<size_t>(Draw(static_cast<int>(std::ssize(models))))];
  }

  // In Fashion-MNIST's files.
  std::string Pictures() const {
    using namespace std::string_literals;
    std::string labels = "\0\0\10\1\0\0\0\144"s;
    for (int i = 0; i < 100; ++i) labels += static_cast<char>(i % 10);
    const std::string pixels = "\0\0\10\3\0\0\0\144\0\0\0\34\0\0\0\34"s + std::string(78400, '\0');
    for (const char* part : {"train", "t10k"}) {
      Put(Concat("pictures/", part, "-images-idx3-ubyte"), pixels);
      Put(Concat("pictures/", part, "-labels-idx1-ubyte"), labels);
    }
    return Path("pictures");
  }

  // A configuration and its number of ranks; perhaps one that a run refuses.
  std::pair<Settings, int> DrawRun() {
    const int tp = 1 << Draw(2), pp = 1 << Draw(2), dp = 1 << Draw(3);
    const int zero = Draw(4);
    Settings s = DrawModel();
    const bool rows = s[0].second != "vit-mini" && s[0].second != "t5-mini";
    const Settings layout = {{"tp", std::to_string(tp)},
                             {"pp", std::to_string(pp)},
                             {"cp", dp > 1 && Draw(4) == 0 ? "2" : "1"},
                             {"zero", std::to_string(zero)},
                             {"batch_size", std::to_string(1 + Draw(3))},
                             {"gradient_accumulation_steps", std::to_string(pp * (1 + Draw(2)))},
                             {"optimizer", OneOf({"adamw", "adamw", "lion", "sgd", "adafactor"})},
                             {"dtype", OneOf({"float32", "float32", "bfloat16"})},
                             {"checkpoint_activations", OneOf({"true", "false"})},
                             {"max_grad_norm", OneOf({"0", "1"})}};
    s.insert(s.end(), layout.begin(), layout.end());
    if (rows) s.emplace_back("seq_len", std::to_string(16 + 16 * Draw(3)));
    if (tp > 1) s.emplace_back("sequence_parallel", OneOf({"true", "false"}));
    if (zero > 0 && Draw(3) == 0) s.emplace_back("cpu_offload", "true");
    if (rows && Draw(4) == 0) s.emplace_back("val_fraction", "0.2");
    if (Draw(4) == 0) s.emplace_back("deterministic", "true");
    if (pp > 1) s.emplace_back("schedule", OneOf({"1f1b", "gpipe", "zb-h1", "zb-h2"}));
    return {s, tp * pp * dp};
  }

  std::mt19937 random_{1};
};

TEST_F(RandomConfigurations, TakeWhatTheirPlansSay) {
  const char* const asked = std::getenv("TESSERA_PLAN_TRIALS");
  const char* const seed = std::getenv("TESSERA_TEST_SEED");
  const int trials = asked == nullptr ? 4 : std::atoi(asked);
  random_.seed(seed == nullptr ? 1 : static_cast<unsigned>(std::atoi(seed)));
  int refused = 0;
  for (int trial = 0; trial < trials;) {
    const auto [settings, ranks] = DrawRun();
    std::string text = Concat(ranks, " ranks");
    for (const auto& [key, value] : settings) text += " " + key + "=" + value;
    SCOPED_TRACE(text);
    const RunConfig config = ConfigOf(settings);
    const StatusOr<Plan> plan =
        config.Validate().ok() ? PlanOf(config, ranks) : StatusOr<Plan>(config.Validate());
    if (!plan.ok()) {
      ASSERT_LT(++refused, 50 * trials) << Message(plan.status());
      continue;
    }
    const bool exact = !config.model.starts_with("bert") && !config.model.starts_with("t5") &&
                       !config.model.starts_with("modernbert");
    Compare(config, ranks, exact);
    ++trial;
  }
  std::printf("%d configurations ran, %d were refused\n", trials, refused);
}

}  // namespace
}  // namespace tessera::train
