// SPDX-License-Identifier: Apache-2.0
// `tessera report` as others call it: the page of trained runs, and the one that is served.
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "base/file.h"
#include "net/html/strict_html.h"
#include "net/http/http_client.h"
#include "nlohmann/json.hpp"
#include "tests/process/process.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using net::Element;
using net::Find;

class ReportCommandTest : public testing::Test {
 protected:
  ReportCommandTest()
      : root_(testing::TempDir() + "/report_" +
              testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  std::string Path(const std::string& name) const { return root_ + "/" + name; }
  void Append(const std::string& name, const std::string& content) const {
    fs::create_directories(fs::path(Path(name)).parent_path());
    std::ofstream(Path(name), std::ios::binary | std::ios::app) << content;
  }
  std::vector<std::string> TrainArguments(const std::string& out) const {
    std::ofstream text(Path("text.txt"));
    for (int i = 0; i < 400; ++i) text << "number " << i * 7919 % 1000 << " of many\n";
    return {"train",
            "gpt-tiny",
            "--data",
            Path("text.txt"),
            "--out",
            Path(out),
            "--max-steps",
            "6",
            "--batch-size",
            "2",
            "--seq-len",
            "16",
            "--log-interval",
            "1",
            "--threads",
            "1",
            "--eval-interval",
            "3",
            "--eval-batches",
            "1",
            "--wall-clock-breakdown"};
  }
  // The page of the runs, read strictly.
  std::vector<Element> Report(std::vector<std::string> runs) const {
    for (std::string& run : runs) run = Path(run);
    runs.insert(runs.begin(), "report");
    runs.insert(runs.end(), {"--out", Path("page.html")});
    Process report(runs, Path("report"));
    EXPECT_EQ(report.ExitCode(), 0) << report.Errors();
    EXPECT_EQ(report.Output(), "the report is in " + Path("page.html") + "\n");
    const auto elements = net::ParseStrictly(ReadText(Path("page.html")));
    EXPECT_TRUE(elements.ok()) << Message(elements.status());
    return elements.ok() ? *elements : std::vector<Element>();
  }
  void ExpectError(std::vector<std::string> arguments, const std::string& message) const {
    arguments.insert(arguments.begin(), "report");
    Process report(arguments, Path("error"));
    EXPECT_EQ(report.ExitCode(), 2);
    EXPECT_EQ(report.Errors(), "error: " + message + "\n");
  }

  const std::string root_;
};

std::vector<std::string> Titles(const std::vector<Element>& elements) {
  std::vector<std::string> titles;
  for (const Element& heading : Find(elements, "h3")) titles.push_back(heading.text);
  return titles;
}

TEST_F(ReportCommandTest, DrawsWhatTrainingWrote) {
  Process train(TrainArguments("run"), Path("train"));
  ASSERT_EQ(train.ExitCode(), 0) << train.Errors();
  const std::vector<Element> elements = Report({"run"});
  EXPECT_EQ(Titles(elements),
            (std::vector<std::string>{"Training loss", "Validation loss", "Learning rate",
                                      "Gradient norm", "Tokens per second", "Time of a step",
                                      "Peak memory", "Phases of a step"}));
  EXPECT_EQ(Find(elements, "path", "line").size(), 7u);
  EXPECT_EQ(Find(elements, "span", "state")[0].text, "finished");
  // What is drawn is what the rows say.
  const auto loss = nlohmann::json::parse(Find(elements, "script")[0].text)["curves"][0];
  size_t i = 0;
  for (const nlohmann::json& row : Metrics(Path("run"))) {
    if (!row.contains("loss")) continue;
    EXPECT_EQ(loss["x"].at(i), row["step"]);
    EXPECT_NEAR(loss["y"].at(i).get<double>(), row["loss"].get<double>(), 1e-4);
    ++i;
  }
  EXPECT_EQ(i, 6u);
  // The model's size is the one that training told.
  EXPECT_NE(train.Output().find("859,008 parameters"), std::string::npos);
  EXPECT_NE(ReadText(Path("page.html")).find("859k parameters"), std::string::npos);
}

TEST_F(ReportCommandTest, DrawsAPipelinesStep) {
  std::vector<std::string> arguments = TrainArguments("run");
  arguments.insert(arguments.end(), {"--pp", "2", "--gradient-accumulation-steps", "4"});
  Process train(2, arguments, Path("train"));
  ASSERT_EQ(train.ExitCode(), 0) << train.Errors();
  const std::vector<Element> elements = Report({"run"});
  // Two stages, a forward and a backward of each of four micro-batches, wide and narrow.
  EXPECT_EQ(Find(elements, "g", "action").size(), 2u * 2 * 4 * 2);
  EXPECT_EQ(Find(elements, "figure", "timeline").size(), 1u);
  // On a stage one action ends before the next begins, and the last stage waits for the first.
  const auto pipeline = nlohmann::json::parse(ReadText(Path("run/pipeline.json")));
  EXPECT_EQ(pipeline["step"], 6);
  for (const nlohmann::json& stage : pipeline["stages"]) {
    double at = 0;
    ASSERT_EQ(stage["actions"].size(), 8u);
    for (const nlohmann::json& action : stage["actions"]) {
      EXPECT_GE(action["begin_ms"].get<double>(), at);
      at = action["end_ms"].get<double>();
      EXPECT_GT(at, action["begin_ms"].get<double>());
    }
  }
  // Another run in its place has another timeline, or none.
  Process again(
      [&] {
        std::vector<std::string> alone = TrainArguments("run");
        alone.push_back("--overwrite");
        return alone;
      }(),
      Path("again"));
  ASSERT_EQ(again.ExitCode(), 0) << again.Errors();
  EXPECT_FALSE(PathExists(Path("run/pipeline.json")));
}

TEST_F(ReportCommandTest, ComparesRuns) {
  for (const std::string run : {"a/run", "b/run"}) {
    Append(run + "/metrics.jsonl", "{\"step\":1,\"loss\":3}\n{\"step\":2,\"loss\":2.5}\n");
    Append(run + "/config.json", "{\"lr\":" + std::string(run == "a/run" ? "1" : "2") + "}");
  }
  const std::vector<Element> elements = Report({"a/run", "b/run"});
  EXPECT_EQ(Find(elements, "path", "line").size(), 2u);
  std::vector<std::string> names;
  for (const Element& name : Find(elements, "span", "name")) names.push_back(name.text);
  EXPECT_EQ(names, (std::vector<std::string>{"a/run", "b/run", "a/run", "b/run"}));
}

TEST_F(ReportCommandTest, SaysInOneLineWhatIsWrong) {
  const std::string page = Path("page.html"), run = Path("run"), metrics = run + "/metrics.jsonl";
  ExpectError({"--out", page}, "report: a run's directory is missing");
  ExpectError({run, "--out", page}, run + ": is no directory of a run");
  fs::create_directories(run);
  ExpectError({run, "--out", page}, metrics + ": is missing; is this a run's directory?");
  ExpectError({run, "--follow"}, metrics + ": is missing; is this a run's directory?");
  Append("run/metrics.jsonl", "{\"step\":1,\"loss\":3}\nno json\n");
  ExpectError({run, "--out", page}, metrics + ":2: is no JSON object");
  Append("good/metrics.jsonl", "{\"step\":1,\"loss\":3}\n{\"step\":2,\"lo");
  const std::string good = Path("good");
  ExpectError({good}, "report: either --out FILE or --follow is needed");
  ExpectError({good, "--out", page, "--follow"}, "report: either --out FILE or --follow is needed");
  ExpectError({good, "--out", page, "--port", "80"},
              "report: --port means something with --follow only");
  ExpectError({good, "--follow", "--port", "65536"}, "--port must be at most 65535, not 65536");
  ExpectError({good, good + "/", "--out", page}, good + "/: is given twice");
  EXPECT_FALSE(PathExists(page));
  Report({"good"});
}

// The server of a run that continues; interrupted at the end.
TEST_F(ReportCommandTest, ServesTheRunAsItIsNow) {
  Append("run/metrics.jsonl", "{\"step\":1,\"loss\":3}\n");
  Process report({"report", Path("run"), "--follow"}, Path("follow"));
  const std::string before = "the report is at http://127.0.0.1:";
  int port = 0;
  for (int tries = 0; port == 0 && tries < 500; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (report.Output().rfind(before, 0) == 0)
      port = std::stoi(report.Output().substr(before.size()));
  }
  ASSERT_GT(port, 0) << report.Output() << report.Errors();
  auto client = net::HttpClient::Open(Concat("http://127.0.0.1:", port));
  ASSERT_TRUE(client.ok()) << Message(client.status());
  const auto status = [&](const net::HttpRequest& request) {
    const auto answer = client->Send(request);
    EXPECT_TRUE(answer.ok()) << Message(answer.status());
    return answer.ok() ? answer->status : 0;
  };
  const auto steps = [&] {
    const auto answer = client->Send({});
    EXPECT_TRUE(answer.ok() && answer->status == 200);
    const auto elements = net::ParseStrictly(answer.ok() ? answer->body : "");
    EXPECT_TRUE(elements.ok()) << Message(elements.status());
    return elements.ok() ? Find(*elements, "span", "figure").at(0).text : "";
  };
  // A page may be as old as ten times what making it took.
  const auto comes = [&](const std::string& step) {
    for (int tries = 0; tries < 500 && steps() != step; ++tries) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return steps() == step;
  };
  EXPECT_TRUE(comes("1"));
  Append("run/metrics.jsonl", "{\"step\":2,\"loss\":2}\n{\"step\":3,\"lo");
  EXPECT_TRUE(comes("2"));
  Append("run/metrics.jsonl", "ss\":1}\n");
  EXPECT_TRUE(comes("3"));
  Append("run/metrics.jsonl", "no json\n");
  for (int tries = 0; tries < 500 && status({}) != 500; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_EQ(status({}), 500);
  EXPECT_EQ(status({.headers = {{"Host", "example.com"}}}), 403);
  EXPECT_EQ(status({.path = "/metrics.jsonl"}), 404);
  EXPECT_EQ(status({.method = "POST"}), 405);
  report.Signal(SIGINT);
  ASSERT_TRUE(report.EndsWithin(std::chrono::seconds(20)));
  EXPECT_EQ(report.ExitCode(), 0) << report.Errors();
  EXPECT_EQ(report.Errors(), "");
}

}  // namespace
}  // namespace tessera
