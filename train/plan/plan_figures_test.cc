// SPDX-License-Identifier: Apache-2.0
// The figures of a plan: what the peak is made of, who sends to whom, what adapters save.
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "train/plan/plan.h"
#include "train/plan/planned_runs.h"

namespace tessera::train {
namespace {

using PlanFiguresTest = PlanTest;

struct Layout {
  std::string name;
  int ranks = 1;
  Settings settings = {};
};

const std::vector<Layout>& Layouts() {
  static const auto* const layouts = new std::vector<Layout>{
      {"one", 1, {}},
      {"dp2", 2, {}},
      {"dp4_zero1", 4, {{"zero", "1"}}},
      {"dp2_zero2", 2, {{"zero", "2"}, {"gradient_accumulation_steps", "2"}}},
      {"dp2_zero3", 2, {{"zero", "3"}}},
      {"dp4_deterministic", 4, {{"deterministic", "true"}}},
      {"tp2_cuda", 2, {{"tp", "2"}, {"device", "cuda"}}},
      {"dp2_tp2_pp2", 8, {{"tp", "2"}, {"pp", "2"}, {"sequence_parallel", "true"}, {"zero", "1"}}},
      {"pp4", 4, {{"pp", "4"}, {"config_overrides", "n_layer=4"}}},
      {"cp2", 2, {{"cp", "2"}, {"model", "llama-tiny"}}},
      {"ep2_tp2", 4, {{"ep", "2"}, {"tp", "2"}, {"model", "moe-tiny"}}},
      {"ep2_zero1", 2, {{"ep", "2"}, {"zero", "1"}, {"model", "moe-tiny"}}},
  };
  return *layouts;
}

int64_t Sum(const std::map<int, int64_t>& links) {
  int64_t sum = 0;
  for (const auto& [to, bytes] : links) sum += bytes;
  return sum;
}

// --- Memory --------------------------------------------------------------------------------------

TEST_F(PlanFiguresTest, PartsAddUpToThePeakOfAStep) {
  for (const Layout& layout : Layouts()) {
    const StatusOr<Plan> plan = PlanOf(ConfigOf(layout.settings), layout.ranks);
    ASSERT_TRUE(plan.ok()) << layout.name << ": " << Message(plan.status());
    for (const RankPlan& rank : plan->ranks) {
      EXPECT_EQ(rank.parameters_bytes + rank.gradients_bytes + rank.states_bytes + rank.data_bytes +
                    rank.activations_bytes + rank.buckets_bytes + rank.workspaces_bytes,
                rank.peaks.at("step"))
          << layout.name << ", rank " << rank.axes.rank;
      EXPECT_GE(rank.activations_bytes, 0) << layout.name;
    }
  }
}

// All parameters stay gathered, so that their bytes are there at the peak, whenever that is.
TEST_F(PlanFiguresTest, GatheredParametersAreBuckets) {
  const Settings cut = {{"zero", "3"}, {"persistence_threshold", "1000000000"}};
  const StatusOr<Plan> plan = PlanOf(ConfigOf(cut), 2);
  ASSERT_TRUE(plan.ok()) << Message(plan.status());
  const int64_t whole = plan->parameter_count * 4;
  EXPECT_GE(plan->ranks[0].buckets_bytes, whole);
  // Beside them there may be gradients on their way, of the whole model at most.
  EXPECT_LE(plan->ranks[0].buckets_bytes, whole * 21 / 10);
  // Units that are given back leave less, and one rank alone has no buckets.
  const StatusOr<Plan> units = PlanOf(ConfigOf({{"zero", "3"}}), 2);
  const StatusOr<Plan> one = PlanOf(ConfigOf({}), 1);
  ASSERT_TRUE(units.ok() && one.ok());
  EXPECT_LT(units->ranks[0].buckets_bytes, plan->ranks[0].buckets_bytes);
  EXPECT_EQ(one->ranks[0].buckets_bytes, 0);
}

// With ZeRO 2 a micro-batch's gradients lie in buckets until their sums are in the ranks' shares.
// The peak is in the backward pass where the model is large beside its batch.
TEST_F(PlanFiguresTest, GradientsOnTheirWayAreBuckets) {
  const Settings large = {
      {"config_overrides", "n_embd=512,n_layer=4,n_head=8"}, {"batch_size", "1"}, {"seq_len", "8"}};
  Settings cut = large;
  cut.emplace_back("zero", "2");
  const StatusOr<Plan> kept = PlanOf(ConfigOf(large), 2);
  const StatusOr<Plan> shares = PlanOf(ConfigOf(cut), 2);
  ASSERT_TRUE(kept.ok() && shares.ok());
  // Whole gradients that are kept are gradients, though they travel where they lie.
  EXPECT_EQ(kept->ranks[0].buckets_bytes, 0);
  EXPECT_GE(kept->ranks[0].gradients_bytes, kept->parameter_count * 4);
  EXPECT_GT(shares->ranks[0].buckets_bytes, 0);
  EXPECT_LT(shares->ranks[0].buckets_bytes, 2 * shares->parameter_count * 4);
}

// Shares of gradients are where the optimizer is.
TEST_F(PlanFiguresTest, OffloadedSharesOfGradientsAreTheHosts) {
  for (const char* stage : {"2", "3"}) {
    const StatusOr<Plan> kept = PlanOf(ConfigOf({{"zero", stage}}), 2);
    const StatusOr<Plan> moved = PlanOf(ConfigOf({{"zero", stage}, {"cpu_offload", "true"}}), 2);
    ASSERT_TRUE(kept.ok() && moved.ok()) << Message(moved.status());
    EXPECT_GE(kept->ranks[0].gradients_bytes, kept->parameter_count * 2) << "ZeRO " << stage;
    EXPECT_EQ(moved->ranks[0].gradients_bytes, 0) << "ZeRO " << stage;
    EXPECT_GT(moved->ranks[0].host_bytes, kept->ranks[0].host_bytes);
  }
}

// A product's scratch on a GPU, which its own figure states (ops/matmul/product_workspace.h).
TEST_F(PlanFiguresTest, ScratchOfKernelsIsWorkspace) {
  const StatusOr<Plan> cpu = PlanOf(ConfigOf({}), 1);
  const StatusOr<Plan> gpu = PlanOf(ConfigOf({{"device", "cuda"}}), 1);
  ASSERT_TRUE(cpu.ok() && gpu.ok()) << Message(gpu.status());
  EXPECT_GE(gpu->ranks[0].workspaces_bytes, int64_t{32} << 20);
  EXPECT_LT(gpu->ranks[0].workspaces_bytes, int64_t{34} << 20);
  EXPECT_LT(cpu->ranks[0].workspaces_bytes, int64_t{1} << 20);
}

// --- Links ---------------------------------------------------------------------------------------

TEST_F(PlanFiguresTest, LinksAddUpToWhatIsSentAndReceived) {
  for (const Layout& layout : Layouts()) {
    SCOPED_TRACE(layout.name);
    const StatusOr<Plan> plan = PlanOf(ConfigOf(layout.settings), layout.ranks);
    ASSERT_TRUE(plan.ok()) << Message(plan.status());
    std::vector<int64_t> arrives(plan->ranks.size(), 0);
    for (const RankPlan& rank : plan->ranks) {
      int64_t sent = 0;
      for (const auto& [group, totals] : rank.communication) sent += totals.sent;
      EXPECT_EQ(Sum(rank.links), sent) << "rank " << rank.axes.rank;
      EXPECT_FALSE(rank.links.contains(rank.axes.rank));
      for (const auto& [to, bytes] : rank.links) arrives.at(static_cast<size_t>(to)) += bytes;
    }
    for (size_t r = 0; r < arrives.size(); ++r) {
      int64_t received = 0;
      for (const auto& [group, totals] : plan->ranks[r].communication) received += totals.received;
      EXPECT_EQ(arrives[r], received) << "rank " << r;
    }
  }
}

// rank = (pp * dp_size + dp) * tp_size + tp.
TEST_F(PlanFiguresTest, LinksFollowTheMesh) {
  const RunConfig config =
      ConfigOf({{"tp", "2"}, {"pp", "2"}, {"gradient_accumulation_steps", "2"}});
  const StatusOr<Plan> plan = PlanOf(config, 8);
  ASSERT_TRUE(plan.ok()) << Message(plan.status());
  const RankPlan& first = plan->ranks[0];
  EXPECT_GE(first.links.at(1), first.communication.at("tp").sent);
  EXPECT_EQ(first.links.at(2), first.communication.at("dp").sent);
  EXPECT_EQ(first.links.at(4), first.communication.at("pp").sent);
  const RankPlan& last = plan->ranks[7];
  EXPECT_EQ(last.links.at(3), last.communication.at("pp").sent);
  EXPECT_EQ(last.links.at(5), last.communication.at("dp").sent);
  // Nodes of two ranks: tensor parallelism and the world's ring within, the rest between them.
  EXPECT_EQ(first.SentBetweenNodes(2), first.links.at(2) + first.links.at(4));
  EXPECT_EQ(first.SentBetweenNodes(8), 0);
  const nlohmann::ordered_json json = plan->ToJson();
  const nlohmann::ordered_json& links = json["ranks"][7]["links"];
  ASSERT_EQ(links.size(), last.links.size());
  for (const auto& link : links) {
    EXPECT_EQ(link.at("from"), 7);
    EXPECT_EQ(link.at("bytes"), last.links.at(link.at("to").get<int>()));
  }
}

TEST_F(PlanFiguresTest, StandInsHaveLinksOfTheirOwn) {
  const RunConfig config = ConfigOf({{"tp", "2"}});
  const StatusOr<Plan> all = MakePlan(config, {.ranks = 16, .cache = Path("all")});
  const StatusOr<Plan> some =
      MakePlan(config, {.ranks = 16, .cache = Path("some"), .rehearse_all = 1});
  ASSERT_TRUE(all.ok() && some.ok());
  for (size_t r = 0; r < 16; ++r) EXPECT_EQ(some->ranks[r].links, all->ranks[r].links) << r;
}

TEST_F(PlanFiguresTest, TheTableTellsNodesApart) {
  const StatusOr<Plan> plan = PlanOf(ConfigOf({{"tp", "2"}}), 2);
  ASSERT_TRUE(plan.ok()) << Message(plan.status());
  EXPECT_EQ(plan->Table().find("between nodes"), std::string::npos);
  ExpectContains(plan->Table(1), "between nodes");
  ExpectContains(plan->Table(), "workspaces");
  // One device a node: nothing stays within.
  const std::string apart = plan->Table(1);
  const std::string together = plan->Table(2);
  EXPECT_NE(apart, together);
  EXPECT_EQ(apart.substr(0, apart.find('\n')).size(),
            together.substr(0, together.find('\n')).size());
}

// --- Adapters ------------------------------------------------------------------------------------

TEST_F(PlanFiguresTest, SaysWhatAnAdaptersCheckpointHolds) {
  const std::vector<Layout> cases = {
      {"lora", 1, {{"adapter", "lora"}}},
      {"dora", 1, {{"adapter", "dora"}}},
      {"pissa", 1, {{"adapter", "lora"}, {"init_lora_weights", "pissa"}}},
      {"bfloat16", 1, {{"adapter", "lora"}, {"dtype", "bfloat16"}}},
      {"lora_tp2_zero1", 4, {{"adapter", "lora"}, {"tp", "2"}, {"zero", "1"}}},
      {"lora_zero3", 2, {{"adapter", "lora"}, {"zero", "3"}}},
      {"lora_pp2", 2, {{"adapter", "lora"}, {"pp", "2"}, {"gradient_accumulation_steps", "2"}}},
      {"prefix", 1, {{"adapter", "prefix"}, {"model", "llama-tiny"}}},
      {"whole_module",
       2,
       {{"adapter", "lora"},
        {"model", "llama-tiny"},
        {"modules_to_save", "lm_head"},
        {"config_overrides", "tie_word_embeddings=false"}}},
  };
  for (const Layout& c : cases) {
    SCOPED_TRACE(c.name);
    RunConfig config = ConfigOf(c.settings);
    config.save_strategy = "steps";
    const StatusOr<Plan> plan = PlanOf(config, c.ranks);
    ASSERT_TRUE(plan.ok()) << Message(plan.status());
    const std::vector<Use> real = RunRanks(config, c.ranks);
    const std::vector<int64_t> written = WrittenBytes(config, c.ranks);
    int64_t all = 0;
    for (size_t r = 0; r < written.size(); ++r) {
      EXPECT_EQ(plan->ranks[r].checkpoint_bytes, written[r]) << "rank " << r;
      all += written[r];
    }
    EXPECT_EQ(plan->checkpoint_bytes, all);
    EXPECT_GT(all, 0);
  }
}

// Weights that do not train have no gradient, which is a third of their products.
TEST_F(PlanFiguresTest, FrozenWeightsHaveNoGradients) {
  const Settings sizes = {{"config_overrides", "n_embd=64,n_layer=4,n_head=2"}};
  const StatusOr<Plan> all = PlanOf(ConfigOf(sizes), 1);
  ASSERT_TRUE(all.ok()) << Message(all.status());
  const double weights = 12 * 4 * 64 * 64 + 257 * 64;
  Settings lora = sizes;
  lora.emplace_back("adapter", "lora");
  Settings stages = lora;
  stages.emplace_back("pp", "2");
  stages.emplace_back("gradient_accumulation_steps", "2");
  for (const auto& [settings, ranks] : {std::pair(lora, 1), std::pair(stages, 2)}) {
    const StatusOr<Plan> plan = PlanOf(ConfigOf(settings), ranks);
    ASSERT_TRUE(plan.ok()) << Message(plan.status());
    EXPECT_NEAR(all->flops_per_token - plan->flops_per_token, 2 * weights, 0.05 * weights);
  }
}

// What is saved is copied: a module that trains whole, the numbers of a prefix and what they are
// computed from. Looking for numbers that are not finite would take more.
TEST_F(PlanFiguresTest, SavingAnAdapterTakesWhatThePlanSays) {
  const Settings module = {{"adapter", "lora"},
                           {"model", "llama-tiny"},
                           {"modules_to_save", "lm_head"},
                           {"config_overrides", "vocab_size=20000,tie_word_embeddings=false"},
                           {"on_non_finite", "continue"}};
  const Settings prefix = {{"adapter", "prefix"},
                           {"model", "llama-tiny"},
                           {"pre_seq_len", "64"},
                           {"prefix_projection", "true"},
                           {"on_non_finite", "continue"}};
  Settings tensor_parallel = module;
  tensor_parallel.emplace_back("tp", "2");
  for (const Layout& c : std::vector<Layout>{
           {"module", 1, module}, {"module_tp2", 2, tensor_parallel}, {"prefix", 1, prefix}}) {
    SCOPED_TRACE(c.name);
    const RunConfig config = ConfigOf(c.settings);
    const StatusOr<Plan> plan = PlanOf(config, c.ranks);
    ASSERT_TRUE(plan.ok()) << Message(plan.status());
    const std::vector<Use> real = RunRanks(config, c.ranks);
    for (size_t r = 0; r < real.size(); ++r) {
      const auto save = static_cast<double>(real[r].save);
      // In a plan the batches of a step are still there.
      EXPECT_NEAR(static_cast<double>(plan->ranks[r].peaks.at("save")), save, 0.01 * save)
          << "rank " << r;
    }
  }
}

}  // namespace
}  // namespace tessera::train
