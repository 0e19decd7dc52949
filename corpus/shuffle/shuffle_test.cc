// SPDX-License-Identifier: Apache-2.0
#include "corpus/shuffle/shuffle.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "base/file.h"
#include "nlohmann/json.hpp"

namespace tessera::corpus {
namespace {

class ShuffleTest : public testing::Test {
 protected:
  ShuffleTest() : root_(testing::TempDir() + "/shuffle") {
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_);
    for (const char* name : {"a", "b"}) {
      std::ofstream out(Path(std::string(name) + ".jsonl"));
      // Twenty MiB, which are several buckets.
      for (int i = 0; i < 1000; ++i) {
        out << "{\"id\": \"" << name << i << "\", \"text\": \"" << std::string(10000, 'x')
            << "\"}\n";
      }
    }
  }
  std::string Path(const std::string& name) const { return root_ + "/" + name; }
  template <typename Options>
  Options With(const std::string& output) const {
    Options options;
    options.input = {Path("a.jsonl"), Path("b.jsonl")};
    options.output = Path(output);
    return options;
  }
  static std::vector<std::string> Lines(const std::string& path) {
    std::vector<std::string> lines;
    std::ifstream in(path);
    for (std::string line; std::getline(in, line);) lines.push_back(line.substr(0, 20));
    return lines;
  }
  const std::string root_;
};

TEST_F(ShuffleTest, IsAPermutationByTheSeed) {
  auto options = With<ShuffleOptions>("out.jsonl");
  const auto counts = RunShuffle(options, {.commit_seconds = 0});
  ASSERT_TRUE(counts.ok()) << Message(counts.status());
  EXPECT_EQ(counts->at("out"), 2000);
  const std::vector<std::string> out = Lines(options.output);
  std::vector<std::string> in = Lines(Path("a.jsonl")), more = Lines(Path("b.jsonl"));
  in.insert(in.end(), more.begin(), more.end());
  EXPECT_NE(out, in);
  EXPECT_TRUE(std::ranges::is_permutation(out, in));
  // Neighbours come from everywhere.
  int same_file = 0;
  for (size_t i = 1; i < out.size(); ++i) same_file += out[i][8] == out[i - 1][8];
  EXPECT_NEAR(same_file, 1000, 100);
  EXPECT_FALSE(PathExists(options.output + ".work"));
  EXPECT_EQ(RunShuffle(options, {})->at("out"), 2000);
  auto other = With<ShuffleOptions>("other.jsonl");
  other.seed = 1;
  ASSERT_TRUE(RunShuffle(other, {}).ok());
  EXPECT_NE(Lines(other.output), out);
}

TEST_F(ShuffleTest, PlainTextIsThatOfTheKey) {
  std::ofstream(Path("body.jsonl")) << R"({"body": "one two", "id": 1})"
                                    << "\n"
                                    << R"({"body": "three", "id": 2})"
                                    << "\n";
  ShuffleOptions options;
  options.input = {Path("body.jsonl")};
  options.output = Path("body.txt");
  options.text_key = "body";
  const auto counts = RunShuffle(options, {});
  ASSERT_TRUE(counts.ok()) << Message(counts.status());
  std::vector<std::string> lines = Lines(options.output);
  std::ranges::sort(lines);
  EXPECT_EQ(lines, (std::vector<std::string>{"one two", "three"}));
}

TEST_F(ShuffleTest, SplitGoesByIds) {
  auto options = With<SplitOptions>("{}.jsonl");
  options.parts = {"train=8", "test=2"};
  const auto counts = RunSplit(options, {});
  ASSERT_TRUE(counts.ok()) << Message(counts.status());
  const std::vector<std::string> train = Lines(Path("train.jsonl")),
                                 test = Lines(Path("test.jsonl"));
  EXPECT_EQ(train.size() + test.size(), 2000u);
  EXPECT_NEAR(static_cast<double>(test.size()), 400, 80);
  // One input alone: the same documents are the test's.
  options.input = {Path("b.jsonl")};
  options.output = Path("{}-b.jsonl");
  ASSERT_TRUE(RunSplit(options, {}).ok());
  for (const std::string& line : Lines(Path("test-b.jsonl"))) {
    EXPECT_TRUE(std::ranges::find(test, line) != test.end());
  }
  for (const char* wrong :
       {"train", "train=", "train=0", "train=-1", "train=inf", "train=nan", "=1"}) {
    options.parts = {wrong, "test=1"};
    EXPECT_EQ(Message(RunSplit(options, {}).status()),
              Concat("split: parts: '", wrong, "' is no NAME=SHARE with a share above 0"));
  }
  options.parts = {"train=8", "test=1", "train=1"};
  EXPECT_EQ(Message(RunSplit(options, {}).status()), "split: parts: 'train' is given twice");
}

TEST_F(ShuffleTest, MixGoesByWeights) {
  auto options = With<MixOptions>("mixed.jsonl");
  options.weights = {0.75, 0.25};
  const auto counts = RunMix(options, {});
  ASSERT_TRUE(counts.ok()) << Message(counts.status());
  EXPECT_EQ(counts->at("of " + Path("a.jsonl")), 1000);
  EXPECT_NEAR(static_cast<double>(counts->at("of " + Path("b.jsonl"))), 333, 60);
  options.documents = 4000;
  options.output = Path("more.jsonl");
  EXPECT_EQ(RunMix(options, {})->at("of " + Path("a.jsonl")), 3000);
  options.weights = {1};
  EXPECT_EQ(RunMix(options, {}).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tessera::corpus
