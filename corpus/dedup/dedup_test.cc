// SPDX-License-Identifier: Apache-2.0
#include "corpus/dedup/dedup.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <sstream>

#include "base/file.h"
#include "core/thread_pool.h"
#include "corpus/dedup/shingles.h"
#include "corpus/io/text_units.h"

namespace tessera::corpus {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class DedupTest : public testing::Test {
 protected:
  DedupTest()
      : root_(testing::TempDir() + "/" +
              testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  ~DedupTest() override { SetNumThreads(AvailableCores()); }

  std::string Path(const std::string& name) const { return root_ + "/" + name; }
  std::string Write(const std::string& name, const std::vector<std::string>& texts,
                    const std::string& prefix = "d") const {
    std::ofstream out(Path(name));
    for (size_t i = 0; i < texts.size(); ++i) {
      out << json({{"id", prefix + std::to_string(i)}, {"text", texts[i]}}).dump() << "\n";
    }
    return Path(name);
  }
  static std::vector<std::string> Lines(const std::string& path) {
    std::vector<std::string> lines;
    std::ifstream in(path);
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
  }
  static std::vector<std::string> Ids(const std::string& path) {
    std::vector<std::string> ids;
    for (const std::string& line : Lines(path)) ids.push_back(json::parse(line)["id"]);
    return ids;
  }
  static Counts Run(const DedupOptions& options) {
    const auto counts = RunDedup(options, {.commit_seconds = 0});
    EXPECT_TRUE(counts.ok()) << Message(counts.status());
    return counts.ok() ? *counts : Counts();
  }
  DedupOptions Options(const std::string& input, const std::string& output) const {
    DedupOptions options;
    options.input = {input};
    options.output = Path(output);
    return options;
  }

  const std::string root_;
};

// Texts of random words, some of them others' with a few words changed.
std::vector<std::string> MutatedTexts(size_t count) {
  std::mt19937 random(7);
  std::vector<std::vector<int>> texts;
  for (size_t i = 0; i < count; ++i) {
    std::vector<int> words;
    if (i >= 3 && random() % 2 == 0) {
      words = texts[random() % texts.size()];
      const size_t changes = random() % 12;
      for (size_t k = 0; k < changes; ++k) words[random() % words.size()] = random() % 5000;
    } else {
      for (size_t k = 0; k < 60 + random() % 200; ++k) words.push_back(random() % 5000);
    }
    texts.push_back(words);
  }
  std::vector<std::string> out;
  for (const auto& words : texts) {
    std::string text;
    for (const int word : words) text += "w" + std::to_string(word) + " ";
    out.push_back(text);
  }
  return out;
}

TEST_F(DedupTest, PairsAreThoseOfAllAgainstAll) {
  const std::vector<std::string> texts = MutatedTexts(400);
  std::vector<std::vector<uint64_t>> sets;
  ShingleReader reader;
  for (const std::string& text : texts) {
    std::vector<uint64_t> set;
    reader.Read(text, &set);
    std::sort(set.begin(), set.end());
    set.erase(std::unique(set.begin(), set.end()), set.end());
    sets.push_back(set);
  }
  std::map<std::pair<std::string, std::string>, double> truth;
  for (size_t a = 0; a < sets.size(); ++a) {
    for (size_t b = a + 1; b < sets.size(); ++b) {
      const double jaccard = Jaccard(sets[a], sets[b]);
      if (jaccard >= 0.7) truth[{"d" + std::to_string(a), "d" + std::to_string(b)}] = jaccard;
    }
  }
  ASSERT_GT(truth.size(), 50u);
  DedupOptions options = Options(Write("in.jsonl", texts), "out.jsonl");
  options.threshold = 0.7;
  options.pairs = Path("pairs.tsv");
  options.dropped = Path("dropped.tsv");
  const Counts counts = Run(options);
  size_t found = 0;
  for (const std::string& line : Lines(options.pairs)) {
    std::istringstream fields(line);
    std::string a, b;
    double jaccard = 0;
    fields >> a >> b >> jaccard;
    const auto known = truth.find({a, b});
    ASSERT_NE(known, truth.end()) << line;
    EXPECT_NEAR(known->second, jaccard, 1e-6);
    ++found;
  }
  EXPECT_GE(static_cast<double>(found), 0.99 * static_cast<double>(truth.size()));
  // Whoever goes is in a group with one that stays.
  EXPECT_EQ(counts.at("in"), 400);
  EXPECT_EQ(Lines(options.output).size() + Lines(options.dropped).size(), 400u);
  const std::vector<std::string> kept = Ids(options.output);
  for (const std::string& line : Lines(options.dropped)) {
    const std::string keeper = line.substr(line.rfind('\t') + 1);
    EXPECT_TRUE(std::ranges::find(kept, keeper) != kept.end()) << line;
  }
  EXPECT_FALSE(fs::exists(options.output + ".work"));
}

TEST_F(DedupTest, TheSameForAnyNumberOfThreads) {
  const std::string input = Write("in.jsonl", MutatedTexts(300));
  std::string outputs[2], pairs[2];
  for (int i = 0; i < 2; ++i) {
    SetNumThreads(i == 0 ? 1 : 4);
    DedupOptions options = Options(input, "out" + std::to_string(i) + ".jsonl");
    options.pairs = Path("pairs" + std::to_string(i));
    Run(options);
    outputs[i] = *ReadFile(options.output);
    pairs[i] = *ReadFile(options.pairs);
  }
  EXPECT_EQ(outputs[0], outputs[1]);
  EXPECT_EQ(pairs[0], pairs[1]);
  EXPECT_NE(pairs[0], "");
}

TEST_F(DedupTest, KeepsTheFirstOrTheLongest) {
  const std::string text = MutatedTexts(1)[0];
  const std::string input = Write("in.jsonl", {text, "a b c", text + ".....", "a b c", text});
  Run(Options(input, "first.jsonl"));
  // Fewer than five words are no near duplicates of anything.
  EXPECT_EQ(Ids(Path("first.jsonl")), (std::vector<std::string>{"d0", "d1", "d3"}));
  DedupOptions longest = Options(input, "longest.jsonl");
  longest.keep = "longest";
  Run(longest);
  EXPECT_EQ(Ids(Path("longest.jsonl")), (std::vector<std::string>{"d1", "d2", "d3"}));
}

TEST_F(DedupTest, ReferencesAndSavedFingerprints) {
  const std::vector<std::string> texts = MutatedTexts(3);
  DedupOptions options = Options(Write("in.jsonl", texts), "out.jsonl");
  options.reference = {Write("test.jsonl", {texts[1], texts[1]}, "t")};
  options.dropped = Path("dropped.tsv");
  EXPECT_EQ(Run(options).at("out"), 2);
  EXPECT_EQ(Lines(options.dropped), std::vector<std::string>{"d1\tnear_known\tt0"});

  // Two crawls, one after the other.
  options = Options(Write("first.jsonl", {texts[0], texts[1], texts[0]}), "a.jsonl");
  options.fingerprints = Path("seen");
  EXPECT_EQ(Run(options).at("out"), 2);
  EXPECT_EQ(Run(options).at("out"), 2);  // done already; nothing is added again
  // Nor where its output is gone: it gives the same again.
  const std::string kept = *ReadFile(options.output);
  std::filesystem::remove(options.output);
  EXPECT_EQ(Run(options).at("out"), 2);
  EXPECT_EQ(*ReadFile(options.output), kept);
  options = Options(Write("second.jsonl", {texts[2], texts[1]}, "e"), "b.jsonl");
  options.fingerprints = Path("seen");
  options.dropped = Path("dropped2.tsv");
  EXPECT_EQ(Run(options).at("out"), 1);
  EXPECT_EQ(Lines(options.dropped), std::vector<std::string>{"e1\tnear_known\td1"});
  options = Options(Write("third.jsonl", {texts[2], texts[0]}, "f"), "c.jsonl");
  options.fingerprints = Path("seen");
  EXPECT_EQ(Run(options).at("out"), 0);
  options.permutations = 64;
  const auto refused = RunDedup(options, {});
  EXPECT_NE(refused.status().message().find("fingerprints of permutations 128, not 64"),
            std::string::npos)
      << Message(refused.status());
}

TEST_F(DedupTest, ExactDocumentsParagraphsAndLines) {
  const std::string input =
      Write("in.jsonl", {"same\n", "a\nb\n\nc\nd", "same", "c\nd\n\nb", " a\n\n\nnew\nb\nb"});
  DedupOptions options = Options(input, "documents.jsonl");
  options.by = "document";
  Run(options);
  EXPECT_EQ(Ids(options.output), (std::vector<std::string>{"d0", "d1", "d3", "d4"}));
  const auto texts = [&](const std::string& by) {
    DedupOptions exact = Options(input, by + ".jsonl");
    exact.by = by;
    Run(exact);
    std::vector<std::string> found;
    for (const std::string& line : Lines(exact.output)) found.push_back(json::parse(line)["text"]);
    return found;
  };
  EXPECT_EQ(texts("paragraph"),
            (std::vector<std::string>{"same\n", "a\nb\n\nc\nd", "b", " a\n\n\nnew\nb\nb"}));
  EXPECT_EQ(texts("line"), (std::vector<std::string>{"same\n", "a\nb\n\nc\nd", "\n\nnew"}));
}

TEST_F(DedupTest, WhatOnlyNearDuplicatesHaveIsRefusedByTheOthers) {
  const std::vector<std::pair<std::string, void (*)(DedupOptions&)>> cases = {
      {"pairs", [](DedupOptions& options) { options.pairs = "x"; }},
      {"reference", [](DedupOptions& options) { options.reference = {"x"}; }},
      {"fingerprints", [](DedupOptions& options) { options.fingerprints = "x"; }},
      {"threshold", [](DedupOptions& options) { options.threshold = 0.5; }},
      {"permutations", [](DedupOptions& options) { options.permutations = 64; }},
      {"rows", [](DedupOptions& options) { options.rows = 4; }},
      {"keep longest", [](DedupOptions& options) { options.keep = "longest"; }}};
  const std::string input = Write("in.jsonl", {"a", "b"});
  for (const auto& [name, set] : cases) {
    for (const char* by : {"document", "paragraph", "line"}) {
      DedupOptions options = Options(input, "out.jsonl");
      options.by = by;
      set(options);
      EXPECT_EQ(Message(RunDedup(options, {}).status()),
                Concat("dedup: ", name, " goes with by near alone"))
          << by;
    }
  }
}

TEST(TextUnitsTest, PiecesAreTheText) {
  const std::string text = "a\n b\n\n \nc\n\nd";
  EXPECT_EQ(UnitsOf(text, TextUnit::kParagraph),
            (std::vector<std::string_view>{"a\n b\n\n \n", "c\n\n", "d"}));
  EXPECT_EQ(UnitsOf(text, TextUnit::kLine),
            (std::vector<std::string_view>{"a\n", " b\n", "\n", " \n", "c\n", "\n", "d"}));
  EXPECT_TRUE(UnitsOf("", TextUnit::kLine).empty());
  EXPECT_EQ(Bare(" \ta b\n"), "a b");
}

}  // namespace
}  // namespace tessera::corpus
