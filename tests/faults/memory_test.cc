// SPDX-License-Identifier: Apache-2.0
// Commands whose Nth allocation fails, alone or with all behind it: they end with one line and
// status 1, or as if nothing had been, and never by a signal. A server goes on answering, or ends
// so.
//
// tests/inference/allocation_failure_test.cc lets every request of the library fail; here it is the
// whole program, from before main to its last line. TESSERA_FAULT_WALKS as in walk_test.cc, but
// that an allocation is one of tens of thousands: a number of them is what one asks for.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/faults/asked_server.h"
#include "tests/faults/fault_run.h"
#include "tests/process/process.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Arguments = std::vector<std::string>;

constexpr size_t kFew = 6;
// Shared libraries take memory before any of the program's own constructors runs.
constexpr size_t kBeforeMain = 20;

const Fault kFaults[] = {{.kinds = "new", .how = "ENOMEM"},
                         {.kinds = "new", .how = "ENOMEM", .onwards = true},
                         {.kinds = "malloc", .how = "ENOMEM"},
                         {.kinds = "new", .how = "ENOMEM", .above = 1000}};

class MemoryTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    root_ = fs::weakly_canonical(testing::TempDir()).string() + "/memory_test";
    fs::remove_all(root_);
    WriteTinyModel(root_);
    Process run(Train(), root_ + "/run");
    ASSERT_EQ(run.ExitCode(), 0) << run.Errors();
    fs::rename(root_ + "/out/model", Model());
  }
  static void TearDownTestSuite() { fs::remove_all(root_); }

  void SetUp() override {
    if (!kHasShim) GTEST_SKIP() << "a sanitizer has calls of its own";
  }

  static std::string Model() { return root_ + "/model"; }
  static std::string Log() { return root_ + "/calls"; }
  static Arguments Train() {
    return {"train",
            root_ + "/tiny",
            "--data",
            root_ + "/text.txt",
            "--out",
            root_ + "/out",
            "--tokenizer",
            "byte",
            "--max-steps",
            "2",
            "--seq-len",
            "16",
            "--batch-size",
            "2",
            "--threads",
            "1",
            "--async-save",
            "--save-interval",
            "1"};
  }

  // How many allocations the log tells of: its last line.
  static size_t Total() {
    const std::vector<std::string> lines = LoggedCalls(Log());
    if (lines.empty()) return 0;
    const std::string& line = lines.back();
    return std::stoull(line.substr(line.find(' ') + 1));
  }

  static void ExpectOneLine(Process& run, const std::string& where) {
    const std::string errors = run.Errors();
    EXPECT_TRUE(run.ExitCode() == 1 || run.ExitCode() == 2) << where << run.ExitCode() << errors;
    EXPECT_TRUE(errors.starts_with("error: ")) << where << errors;
    EXPECT_EQ(errors.find('\n'), errors.size() - 1) << where << errors;
  }

  static void Walk(const Arguments& arguments) {
    Process whole(arguments, root_ + "/run");
    ASSERT_EQ(whole.ExitCode(), 0) << whole.Errors();
    const std::string wanted = arguments[0] == "train" ? Weights(root_ + "/out") : whole.Output();
    size_t row = 0;
    for (const Fault& fault : kFaults) {
      fs::remove_all(root_ + "/out");
      {
        FaultScope scope(fault, 0, Log());
        Process run(arguments, root_ + "/run");
        ASSERT_EQ(run.ExitCode(), 0) << run.Errors();
      }
      const size_t count = Total();
      int well = 0, failed = 0;
      std::vector<size_t> places = PlacesOf(count, kFew, row);
      for (size_t at = 1; at <= std::min(count, kBeforeMain); ++at) places.push_back(at);
      for (const size_t at : places) {
        const std::string where = arguments[0] + ": " + Name(fault, at) + ": ";
        fs::remove_all(root_ + "/out");
        FaultScope scope(fault, at, Log());
        Process run(arguments, root_ + "/run");
        ASSERT_TRUE(run.EndsWithin(std::chrono::seconds(120))) << where << run.WhatItDoes();
        if (run.ExitCode() != 0) {
          ++failed;
          ExpectOneLine(run, where);
          continue;
        }
        ++well;
        EXPECT_TRUE((arguments[0] == "train" ? Weights(root_ + "/out") : run.Output()) == wanted)
            << where << "exit 0, and another result";
      }
      std::printf("%-9s %-7s %s%5zu allocations: %d ended well, %d said so\n", arguments[0].c_str(),
                  fault.kinds.c_str(), fault.onwards ? "onwards " : "        ", count, well,
                  failed);
      ++row;
    }
  }

  static std::string root_;
};
std::string MemoryTest::root_;

TEST_F(MemoryTest, Generate) {
  Walk({"generate", Model(), "--prompt", "line 1", "--max-new-tokens", "5"});
}

TEST_F(MemoryTest, Train) { Walk(Train()); }

TEST_F(MemoryTest, Serve) {
  std::string wanted;
  size_t row = 0;
  for (const Fault& fault : kFaults) {
    size_t count = 0;
    {
      FaultScope scope(fault, 0, Log());
      fs::remove(root_ + "/server.out");
      Process server(ServeArguments(Model()), root_ + "/server");
      int status = 0;
      wanted = Ask(UrlOf(server), &status);
      ASSERT_EQ(status, 200);
      server.Signal(SIGTERM);
      ASSERT_TRUE(server.EndsWithin(std::chrono::seconds(60)));
      count = Total();
    }
    int well = 0, answered = 0, ended = 0;
    for (const size_t at : PlacesOf(count, kFew, row)) {
      const std::string where = "serve: " + Name(fault, at) + ": ";
      FaultScope scope(fault, at, Log());
      fs::remove(root_ + "/server.out");
      Process server(ServeArguments(Model()), root_ + "/server");
      const std::string url = UrlOf(server);
      int first = 0, second = 0;
      const std::string text = url.empty() ? "" : Ask(url, &first);
      if (first == 200) {
        EXPECT_EQ(text, wanted) << where;
      } else {
        EXPECT_TRUE(first == 0 || first >= 500) << where << first;
      }
      // Where one allocation has failed, the next request is answered.
      if (!url.empty() && !server.EndsWithin(std::chrono::milliseconds(50)) && !fault.onwards) {
        EXPECT_EQ(Ask(url, &second), wanted) << where << "first " << first;
      }
      server.Signal(SIGTERM);
      ASSERT_TRUE(server.EndsWithin(std::chrono::seconds(60))) << where << server.WhatItDoes();
      if (server.ExitCode() == 0) {
        ++(first == 200 ? well : answered);
      } else {
        ++ended;
        ExpectOneLine(server, where);
      }
    }
    std::printf("serve     %-7s %s%5zu allocations: %d ended well, %d refused one, %d said so\n",
                fault.kinds.c_str(), fault.onwards ? "onwards " : "        ", count, well, answered,
                ended);
    ++row;
  }
}

}  // namespace
}  // namespace tessera
