// SPDX-License-Identifier: Apache-2.0
// What happens to a run of `tessera train` when it is killed, asked to stop, or when the disk is
// full: resuming gives the uninterrupted run, bit for bit, and no checkpoint is lost.
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/process/process.h"
#include "tests/process/tiny_training.h"
#include "train/testing/event_reader.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr int kSteps = 60;
constexpr int kKills = 20;

class KillTest : public testing::Test {
 protected:
  // The uninterrupted run, once for all tests.
  static void SetUpTestSuite() {
    root_ = testing::TempDir() + "/kill_test";
    MakeTinyData(root_);
    const auto start = Clock::now();
    Process whole(Train("whole"), root_ + "/whole");
    ASSERT_EQ(whole.ExitCode(), 0) << whole.Errors();
    duration_ = Clock::now() - start;
    ASSERT_EQ(Metrics(Out("whole")).size(), kSteps / 5 + 2 + 1u);
  }
  static void TearDownTestSuite() { fs::remove_all(root_); }

  static std::string Out(const std::string& name) { return root_ + "/" + name + "_run"; }

  // What `more` gives takes the place of what is here.
  static std::vector<std::string> Train(const std::string& name,
                                        const std::vector<std::string>& more = {}) {
    std::vector<std::string> words =
        TinyTraining(root_, Out(name), kSteps, {"--save-interval", "3", "--eval-interval", "25"});
    SetFlags(more, &words);
    return words;
  }

  // The event file and the table have the rows of metrics.jsonl, each once.
  static void ExpectEveryRow(const std::string& name) {
    const std::vector<nlohmann::json> rows = Metrics(Out(name));
    const fs::directory_iterator files(Out(name) + "/tensorboard");
    ASSERT_EQ(std::distance(files, fs::directory_iterator()), 1);
    const fs::path file = fs::directory_iterator(Out(name) + "/tensorboard")->path();
    const auto events = train::ReadEvents(ReadText(file));
    std::ifstream table(Out(name) + "/metrics.csv");
    std::string line;
    std::getline(table, line);  // the header
    ASSERT_EQ(events.size(), 2 + rows.size()) << "behind the two that a file begins with";
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(events[2 + i].step, rows[i]["step"]);
      const bool evaluated = rows[i].contains("val_loss");
      EXPECT_EQ(events[2 + i].scalars.at(evaluated ? "eval/loss" : "train/loss"),
                rows[i][evaluated ? "val_loss" : "loss"].get<float>());
      ASSERT_TRUE(std::getline(table, line));
      EXPECT_EQ(line.substr(0, line.find(',')), rows[i]["step"].dump());
    }
    EXPECT_FALSE(std::getline(table, line)) << line;
  }

  static void ExpectTheUninterruptedRun(const std::string& name,
                                        const std::string& whole = "whole") {
    EXPECT_TRUE(Weights(Out(name)) == Weights(Out(whole))) << "the weights differ";
    EXPECT_EQ(Metrics(Out(name)), Metrics(Out(whole)));
    ExpectEveryRow(name);
    for (const auto& entry : fs::directory_iterator(Out(name))) {
      EXPECT_EQ(entry.path().string().find(".tmp-"), std::string::npos) << entry.path();
    }
  }

  static void FinishAndCompare(const std::string& name) {
    Process rest(Train(name, {"--resume", "--report-to", "all"}), root_ + "/" + name);
    ASSERT_EQ(rest.ExitCode(), 0) << rest.Errors();
    ExpectTheUninterruptedRun(name);
  }

  static void KillAtRandom(const std::string& name, const std::vector<std::string>& arguments,
                           const std::string& whole);

  // Starts a run, stops it when its first checkpoint is there, and continues with it.
  static void CheckStop(const std::string& name, int signal) {
    Process run(Train(name), root_ + "/" + name);
    while (!fs::exists(Out(name) + "/checkpoint-3")) {
      ASSERT_FALSE(run.EndsWithin(std::chrono::milliseconds(1))) << run.Errors();
    }
    run.Signal(signal);
    CheckStopped(run, name, name);
  }

  static void CheckStopped(Process& run, const std::string& name, const std::string& reason) {
    ASSERT_EQ(run.ExitCode(), 0) << run.Errors();
    EXPECT_EQ(run.Errors(), "");
    const std::string output = run.Output();
    int step = 0;
    const size_t line = output.find("stopped at step ");
    ASSERT_NE(line, std::string::npos) << output;
    ASSERT_EQ(std::sscanf(output.c_str() + line, "stopped at step %d of 60", &step), 1) << output;
    EXPECT_NE(output.find("by " + reason, line), std::string::npos) << output;
    EXPECT_NE(output.find("--resume", line), std::string::npos) << output;
    EXPECT_LT(step, kSteps);
    EXPECT_TRUE(fs::exists(Out(name) + "/checkpoint-" + std::to_string(step))) << output;
    EXPECT_FALSE(fs::exists(Out(name) + "/model"));
    FinishAndCompare(name);
  }

  static std::string root_;
  static Seconds duration_;
};
std::string KillTest::root_;
Seconds KillTest::duration_;

