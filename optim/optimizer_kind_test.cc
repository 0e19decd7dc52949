// SPDX-License-Identifier: Apache-2.0
#include "optim/optimizer_kind.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "optim/testing/optimizer_check.h"

namespace tessera::optim {
namespace {

TEST(OptimizerKindTest, KnowsThoseThatAreLinkedIn) {
  const std::vector<std::string> names = OptimizerNames();
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  for (const char* name : {"adafactor", "adam", "adamw", "lamb", "lion", "muon", "sgd"}) {
    EXPECT_TRUE(std::binary_search(names.begin(), names.end(), name)) << name;
  }
  for (const std::string& name : OptimizerNames()) {
    const auto kind = FindOptimizerKind(name);
    ASSERT_TRUE(kind.ok());
    EXPECT_EQ((*kind)->name, name);
    EXPECT_FALSE((*kind)->help.empty());
  }
  const std::string unknown = Message(FindOptimizerKind("adamv").status());
  EXPECT_EQ(unknown.rfind("unknown optimizer 'adamv'; known: adafactor, adam, adamw, ", 0), 0u);
  EXPECT_NE(unknown.find("did you mean 'adam'?"), std::string::npos);
}

TEST(OptimizerKindTest, OptionsAreChecked) {
  const auto configure = [](const std::string& name, const nlohmann::json& options) {
    return Message((*FindOptimizerKind(name))->Configure(options, "run.json").status());
  };
  EXPECT_EQ(configure("adamw", {{"beta", {0.9, 0.95}}}),
            "run.json: unknown key 'beta'; did you mean 'betas'?");
  EXPECT_NE(configure("lion", {{"betas", {0.9, 1.5}}}).find("'betas'"), std::string::npos);
  EXPECT_NE(configure("lion", {{"momentum", 0.9}}).find("unknown key 'momentum'"),
            std::string::npos);
}

TEST(OptimizerKindTest, PlacementsOfStates) {
  const Placement placement = Placement::Split({6, 4}, 0, {{6, 2, 3}});
  const Parameter p{.name = "w", .tensor = Zeros({3, 4}), .placement = placement};
  EXPECT_EQ(StatePlacement(StateShape::kElementwise, p).boxes()[0].global,
            placement.boxes()[0].global);
  EXPECT_EQ(StatePlacement(StateShape::kPerRow, p).local_shape(), (Shape{6}));
  EXPECT_EQ(StatePlacement(StateShape::kPerColumn, p).local_shape(), (Shape{4}));
  EXPECT_EQ(StatePlacement(StateShape::kScalar, p).local_shape(), Shape{});
}

// The others do so in tests of their own.
TEST(OptimizerKindTest, ConductOfTheOldOnes) {
  CheckConduct("adam");
  CheckConduct("adamw", {{"betas", {0.8, 0.9}}});
  CheckConduct("sgd");
  CheckConduct("sgd", {{"momentum", 0.9}, {"nesterov", true}});
}

}  // namespace
}  // namespace tessera::optim
