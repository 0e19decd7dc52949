// SPDX-License-Identifier: Apache-2.0
#include "tools/report/page.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "net/html/strict_html.h"

namespace tessera::report {
namespace {

using net::Element;
using net::Find;
using net::ParseStrictly;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr char kHostile[] = "</script><script>alert(1)</script>\"'&\x1b[2J\xff";

RunRecord SmallRun(const std::string& name, double last_loss = 2.5) {
  RunRecord run;
  run.name = name;
  run.path = "runs/" + name;
  run.step = 30;
  run.total_steps = 40;
  run.curves["loss"] = {{10, 4}, {20, kNone}, {30, last_loss}};
  run.curves["val_loss"] = {{30, 2.75}};
  run.curves["val_accuracy"] = {{30, 0.5}};
  run.curves["forward_ms"] = {{10, 3}, {20, 5}};
  run.curves["backward_ms"] = {{10, 8}, {20, 8}};
  run.curves["lr"] = {{10, 1e-3}, {20, 1e-3}, {30, 1e-3}};
  run.config = {{"model", "gpt-tiny"}, {"lr", 1e-3}, {"seed", 0}, {"dropout", nullptr}};
  return run;
}

std::vector<Element> Parsed(const std::string& page) {
  const auto elements = ParseStrictly(page);
  EXPECT_TRUE(elements.ok()) << Message(elements.status());
  return elements.ok() ? *elements : std::vector<Element>();
}

std::vector<std::string> TextsOf(const std::vector<Element>& elements, const char* name,
                                 const char* css_class = "") {
  std::vector<std::string> texts;
  for (const Element& element : Find(elements, name, css_class)) texts.push_back(element.text);
  return texts;
}
using Texts = std::vector<std::string>;

TEST(PageTest, IsStrictHtmlThatNeedsNothingElse) {
  const std::string page = MakePage({SmallRun("a"), SmallRun("b")}, {});
  const std::vector<Element> elements = Parsed(page);
  EXPECT_EQ(page.find("http:"), std::string::npos);
  EXPECT_EQ(page.find("https:"), std::string::npos);
  for (const Element& element : elements) {
    EXPECT_FALSE(element.attributes.contains("src")) << element.name;
    EXPECT_FALSE(element.attributes.contains("style")) << element.name;  // the policy forbids it
    for (const auto& [name, value] : element.attributes) EXPECT_NE(name.substr(0, 2), "on");
    if (element.name == "link") {
      EXPECT_EQ(element.attributes.at("href"), "data:,");
    }
    const auto labelled = element.attributes.find("aria-labelledby");
    if (labelled != element.attributes.end()) {
      EXPECT_NE(page.find("id=\"" + labelled->second + "\""), std::string::npos);
    }
  }
  for (const Element& svg : Find(elements, "svg")) EXPECT_EQ(svg.attributes.at("role"), "img");
  EXPECT_EQ(Find(elements, "svg").size(), Find(elements, "title").size() - 1);  // and the page's
  EXPECT_EQ(Find(elements, "svg").size(), Find(elements, "desc").size());
}

TEST(PageTest, TellsWhoLeftAndJoined) {
  RunRecord run = SmallRun("a");
  EXPECT_EQ(MakePage({run}, {}).find("Ranks that left"), std::string::npos);
  run.events = {
      {.step = 12, .kind = "left", .where = "host3: rank 6", .what = "killed by signal 9"},
      {.step = 10,
       .kind = "started",
       .where = "host1, host3",
       .what = "8 ranks from memory",
       .lost_steps = 2,
       .lost_seconds = 1.5}};
  const std::vector<Element> elements = Parsed(MakePage({run}, {}));
  const Texts cells = TextsOf(elements, "td");
  for (const char* cell : {"left", "host3: rank 6", "killed by signal 9", "8 ranks from memory"}) {
    EXPECT_NE(std::find(cells.begin(), cells.end(), cell), cells.end()) << cell;
  }
  const Texts remarks = TextsOf(elements, "p", "remark");
  ASSERT_FALSE(remarks.empty());
  EXPECT_EQ(remarks[0], "ranks started again once; 2 steps and 1.500 s were lost");
}

TEST(PageTest, DrawsEverySeries) {
  const std::vector<Element> elements = Parsed(MakePage({SmallRun("a"), SmallRun("b")}, {}));
  EXPECT_EQ(TextsOf(elements, "h3"),
            (Texts{"Training loss", "Validation loss", "Validation accuracy", "Learning rate",
                   "Time of a step", "Phases of a step"}));
  EXPECT_EQ(Find(elements, "path", "line").size(), 10u);  // five charts of two runs
  EXPECT_EQ(Find(elements, "path", "crosses").size(), 2u);
  // A gap on either side leaves dots.
  EXPECT_EQ(Find(elements, "path", "line")[0].attributes.at("d"), "M57.0 20.3h0M359.0 177.7h0");
}

TEST(PageTest, DataHoldWhatIsDrawn) {
  const std::vector<Element> elements = Parsed(MakePage({SmallRun("a")}, {}));
  const auto data = nlohmann::json::parse(Find(elements, "script")[0].text);
  EXPECT_EQ(data["curves"].size(), 1u);
  EXPECT_EQ(data["curves"][0]["x"], (nlohmann::json{10, 20, 30}));
  EXPECT_EQ(data["curves"][0]["y"], (nlohmann::json{4, nullptr, 2.5}));
  EXPECT_EQ(data["curves"][0]["text"], (nlohmann::json{"4.000", "not finite", "2.500"}));
}

TEST(PageTest, SaysHowRunsStand) {
  RunRecord run = SmallRun("a", /*last_loss=*/kNone);
  run.state = RunState::kInProgress;
  run.parameters = 124439808;
  const std::string page = MakePage({run}, {});
  const std::vector<Element> elements = Parsed(page);
  EXPECT_EQ(TextsOf(elements, "span", "state"), Texts{"in progress"});
  EXPECT_EQ(TextsOf(elements, "span", "figure"),
            (Texts{"30", "not finite", "2.750", "0.500", "gpt-tiny"}));
  EXPECT_EQ(TextsOf(elements, "span", "detail"),
            (Texts{"of 40", "lowest 4.000 at step 10", "124.4M parameters"}));
  EXPECT_NE(page.find("lowest 4.000 at step 10; 2 rows are not finite"), std::string::npos);
}

TEST(PageTest, ComparesConfigurationsByWhatDiffers) {
  RunRecord other = SmallRun("b");
  other.config["lr"] = 3e-5;
  other.config["dropout"] = 0.1;
  const std::vector<Element> elements = Parsed(MakePage({SmallRun("a"), other}, {}));
  EXPECT_EQ(TextsOf(elements, "code"),
            (Texts{"lr", "0.001", "3e-05", "dropout", "", "0.1",           // differ
                   "model", "gpt-tiny", "seed", "0", "tessera report"}));  // the rest; the footer
}

TEST(PageTest, DrawsThePipelinesStep) {
  RunRecord run = SmallRun("a");
  run.pipeline = {.step = 6,
                  .stages = {{{"forward", 0, 0, 0, 4}, {"backward", 0, 0, 12, 20}},
                             {{"forward", 1, 0, 4, 8}, {"backward", 1, 0, 8, 12}}}};
  const std::string page = MakePage({run}, {});
  const std::vector<Element> elements = Parsed(page);
  EXPECT_EQ(Find(elements, "g", "action").size(), 2 * 4u);  // wide and narrow
  EXPECT_NE(page.find("step 6, measured; 20.0 ms, idle 50 %"), std::string::npos);
  EXPECT_EQ(Find(elements, "g", "odd").size(), 0u);
  EXPECT_NE(page.find("<title>Backward of micro-batch 0 on chunk 1: 4.00 ms, from 8.00 ms</title>"),
            std::string::npos);
}

TEST(PageTest, ShowsSamplesAndEpochs) {
  RunRecord run = SmallRun("a");
  for (int64_t step = 1; step <= 30; ++step) run.samples.push_back({step, {"sample"}});
  run.samples.back().lines.assign(60, "line");
  run.epochs = {{30, {{"epoch", 1}, {"loss", 2.5}}}, {40, {{"epoch", 2}, {"val_loss", kNone}}}};
  const std::string page = MakePage({run}, {});
  const std::vector<Element> elements = Parsed(page);
  EXPECT_EQ(Find(elements, "ol", "samples").size(), 20u);
  EXPECT_NE(page.find("10 more lines are in samples.jsonl"), std::string::npos);
  EXPECT_NE(page.find("Still earlier ones"), std::string::npos);
  EXPECT_NE(page.find(">not finite</td>"), std::string::npos);
}

TEST(PageTest, WhatRunsHoldIsText) {
  RunRecord run = SmallRun(kHostile);
  run.path = kHostile;
  run.curves[kHostile] = {{10, 1}};
  run.curves[std::string("val_") + kHostile] = {{10, 1}};
  run.samples = {{10, {kHostile}}};
  run.epochs = {{10, {{kHostile, 1}}}};
  run.config = {{kHostile, kHostile}, {"model", kHostile}, {"list", {kHostile, {{"a", "\xff"}}}}};
  run.pipeline = {.step = 1, .stages = {{{kHostile, 0, 0, 0, 4}}}};
  const std::string page = MakePage({run, SmallRun("b")}, {});
  for (const Element& script : Find(Parsed(page), "script")) {
    EXPECT_EQ(script.text.find("alert"), std::string::npos);
  }
  EXPECT_NE(page.find("&lt;script&gt;alert(1)"), std::string::npos);
  EXPECT_EQ(page.find('\x1b'), std::string::npos);
}

TEST(PageTest, TakesAnyRows) {
  RunRecord empty;
  empty.name = "empty";
  RunRecord odd;
  odd.name = "odd";
  odd.curves["loss"] = {{0, kNone}};
  odd.curves["lr"] = {{0, 0}};
  odd.curves["grad_norm"] = {{0, 1e300}, {int64_t{1} << 53, -1e300}};
  odd.curves["peak_bytes"] = {{5, -1}, {6, 1e-300}};
  odd.curves["tokens_per_second"] = {{7, 5e-324}};
  odd.curves["data_ms"] = {{7, 1e300}, {8, 1e300}, {9, kNone}};
  odd.curves["forward_ms"] = {{7, -5}};
  odd.pipeline = {.step = 0, .stages = {{}, {{"forward", 999999999999, 5, 0, 0}}}};
  Parsed(MakePage({empty}, {}));
  for (const std::vector<RunRecord>& runs :
       {std::vector<RunRecord>{odd}, {odd, empty}, {empty, odd}}) {
    const std::string page = MakePage(runs, {});
    Parsed(page);
    EXPECT_EQ(page.find("nan"), std::string::npos);
    EXPECT_EQ(page.find("inf "), std::string::npos);
  }
}

TEST(PageTest, StaysSmallAndTheSame) {
  std::vector<RunRecord> runs;
  for (const char* name : {"a", "b", "c"}) {
    RunRecord run = SmallRun(name);
    for (const char* column : {"loss", "grad_norm", "tokens_per_second"}) {
      Curve& curve = run.curves[column];
      curve.clear();
      for (int64_t i = 0; i < 100000; ++i) {
        curve.push_back({i, 3 + std::sin(static_cast<double>(i * i % 1000))});
      }
    }
    runs.push_back(std::move(run));
  }
  const std::string page = MakePage(runs, {});
  EXPECT_LT(page.size(), 300000u);
  EXPECT_EQ(page, MakePage(runs, {}));
}

TEST(PageTest, ManyRunsHaveTheirLetters) {
  std::vector<RunRecord> runs;
  for (int i = 0; i < 30; ++i) runs.push_back(SmallRun("run" + std::to_string(i)));
  const std::vector<Element> elements = Parsed(MakePage(runs, {}));
  const Texts letters = TextsOf(elements, "span", "key");
  EXPECT_EQ(letters[0], "A");
  EXPECT_EQ(letters[25], "Z");
  EXPECT_EQ(letters[26], "A2");
}

TEST(PageTest, AsksForItselfOnlyWhereItIsServed) {
  const auto refresh = [](const std::string& page) {
    return Find(Parsed(page), "body")[0].attributes.at("data-refresh");
  };
  EXPECT_EQ(refresh(MakePage({SmallRun("a")}, {})), "0");
  EXPECT_EQ(refresh(MakePage({SmallRun("a")}, {.refresh_ms = 2000})), "2000");
}

}  // namespace
}  // namespace tessera::report