// A run that ends before its kill has been compared starts over, so that there are always `kKills`.
void KillTest::KillAtRandom(const std::string& name, const std::vector<std::string>& arguments,
                            const std::string& whole) {
  const char* given = std::getenv("TESSERA_TEST_SEED");
  const uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device()();
  SCOPED_TRACE("TESSERA_TEST_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> moment(0.0, 0.2 * duration_.count());
  int finished = 0;
  for (int kills = 0; kills < kKills;) {
    Process run(Train(name, arguments), root_ + "/" + name);
    if (!run.EndsWithin(Seconds(moment(random)))) {
      run.Signal(SIGKILL);
      kills += run.ExitCode() == 128 + SIGKILL;
      continue;
    }
    ASSERT_EQ(run.ExitCode(), 0) << "after " << kills << " kills: " << run.Errors();
    ExpectTheUninterruptedRun(name, whole);
    fs::remove_all(Out(name));
    ++finished;
  }
  Process rest(Train(name, arguments), root_ + "/" + name);
  ASSERT_EQ(rest.ExitCode(), 0) << rest.Errors();
  ExpectTheUninterruptedRun(name, whole);
  std::printf("seed %lu: %d kills in %d runs\n", static_cast<unsigned long>(seed), kKills,
              finished + 1);
}

TEST_F(KillTest, KilledAtRandomMomentsItEndsAsTheUninterruptedRun) {
  KillAtRandom("killed", {"--resume", "--report-to", "all"}, "whole");
}

// Patience, the best checkpoint and what is written of it are the uninterrupted run's, too.
TEST_F(KillTest, KilledAtRandomMomentsItStopsEarlyWithTheSameBestModel) {
  const std::vector<std::string> judged = {"--lr",
                                           "0.03",
                                           "--lr-schedule",
                                           "constant",
                                           "--eval-interval",
                                           "2",
                                           "--early-stopping-patience",
                                           "5",
                                           "--load-best-model-at-end",
                                           "--num-checkpoints",
                                           "1",
                                           "--report-to",
                                           "all"};
  Process whole(Train("judged", judged), root_ + "/judged");
  ASSERT_EQ(whole.ExitCode(), 0) << whole.Errors();
  const int last = Metrics(Out("judged")).back()["step"].get<int>();
  ASSERT_LT(last, kSteps) << "it is to end early";
  ASSERT_NE(whole.Output().find("the model is the best one, of step "), std::string::npos)
      << whole.Output();
  std::vector<std::string> resumed = judged;
  resumed.insert(resumed.end(), {"--resume"});
  KillAtRandom("judged_killed", resumed, "judged");
  const auto entries = [](const std::string& out) {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(out)) names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  };
  EXPECT_EQ(entries(Out("judged_killed")), entries(Out("judged"))) << "checkpoints and files";
}

