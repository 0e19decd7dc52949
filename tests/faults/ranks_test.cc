// SPDX-License-Identifier: Apache-2.0
// What happens to a parallel run when one of its ranks is killed, stands still, was started with
// another configuration or cannot write: the job ends, a line names the rank, and resuming gives
// the uninterrupted run, bit for bit.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/process/process.h"
#include "tests/process/tiny_training.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr int kRanks = 3;
constexpr int kSteps = 40;

class RanksTest : public testing::Test {
 protected:
  // The uninterrupted run, once for all tests.
  static void SetUpTestSuite() {
    root_ = testing::TempDir() + "/ranks_test";
    MakeTinyData(root_);
    Process whole(kRanks, Train("whole"), root_ + "/whole");
    ASSERT_EQ(whole.ExitCode(), 0) << whole.Errors();
  }
  static void TearDownTestSuite() { fs::remove_all(root_); }

  static std::string Out(const std::string& name) { return root_ + "/" + name + "_run"; }

  static std::vector<std::string> Train(const std::string& name,
                                        const std::vector<std::string>& more = {}) {
    std::vector<std::string> words =
        TinyTraining(root_, Out(name), kSteps, {"--save-interval", "3"});
    SetFlags(more, &words);
    return words;
  }

  static void ExpectTheRun(const std::string& whole, const std::string& name) {
    EXPECT_TRUE(Weights(Out(name)) == Weights(Out(whole))) << "the weights differ";
    EXPECT_EQ(Metrics(Out(name)), Metrics(Out(whole)));
    for (const auto& entry : fs::directory_iterator(Out(name))) {
      EXPECT_EQ(entry.path().string().find(".tmp-"), std::string::npos) << entry.path();
    }
  }

  static void FinishAndCompare(const std::string& name) {
    Process rest(kRanks, Train(name, {"--resume"}), root_ + "/" + name);
    ASSERT_EQ(rest.ExitCode(), 0) << rest.Errors();
    ExpectTheRun("whole", name);
  }

  // Waits until the run has its first checkpoint, and gives its ranks.
  static std::vector<pid_t> Training(Process& job, const std::string& name) {
    while (!fs::exists(Out(name) + "/checkpoint-3")) {
      if (job.EndsWithin(std::chrono::milliseconds(1))) return {};
    }
    return job.Ranks();
  }

