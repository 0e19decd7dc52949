// SPDX-License-Identifier: Apache-2.0
#include "train/trace/compare_traces.h"

#include <fstream>

#include "base/file.h"
#include "core/thread_communicator.h"
#include "models/model_keys.h"
#include "ops/elementwise/elementwise.h"
#include "train/testing/small_runs.h"
#include "train/trace/digest_trace.h"

namespace tessera::train {
namespace {

class CompareTracesTest : public SmallRuns {
 protected:
  struct Fault {
    int64_t step = 0;  // 0: none
    double factor = 1;
  };

  RunConfig Traced(const std::string& name) const {
    RunConfig config = Config(name);
    config.trace = "digests";
    config.max_steps = 4;
    config.val_fraction = 0;
    config.gradient_accumulation_steps = 4;
    config.deterministic = true;
    config.threads = 1;
    return config;
  }

  void Run(const RunConfig& config, int ranks = 1) const { Run(config, ranks, Fault()); }
  void Run(RunConfig config, int ranks, const Fault& fault) const {
    config.gradient_accumulation_steps /= ranks / config.tp / config.pp;
    RunRanks(ranks, [&](const std::shared_ptr<Communicator>& world) {
      const auto mesh = MakeMesh(config, world);
      ASSERT_TRUE(mesh.ok()) << Message(mesh.status());
      const auto setup = PrepareRun(config, *mesh);
      ASSERT_TRUE(setup.ok()) << Message(setup.status());
      TrainerParts parts;
      if (fault.step > 0) {
        parts.step.forward.run = [&](const models::Bundle& batch,
                                     const models::RunOptions& options) {
          models::Bundle out = setup->model->Run(batch, options);
          const bool bad = static_cast<int64_t>(options.context.step) == fault.step;
          const bool here = options.context.micro_batch == 2;
          out.set(keys::kLoss, Mul(out.at(keys::kLoss), bad && here ? fault.factor : 1));
          return out;
        };
      }
      Trainer trainer(setup->config, *setup->model, setup->data, *mesh, std::move(parts));
      const auto result = trainer.Train({.output = nullptr});
      ASSERT_TRUE(result.ok()) << Message(result.status());
    });
  }