TEST_F(KillTest, SigtermStopsAndResumes) { CheckStop("SIGTERM", SIGTERM); }
TEST_F(KillTest, SigintStopsAndResumes) { CheckStop("SIGINT", SIGINT); }
TEST_F(KillTest, Sigusr1StopsAndResumes) { CheckStop("SIGUSR1", SIGUSR1); }

TEST_F(KillTest, SighupStopsAndResumes) { CheckStop("SIGHUP", SIGHUP); }

TEST_F(KillTest, TheTimeLimitStopsAndResumes) {
  Process run(Train("limited", {"--time-limit", "0.01"}), root_ + "/limited");
  CheckStopped(run, "limited", "the time limit");
}

// Exactly one line `error: ...` that names `part`.
void ExpectOneError(Process& run, const std::string& part, int exit_code = 1) {
  EXPECT_EQ(run.ExitCode(), exit_code);
  const std::string errors = run.Errors();
  EXPECT_EQ(errors.rfind("error: ", 0), 0u) << errors;
  EXPECT_EQ(errors.find('\n'), errors.size() - 1) << errors;
  EXPECT_NE(errors.find(part), std::string::npos) << errors;
}

TEST_F(KillTest, AFullDiskLosesNothing) {
  {
    Process start(Train("full", {"--time-limit", "0.01"}), root_ + "/full");
    ASSERT_EQ(start.ExitCode(), 0) << start.Errors();
  }
  std::vector<std::string> before;
  for (const auto& entry : fs::directory_iterator(Out("full"))) {
    if (entry.path().filename().string().rfind("checkpoint-", 0) == 0)
      before.push_back(entry.path());
  }
  ASSERT_EQ(before.size(), 1u);
  // Room for the metrics and the index of a checkpoint, not for its tensors.
  Process run(Train("full", {"--resume"}), root_ + "/full", /*file_bytes=*/1 << 20);
  ExpectOneError(run, "tensors-00000-of-00001.safetensors");
  Process inspect({"inspect", before[0]}, root_ + "/inspect");
  EXPECT_EQ(inspect.ExitCode(), 0) << inspect.Errors();
  FinishAndCompare("full");
}

// A volume of its own, in a mount namespace of this process alone.
TEST_F(KillTest, AVolumeThatFillsUpAndIsFreedLosesNothing) {
  const std::string out = Out("volume");
  fs::create_directories(out);
  if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      mount("tmpfs", out.c_str(), "tmpfs", 0, "size=64m") != 0) {
    GTEST_SKIP() << "this process may not mount a volume: " << std::strerror(errno);
  }
  {
    Process start(Train("volume", {"--time-limit", "0.01"}), root_ + "/volume");
    ASSERT_EQ(start.ExitCode(), 0) << start.Errors();
  }
  const std::string filler = out + "/filler";
  // All of it, and then so much less that some files find room.
  for (const int64_t left : {0, 64 << 10, 1 << 20}) {
    SCOPED_TRACE(left);
    std::ofstream(filler, std::ios::binary) << std::string(64 << 20, 'x');
    fs::resize_file(filler, fs::file_size(filler) - static_cast<uintmax_t>(left));
    Process run(Train("volume", {"--resume"}), root_ + "/volume");
    ExpectOneError(run, "No space left on device");
  }
  fs::remove(filler);
  FinishAndCompare("volume");
  umount(out.c_str());
}

TEST_F(KillTest, WithoutRoomForTheDataItSaysSo) {
  Process run(Train("tiny_disk"), root_ + "/tiny_disk", /*file_bytes=*/1000);
  ExpectOneError(run, Out("tiny_disk") + "/data/");
}

TEST_F(KillTest, AnOutThatCannotBeWrittenIsNamed) {
  std::ofstream(Out("file")) << "not a folder";
  const std::string name = "file_run/below";
  Process run(Train(name), root_ + "/unwritable");
  ExpectOneError(run, Out(name), /*exit_code=*/2);  // a file where a folder is wanted
}

}  // namespace
}  // namespace tessera
