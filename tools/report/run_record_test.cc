// SPDX-License-Identifier: Apache-2.0
#include "tools/report/run_record.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <optional>

#include "base/file.h"
#include "core/tensor.h"
#include "dist/checkpoint/checkpoint.h"
#include "train/run/run_lock.h"

namespace tessera::report {
namespace {

namespace fs = std::filesystem;

class RunRecordTest : public testing::Test {
 protected:
  RunRecordTest()
      : root_(testing::TempDir() + "/runs_" +
              testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(root_);
    Write("run/metrics.jsonl", "");
  }
  void Write(const std::string& name, const std::string& content) const {
    fs::create_directories(fs::path(Path(name)).parent_path());
    std::ofstream(Path(name), std::ios::binary) << content;
  }
  std::string Path(const std::string& name) const { return root_ + "/" + name; }
  RunRecord Read() const {
    const auto run = ReadRun(Path("run"));
    EXPECT_TRUE(run.ok()) << Message(run.status());
    return run.ok() ? *run : RunRecord();
  }
  std::string Refusal() const { return Message(ReadRun(Path("run")).status()); }

  const std::string root_;
};

TEST_F(RunRecordTest, ReadsRowsByTheirNames) {
  Write("run/metrics.jsonl",
        "{\"step\":2,\"loss\":3.5,\"lr\":0.001,\"note\":\"text\",\"list\":[1]}\n"
        "\n"
        "{\"step\":4,\"loss\":null,\"lr\":1}\n"
        "{\"step\":4,\"val_loss\":3.25}\n"
        "{\"loss\":9}\n");
  const RunRecord run = Read();
  EXPECT_EQ(run.step, 4);
  ASSERT_EQ(run.curves.size(), 3u);
  ASSERT_EQ(run.curves.at("loss").size(), 2u);
  EXPECT_EQ(run.curves.at("loss")[0].value, 3.5);
  EXPECT_EQ(run.curves.at("loss")[1].step, 4);
  EXPECT_TRUE(std::isnan(run.curves.at("loss")[1].value));
  EXPECT_EQ(run.curves.at("val_loss")[0].value, 3.25);
  EXPECT_EQ(run.state, RunState::kStopped);
}

TEST_F(RunRecordTest, AnUnfinishedLastLineIsNoError) {
  for (const char* last : {"{\"step\":3,\"lo", "{", "\xff", "nul"}) {
    Write("run/metrics.jsonl", std::string("{\"step\":1,\"loss\":2}\n") + last);
    EXPECT_EQ(Read().step, 1) << last;
  }
  Write("run/metrics.jsonl", "{\"step\":1,\"loss\":2}\n{\"step\":2,\"loss\":2}");
  EXPECT_EQ(Read().step, 2);
}

TEST_F(RunRecordTest, NamesFileAndLineOfWhatItCannotRead) {
  const std::string first = "{\"step\":1,\"loss\":2}\n";
  for (const char* bad :
       {"no json", "[1]", "{\"step\":1,\"loss\":1e}", "\"text\"", "{\"a\":\"\xff\"}"}) {
    Write("run/metrics.jsonl", first + "\n" + bad + "\n" + first);
    EXPECT_EQ(Refusal(), Path("run/metrics.jsonl") + ":3: is no JSON object") << bad;
  }
  for (const char* step :
       {"\"5\"", "-1", "1.5", "null", "9007199254740993", "1e18", "18446744073709551615"}) {
    Write("run/metrics.jsonl", first + "{\"step\":" + step + "}\n");
    EXPECT_EQ(Refusal(),
              Path("run/metrics.jsonl") + ":2: its step is no whole number from 0 to 2^53")
        << step;
  }
  Write("run/metrics.jsonl", first);
  Write("run/samples.jsonl", "{\"step\":-1}\n");
  EXPECT_NE(Refusal().find("samples.jsonl:1: its step"), std::string::npos) << Refusal();
  fs::remove(Path("run/samples.jsonl"));
  Write("run/config.json", "[]");
  EXPECT_EQ(Refusal(), Path("run/config.json") + ": is no JSON object");
  fs::remove(Path("run/metrics.jsonl"));
  EXPECT_NE(Refusal().find("metrics.jsonl: is missing"), std::string::npos) << Refusal();
  fs::remove_all(Path("run"));
  EXPECT_NE(Refusal().find("is no directory of a run"), std::string::npos) << Refusal();
}

TEST_F(RunRecordTest, SortsStepsAndKeepsTheLaterOfTwo) {
  Write("run/metrics.jsonl",
        "{\"step\":5,\"loss\":1}\n{\"step\":2,\"loss\":2}\n{\"step\":5,\"loss\":3}\n"
        "{\"step\":9007199254740992,\"loss\":4}\n");
  const Curve loss = Read().curves.at("loss");
  ASSERT_EQ(loss.size(), 3u);
  EXPECT_EQ(loss[0].step, 2);
  EXPECT_EQ(loss[1].value, 3);
  EXPECT_EQ(loss[2].step, int64_t{1} << 53);
}

TEST_F(RunRecordTest, HugeNumbersAreNotFinite) {
  Write("run/metrics.jsonl",
        "{\"step\":1,\"loss\":1e308}\n{\"step\":2,\"loss\":-1e308}\n{\"step\":3,\"loss\":1e300}\n");
  const Curve loss = Read().curves.at("loss");
  EXPECT_TRUE(std::isnan(loss[0].value));
  EXPECT_TRUE(std::isnan(loss[1].value));
  EXPECT_EQ(loss[2].value, 1e300);
}

TEST_F(RunRecordTest, ReadsSamplesAndEpochs) {
  Write("run/samples.jsonl",
        "{\"step\":10,\"samples\":[\"a\",3,\"b\"]}\n{\"step\":20,\"samples\":\"c\"}\n");
  Write("run/epochs.jsonl",
        "{\"epoch\":1,\"step\":40,\"loss\":2.1,\"val_loss\":null,\"peak_bytes\":100}\n");
  const RunRecord run = Read();
  ASSERT_EQ(run.samples.size(), 1u);
  EXPECT_EQ(run.samples[0].lines, (std::vector<std::string>{"a", "b"}));
  ASSERT_EQ(run.epochs.size(), 1u);
  EXPECT_EQ(run.epochs[0].step, 40);
  ASSERT_EQ(run.epochs[0].values.size(), 4u);
  EXPECT_EQ(run.epochs[0].values[1].first, "loss");
  EXPECT_TRUE(std::isnan(run.epochs[0].values[2].second));
}

TEST_F(RunRecordTest, ReadsWhatHappenedToRanks) {
  Write("run/events.jsonl",
        "{\"event\":\"left\",\"host\":\"a\",\"ranks\":[2,3],\"reason\":\"silent\",\"step\":7}\n"
        "{\"event\":\"started\",\"generation\":2,\"ranks\":4,\"hosts\":[\"a\",\"b\"],"
        "\"from\":\"memory\",\"step\":5,\"lost_steps\":2,\"seconds\":1.25}\n");
  const RunRecord run = Read();
  ASSERT_EQ(run.events.size(), 2u);
  EXPECT_EQ(run.events[0].where, "a: ranks 2, 3");
  EXPECT_EQ(run.events[0].what, "silent");
  EXPECT_EQ(run.events[0].step, 7);
  EXPECT_FALSE(run.events[0].lost_steps);
  EXPECT_EQ(run.events[1].where, "a, b");
  EXPECT_EQ(run.events[1].what, "4 ranks from memory");
  EXPECT_EQ(run.events[1].lost_steps, 2);
  EXPECT_EQ(run.events[1].lost_seconds, 1.25);
}

TEST_F(RunRecordTest, ReadsThePipelinesTimeline) {
  Write("run/pipeline.json",
        R"({"step":6,"stages":[{"stage":0,"actions":[{"kind":"forward","chunk":0,"micro_batch":1,)"
        R"("begin_ms":0.5,"end_ms":2}]},{"stage":1,"actions":[]}]})");
  const RunRecord run = Read();
  ASSERT_TRUE(run.pipeline);
  ASSERT_EQ(run.pipeline->stages.size(), 2u);
  EXPECT_EQ(run.pipeline->stages[0][0].micro_batch, 1);
  EXPECT_EQ(run.pipeline->stages[0][0].end_ms, 2);
  for (
      const char* bad :
      {"", "[]", R"({"stages":3})", R"({"stages":[3]})", R"({"stages":[{"actions":[3]}]})",
       R"({"stages":[{"actions":[{"kind":"forward","chunk":0,"micro_batch":0,"begin_ms":2,"end_ms":1}]}]})",
       R"({"stages":[{"actions":[{"kind":"forward","chunk":0,"micro_batch":0,"begin_ms":0,"end_ms":1e300}]}]})",
       R"({"stages":[{"actions":[{"kind":3,"chunk":0,"micro_batch":0,"begin_ms":0,"end_ms":1}]}]})"}) {
    Write("run/pipeline.json", bad);
    EXPECT_EQ(Refusal().find(Path("run/pipeline.json") + ": "), 0u) << bad << Refusal();
  }
}

TEST_F(RunRecordTest, KnowsHowFarItHasCome) {
  Write("run/metrics.jsonl", "{\"step\":10,\"loss\":2}\n");
  Write("run/config.json", "{\"max_steps\":10}");
  EXPECT_EQ(Read().state, RunState::kFinished);
  EXPECT_EQ(Read().total_steps, 10);
  Write("run/config.json", "{\"max_steps\":20}");
  EXPECT_EQ(Read().state, RunState::kStopped);
  {
    std::optional<train::RunLock> lock;
    ASSERT_TRUE(train::RunLock::Take(Path("run"), &lock).ok());
    EXPECT_EQ(Read().state, RunState::kInProgress);
  }
  EXPECT_EQ(Read().state, RunState::kStopped);
  Write("run/config.json", "{\"max_steps\":\"many\",\"epochs\":-1}");
  EXPECT_FALSE(Read().total_steps);
  EXPECT_EQ(Read().state, RunState::kStopped);
  fs::create_directories(Path("run/model"));
  EXPECT_EQ(Read().state, RunState::kFinished);
  Write("run/config.json", "{\"max_steps\":20}");
  EXPECT_EQ(Read().state, RunState::kFinished);  // ended early
  fs::last_write_time(Path("run/model"),
                      fs::last_write_time(Path("run/metrics.jsonl")) - std::chrono::seconds(1));
  EXPECT_EQ(Read().state, RunState::kStopped);  // went on since
}

// A run by epochs: its newest checkpoint knows how many steps these are, and the model's size.
TEST_F(RunRecordTest, AsksTheNewestCheckpointThatCanBeRead) {
  Write("run/config.json", "{\"max_steps\":null,\"epochs\":2.5}");
  const Tensor weight = Full({3, 5}, 0.5, DType::kFloat32);
  const std::vector<dist::CheckpointTensor> tensors = {
      {"model.w", weight, Placement::Whole(weight.shape())},
      {"optimizer.exp_avg.w", weight, Placement::Whole(weight.shape())}};
  const Status saved = dist::SaveCheckpoint(dist::CheckpointPath(Path("run"), 5), 5, tensors,
                                            {{"data_samples", 101}, {"global_batch", 8}});
  ASSERT_TRUE(saved.ok()) << Message(saved);
  Write("run/checkpoint-9/checkpoint.json", "damaged");
  const RunRecord run = Read();
  EXPECT_EQ(run.parameters, 15);
  EXPECT_EQ(run.total_steps, 32);  // 253 samples, eight a step
}

TEST_F(RunRecordTest, NamesTellRunsApart) {
  for (const char* path : {"a/book", "b/book", "c/x/book", "c/y/book", "b/other"}) {
    Write(std::string(path) + "/metrics.jsonl", "");
  }
  const auto runs = ReadRuns(
      {Path("a/book"), Path("b/book/"), Path("c/x/book"), Path("c/y/book"), Path("b/other")});
  ASSERT_TRUE(runs.ok()) << Message(runs.status());
  std::vector<std::string> names;
  for (const RunRecord& run : *runs) names.push_back(run.name);
  EXPECT_EQ(names, (std::vector<std::string>{"a/book", "b/book", "x/book", "y/book", "other"}));
  const auto twice = ReadRuns({Path("a/book"), Path("b/../a/book/")});
  EXPECT_EQ(Message(twice.status()), Path("b/../a/book/") + ": is given twice");
}

}  // namespace
}  // namespace tessera::report
