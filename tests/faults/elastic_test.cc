// SPDX-License-Identifier: Apache-2.0
// Elastic runs: ranks and hosts are killed, stopped and cut off, and come again, and the weights
// are those of a run that nothing disturbed, bit for bit.
//
// The long trial: bazel test //tests/faults:elastic_test --test_env=TESSERA_ELASTIC_EVENTS=200
// --test_timeout=7200 --test_output=all
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/faults/fault_run.h"
#include "tests/faults/lossy_network.h"
#include "tests/process/process.h"
#include "tests/process/tiny_training.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;
using Strings = std::vector<std::string>;

// Words of a process's command line; none for one that is gone.
Strings CommandLine(pid_t pid) {
  Strings words;
  std::istringstream text(ReadText("/proc/" + std::to_string(pid) + "/cmdline"));
  for (std::string word; std::getline(text, word, '\0');) words.push_back(word);
  return words;
}

bool Contains(const Strings& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

class ElasticTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    root_ = testing::TempDir() + "/elastic_test";
    MakeTinyData(root_);
  }
  static void TearDownTestSuite() { fs::remove_all(root_); }

  // What `more` gives takes the place of what is here.
  static Strings Train(const std::string& out, int steps, const Strings& more = {}) {
    Strings words = TinyTraining(
        root_, out, steps, {"--save-interval", "20", "--check-memory", "false", "--deterministic"});
    SetFlags(more, &words);
    return words;
  }

  static Strings Launch(const Strings& flags, const Strings& command) {
    Strings words = {"launch"};
    words.insert(words.end(), flags.begin(), flags.end());
    words.emplace_back("--");
    words.insert(words.end(), command.begin(), command.end());
    return words;
  }

  // Processes of the run in `out`: agents (of one host), or ranks.
  static std::vector<pid_t> Find(const std::string& out, const std::string& agent_host) {
    std::vector<pid_t> found;
    for (const fs::directory_entry& entry : fs::directory_iterator("/proc")) {
      const pid_t pid = std::atoi(entry.path().filename().c_str());
      if (pid <= 0) continue;
      const Strings words = CommandLine(pid);
      const bool is_agent = Contains(words, "--agent-host");
      if (!Contains(words, out) || words.size() < 3) continue;
      const bool is_rank = words[1] == "train";
      if (agent_host.empty() ? is_rank : is_agent && Contains(words, agent_host)) {
        found.push_back(pid);
      }
    }
    return found;
  }

  static std::vector<nlohmann::json> Events(const std::string& out, const std::string& kind) {
    std::vector<nlohmann::json> events;
    std::istringstream lines(ReadText(out + "/events.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const nlohmann::json row = nlohmann::json::parse(line, nullptr, false);
      if (row.is_object() && row["event"] == kind) events.push_back(row);
    }
    return events;
  }

  static int64_t Step(const std::string& out) {
    const std::vector<nlohmann::json> rows = Metrics(out);
    return rows.empty() ? 0 : rows.back()["step"].get<int64_t>();
  }

  // Until `done`, or the process ends, or a minute has passed.
  static bool Await(Process& run, const std::function<bool()>& done) {
    const auto until = Clock::now() + std::chrono::seconds(60);
    while (!done()) {
      if (run.EndsWithin(std::chrono::milliseconds(20)) || Clock::now() > until) return done();
    }
    return true;
  }

  // Nothing of the run is left, neither processes nor memory.
  static void ExpectNothingLeft(const std::string& out, const std::string& memory) {
    EXPECT_TRUE(Find(out, "").empty()) << "ranks live on";
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(memory)) {
      EXPECT_FALSE(entry.path().filename().string().starts_with("tessera-")) << entry.path();
    }
  }

  static inline std::string root_;
};

