// SPDX-License-Identifier: Apache-2.0
// What of tools/mutate needs no clang: rewriting, drawing, and running tests, which are scripts
// here.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tools/mutation/mutant.h"
#include "tools/mutation/point.h"
#include "tools/mutation/rewrite.h"
#include "tools/mutation/runner.h"

namespace tessera::mutation {
namespace {

Point PointAt(const std::string& source, const std::string& original, const std::string& kind,
              const std::string& wrap, const std::string& mutated) {
  const auto begin = static_cast<int64_t>(source.find(original));
  return {.begin = begin,
          .end = begin + static_cast<int64_t>(original.size()),
          .line = 1,
          .kind = kind,
          .wrap = wrap,
          .function = "F",
          .mutated = mutated};
}

// What follows the switches.
std::string Rewritten(const std::string& source, std::vector<Point> points, int64_t first) {
  const std::string text = Rewrite(source, points, first);
  return text.substr(text.find("(point); } ") + 11);
}

TEST(RewriteTest, PointsNest) {
  const std::string source = "x = a +\n b < c;\n";
  EXPECT_EQ(Rewritten(source,
                      {PointAt(source, "a +\n b", "arithmetic", "", "a - b"),
                       PointAt(source, "a +\n b < c", "compare", "", "a + b <= c")},
                      7),
            "x = (TesseraMutant(7) ? (a + b <= c) : ((TesseraMutant(8) ? (a - b) : (a +\n b)) < "
            "c));\n");
}

TEST(RewriteTest, OfOneRangeTheStatementIsOutermost) {
  const std::string source = "F();";
  EXPECT_EQ(Rewritten(source,
                      {PointAt(source, "F()", "compare", "", "!F()"),
                       PointAt(source, "F()", "statement", "void", "void()")},
                      0),
            "(TesseraMutant(0) ? (void()) : void((TesseraMutant(1) ? (!F()) : (F()))));");
}

TEST(RewriteTest, WhatOverlapsOrLiesOutsideIsRemoved) {
  const std::string source = "abcdef";
  std::vector<Point> points = {PointAt(source, "abc", "compare", "", "x"),
                               PointAt(source, "bcd", "compare", "", "y"),
                               PointAt(source, "ef", "compare", "", "z"),
                               {5, 9, 1, "compare", "", "F", "w"}};
  const std::string text = Rewrite(source, points, 0);
  ASSERT_EQ(points.size(), 2U);
  EXPECT_EQ(points[0].mutated, "x");
  EXPECT_EQ(points[1].mutated, "z");
  EXPECT_NE(text.find("(TesseraMutant(0) ? (x) : (abc))d(TesseraMutant(1) ? (z) : (ef))"),
            std::string::npos);
}

TEST(PointTest, LinesAreReadAsWritten) {
  const Point point = {.begin = 3,
                       .end = 9,
                       .line = 2,
                       .kind = "logic",
                       .wrap = "",
                       .function = "A::B",
                       .mutated = "a\t== '\\n' ||\n b"};
  const std::string line = WritePoint(point);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const std::optional<Point> read = ReadPoint(line);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->mutated, point.mutated);
  EXPECT_EQ(read->function, point.function);
  EXPECT_EQ(read->begin, 3);
  EXPECT_EQ(read->end, 9);
  EXPECT_FALSE(ReadPoint("1\t2").has_value());
  EXPECT_FALSE(ReadPoint("1\tx\t2\ta\tb\tc\td").has_value());
}

std::vector<Mutant> Numbered(int64_t size) {
  std::vector<Mutant> mutants;
  for (int64_t i = 0; i < size; ++i) {
    mutants.push_back({i, "optim/clip.cc", 10 + i, "compare", "Clip", "a < b", "a <= b"});
  }
  return mutants;
}

std::vector<int64_t> Numbers(const std::vector<Mutant>& mutants) {
  std::vector<int64_t> numbers;
  for (const Mutant& mutant : mutants) numbers.push_back(mutant.number);
  return numbers;
}

TEST(MutantTest, ASeedDrawsTheSameAndMoreOfThem) {
  const std::vector<int64_t> few = Numbers(Draw(Numbered(1000), 20, 1));
  std::vector<int64_t> many = Numbers(Draw(Numbered(1000), 50, 1));
  EXPECT_EQ(std::set<int64_t>(many.begin(), many.end()).size(), 50U);
  many.resize(20);
  EXPECT_EQ(few, many);
  EXPECT_NE(few, Numbers(Draw(Numbered(1000), 20, 2)));
  EXPECT_EQ(Draw(Numbered(5), 20, 1).size(), 5U);
}

TEST(MutantTest, ListsAreReadAsWritten) {
  std::vector<Mutant> mutants = Numbered(3);
  mutants[1].mutated = "'\\n'";
  const std::vector<Mutant> read = ReadMutants(WriteMutants(mutants) + "no line\n");
  ASSERT_EQ(read.size(), 3U);
  EXPECT_EQ(read[1].mutated, "'\\n'");
  EXPECT_EQ(read[2].number, 2);
  EXPECT_EQ(read[2].line, 12);
}

TEST(MutantTest, EquivalentsAreEntriesWithAReason) {
  std::string error;
  const auto equivalents = ReadEquivalents(
      "# A comment.\n\noptim/clip.cc Clip\n- a < b\n+ a <= b\nBoth are\nthe same.\n\n"
      "optim/clip.cc Other\n- a < b\n+ a <= b\nWhy.\n",
      &error);
  EXPECT_EQ(error, "");
  ASSERT_EQ(equivalents.size(), 2U);
  EXPECT_EQ(equivalents[1].function, "Other");
  EXPECT_TRUE(IsEquivalent(Numbered(1)[0], equivalents));
  Mutant other = Numbered(1)[0];
  other.mutated = "a > b";
  EXPECT_FALSE(IsEquivalent(other, equivalents));

  EXPECT_TRUE(ReadEquivalents("optim/clip.cc Clip\n- a < b\n+ a <= b\n", &error).empty());
  EXPECT_NE(error.find("'optim/clip.cc Clip' is no entry"), std::string::npos);
}

TEST(MutantTest, OneLineHasSingleBlanks) { EXPECT_EQ(OneLine(" a  +\n\t b \n"), "a + b"); }

class RunnerTest : public testing::Test {
 protected:
  RunnerTest() : folder_(testing::TempDir() + "/mutation_runner") {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }

