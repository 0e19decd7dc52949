// SPDX-License-Identifier: Apache-2.0
// Two ranks that speak TCP (torchrun's environment), and the Nth call for a socket of one of them:
// refused, lost, cut short, late. Pieces and delays change nothing; after all else both ranks end,
// one of them says why, and --resume gives the undisturbed run, bit for bit. Ranks that are killed
// or stand still at any call for a file or a socket end likewise. Wall clocks that
// are set forward and back change no weights.
//
// TESSERA_FAULT_WALKS as in walk_test.cc.
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/faults/fault_run.h"
#include "tests/process/free_port.h"
#include "tests/process/process.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Arguments = std::vector<std::string>;

// One line of the table of faults.
struct Row {
  std::string name;
  Fault fault;
  bool absorbed = false;  // both ranks end well
};

const Row kRows[] = {
    {"refused", {.kinds = "connect", .how = "ECONNREFUSED"}},
    {"port_taken", {.kinds = "bind", .how = "EADDRINUSE"}},
    {"accept_lost", {.kinds = "accept", .how = "ECONNABORTED"}},
    {"out_of_descriptors", {.kinds = "accept", .how = "EMFILE"}},
    {"reset", {.kinds = "receive,send", .how = "ECONNRESET"}},
    {"cut_off", {.kinds = "receive", .how = "end"}},
    {"in_pieces", {.kinds = "receive,send", .how = "short"}, /*absorbed=*/true},
    {"late", {.kinds = "connect,accept,receive,send", .how = "delay:100"}, /*absorbed=*/true},
    {"killed_at_socket", {.kinds = "connect,accept,receive,send", .how = "kill"}},
    {"still_at_socket", {.kinds = "connect,accept,receive,send", .how = "stop"}},
    {"killed_in_save", {.kinds = "create,write,sync,rename", .how = "kill"}},
    {"still_in_save", {.kinds = "create,write,sync,rename", .how = "stop"}},
    {"slow_in_save", {.kinds = "create,write,sync,rename", .how = "delay:200"}, /*absorbed=*/true},
    {"clock_back", {.kinds = "clock", .how = "step:-86400"}, /*absorbed=*/true},
    {"clock_forward", {.kinds = "clock", .how = "step:86400"}, /*absorbed=*/true},
};

class NetworkTest : public testing::TestWithParam<Row> {
 protected:
  static void SetUpTestSuite() {
    root_ = fs::weakly_canonical(testing::TempDir()).string() + "/network_test";
    fs::remove_all(root_);
    WriteTinyModel(root_);
  }
  static void TearDownTestSuite() { fs::remove_all(root_); }

  static std::string Out() { return root_ + "/out"; }
  static std::string Log() { return root_ + "/calls"; }

  // Both ranks from beginning to end; false: they hang. `fault` is met by the rank that it names.
  static bool RunRanks(const Arguments& more, std::vector<std::unique_ptr<Process>>* ranks,
                       std::chrono::seconds time = std::chrono::seconds(60)) {
    Arguments train = {"train",
                       root_ + "/tiny",
                       "--data",
                       root_ + "/text.txt",
                       "--out",
                       Out(),
                       "--tokenizer",
                       "byte",
                       "--max-steps",
                       "3",
                       "--seq-len",
                       "16",
                       "--batch-size",
                       "2",
                       "--threads",
                       "1",
                       "--async-save",
                       "--resume",
                       "--save-interval",
                       "1",
                       "--report-to",
                       "all",
                       "--collective-timeout",
                       "3"};
    train.insert(train.end(), more.begin(), more.end());
    const std::string port = std::to_string(FreePort());
    ranks->clear();
    for (const std::string rank : {"0", "1"}) {
      const std::map<std::string, std::string> variables = {{"RANK", rank},
                                                            {"LOCAL_RANK", rank},
                                                            {"WORLD_SIZE", "2"},
                                                            {"MASTER_ADDR", "127.0.0.1"},
                                                            {"MASTER_PORT", port}};
      for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
      ranks->push_back(std::make_unique<Process>(train, root_ + "/rank" + rank));
      for (const auto& [name, value] : variables) unsetenv(name.c_str());
    }
    const auto end = std::chrono::steady_clock::now() + time;
    for (const auto& rank : *ranks) {
      if (!rank->EndsWithin(end - std::chrono::steady_clock::now())) return false;
    }
    return true;
  }

