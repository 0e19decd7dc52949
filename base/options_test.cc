// SPDX-License-Identifier: Apache-2.0
#include "base/options.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"
#include "nlohmann/json.hpp"

namespace tessera {
namespace {

using nlohmann::json;

struct Sample {
  bool on = true;
  int64_t steps = 3;
  double lr = 3e-4;
  std::string kind = "plain";
  std::vector<double> betas = {0.9, 0.95};
  std::vector<std::string> files;
  std::optional<double> clip;
  std::optional<int64_t> rows;

  static const OptionTable& Table() {
    static const auto* table = new OptionTable(
        OptionTable::Of<Sample>("Sample")
            .Add("on", &Sample::on, "a switch")
            .Add("steps", &Sample::steps, "a count", {.least = 1, .neutral = 1})
            .Add("lr", &Sample::lr, "a rate",
                 {.least = 0, .aliases = {{"learning_rate", "Hugging Face"}}})
            .Add("kind", &Sample::kind, "a choice",
                 {.choices = {"plain", "fancy"}, .values = {{"simple", "plain"}, {"no", ""}}})
            .Add("betas", &Sample::betas, "a pair", {.least = 0, .below = 1, .count = 2})
            .Add("files", &Sample::files, "texts")
            .Add("clip", &Sample::clip, "no default", {.above = 0, .most = 9, .unset = "off"})
            .Add("rows", &Sample::rows, "no default either"));
    return *table;
  }
};

std::string Failure(const json& value) {
  const auto parsed = ParseOptions<Sample>(value, "run.json");
  return parsed.ok() ? "" : Message(parsed.status());
}

TEST(OptionsTest, ReadsEveryKindAndWritesItAgain) {
  const json given = {{"on", false},     {"steps", 7},        {"learning_rate", 1},
                      {"kind", "fancy"}, {"betas", {0.5, 0}}, {"files", {"a", "b"}},
                      {"clip", 0.25},    {"rows", 4}};
  const auto parsed = ParseOptions<Sample>(given, "run.json");
  ASSERT_TRUE(parsed.ok()) << Message(parsed.status());
  EXPECT_FALSE(parsed->on);
  EXPECT_EQ(parsed->steps, 7);
  EXPECT_EQ(parsed->lr, 1.0);
  EXPECT_EQ(parsed->kind, "fancy");
  EXPECT_EQ(parsed->betas, (std::vector<double>{0.5, 0}));
  EXPECT_EQ(parsed->files, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(parsed->clip, 0.25);
  EXPECT_EQ(parsed->rows, 4);
  const auto written = Sample::Table().ToJson(&*parsed);
  const auto again = ParseOptions<Sample>(json::parse(written.dump()), "saved");
  ASSERT_TRUE(again.ok()) << Message(again.status());
  EXPECT_EQ(Sample::Table().ToJson(&*again), written);
}

TEST(OptionsTest, NullLeavesTheDefault) {
  const auto parsed =
      ParseOptions<Sample>({{"clip", nullptr}, {"steps", nullptr}, {"kind", "no"}}, "run.json");
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->clip, std::nullopt);
  EXPECT_EQ(parsed->steps, 3);
  EXPECT_EQ(parsed->kind, "plain");
  EXPECT_EQ(Sample::Table().ToJson(&*parsed)["clip"], nullptr);
}

TEST(OptionsTest, OtherSystemsTextsAndSingleTexts) {
  const auto parsed = ParseOptions<Sample>({{"kind", "simple"}, {"files", "one"}}, "run.json");
  ASSERT_TRUE(parsed.ok()) << Message(parsed.status());
  EXPECT_EQ(parsed->kind, "plain");
  EXPECT_EQ(parsed->files, (std::vector<std::string>{"one"}));
}

TEST(OptionsTest, FailuresNameSourceKeyAndValue) {
  EXPECT_EQ(Failure({{"stpes", 1}}), "run.json: unknown key 'stpes'; did you mean 'steps'?");
  EXPECT_EQ(Failure({{"steps", 0}}), "run.json: 'steps' must be at least 1, not 0");
  EXPECT_EQ(Failure({{"steps", 1.5}}), "run.json: 'steps' must be an integer, not 1.5");
  EXPECT_EQ(Failure({{"steps", uint64_t{1} << 63}}),
            "run.json: 'steps' is too large: 9223372036854775808");
  EXPECT_EQ(Failure({{"on", 1}}), "run.json: 'on' must be true or false, not 1");
  EXPECT_EQ(Failure({{"learning_rate", "x"}}),
            "run.json: 'learning_rate' must be a number, not \"x\"");
  EXPECT_EQ(Failure({{"lr", std::numeric_limits<double>::infinity()}}),
            "run.json: 'lr' must be finite, not inf");
  EXPECT_EQ(
      Failure({{"kind", "fancier"}}),
      "run.json: 'kind' 'fancier' is not known; use one of plain, fancy; words of other systems: "
      "simple, no");
  EXPECT_EQ(Failure({{"betas", {0.9}}}), "run.json: 'betas' must be 2 values, not [0.9]");
  EXPECT_EQ(Failure({{"betas", {0.9, 1}}}), "run.json: 'betas' must be below 1, not 1");
  EXPECT_EQ(Failure({{"clip", 0}}), "run.json: 'clip' must be above 0, not 0");
  EXPECT_EQ(Failure({{"clip", 9.5}}), "run.json: 'clip' must be at most 9, not 9.5");
  EXPECT_EQ(Failure({{"files", {1}}}),
            "run.json: 'files' must be a text or a list of texts, not [1]");
  EXPECT_EQ(Failure(json::array()), "run.json: a JSON object is needed");
}

TEST(OptionsTest, MembersThatWereAssignedAreChecked) {
  Sample sample;
  EXPECT_TRUE(Sample::Table().Check(&sample).ok());
  sample.lr = -1;
  EXPECT_EQ(Message(Sample::Table().Check(&sample)), "lr must be at least 0, not -1");
}

TEST(OptionsTest, TextsOfFlagsAndBack) {
  const OptionTable& table = Sample::Table();
  EXPECT_EQ(table.Find("on")->FromText("off"), false);
  EXPECT_EQ(table.Find("lr")->FromText("1e-3"), 1e-3);
  EXPECT_EQ(table.Find("betas")->FromText("0.9,0.99"), json({0.9, 0.99}));
  EXPECT_EQ(table.Find("kind")->FromText("12"), "12");
  EXPECT_EQ(table.Find("betas")->ToText({0.9, 0.95}), "0.9,0.95");
  EXPECT_EQ(table.Find("lr")->ToText(3e-4), "0.0003");
  EXPECT_EQ(table.Find("clip")->ToText(nullptr), "");
}

TEST(OptionsTest, NeutralValues) {
  const OptionTable& table = Sample::Table();
  EXPECT_TRUE(table.Find("on")->IsNeutral(true));
  EXPECT_FALSE(table.Find("on")->IsNeutral(false));
  EXPECT_TRUE(table.Find("steps")->IsNeutral(1));
  EXPECT_FALSE(table.Find("lr")->IsNeutral(3e-4));
}

struct Wider {
  virtual ~Wider() = default;  // so that the base does not lie at the beginning
  int64_t more = 1;
};
struct Derived : Wider, Sample {
  bool own = false;
  static const OptionTable& Table() {
    static const auto* table =
        new OptionTable(OptionTable::Of<Derived>("Derived").Include<Derived, Sample>().Add(
            "own", &Derived::own, "its own"));
    return *table;
  }
};

TEST(OptionsTest, ABasesOptionsAreADerivedStructsToo) {
  const auto parsed = ParseOptions<Derived>({{"own", true}, {"steps", 8}}, "run.json");
  ASSERT_TRUE(parsed.ok()) << Message(parsed.status());
  EXPECT_TRUE(parsed->own);
  EXPECT_EQ(parsed->steps, 8);
  EXPECT_EQ(Derived::Table().ToJson(&*parsed)["steps"], 8);
  EXPECT_EQ(Derived::Table().Find("steps")->section, "Sample");
  EXPECT_EQ(Derived::Table().Find("own")->section, "Derived");
}

TEST(OptionsTest, AKeyDeclaredTwiceIsAnError) {
  OptionTable table = OptionTable::Of<Sample>("Sample");
  table.Add("on", &Sample::on, "");
  EXPECT_THROW(table.Add("on", &Sample::on, ""), Error);
}

}  // namespace
}  // namespace tessera