  static void ExpectGone(const std::vector<pid_t>& ranks) {
    for (const pid_t rank : ranks) {
      for (int i = 0; i < 2000 && kill(rank, 0) == 0; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      EXPECT_NE(kill(rank, 0), 0) << "process " << rank << " was left behind";
    }
  }

  static std::string root_;
};
std::string RanksTest::root_;

// A way to lay a run out.
struct Layout {
  std::string name;
  int ranks;
  std::vector<std::string> flags;
  int kills;
};

class KilledRankTest : public RanksTest, public testing::WithParamInterface<Layout> {};

TEST_P(KilledRankTest, AnyRankAtAnyMoment) {
  const Layout& layout = GetParam();
  const std::string whole = "whole_" + layout.name;
  const std::string name = "killed_" + layout.name;
  const auto train = [&](const std::string& out, bool resume) {
    std::vector<std::string> arguments = Train(out, layout.flags);
    if (resume) arguments.push_back("--resume");
    return arguments;
  };
  const auto begin = Clock::now();
  Process uninterrupted(layout.ranks, train(whole, false), root_ + "/" + whole);
  ASSERT_EQ(uninterrupted.ExitCode(), 0) << uninterrupted.Errors();
  const Seconds duration = Clock::now() - begin;

  const char* given = std::getenv("TESSERA_TEST_SEED");
  const uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device()();
  SCOPED_TRACE("TESSERA_TEST_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> moment(0.0, 0.7 * duration.count());
  int finished = 0;
  for (int kills = 0; kills < layout.kills;) {
    Process job(layout.ranks, train(name, true), root_ + "/" + name, /*quiet=*/false);
    if (!job.EndsWithin(Seconds(moment(random)))) {
      const std::vector<pid_t> ranks = job.Ranks();
      if (ranks.empty()) {  // not all started yet
        job.Signal(SIGTERM);
        job.Wait();
        continue;
      }
      const auto victim = random() % static_cast<size_t>(layout.ranks);
      kill(ranks[victim], SIGKILL);
      ASSERT_TRUE(job.RanksEndWithin(Seconds(60)))
          << "the job went on after rank " << victim << ", process " << ranks[victim]
          << ", was killed:\n"
          << job.WhatItDoes() << job.Errors();
      if (job.ExitCode() == 0) continue;  // it had ended already
      ++kills;
      // One that has left MPI already, or is not in it yet, mpirun does not name.
      const std::string named = "process rank " + std::to_string(victim);
      const bool outside =
          job.Errors().find("Primary job  terminated normally") != std::string::npos;
      EXPECT_TRUE(outside || job.Errors().find(named) != std::string::npos) << job.Errors();
      ExpectGone(ranks);
      continue;
    }
    ASSERT_EQ(job.ExitCode(), 0) << "after " << kills << " kills: " << job.Errors();
    ExpectTheRun(whole, name);
    fs::remove_all(Out(name));
    ++finished;
  }
  Process rest(layout.ranks, train(name, true), root_ + "/" + name);
  ASSERT_EQ(rest.ExitCode(), 0) << rest.Errors();
  ExpectTheRun(whole, name);
  std::printf("seed %lu: %d kills in %d runs\n", static_cast<unsigned long>(seed), layout.kills,
              finished + 1);
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, KilledRankTest,
    testing::Values(
        Layout{"dp3", 3, {}, 20}, Layout{"zero3", 2, {"--zero", "3"}, 5},
        Layout{"pp2_zero1", 4, {"--pp", "2", "--zero", "1", "--num-microbatches", "2"}, 5}),
    [](const auto& info) { return info.param.name; });

TEST_F(RanksTest, ARankThatStandsStillIsNamed) {
  Process job(kRanks, Train("still", {"--collective-timeout", "2"}), root_ + "/still");
  const std::vector<pid_t> ranks = Training(job, "still");
  ASSERT_EQ(ranks.size(), static_cast<size_t>(kRanks)) << job.Errors();
  const auto start = Clock::now();
  kill(ranks[1], SIGSTOP);
  ASSERT_TRUE(job.EndsWithin(Seconds(20))) << job.WhatItDoes() << job.Errors();
  EXPECT_LT(Seconds(Clock::now() - start).count(), 10);
  EXPECT_NE(job.ExitCode(), 0);
  EXPECT_NE(job.Errors().find("rank 1"), std::string::npos) << job.Errors();
  kill(ranks[1], SIGKILL);
  ExpectGone(ranks);
  FinishAndCompare("still");
}

// Exactly one line `error: ...` that holds all of `parts`.
void ExpectOneError(Process& job, const std::vector<std::string>& parts) {
  EXPECT_NE(job.ExitCode(), 0);
  const std::string errors = job.Errors();
  EXPECT_EQ(errors.rfind("error: ", 0), 0u) << errors;
  EXPECT_EQ(errors.find("error: "), errors.rfind("error: ")) << errors;
  for (const std::string& part : parts) {
    EXPECT_NE(errors.find(part), std::string::npos) << part << " is not in: " << errors;
  }
}

TEST_F(RanksTest, ARankWithAnotherConfigurationIsNamed) {
  const std::vector<std::string> usual = Train("other");
  std::vector<std::string> other = usual;
  other.insert(other.end(), {"--weight-decay", "0.3"});
  Process job(std::vector<Process::Part>{{1, usual}, {1, other}, {1, usual}}, root_ + "/other");
  ASSERT_TRUE(job.EndsWithin(Seconds(20))) << job.WhatItDoes() << job.Errors();
  ExpectOneError(job, {"rank 1", "weight_decay is 0.3 there", "0.1 on rank 0"});
  EXPECT_FALSE(fs::exists(Out("other") + "/checkpoint-3"));
}

TEST_F(RanksTest, AFullDiskOnOneRankLosesNothing) {
  {
    Process start(kRanks, Train("full", {"--time-limit", "0.01"}), root_ + "/full");
    ASSERT_EQ(start.ExitCode(), 0) << start.Errors();
  }
  const std::vector<std::string> resume = Train("full", {"--resume"});
  Process job(std::vector<Process::Part>{{2, resume}, {1, resume, /*file_kib=*/1024}},
              root_ + "/full");
  ASSERT_TRUE(job.EndsWithin(Seconds(30)));
  ExpectOneError(job, {"rank 2", "tensors-00002-of-00003.safetensors"});
  FinishAndCompare("full");
}

TEST_F(RanksTest, WrongSizesAreRefusedBeforeAnythingStarts) {
  Process job(kRanks, Train("sizes", {"--tp", "2"}), root_ + "/sizes");
  ASSERT_TRUE(job.EndsWithin(Seconds(20))) << job.WhatItDoes() << job.Errors();
  ExpectOneError(job, {"tp 2 does not divide the world of 3 ranks"});
  EXPECT_FALSE(fs::exists(Out("sizes")));
}

}  // namespace
}  // namespace tessera