// One host that loses ranks: as many start again.
TEST_F(ElasticTest, KilledRanksStartAgain) {
  const std::string out = root_ + "/ranks", whole = root_ + "/ranks_whole";
  const std::string memory = root_ + "/memory";
  fs::create_directories(memory);
  Process undisturbed(Train(whole, 60, {"--gradient-accumulation-steps", "4"}), whole + "_log");
  ASSERT_EQ(undisturbed.ExitCode(), 0) << undisturbed.Errors();
  setenv("TESSERA_MEMORY_FOLDER", memory.c_str(), 1);
  Process run(Launch({"--num-gpus", "4", "--max-restarts", "10", "--memory-save-interval", "3"},
                     Train(out, 60)),
              out + "_log");
  for (size_t kills = 1; kills <= 3; ++kills) {
    ASSERT_TRUE(Await(run, [&] { return Events(out, "started").size() == kills; })) << run.Errors();
    const std::vector<pid_t> ranks = Find(out, "");
    if (ranks.empty()) break;
    kill(ranks[kills % ranks.size()], SIGKILL);
    Await(run, [&] { return Events(out, "left").size() == kills; });
  }
  ASSERT_EQ(run.ExitCode(), 0) << run.Errors();
  unsetenv("TESSERA_MEMORY_FOLDER");
  EXPECT_EQ(Events(out, "left").size(), 3u);
  for (const nlohmann::json& left : Events(out, "left")) {
    EXPECT_EQ(left["reason"], "killed by signal 9");
    EXPECT_EQ(left["ranks"].size(), 1u);
  }
  EXPECT_TRUE(Weights(out) == Weights(whole)) << "the weights differ";
  ExpectNothingLeft(out, memory);
}

// Every way of sharing out a run's states. Two hosts, one of which is lost for a while: the run
// continues on the other one, and on both when it is there again.
struct Layout {
  const char* name;
  Strings flags;
  friend void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }
};
class ElasticLayoutTest : public ElasticTest, public testing::WithParamInterface<Layout> {};

TEST_P(ElasticLayoutTest, AHostLeavesAndComes) {
  const std::string name = GetParam().name;
  const std::string out = root_ + "/" + name, whole = out + "_whole";
  std::ofstream(root_ + "/hosts") << "localhost slots=2\n127.0.0.1 slots=2\n";
  Strings alone = GetParam().flags;
  for (const char* axis : {"--pp", "--tp"}) {
    const auto at = std::find(alone.begin(), alone.end(), axis);
    if (at != alone.end()) alone.erase(at, at + 2);
  }
  const bool cut = alone.size() != GetParam().flags.size();
  const bool accumulates = Contains(alone, "--gradient-accumulation-steps");
  if (!accumulates) {
    alone.insert(alone.end(), {"--gradient-accumulation-steps", cut ? "2" : "4"});
  } else {
    *(std::find(alone.begin(), alone.end(), "--gradient-accumulation-steps") + 1) = "4";
  }
  Process undisturbed(Train(whole, 160, alone), whole + "_log");
  ASSERT_EQ(undisturbed.ExitCode(), 0) << undisturbed.Errors();
  Process run(Launch({"--hostfile", root_ + "/hosts", "--max-restarts", "10", "--min-ranks", "1",
                      "--memory-save-interval", "3"},
                     Train(out, 160, GetParam().flags)),
              out + "_log");
  ASSERT_TRUE(Await(run, [&] { return Step(out) >= 5; })) << run.Errors();
  // On a busy machine the host is back before the other one's ranks have ended: then once more.
  size_t lost = 0;  // the start without it
  for (int tries = 0; tries < 5 && lost == 0; ++tries) {
    const size_t before = Events(out, "started").size();
    // The one that was killed may not have been started again yet.
    std::vector<pid_t> agents;
    const auto has_agent = [&] { return (agents = Find(out, "127.0.0.1")).size() == 1; };
    ASSERT_TRUE(Await(run, has_agent)) << agents.size() << " agents";
    kill(agents[0], SIGKILL);
    if (!Await(run, [&] { return Events(out, "started").size() > before; })) break;
    if (Events(out, "started")[before]["ranks"] == 2) lost = before;
  }
  ASSERT_EQ(run.ExitCode(), 0) << run.Errors();
  const std::vector<nlohmann::json> starts = Events(out, "started");
  ASSERT_TRUE(lost > 0 && starts.size() > lost + 1) << ReadText(out + "/events.jsonl");
  EXPECT_EQ(starts[0]["ranks"], 4);
  EXPECT_EQ(starts[lost]["from"], "memory") << "the host that is left has the files of both";
  EXPECT_EQ(starts[lost + 1]["ranks"], 4);
  EXPECT_EQ(starts[lost + 1]["lost_steps"], 0) << "ranks save before a host that comes takes part";
  EXPECT_TRUE(Weights(out) == Weights(whole)) << "the weights differ";
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, ElasticLayoutTest,
    testing::Values(Layout{"replicas", {}}, Layout{"zero1", {"--zero", "1"}},
                    Layout{"zero2", {"--zero", "2"}}, Layout{"zero3", {"--zero", "3"}},
                    Layout{"offload", {"--zero", "2", "--cpu-offload"}},
                    Layout{"tensors", {"--tp", "2"}},
                    Layout{"pipeline", {"--pp", "2", "--gradient-accumulation-steps", "2"}},
                    Layout{"lora", {"--adapter", "lora"}}, Layout{"async", {"--async-save"}}),
    [](const testing::TestParamInfo<Layout>& layout) { return layout.param.name; });