  static std::string WhatTheyDo(const std::vector<std::unique_ptr<Process>>& ranks) {
    std::string all;
    for (const auto& rank : ranks) all += rank->WhatItDoes() + "\n" + rank->Errors() + "\n";
    return all;
  }

  static std::string root_;
};
std::string NetworkTest::root_;

TEST_P(NetworkTest, RanksEndOrGoOn) {
  if (!kHasShim) GTEST_SKIP() << "a sanitizer has calls of its own";
  std::vector<std::unique_ptr<Process>> ranks;
  ASSERT_TRUE(RunRanks({}, &ranks));
  ASSERT_EQ(ranks[0]->ExitCode(), 0) << ranks[0]->Errors();
  const std::string wanted = Weights(Out());
  const Row& row = GetParam();
  size_t number = row.name.size();  // rows meet different calls
  for (const std::string met_by : {"0", "1"}) {
    Fault fault = row.fault;
    fault.rank = met_by;
    // Sockets and clocks have no folder.
    if (row.fault.kinds.find("write") != std::string::npos) fault.under = root_;
    size_t count = 0;
    fs::remove_all(Out());
    {
      FaultScope scope(fault, 0, Log());
      ASSERT_TRUE(RunRanks({}, &ranks));
      count = LoggedCalls(Log()).size();
    }
    int well = 0, failed = 0;
    const std::vector<size_t> places = PlacesOf(count, 1, number++);
    for (const size_t at : places) {
      const std::string where = row.name + ": " + Name(fault, at) + ": ";
      fs::remove_all(Out());
      const bool stops = fault.how == "stop";
      {
        FaultScope scope(fault, at, Log());
        const bool ended = RunRanks({}, &ranks, std::chrono::seconds(20));
        Process& other = *ranks[met_by == "0" ? 1 : 0];
        Process& faulty = *ranks[met_by == "0" ? 0 : 1];
        if (stops) faulty.Signal(SIGKILL);
        // Ranks wait minutes for one that has not joined yet; a launcher ends them sooner.
        const bool joining = !ended && !fs::exists(Out() + "/checkpoint-1") &&
                             (faulty.EndsWithin(std::chrono::seconds(1)) ||
                              other.EndsWithin(std::chrono::seconds(1)));
        if (joining) {
          for (const auto& rank : ranks) {
            if (!rank->EndsWithin(std::chrono::milliseconds(1))) rank->Signal(SIGKILL);
          }
        }
        ASSERT_TRUE(other.EndsWithin(std::chrono::seconds(1))) << where << "the other rank hangs\n"
                                                               << other.WhatItDoes();
        ASSERT_TRUE(ended || stops || joining) << where << "it hangs\n" << faulty.WhatItDoes();
        const std::string errors = ranks[0]->Errors() + ranks[1]->Errors();
        const bool is_well = other.ExitCode() == 0 && faulty.ExitCode() == 0;
        ++(is_well ? well : failed);
        EXPECT_TRUE(is_well || !row.absorbed) << where << errors;
        if (is_well) {
          EXPECT_TRUE(Weights(Out()) == wanted) << where << "exit 0, and other weights";
          continue;
        }
        EXPECT_TRUE(other.ExitCode() < 3 || joining) << where << errors;
        const bool is_killed = fault.how == "kill" || stops || joining;
        EXPECT_TRUE(is_killed || faulty.ExitCode() < 3) << where << errors;
        if (other.ExitCode() != 0 || !is_killed) {
          EXPECT_NE(errors.find("error: "), std::string::npos) << where << "no line";
        }
      }
      ASSERT_TRUE(RunRanks({}, &ranks)) << where << "again: it hangs\n" << WhatTheyDo(ranks);
      EXPECT_EQ(ranks[0]->ExitCode(), 0) << where << ranks[0]->Errors();
      EXPECT_TRUE(Weights(Out()) == wanted) << where << "again";
    }
    std::printf("%-18s rank %s %4zu of %4zu calls: %d ended well, %d said so\n", row.name.c_str(),
                met_by.c_str(), places.size(), count, well, failed);
    std::fflush(stdout);
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, NetworkTest, testing::ValuesIn(kRows),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tessera
