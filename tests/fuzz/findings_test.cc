// SPDX-License-Identifier: Apache-2.0
// Every reader over its seeds and over what the fuzzer once found (findings/<target>/).
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz_target.h"

namespace tessera::fuzz {
namespace {

class FindingsTest : public testing::TestWithParam<FuzzTarget> {};

TEST_P(FindingsTest, EndInAStatus) {
  const FuzzTarget& target = GetParam();
  std::vector<std::string> inputs = target.seeds();
  ASSERT_FALSE(inputs.empty()) << "a target needs a seed";
  for (size_t i = 0; i < inputs.size(); ++i) {
    EXPECT_TRUE(target.run(inputs[i])) << "seed " << i << " is refused";
  }
  const std::string folder = "tests/fuzz/findings/" + target.name;
  if (std::filesystem::exists(folder)) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      inputs.push_back(FileOf(entry.path().string()));
    }
  }
  for (const std::string& input : inputs) {
    const auto begin = std::chrono::steady_clock::now();
    target.run(input);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
    // Cut off, and with a byte changed here and there.
    target.run(std::string_view(input).substr(0, input.size() / 2));
    for (size_t i = 0; i < input.size(); i += 1 + input.size() / 8) {
      std::string changed = input;
      changed[i] = static_cast<char>(changed[i] ^ 0x21);
      target.run(changed);
    }
  }
}

// Made inputs are worth their time where readers do not refuse them at once.
TEST_P(FindingsTest, MadeInputsCanMostlyBeRead) {
  const FuzzTarget& target = GetParam();
  if (target.make == nullptr) GTEST_SKIP() << "the target makes none";
  constexpr int kInputs = 400;
  std::set<std::string> different;
  int readable = 0;
  for (int seed = 0; seed < kInputs; ++seed) {
    const std::string input = target.make(seed);
    EXPECT_EQ(input, target.make(seed)) << "the seed decides";
    different.insert(input);
    readable += target.run(input) ? 1 : 0;
  }
  EXPECT_GT(different.size(), kInputs / 2u);
  EXPECT_GT(readable, kInputs / 2);
  EXPECT_LT(readable, kInputs) << "nothing is ever wrong with them";
}

INSTANTIATE_TEST_SUITE_P(Targets, FindingsTest, testing::ValuesIn(FuzzTargets()),
                         [](const auto& info) { return info.param.name; });

// A folder of findings without a target would never be looked at.
TEST(FindingsFolderTest, BelongsToTargets) {
  for (const auto& entry : std::filesystem::directory_iterator("tests/fuzz/findings")) {
    if (!entry.is_directory()) continue;
    EXPECT_NE(FindFuzzTarget(entry.path().filename().string()), nullptr) << entry.path();
  }
}

}  // namespace
}  // namespace tessera::fuzz
