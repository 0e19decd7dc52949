// SPDX-License-Identifier: Apache-2.0
// A server whose Nth call for a socket goes wrong: refused, lost, cut short, late. It answers the
// next client as if nothing had been, and ends well. Clients ask again where a connection breaks
// before its answer begins. TESSERA_FAULT_WALKS as in walk_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>

#include "tests/faults/asked_server.h"
#include "tests/faults/fault_run.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

struct Row {
  std::string name;
  Fault fault;
  bool absorbed = false;  // the client that meets it is answered, too
};

const Row kRows[] = {
    {"connection_lost", {.kinds = "accept", .how = "ECONNABORTED"}},
    {"out_of_descriptors", {.kinds = "accept", .how = "EMFILE"}},
    {"reset", {.kinds = "receive,send", .how = "ECONNRESET"}},
    {"timed_out", {.kinds = "receive,send", .how = "ETIMEDOUT"}},
    {"cut_off", {.kinds = "receive", .how = "end"}},
    {"nobody_reads", {.kinds = "send", .how = "EPIPE"}},
    // Of a socket that does not block, a short send says that it is full, and the kernel would tell
    // when it no longer is; so only what arrives comes in pieces.
    {"in_pieces", {.kinds = "receive", .how = "short", .onwards = true}, /*absorbed=*/true},
    {"late", {.kinds = "accept,receive,send", .how = "delay:300"}, /*absorbed=*/true},
};

class ServerTest : public testing::TestWithParam<Row> {
 protected:
  static void SetUpTestSuite() {
    root_ = fs::weakly_canonical(testing::TempDir()).string() + "/server_test";
    fs::remove_all(root_);
    WriteTinyModel(root_);
    Process run({"train", root_ + "/tiny", "--data", root_ + "/text.txt", "--out", root_ + "/out",
                 "--tokenizer", "byte", "--max-steps", "1", "--seq-len", "16", "--batch-size", "2"},
                root_ + "/run");
    ASSERT_EQ(run.ExitCode(), 0) << run.Errors();
  }
  static void TearDownTestSuite() { fs::remove_all(root_); }

  static std::string root_;
};
std::string ServerTest::root_;

TEST_P(ServerTest, AnswersTheNextClient) {
  if (!kHasShim) GTEST_SKIP() << "a sanitizer has calls of its own";
  const Row& row = GetParam();
  const std::string log = root_ + "/calls";
  const auto start = [&] {
    fs::remove(root_ + "/server.out");
    return Process(ServeArguments(root_ + "/out/model"), root_ + "/server");
  };
  std::string wanted;
  size_t count = 0;
  {
    FaultScope scope(row.fault, 0, log);
    Process server = start();
    int status = 0;
    wanted = Ask(UrlOf(server), &status);
    ASSERT_EQ(status, 200);
    ASSERT_NE(wanted, "");
    server.Signal(SIGTERM);
    ASSERT_TRUE(server.EndsWithin(std::chrono::seconds(60)));
    count = LoggedCalls(log).size();
  }
  ASSERT_GT(count, 0u);
  int answered = 0, lost = 0;
  for (const size_t at : PlacesOf(count, 3, row.name.size())) {
    const std::string where = row.name + ": " + Name(row.fault, at) + ": ";
    FaultScope scope(row.fault, at, log);
    Process server = start();
    const std::string url = UrlOf(server);
    ASSERT_NE(url, "") << where << server.Errors();
    int status = 0;
    const std::string first = Ask(url, &status);
    EXPECT_TRUE(first == wanted || !row.absorbed) << where << status;
    ++(first == wanted ? answered : lost);
    EXPECT_EQ(Ask(url, &status), wanted) << where << status;
    server.Signal(SIGTERM);
    ASSERT_TRUE(server.EndsWithin(std::chrono::seconds(60))) << where << server.WhatItDoes();
    EXPECT_EQ(server.ExitCode(), 0) << where << server.Errors();
    const std::vector<std::string> calls = LoggedCalls(log);
    EXPECT_TRUE(std::any_of(calls.begin(), calls.end(),
                            [](const std::string& call) { return call.ends_with(" !"); }))
        << where << "the server did not meet it";
  }
  std::printf("%-18s %4zu calls: %d clients were answered, %d lost\n", row.name.c_str(), count,
              answered, lost);
}

INSTANTIATE_TEST_SUITE_P(Rows, ServerTest, testing::ValuesIn(kRows),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tessera