TEST_F(ElasticTest, AFailureOfTheRunItselfIsNotTriedForever) {
  const std::string out = root_ + "/failing";
  Process run(Launch({"--num-gpus", "2", "--max-restarts", "50"}, Train(out, 40, {"--lr", "1e30"})),
              out + "_log");
  EXPECT_EQ(run.ExitCode(), 1);
  EXPECT_LE(Events(out, "left").size(), 2u) << ReadText(out + "/events.jsonl");
}

TEST_F(ElasticTest, WrongCommandLinesAreOneLine) {
  const std::string out = root_ + "/wrong";
  const struct {
    Strings flags;
    Strings command;
    const char* says;
  } cases[] = {
      {{"--max-restarts", "1"}, {"generate", "gpt-tiny"}, "are for `train`"},
      {{"--max-restarts", "1", "--min-ranks", "9", "--num-gpus", "2"},
       Train(out, 5),
       "--min-ranks 9"},
      {{"--max-restarts", "-1"}, Train(out, 5), "--max-restarts"},
      {{"--max-restarts", "1", "--num-gpus", "2"}, Train(out, 5, {"--tp", "3"}), "3"},
      {{"--max-restarts", "1", "--num-gpus", "2"},
       {"train", "gpt-tiny", "--nonsense", "1"},
       "nonsense"},
  };
  for (const auto& wrong : cases) {
    Process run(Launch(wrong.flags, wrong.command), out + "_log");
    EXPECT_NE(run.ExitCode(), 0);
    EXPECT_NE(run.Errors().find(wrong.says), std::string::npos) << run.Errors();
  }
}

// A rank that stands still for most of every step holds the others up.
TEST_F(ElasticTest, ASlowRankIsNamed) {
  const std::string out = root_ + "/slow";
  Process run(Launch({"--num-gpus", "4", "--max-restarts", "0"},
                     Train(out, 4000, {"--seq-len", "128", "--batch-size", "8"})),
              out + "_log");
  ASSERT_TRUE(Await(run, [&] { return !Events(out, "started").empty(); })) << run.Errors();
  const std::vector<pid_t> ranks = Find(out, "");
  ASSERT_EQ(ranks.size(), 4u);
  const pid_t slow = ranks[2];
  std::istringstream environment(ReadText("/proc/" + std::to_string(slow) + "/environ"));
  int64_t number = -1;
  for (std::string entry; std::getline(environment, entry, '\0');) {
    if (entry.starts_with("RANK=")) number = std::atoi(entry.c_str() + 5);
  }
  const auto is_named = [&] {
    const std::vector<nlohmann::json> events = Events(out, "slow");
    return std::any_of(events.begin(), events.end(), [&](const nlohmann::json& event) {
      return event["ranks"] == nlohmann::json({number});
    });
  };
  EXPECT_TRUE(Await(run, [&] {
    kill(slow, SIGSTOP);
    std::this_thread::sleep_for(200ms);
    kill(slow, SIGCONT);
    std::this_thread::sleep_for(50ms);
    return is_named();
  })) << ReadText(out + "/events.jsonl");
  run.Signal(SIGTERM);
  EXPECT_EQ(run.ExitCode(), 0) << run.Errors();
}

TEST_F(ElasticTest, AFolderForMemoryThatIsMissingIsNamed) {
  const std::string out = root_ + "/no_memory";
  setenv("TESSERA_MEMORY_FOLDER", (root_ + "/nowhere").c_str(), 1);
  Process run(Launch({"--num-gpus", "2", "--max-restarts", "5"}, Train(out, 5)), out + "_log");
  unsetenv("TESSERA_MEMORY_FOLDER");
  EXPECT_EQ(run.ExitCode(), 1);
  EXPECT_NE(run.Errors().find("error: host 'localhost': " + root_ + "/nowhere"), std::string::npos)
      << run.Errors();
}