  std::string Difference(const RunConfig& a, const RunConfig& b) const {
    const auto found = CompareTraces(a.out, b.out);
    EXPECT_TRUE(found.ok()) << Message(found.status());
    return found.ok() ? found->difference + found->configurations : "";
  }
};

TEST_F(CompareTracesTest, LayoutsOfTheSameBitsDoNotDiffer) {
  const RunConfig one = Traced("one");
  Run(one);
  RunConfig two = Traced("two");
  two.zero = 2;
  Run(two, 2);
  const auto found = CompareTraces(one.out, two.out);
  ASSERT_TRUE(found.ok()) << Message(found.status());
  EXPECT_EQ(found->steps, 4);
  EXPECT_TRUE(found->operations_compared);
  EXPECT_EQ(found->difference, "");
  RunConfig tp = Traced("tp");
  tp.tp = 2;
  Run(tp, 2);
  const auto cut = CompareTraces(one.out, tp.out);
  ASSERT_TRUE(cut.ok()) << Message(cut.status());
  EXPECT_FALSE(cut->operations_compared);
  EXPECT_EQ(cut->difference, "");
}

// As many ranks work on a micro-batch in these, but not on the same of it.
TEST_F(CompareTracesTest, LayoutsThatCutTheModelOtherwiseDoNotDiffer) {
  RunConfig tp = Traced("tp"), pp = Traced("pp"), later = Traced("later");
  tp.tp = pp.pp = later.pp = 2;
  later.schedule = "zb-h1";
  Run(tp, 2);
  Run(pp, 2);
  Run(later, 2);
  const RunConfig one = Traced("one");
  RunConfig recomputed = Traced("recomputed");
  recomputed.checkpoint_activations = true;
  Run(one);
  Run(recomputed);
  const auto expect_same = [&](const RunConfig& a, const RunConfig& b, bool operations) {
    const auto found = CompareTraces(a.out, b.out);
    ASSERT_TRUE(found.ok()) << Message(found.status());
    EXPECT_EQ(found->difference, "");
    EXPECT_EQ(found->operations_compared, operations);
    EXPECT_FALSE(found->backward_compared);
  };
  expect_same(tp, pp, false);
  expect_same(pp, later, true);
  expect_same(one, recomputed, true);
  RunConfig smooth = Traced("smooth");
  smooth.checkpoint_activations = true;
  smooth.label_smoothing = 0.1;
  Run(smooth);
  EXPECT_EQ(Difference(one, smooth).find("step 1: rank 0, micro-batch 0, forward: result 0 of '"),
            0u);
}

TEST_F(CompareTracesTest, AStepThatARankDidNotFinishIsNotCompared) {
  const RunConfig one = Traced("one"), two = Traced("two");
  Run(one);
  Run(two, 2);
  const std::string first = DigestFile(two.out, 0), second = DigestFile(two.out, 1);
  const std::string whole = *ReadFile(second);
  const size_t last = whole.rfind("\n{") + 1;
  for (const std::string& rows : {whole.substr(0, last), whole.substr(0, last + 20)}) {
    std::ofstream(second) << rows;
    const auto found = CompareTraces(one.out, two.out);
    ASSERT_TRUE(found.ok()) << Message(found.status());
    EXPECT_EQ(found->difference, "");
    EXPECT_EQ(found->steps, 3);
    EXPECT_EQ(found->only_in_a, 1);
  }
  // One that was continued on fewer ranks has old rows of the others.
  std::ofstream(second) << whole;
  const std::string of_two = *ReadFile(first);
  std::ofstream(first) << *ReadFile(DigestFile(one.out, 0));
  EXPECT_EQ(Difference(one, two), "");
  std::ofstream(first) << of_two;
  ASSERT_TRUE(RemoveAll(second).ok());
  const auto found = CompareTraces(one.out, two.out);
  EXPECT_EQ(Message(found.status()), second + ": no such file; step 0 had 2 ranks");
}

TEST_F(CompareTracesTest, WhatPartsThemFirstIsNamed) {
  const RunConfig one = Traced("one");
  Run(one);
  const auto differs = [&](const std::string& name, const std::function<void(RunConfig&)>& change) {
    RunConfig other = Traced(name);
    change(other);
    Run(other);
    return Difference(one, other);
  };
  EXPECT_EQ(differs("seed", [](RunConfig& c) { c.seed = 5, c.data_seed = 0; })
                .find("before step 1: model.transformer."),
            0u);
  EXPECT_EQ(differs("order", [](RunConfig& c) { c.data_seed = 5; })
                .find("step 1: micro-batch 0: the data differ; their configurations differ in "
                      "data_seed ("),
            0u);
  const std::string rate = differs("rate", [](RunConfig& c) { c.lr = 2e-3; });
  EXPECT_EQ(rate.find("step 1: after the update model."), 0u) << rate;
  EXPECT_NE(rate.find("; their configurations differ in lr (0.001, 0.002)"), std::string::npos);
  const std::string smooth = differs("smooth", [](RunConfig& c) { c.label_smoothing = 0.1; });
  EXPECT_EQ(smooth.find("step 1: rank 0, micro-batch 0, forward: result 0 of '"), 0u) << smooth;
}

TEST_F(CompareTracesTest, AnOperationIsNamedWithItsMicroBatch) {
  const RunConfig good = Traced("good"), bad = Traced("bad");
  Run(good, 1, Fault{.step = 3, .factor = 1});
  Run(bad, 1, Fault{.step = 3, .factor = 1.0000001});
  EXPECT_EQ(Difference(good, bad),
            "step 3: rank 0, micro-batch 2, forward: result 0 of 'affine' differs");
  EXPECT_EQ(Difference(good, good), "");
  const auto none = CompareTraces(good.out, root_);
  EXPECT_NE(Message(none.status()).find("no step is traced in both"), std::string::npos);
}

TEST_F(CompareTracesTest, ADamagedRowIsNamed) {
  const RunConfig one = Traced("one");
  Run(one);
  const RunConfig damaged = Traced("damaged");
  Run(damaged);
  const auto of_operation = [](const std::string& parts) {
    return R"({"step": 1, "loss": "0x1p+0", "digests": "0000000000000000", "operations": [[)" +
           parts + "]]}";
  };
  for (const std::string& row :
       {std::string("{"), std::string("[]"), std::string(R"({"loss": "0x1p+0"})"),
        std::string(R"({"step": "one"})"),
        of_operation(R"(0, "forward", "q", "add", "", "result", 0)"),
        of_operation(R"(0, "forward", 0, "add")")}) {
    const std::string path = DigestFile(damaged.out, 0);
    std::ofstream(path) << row << "\n";
    const auto found = CompareTraces(one.out, damaged.out);
    EXPECT_EQ(Message(found.status()), path + ":1: is not a row of digests") << row;
  }
}

TEST_F(CompareTracesTest, AResumedRunHasTheRecordOfTheWhole) {
  const RunConfig whole = Traced("whole"), parts = Traced("parts");
  Train(whole);
  StopAt stop(2);
  Train(parts, /*resume=*/false, &stop);
  Train(parts, /*resume=*/true);
  const auto found = CompareTraces(whole.out, parts.out);
  ASSERT_TRUE(found.ok()) << Message(found.status());
  EXPECT_EQ(found->steps, 4);
  EXPECT_EQ(found->difference, "");
}

}  // namespace
}  // namespace tessera::train
