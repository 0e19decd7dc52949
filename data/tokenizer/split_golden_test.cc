// SPDX-License-Identifier: Apache-2.0
// Regular expressions of Split against the pieces of Hugging Face's tokenizers
// (testdata/split_goldens.json, made by make_split_goldens.py).
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json_text.h"
#include "data/tokenizer/pipeline_splitter.h"
#include "nlohmann/json.hpp"

namespace tessera::data {
namespace {

using nlohmann::json;

json Goldens() {
  const auto text = ReadFile("data/tokenizer/testdata/split_goldens.json");
  EXPECT_TRUE(text.ok()) << text.status();
  return json::parse(*text);
}

StatusOr<PipelineSplitter> SplitterOf(const std::string& pattern, const std::string& behavior,
                                      bool invert) {
  const json part = {{"type", "Split"},
                     {"pattern", {{"Regex", pattern}}},
                     {"behavior", behavior},
                     {"invert", invert}};
  return PipelineSplitter::Parse(JsonPart(part, "test"));
}

std::vector<std::string> PiecesOf(const PipelineSplitter& splitter, const std::string& text) {
  std::vector<std::string> pieces;
  splitter.ForEachWord(text, /*at_begin=*/true,
                       [&](std::string_view piece) { pieces.emplace_back(piece); });
  return pieces;
}

std::string HashOf(const PipelineSplitter& splitter, const std::vector<std::string>& texts) {
  uint64_t hash = 0xCBF29CE484222325;
  const auto add = [&](std::string_view bytes) {
    for (const char byte : bytes) hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001B3;
  };
  for (const std::string& text : texts) {
    for (const std::string& piece : PiecesOf(splitter, text)) add(piece + "\x1F");
    add("\x1E");
  }
  char hex[17] = {};
  std::snprintf(hex, sizeof(hex), "%016lx", static_cast<unsigned long>(hash));
  return hex;
}

TEST(SplitGoldenTest, PatternsMeanWhatTheyMeanInTokenizers) {
  const json goldens = Goldens();
  const auto texts = goldens["texts"].get<std::vector<std::string>>();
  EXPECT_GE(texts.size(), 40u);
  EXPECT_GE(goldens["patterns"].size(), 300u);
  for (const auto& [pattern, hash] : goldens["patterns"].items()) {
    SCOPED_TRACE(pattern);
    const auto splitter = SplitterOf(pattern, "Isolated", false);
    ASSERT_EQ(splitter.ok(), !hash.is_null()) << splitter.status();
    if (!splitter.ok()) continue;
    EXPECT_EQ(HashOf(*splitter, texts), hash);
  }
}

TEST(SplitGoldenTest, EmptyMatchesSplitInEveryWay) {
  const json goldens = Goldens();
  const std::string text = goldens["behaviors_of"];
  EXPECT_GE(goldens["behaviors"].size(), 40u);
  for (const json& row : goldens["behaviors"]) {
    const auto splitter = SplitterOf(row[0], row[1], row[2]);
    ASSERT_TRUE(splitter.ok()) << splitter.status();
    EXPECT_EQ(PiecesOf(*splitter, text), row[3].get<std::vector<std::string>>()) << row;
  }
}

}  // namespace
}  // namespace tessera::data
