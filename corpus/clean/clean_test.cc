// SPDX-License-Identifier: Apache-2.0
#include "corpus/clean/clean.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/file.h"

namespace tessera::corpus {
namespace {

using nlohmann::json;

// What is left of a text, and the line of the list of what is dropped.
struct Cleaned {
  json document;
  std::string dropped;
};

CleanOptions Plain() {
  CleanOptions options;
  options.min_tokens = 0;
  options.min_characters = 0;
  return options;
}

Cleaned Clean(CleanOptions options, const std::string& text) {
  const std::string root = testing::TempDir() + "/clean";
  std::filesystem::remove_all(root);
  std::filesystem::create_directories(root);
  std::ofstream(root + "/in.jsonl") << json({{"id", "a"}, {"text", text}}).dump() << "\n";
  options.input = {root + "/in.jsonl"};
  options.output = root + "/out.jsonl";
  options.dropped = root + "/dropped.tsv";
  const auto counts = RunClean(options, {});
  EXPECT_TRUE(counts.ok()) << Message(counts.status());
  const std::string kept = *ReadFile(options.output);
  return {kept.empty() ? json() : json::parse(kept), *ReadFile(options.dropped)};
}

std::string Sentences(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    text += "This is the sentence number " + std::to_string(i) + " of the page and goes on.\n";
  }
  return text;
}

TEST(CleanTest, EachOptionDropsByItsName) {
  struct Case {
    const char* name;
    void (*set)(CleanOptions& options);
    std::string text;
    const char* dropped;  // filter and value
  };
  const std::string english = "Two men are standing at the stove preparing food.";
  const Case cases[] = {
      {"language", [](CleanOptions& o) { o.language = {"de"}; }, english, "language\ten 1.0000"},
      {"min_language_score",
       [](CleanOptions& o) {
         o.language = {"zh"};
         o.min_language_score = 0.9;
       },
       "我们今天去公园散步 walking there", "language\tzh 0.6923"},
      {"min_tokens", [](CleanOptions& o) { o.min_tokens = 11; }, english, "tokens\t10"},
      {"max_tokens", [](CleanOptions& o) { o.max_tokens = 9; }, english, "tokens\t10"},
      {"tokenizer",
       [](CleanOptions& o) {
         o.tokenizer = "byte";
         o.min_tokens = 4;
       },
       "é1", "tokens\t3"},
      {"min_characters", [](CleanOptions& o) { o.min_characters = 3; }, "é1", "characters\t2"},
      {"max_characters", [](CleanOptions& o) { o.max_characters = 1; }, "é1", "characters\t2"},
      {"gopher_quality", [](CleanOptions& o) { o.filters = {"gopher_quality"}; }, english,
       "gopher_words\t9"},
      {"gopher_repetition", [](CleanOptions& o) { o.filters = {"gopher_repetition"}; },
       "the same line\nthe same line\nthe same line\n", "gopher_duplicate_lines\t0.6667"},
      {"c4", [](CleanOptions& o) { o.filters = {"c4"}; }, Sentences(2), "c4_sentences\t2"},
      {"bad_words",
       [](CleanOptions& o) {
         o.bad_words = testing::TempDir() + "/words";
         std::ofstream(o.bad_words) << "Stove\r\n\n";
       },
       english, "bad_words\tstove"},
  };
  for (const Case& c : cases) {
    CleanOptions options = Plain();
    EXPECT_EQ(Clean(options, c.text).dropped, "") << c.name;
    c.set(options);
    EXPECT_EQ(Clean(options, c.text).dropped, Concat("a\t", c.dropped, "\n")) << c.name;
  }
  // Unless told otherwise: 128 tokens and 512 characters.
  EXPECT_EQ(Clean({}, std::string(511, 'x')).dropped, "a\tcharacters\t511\n");
  EXPECT_EQ(Clean({}, std::string(512, 'x')).dropped, "a\ttokens\t1\n");
}

TEST(CleanTest, KeepsAndDropsDataSets) {
  const std::string root = testing::TempDir() + "/data_sets";
  std::filesystem::remove_all(root);
  std::filesystem::create_directories(root);
  std::ofstream(root + "/in.jsonl")
      << R"({"id": 1, "text": "x", "dataset": "stories"})"
      << "\n"
      << R"({"id": 2, "text": "x", "dataset": "realnews", "meta": {"set": {"n": 7}}})"
      << "\n"
      << R"({"id": 3, "text": "x", "meta": {"set": {"n": 8}}})"
      << "\n";
  const auto dropped = [&](const char* key, std::vector<std::string> keep,
                           std::vector<std::string> drop) {
    CleanOptions options = Plain();
    options.key = key;
    options.keep = std::move(keep);
    options.drop = std::move(drop);
    options.input = {root + "/in.jsonl"};
    options.output = root + "/out.jsonl";
    options.dropped = root + "/dropped.tsv";
    options.overwrite = true;
    const auto counts = RunClean(options, {});
    return counts.ok() ? *ReadFile(options.dropped) : Message(counts.status());
  };
  EXPECT_EQ(dropped("dataset", {}, {"stories", "books"}), "1\tkey\tdataset=stories\n");
  EXPECT_EQ(dropped("dataset", {}, {"stories, realnews"}),
            "1\tkey\tdataset=stories\n2\tkey\tdataset=realnews\n");
  EXPECT_EQ(dropped("dataset", {"stories,realnews"}, {}), "3\tkey\tdataset=\n");
  EXPECT_EQ(dropped("dataset", {"stories,realnews"}, {"realnews"}),
            "2\tkey\tdataset=realnews\n3\tkey\tdataset=\n");
  EXPECT_EQ(dropped("dataset", {","}, {}),
            "1\tkey\tdataset=stories\n2\tkey\tdataset=realnews\n3\tkey\tdataset=\n");
  EXPECT_EQ(dropped("meta.set.n", {"7"}, {}), "1\tkey\tmeta.set.n=\n3\tkey\tmeta.set.n=8\n");
  EXPECT_EQ(dropped("", {}, {"a"}), "clean: 'drop' needs 'key', the member with these values");
  EXPECT_EQ(dropped("dataset", {}, {}), "clean: 'key' needs 'keep' or 'drop', values of dataset");
}

TEST(CleanTest, AnotherListOfBadWordsIsAnotherRun) {
  const std::string root = testing::TempDir() + "/word_lists";
  std::filesystem::remove_all(root);
  std::filesystem::create_directories(root);
  std::ofstream(root + "/in.txt") << "one two\nthree\n";
  CleanOptions options = Plain();
  options.input = {root + "/in.txt"};
  options.output = root + "/out.txt";
  options.bad_words = root + "/words";
  for (const auto& [words, left] :
       {std::pair{"three", "one two\n"}, {"one", "three\n"}, {"one two", "three\n"}}) {
    std::ofstream(options.bad_words) << words;
    const auto counts = RunClean(options, {});
    ASSERT_TRUE(counts.ok()) << Message(counts.status());
    EXPECT_EQ(*ReadFile(options.output), left) << words;
  }
}

TEST(CleanTest, MendsAndTags) {
  const std::string broken = "schÃ¶n &amp; gut\r\nﬁn e\u0301 Ａ";
  CleanOptions options = Plain();
  EXPECT_EQ(Clean(options, broken).document["text"], "schön & gut\nfin é A");
  options.normal_form = "none";
  EXPECT_EQ(Clean(options, broken).document["text"], "schön & gut\nfin e\u0301 A");
  options.normal_form = "nfkc";
  EXPECT_EQ(Clean(options, "x²").document["text"], "x2");
  options.repair = false;
  EXPECT_EQ(Clean(options, broken).document["text"], broken);
  options.tag = true;
  const json document =
      Clean(options, "Zwei Männer stehen am Herd und bereiten Essen zu.").document;
  EXPECT_EQ(document["language"], "de");
  EXPECT_GT(document["language_score"], 0.99);
}

TEST(CleanTest, C4TakesLinesOut) {
  CleanOptions options = Plain();
  options.filters = {"c4"};
  EXPECT_EQ(Clean(options, "Home\n" + Sentences(6) + "We use cookies on this page.\n")
                    .document["text"]
                    .get<std::string>() +
                "\n",
            Sentences(6));
}

}  // namespace
}  // namespace tessera::corpus