// A launcher that is killed leaves no rank behind, and the same command with --resume continues.
TEST_F(ElasticTest, AKilledLauncherLeavesNothingBehind) {
  const std::string out = root_ + "/launcher", whole = out + "_whole";
  Process undisturbed(Train(whole, 60, {"--gradient-accumulation-steps", "2"}), whole + "_log");
  ASSERT_EQ(undisturbed.ExitCode(), 0) << undisturbed.Errors();
  const Strings flags = {"--num-gpus", "2", "--max-restarts", "3"};
  Process killed(Launch(flags, Train(out, 60)), out + "_log");
  ASSERT_TRUE(Await(killed, [&] { return fs::exists(out + "/checkpoint-20"); }));
  killed.Signal(SIGKILL);
  killed.Wait();
  const auto until = Clock::now() + std::chrono::seconds(10);
  while (!Find(out, "").empty() && Clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_TRUE(Find(out, "").empty());
  Process resumed(Launch(flags, Train(out, 60, {"--resume"})), out + "_log2");
  ASSERT_EQ(resumed.ExitCode(), 0) << resumed.Errors();
  EXPECT_TRUE(Weights(out) == Weights(whole)) << "the weights differ";
}

TEST_F(ElasticTest, ASignalSavesAndEnds) {
  const std::string out = root_ + "/signal", whole = root_ + "/signal_whole";
  const Strings flags = {"--num-gpus", "2", "--max-restarts", "3"};
  Process run(Launch(flags, Train(out, 4000)), out + "_log");
  ASSERT_TRUE(Await(run, [&] { return Step(out) >= 5; })) << run.Errors();
  run.Signal(SIGTERM);
  ASSERT_TRUE(run.EndsWithin(std::chrono::seconds(30)));
  EXPECT_EQ(run.ExitCode(), 0) << run.Errors();
  EXPECT_NE(run.Output().find("by SIGTERM"), std::string::npos) << run.Output();
}

// --- Every phase ---------------------------------------------------------------------------------

// A process meets the fault at one of its calls, from its first file to its last message: while
// ranks meet, read, step, save, send copies to each other, and end. TESSERA_FAULT_WALKS=all takes
// every call, a number so many of each row, and an ordinary run a few.
struct WalkRow {
  const char* name;
  const char* rank;  // "none": the launcher and its agent
  const char* how;
  bool restarted;  // of a start after a loss; the loss is another rank's
  const char* kinds = "open,create,write,sync,rename,unlink,mkdir,close,lock,connect,accept,send";
  friend void PrintTo(const WalkRow& row, std::ostream* out) { *out << row.name; }
};
class ElasticWalkTest : public ElasticTest, public testing::WithParamInterface<WalkRow> {
 protected:
  static constexpr int kSteps = 14;

  static void SetUpTestSuite() {
    ElasticTest::SetUpTestSuite();
    Process whole(Options("whole", {"--gradient-accumulation-steps", "4"}), root_ + "/whole_log");
    ASSERT_EQ(whole.ExitCode(), 0) << whole.Errors();
    weights_ = Weights(root_ + "/whole");
    fs::create_directories(root_ + "/memory");
    setenv("TESSERA_MEMORY_FOLDER", (root_ + "/memory").c_str(), 1);
  }
  static void TearDownTestSuite() {
    unsetenv("TESSERA_MEMORY_FOLDER");
    ElasticTest::TearDownTestSuite();
  }

  static Strings Options(const std::string& name, Strings more) {
    more.insert(more.end(), {"--save-interval", "6", "--log-interval", "1"});
    return Train(root_ + "/" + name, kSteps, more);
  }

  // The run with the fault at call `at`; what was seen is in `log`.
  static void Run(const WalkRow& row, size_t at, const std::string& log) {
    const std::string out = root_ + "/run";
    fs::remove_all(out);
    fs::remove(root_ + "/once");
    const Strings launch = {
        "--num-gpus",          "4", "--max-restarts", "5", "--memory-save-interval", "2",
        "--heartbeat-timeout", "3"};
    std::optional<Process> run;
    {
      const Fault fault = {.kinds = row.kinds,
                           .how = row.how,
                           .rank = row.rank,
                           .where = row.restarted ? "TESSERA_ELASTIC \"restarted\":true" : "",
                           .once = root_ + "/once",
                           .under = root_};
      const FaultScope scope(fault, at, log);
      run.emplace(Launch(launch, Options("run", {})), out + "_log");
    }
    if (row.restarted && Await(*run, [&] { return Step(out) >= 4; })) {
      const std::vector<pid_t> ranks = Find(out, "");
      if (!ranks.empty()) kill(ranks.back(), SIGKILL);
    }
    ASSERT_TRUE(run->EndsWithin(std::chrono::seconds(90))) << run->WhatItDoes();
    const bool launcher_lost = std::string(row.rank) == "none" && run->ExitCode() != 0;
    if (launcher_lost) {
      EXPECT_TRUE(fs::exists(root_ + "/once")) << run->Errors();
      const auto until = Clock::now() + std::chrono::seconds(10);
      while (!Find(out, "").empty() && Clock::now() < until) std::this_thread::sleep_for(20ms);
      Process again(Launch(launch, Options("run", {"--resume"})), out + "_log2");
      ASSERT_EQ(again.ExitCode(), 0) << again.Errors();
    } else {
      ASSERT_EQ(run->ExitCode(), 0) << run->Errors() << ReadText(out + "/events.jsonl");
    }
    EXPECT_TRUE(Weights(out) == weights_) << "the weights differ";
    ExpectNothingLeft(out, root_ + "/memory");
  }

  static inline std::string weights_;
};

TEST_P(ElasticWalkTest, AnyCallMayBeTheLast) {
  if (!kHasShim) GTEST_SKIP() << "a sanitizer's own calls come before the shim's";
  const WalkRow& row = GetParam();
  const std::string log = root_ + "/calls";
  Run(row, 0, log);
  if (HasFatalFailure()) return;
  std::map<std::string, size_t> calls;  // by process: how many count
  for (const std::string& line : LoggedCalls(log)) ++calls[line.substr(0, line.find(' '))];
  size_t most = 0;
  for (const auto& [process, count] : calls) most = std::max(most, count);
  ASSERT_GT(most, 4u);
  size_t met = 0;
  const std::vector<size_t> places = PlacesOf(most, 3, static_cast<size_t>(row.name[0]));
  for (const size_t at : places) {
    SCOPED_TRACE(std::string(row.name) + " at call " + std::to_string(at) + " of " +
                 std::to_string(most));
    Run(row, at, log);
    if (HasFatalFailure()) return;
    met += fs::exists(root_ + "/once") ? 1 : 0;
  }
  std::cout << row.name << ": " << met << " of " << places.size() << " faults were met\n";
  // Numbers of messages differ a little from run to run, so that the last ones may not come.
  EXPECT_GE(3 * met, 2 * places.size());
}

INSTANTIATE_TEST_SUITE_P(
    Phases, ElasticWalkTest,
    testing::Values(WalkRow{"a_rank_is_killed", "1", "kill", false},
                    WalkRow{"rank_0_is_killed", "0", "kill", false},
                    WalkRow{"restarted_rank_is_killed", "1", "kill", true},
                    WalkRow{"stopped", "2", "stop", false},
                    WalkRow{"launcher_or_agent_is_killed", "none", "kill", false},
                    WalkRow{"as_an_agent_removes", "none", "kill", false, "unlink"}),
    [](const testing::TestParamInfo<WalkRow>& row) { return row.param.name; });

// --- Hosts with a network between them -----------------------------------------------------------

// Four hosts of two ranks, in namespaces of their own, with packets that come late or never.
class ElasticNetworkTest : public ElasticTest {
 protected:
  static constexpr int kHosts = 4;

  void SetUp() override {
    auto network =
        LossyNetwork::Open({.hosts = kHosts + 1, .delay = 500us, .jitter = 300us, .loss = 0.002});
    if (!network.ok()) GTEST_SKIP() << "needs root: " << Message(network.status());
    network_ = *std::move(network);
    folder_ = root_ + "/network";
    fs::create_directories(folder_ + "/down");
    std::ofstream hosts(folder_ + "/hosts");
    std::ofstream script(folder_ + "/ssh");
    script << "#!/bin/sh\nwhile [ \"$1\" = -o ]; do shift 2; done\nhost=$1; shift\n"
           << "[ -e " << folder_ << "/down/$host ] && exit 255\n"
           << "mkdir -p " << folder_ << "/memory/$host\n"
           << "export TESSERA_MEMORY_FOLDER=" << folder_ << "/memory/$host\ncase $host in\n";
    for (int i = 0; i < kHosts; ++i) {
      hosts << Name(i) << " slots=2\n";
      script << Name(i) << ") exec";
      for (const std::string& word : network_->Enter(i)) script << " " << word;
      script << " sh -c \"$*\" ;;\n";
    }
    script << "esac\n";
    script.close();
    fs::permissions(folder_ + "/ssh", fs::perms::owner_all);
  }

  static std::string Name(int host) { return "host" + std::to_string(host); }

  void KillAgent(const std::string& out, int host) const {
    for (const pid_t pid : Find(out, Name(host))) kill(pid, SIGKILL);
  }

  std::unique_ptr<LossyNetwork> network_;
  std::string folder_;
};

TEST_F(ElasticNetworkTest, KillsStopsPartitionsAndJoins) {
  const char* const wanted = std::getenv("TESSERA_ELASTIC_EVENTS");
  const size_t events = wanted == nullptr ? 8 : static_cast<size_t>(std::atoi(wanted));
  const int steps = static_cast<int>(events) * 12 + 40;
  const std::string out = folder_ + "/run", whole = folder_ + "/whole";
  Process undisturbed(
      Train(whole, steps, {"--gradient-accumulation-steps", "8", "--save-strategy", "no"}),
      whole + "_log");
  setenv("TESSERA_SSH", (folder_ + "/ssh").c_str(), 1);
  const Strings launch =
      Launch({"--hostfile", folder_ + "/hosts", "--master-ip", LossyNetwork::AddressOf(kHosts),
              "--max-restarts", std::to_string(4 * events), "--min-ranks", "2",
              "--memory-save-interval", "5", "--heartbeat-timeout", "4"},
             Train(out, steps, {"--save-interval", "100"}));
  std::optional<Process> started;
  std::thread([&] {  // the coordinator is on the last host
    network_->MoveThread(kHosts);
    started.emplace(launch, out + "_log");
  })
      .join();
  Process& run = *started;
  unsetenv("TESSERA_SSH");
  std::mt19937 random(7);
  std::map<std::string, int> done;
  for (size_t event = 0; event < events; ++event) {
    const size_t starts = Events(out, "started").size();
    if (!Await(run, [&] { return !Events(out, "started").empty(); })) break;
    const int host = static_cast<int>(random() % kHosts);
    const std::vector<pid_t> ranks = Find(out, "");
    const int kind = static_cast<int>(event % 8);
    if (kind <= 2 && !ranks.empty()) {
      kill(ranks[random() % ranks.size()], SIGKILL);
      ++done["rank killed"];
    } else if (kind == 3) {
      KillAgent(out, host);  // and comes back at once, with its memory
      ++done["agent killed"];
    } else if (kind == 4) {
      std::ofstream(folder_ + "/down/" + Name(host)) << "";
      KillAgent(out, host);
      fs::remove_all(folder_ + "/memory/" + Name(host));
      Await(run, [&] { return Events(out, "started").size() > starts; });
      fs::remove(folder_ + "/down/" + Name(host));
      ++done["host lost, and back later"];
    } else if (kind == 5 && !ranks.empty()) {
      kill(ranks[random() % ranks.size()], SIGSTOP);
      ++done["rank stopped"];
    } else if (kind == 6) {
      network_->Cut(host, true);
      Await(run, [&] { return Events(out, "started").size() > starts; });
      network_->Cut(host, false);
      ++done["host cut off, and back later"];
    } else if (kind == 7) {
      run.Signal(SIGSTOP);  // for long enough that agents end their ranks
      std::this_thread::sleep_for(3s);
      run.Signal(SIGCONT);
      ++done["launcher stopped, and continued"];
    }
    Await(run, [&] { return Events(out, "started").size() > starts; });
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 1500));
  }
  ASSERT_EQ(undisturbed.ExitCode(), 0) << undisturbed.Errors();
  ASSERT_EQ(run.ExitCode(), 0) << run.Errors() << ReadText(out + "/events.jsonl");
  EXPECT_TRUE(Weights(out) == Weights(whole)) << "the weights differ";
  std::vector<double> lost;
  for (const nlohmann::json& start : Events(out, "started")) {
    if (start.contains("seconds")) lost.push_back(start["seconds"].get<double>());
  }
  // Two events that come close together are one loss.
  ASSERT_GE(lost.size(), events * 3 / 4);
  std::sort(lost.begin(), lost.end());
  for (const auto& [kind, times] : done) std::cout << times << " times: " << kind << "\n";
  std::cout << lost.size() << " starts again; seconds lost: median " << lost[lost.size() / 2]
            << ", most " << lost.back() << "; packets: " << network_->passed() << " passed, "
            << network_->dropped() << " dropped\n";
  EXPECT_LT(lost.back(), 30);
  ExpectNothingLeft(out, folder_ + "/memory");
}

}  // namespace
}  // namespace tessera
