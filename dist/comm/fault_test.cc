// SPDX-License-Identifier: Apache-2.0
// Jobs in which one rank does wrong: how they end, how soon, and what they say.
#include <gtest/gtest.h>
#include <signal.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"

namespace tessera::dist {
namespace {

struct Outcome {
  int code = 0;
  double seconds = 0;  // from the last rank's start
  std::string text;
  std::vector<std::string> errors;  // the lines with "error: "
  std::vector<int> pids;
};

// Over MPI, or over TCP.
class FaultTest : public testing::TestWithParam<bool> {
 protected:
  static bool OverMpi() { return GetParam(); }
  static Outcome RunRanks(int ranks, const std::string& arguments);
};

Outcome FaultTest::RunRanks(int ranks, const std::string& arguments) {
  const std::string command =
      Concat("third_party/bazel/", OverMpi() ? "mpi_test.sh " : "environment_ranks.sh ", ranks,
             " dist/comm/fault_ranks ", arguments, " 2>&1");
  Outcome outcome;
  std::FILE* output = popen(command.c_str(), "r");
  std::array<char, 4096> line;
  auto begin = std::chrono::steady_clock::now();
  while (std::fgets(line.data(), line.size(), output) != nullptr) {
    const std::string text = line.data();
    outcome.text += text;
    if (text.starts_with("pid ")) {
      outcome.pids.push_back(std::stoi(text.substr(4)));
      begin = std::chrono::steady_clock::now();
    }
    if (text.starts_with("error: ")) outcome.errors.push_back(text.substr(0, text.size() - 1));
  }
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  outcome.code = WEXITSTATUS(pclose(output));
  return outcome;
}

// mpirun may end a moment before the ranks that it has killed are gone.
void ExpectNoOrphans(const Outcome& outcome) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(3);
  for (const int pid : outcome.pids) {
    while (kill(pid, 0) == 0 && std::chrono::steady_clock::now() < limit) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_EQ(kill(pid, 0), -1) << "process " << pid << " lives";
  }
}

// One line that has all of `parts`, a job that failed within `limit` seconds, and nobody left.
void ExpectFailure(const Outcome& outcome, double limit, const std::vector<std::string>& parts) {
  EXPECT_NE(outcome.code, 0);
  EXPECT_LT(outcome.seconds, limit) << outcome.text;
  ASSERT_EQ(outcome.errors.size(), 1u) << outcome.text;
  for (const std::string& part : parts) {
    EXPECT_NE(outcome.errors[0].find(part), std::string::npos) << "no \"" << part << "\" in:\n"
                                                               << outcome.errors[0];
  }
  ExpectNoOrphans(outcome);
}

TEST_P(FaultTest, ASkippedCollective) {
  ExpectFailure(RunRanks(3, "skip 1"), 2,
                {"in group world: rank 1 calls all_reduce(sum) of float32 x 8 in module h.1.mlp",
                 "but ranks 0 and 2 call all_reduce(sum) of float32 x 8 in module h.1.attn"});
}

TEST_P(FaultTest, AnotherDtypeCountOperationOrRoot) {
  ExpectFailure(RunRanks(3, "dtype 2"), 2,
                {"rank 2 calls all_reduce(sum) of float64 x 8 in module h.1.attn",
                 "ranks 0 and 1 call all_reduce(sum) of float32 x 8"});
  ExpectFailure(RunRanks(3, "count 0"), 2,
                {"in group a: rank 0 calls all_reduce(sum) of float32 x 7 in module h.1.attn"});
  ExpectFailure(RunRanks(3, "operation 1"), 2, {"rank 1 calls all_reduce(max)"});
  ExpectFailure(RunRanks(3, "root 1"), 2,
                {"rank 1 calls broadcast of float32 x 8 from its rank 1"});
}

TEST_P(FaultTest, TwoRanksAreBothNamed) {
  ExpectFailure(RunRanks(2, "count 1"), 2,
                {"rank 0 calls all_reduce(sum) of float32 x 8",
                 "rank 1 calls all_reduce(sum) of "
                 "float32 x 7 in module h.1.attn"});
}

TEST_P(FaultTest, CallsReorderedAcrossGroups) {
  ExpectFailure(
      RunRanks(3, "reorder 2"), 2,
      {"rank 2 is in all_reduce(sum) of float32 x 8 in group b", "module h.1.mlp",
       "ranks 0 and 1 are in all_reduce(sum) of float32 x 8 in group a", "module h.1.attn"});
}

TEST_P(FaultTest, ARankThatEndsBeforeTheLastCollective) {
  ExpectFailure(RunRanks(3, "end 1"), 2,
                {"rank 1 has ended, but ranks 0 and 2 wait in all_reduce(sum) of float32 x 8 in "
                 "group world",
                 "module h.1.attn", "module h.0.attn"});
}

TEST_P(FaultTest, AMessageOfAnotherLength) {
  ExpectFailure(RunRanks(2, "message 0"), 2,
                {"rank 0 sent 12 bytes, but rank 1 is in receive of float32 x 4", "16 bytes"});
}

TEST_P(FaultTest, AChunkOfAnotherLength) {
  ExpectFailure(RunRanks(3, "chunks 1"), 2,
                OverMpi()
                    ? std::vector<std::string>{"in group a: rank 1 sends 4 elements to rank "
                                               "2, which waits for 3 in all_to_all of float32"}
                    : std::vector<std::string>{"in group a: rank 1 sent 16 bytes, but rank 2 "
                                               "is in all_to_all of float32",
                                               "12 bytes"});
}

TEST_P(FaultTest, RightCallsPass) {
  const Outcome outcome = RunRanks(3, "none 1");
  EXPECT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_TRUE(outcome.errors.empty()) << outcome.text;
}

// Without contracts, an ended rank is found all the same.
TEST_P(FaultTest, ARankThatEnds) {
  ExpectFailure(RunRanks(3, "end 1 600"), 6, {"rank 1 has ended, but ranks 0 and 2 wait in"});
}

TEST_P(FaultTest, ARankThatComputesForever) {
  ExpectFailure(
      RunRanks(3, "hang 1 2"), 5,
      {"the limit of 2 s", "ranks 0 and 2 are in all_reduce(sum) of float32 x 8 in group a",
       "call 1, module h.1.attn", "missing is rank 1, which computes"});
}

TEST_P(FaultTest, ARankThatWaitsElsewhere) {
  ExpectFailure(RunRanks(3, "elsewhere 1 2"), 6,
                {"the limit of 2 s", "rank 1", "receive of float32 x 3 from its rank 0, tag 5"});
}

TEST_P(FaultTest, AStoppedRank) {
  ExpectFailure(RunRanks(3, "stop 2 2"), 6,
                {"ranks 0 and 1 are in all_reduce", "missing is rank 2, which does not answer"});
}

TEST_P(FaultTest, AKilledRankEndsTheJob) {
  const Outcome outcome = RunRanks(3, "kill 1 600");
  EXPECT_NE(outcome.code, 0);
  EXPECT_LT(outcome.seconds, 5);
  EXPECT_NE(
      outcome.text.find(OverMpi() ? "process rank 1" : "error: rank 1 has ended before the others"),
      std::string::npos)
      << outcome.text;
  ExpectNoOrphans(outcome);
}

TEST_P(FaultTest, AnExceptionOnOneRankEndsTheJob) {
  ExpectFailure(RunRanks(3, "throw 2 600"), 5, {"error: probe: this rank fails"});
}

TEST_P(FaultTest, AnExitOfOneRankEndsTheJob) {
  const Outcome outcome = RunRanks(3, "exit 2 600");
  EXPECT_NE(outcome.code, 0);
  EXPECT_LT(outcome.seconds, 5);
  EXPECT_NE(outcome.text.find("rank 2 has ended before the others"), std::string::npos)
      << outcome.text;
  ExpectNoOrphans(outcome);
}

TEST_P(FaultTest, AbortEndsTheJob) {
  ExpectFailure(RunRanks(3, "status 0 600"), 5, {"rank 0 cannot continue"});
}

INSTANTIATE_TEST_SUITE_P(, FaultTest, testing::Values(true, false),
                         [](const auto& info) { return info.param ? "Mpi" : "Tcp"; });

}  // namespace
}  // namespace tessera::dist
