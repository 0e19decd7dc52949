#include "optim/optimizer_kind.h"

#include <gtest/gtest.h>

#include "optim/testing/optimizer_check.h"

namespace tessera::optim {
namespace {

TEST(OptimizerKindTest, KnowsThoseThatAreLinkedIn) {
  EXPECT_EQ(OptimizerNames(), (std::vector<std::string>{"adafactor", "adam", "adamw", "lamb",
                                                        "lion", "muon", "sgd"}));
  for (const std::string& name : OptimizerNames()) {
    const auto kind = FindOptimizerKind(name);
    ASSERT_TRUE(kind.ok());
    EXPECT_EQ((*kind)->name, name);
    EXPECT_FALSE((*kind)->help.empty());
  }
  EXPECT_EQ(Message(FindOptimizerKind("adamv").status()),
            "unknown optimizer 'adamv'; known: adafactor, adam, adamw, lamb, lion, muon, sgd; did "
            "you mean 'adam'?");
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