  void AddTest(const std::string& label, const std::string& script, double seconds,
               const std::vector<int64_t>& covered, bool passed = true) {
    const std::string test = folder_ + "/tests/" + std::to_string(++tests_);
    std::filesystem::create_directories(test);
    std::ofstream(test + "/label") << label << "\n";
    std::ofstream(test + "/command") << "echo " << label << " >>" << folder_ << "/ran\n" << script;
    std::ofstream(test + "/seconds") << seconds << "\n";
    std::string bytes(100, '\0');
    for (int64_t point : covered) bytes[point] = 1;
    std::ofstream(test + "/covered") << bytes;
    if (passed) std::ofstream(test + "/passed") << "";
  }

  std::map<int64_t, Result> RunAll(const std::vector<Mutant>& mutants,
                                   const std::string& state = "1", int64_t seconds = 300,
                                   int64_t jobs = 1) {
    return RunMutants(mutants, ReadTests(folder_ + "/tests"),
                      {.results = folder_ + "/results",
                       .scratch = folder_ + "/scratch",
                       .state = state,
                       .seconds = seconds,
                       .jobs = jobs,
                       .quiet = true});
  }

  std::string Ran() {
    std::string ran = ReadText(folder_ + "/ran");
    std::filesystem::remove(folder_ + "/ran");
    return ran;
  }

