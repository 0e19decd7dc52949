// SPDX-License-Identifier: Apache-2.0
// The tables of docs/models/*.md against the models: every parameter count, and every preset of a
// family that has a page.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <string>

#include "models/family.h"
#include "models/model.h"

namespace tessera::models {
namespace {

// Presets and their counts, from rows like "| `bert-tiny` | 2 | ... | 4,416,698 |".
std::map<std::string, int64_t> ReadTables(const std::filesystem::path& folder) {
  static const std::regex kRow(R"(^\| `([^`]+)` \|.* ([0-9,]+)( with bytes)? \|$)");
  std::map<std::string, int64_t> counts;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".md") continue;
    std::ifstream in(entry.path());
    std::string line;
    std::smatch match;
    while (std::getline(in, line)) {
      if (!std::regex_match(line, match, kRow)) continue;
      std::string digits = match[2];
      std::erase(digits, ',');
      EXPECT_TRUE(counts.emplace(match[1], std::stoll(digits)).second) << match[1];
    }
  }
  return counts;
}

TEST(ModelPagesTest, CountsAreTheModels) {
  const std::map<std::string, int64_t> counts = ReadTables("docs/models");
  EXPECT_GE(counts.size(), 19u);
  for (const auto& [name, count] : counts) {
    const Preset* preset = FindPreset(name);
    ASSERT_NE(preset, nullptr) << name;
    const auto model = BuildModel(preset->config, {.device = Device::Meta(), .initialise = false});
    ASSERT_TRUE(model.ok()) << name << ": " << Message(model.status());
    EXPECT_EQ((*model)->ParameterCount(), count) << name;
  }
}

TEST(ModelPagesTest, NoPresetOfAPageIsMissing) {
  const std::map<std::string, int64_t> counts = ReadTables("docs/models");
  for (const Family& family : Families()) {
    const auto listed = [&](const Preset& p) { return counts.count(p.name) > 0; };
    if (std::none_of(family.presets.begin(), family.presets.end(), listed)) continue;
    for (const Preset& preset : family.presets) EXPECT_TRUE(listed(preset)) << preset.name;
  }
}

}  // namespace
}  // namespace tessera::models