  std::string folder_;
  int tests_ = 0;
};

TEST_F(RunnerTest, TheNearestAndFastestTestGoesFirst) {
  AddTest("//train:slow_test", "exit 0", 3, {0, 1});
  AddTest("//train:fast_test", "exit 0", 0.1, {0});
  AddTest("//optim:clip_test", "exit 0", 9, {0});
  AddTest("//optim:broken_test", "exit 1", 1, {0}, false);
  const std::vector<TestProgram> tests = ReadTests(folder_ + "/tests");
  ASSERT_EQ(tests.size(), 3U);
  std::vector<std::string> labels;
  for (const TestProgram* test : TestsOf(Numbered(1)[0], tests)) labels.push_back(test->label);
  EXPECT_EQ(labels, (std::vector<std::string>{"//optim:clip_test", "//train:fast_test",
                                              "//train:slow_test"}));
}

TEST_F(RunnerTest, AFailingTestKills) {
  AddTest("//a:passes", "exit 0", 0.1, {0, 1});
  AddTest("//a:fails_at_1", "[ $TESSERA_MUTANT != 1 ]", 0.2, {0, 1});
  AddTest("//a:last", "exit 0", 0.3, {0, 1});
  const std::vector<Mutant> mutants = Numbered(3);
  const auto results = RunAll(mutants);
  EXPECT_FALSE(results.at(0).killed);
  EXPECT_EQ(results.at(0).passed, 3);
  EXPECT_TRUE(results.at(1).killed);
  EXPECT_EQ(results.at(1).by, "//a:fails_at_1");
  EXPECT_FALSE(results.at(2).killed);
  EXPECT_EQ(Ran(), "//a:passes\n//a:fails_at_1\n//a:last\n//a:passes\n//a:fails_at_1\n");
  EXPECT_EQ(CountKilled(mutants, results), 1);
  const std::string report = Report(mutants, results);
  EXPECT_NE(report.find("optim/clip.cc:10 survived (3 tests passed, 0 not run)\n"
                        "optim/clip.cc Clip\n- a < b\n+ a <= b\n"),
            std::string::npos)
      << report;
  EXPECT_NE(report.find("optim/clip.cc:12 survived (no test executes it)"), std::string::npos);
  EXPECT_EQ(report.find("optim/clip.cc:11"), std::string::npos);
  EXPECT_EQ(report.substr(report.size() - 14), "1 of 3 killed\n");
}

TEST_F(RunnerTest, ASecondRunContinues) {
  AddTest("//a:kills_0", "[ $TESSERA_MUTANT != 0 ]", 0.1, {0, 1});
  RunAll(Numbered(2));
  EXPECT_EQ(Ran(), "//a:kills_0\n//a:kills_0\n");
  RunAll(Numbered(2));
  EXPECT_EQ(Ran(), "");
  // A line that a killed run left half-written is none.
  std::ofstream(folder_ + "/results", std::ios::app) << "1\tkilled";
  EXPECT_FALSE(RunAll(Numbered(2)).at(1).killed);
}

TEST_F(RunnerTest, SurvivorsRunAgainWithOtherTests) {
  AddTest("//a:kills_0", "[ $TESSERA_MUTANT != 0 ]", 0.1, {0, 1});
  RunAll(Numbered(2));
  Ran();
  AddTest("//a:kills_1", "[ $TESSERA_MUTANT != 1 ]", 0.2, {1});
  const auto results = RunAll(Numbered(2), "2");
  EXPECT_EQ(Ran(), "//a:kills_0\n//a:kills_1\n");
  EXPECT_TRUE(results.at(1).killed);
  EXPECT_EQ(CountKilled(Numbered(2), results), 2);
}

TEST_F(RunnerTest, NoTestBeginsAfterTheMutantsTime) {
  AddTest("//a:first", "sleep 0.1", 0.1, {0});
  AddTest("//a:second", "exit 1", 0.2, {0});
  const auto results = RunAll(Numbered(1), "1", 0);
  EXPECT_FALSE(results.at(0).killed);
  EXPECT_EQ(results.at(0).left + results.at(0).passed, 2);
  EXPECT_GE(results.at(0).left, 1);
}

TEST_F(RunnerTest, ACrashKillsAndLeavesNoProcess) {
  AddTest("//a:crashes", "setsid sleep 1000 & echo $! >" + folder_ + "/child; kill -SEGV $$", 0.1,
          {0});
  EXPECT_TRUE(RunAll(Numbered(1)).at(0).killed);
  const std::string child = ReadText(folder_ + "/child");
  ASSERT_FALSE(child.empty());
  EXPECT_FALSE(std::filesystem::exists("/proc/" + child.substr(0, child.find('\n'))));
}

TEST_F(RunnerTest, JobsShareTheMutants) {
  AddTest("//a:kills_odd", "[ $((TESSERA_MUTANT % 2)) = 0 ]", 0.1, {0, 1, 2, 3, 4, 5, 6, 7});
  const auto results = RunAll(Numbered(8), "1", 300, 3);
  EXPECT_EQ(results.size(), 8U);
  EXPECT_EQ(CountKilled(Numbered(8), results), 4);
}

}  // namespace
}  // namespace tessera::mutation
