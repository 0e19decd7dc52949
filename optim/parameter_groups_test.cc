// SPDX-License-Identifier: Apache-2.0
#include "optim/parameter_groups.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "autograd/autograd.h"

namespace tessera::optim {
namespace {

TEST(ParameterGroupsTest, BiasesAndNormsDoNotDecay) {
  const auto leaf = [](const Shape& shape) { return RequireGrad(Zeros(shape)); };
  const std::vector<Parameter> parameters = {{"wte.weight", leaf({4, 3}), {}},
                                             {"h.0.ln_1.weight", leaf({3}), {}},
                                             {"h.0.attn.weight", leaf({3, 9}), {}},
                                             {"h.0.attn.bias", leaf({9}), {}}};
  const auto names = [](const ParameterGroup& group) {
    std::vector<std::string> out;
    for (const Parameter& p : group.parameters) out.push_back(p.name);
    return out;
  };
  auto groups = SplitByDecay(parameters, {.weight_decay = 0.1});
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].weight_decay, 0.1);
  EXPECT_EQ(groups[1].weight_decay, 0);
  EXPECT_EQ(groups[1].name, "no_decay");
  EXPECT_EQ(names(groups[0]), (std::vector<std::string>{"wte.weight", "h.0.attn.weight"}));
  EXPECT_EQ(names(groups[1]), (std::vector<std::string>{"h.0.ln_1.weight", "h.0.attn.bias"}));
  groups = SplitByDecay(parameters, {.weight_decay = 0.1, .no_decay = {"wte.*"}, .decay = {"*"}});
  EXPECT_EQ(names(groups[1]), std::vector<std::string>{"wte.weight"});
  EXPECT_EQ(names(groups[0]).size(), 3u);
  EXPECT_EQ(SplitByDecay({parameters[0]}, {.weight_decay = 0.1}).size(), 1u);
}

// As get_decay_parameter_names of transformers.Trainer.
TEST(ParameterGroupsTest, NamesThatGoBeforeTheDimensions) {
  const std::string table = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight";
  const std::string magnitude = "model.layers.0.mlp.down_proj.lora_magnitude_vector";
  const std::vector<Parameter> parameters = {{table, RequireGrad(Zeros({8, 2})), {}},
                                             {magnitude, RequireGrad(Zeros({4})), {}}};
  auto groups = SplitByDecay(parameters, {.weight_decay = 0.1});
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].weight_decay, 0.1);
  EXPECT_EQ(groups[0].parameters[0].name, magnitude);
  EXPECT_EQ(groups[1].weight_decay, 0);
  EXPECT_EQ(groups[1].parameters[0].name, table);
  groups = SplitByDecay(parameters, {.weight_decay = 0.1, .no_decay = {"*lora*"}, .decay = {"*"}});
  ASSERT_EQ(groups.size(), 2u) << "names of the caller go before";
  EXPECT_EQ(groups[0].parameters[0].name, table);
  EXPECT_EQ(groups[1].parameters[0].name, magnitude);
}

TEST(ParameterGroupsTest, ByAPredicate) {
  const auto leaf = [](const Shape& shape) { return RequireGrad(Zeros(shape)); };
  const std::vector<Parameter> parameters = {{.name = "wte", .tensor = leaf({4, 3}), .table = true},
                                             {.name = "w", .tensor = leaf({3, 3})},
                                             {.name = "b", .tensor = leaf({3})},
                                             {.name = "w2", .tensor = leaf({3, 3})}};
  const auto names = [](const ParameterGroup& group) {
    std::string out;
    for (const Parameter& p : group.parameters) out += p.name + " ";
    return out;
  };
  auto groups = SplitByDecay(parameters, 0.1,
                             [](const Parameter& p) { return p.tensor.ndim() >= 2 && !p.table; });
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(names(groups[0]), "w w2 ");
  EXPECT_EQ(groups[0].weight_decay, 0.1);
  EXPECT_EQ(names(groups[1]), "wte b ");
  EXPECT_EQ(groups[1].weight_decay, 0);

  std::vector<GroupRule> rules = {
      {.name = "tables", .takes = [](const Parameter& p) { return p.table; }, .lr_scale = 0.1},
      {.name = "none", .takes = [](const Parameter&) { return false; }},
      {.name = "matrices", .takes = [](const Parameter& p) { return p.tensor.ndim() > 1; }}};
  try {
    GroupBy(parameters, rules);
    ADD_FAILURE() << "nobody takes b";
  } catch (const Error& error) {
    EXPECT_NE(error.detail().find("'b'"), std::string::npos) << error.what();
  }
  rules.push_back({.name = "rest", .takes = nullptr, .weight_decay = 0.5});
  groups = GroupBy(parameters, rules);
  ASSERT_EQ(groups.size(), 3u) << "an empty one is left out";
  EXPECT_EQ(names(groups[0]), "wte ");
  EXPECT_EQ(groups[0].lr_scale, 0.1);
  EXPECT_EQ(names(groups[1]), "w w2 ");
  EXPECT_EQ(groups[2].name, "rest");
  EXPECT_EQ(groups[2].weight_decay, 0.5);
}

TEST(ParameterGroupsTest, Patterns) {
  EXPECT_TRUE(MatchesPattern("h.10.ln_1.weight", "h.*.ln_*.weight"));
  EXPECT_TRUE(MatchesPattern("abab", "*ab"));
  EXPECT_TRUE(MatchesPattern("", "*"));
  EXPECT_TRUE(MatchesPattern("bias", "bias"));
  EXPECT_FALSE(MatchesPattern("h.bias", "bias"));
  EXPECT_FALSE(MatchesPattern("bias", "bia"));
  EXPECT_FALSE(MatchesPattern("abac", "*ab"));
  EXPECT_FALSE(MatchesPattern(std::string(5000, 'a'), "*a*a*a*a*a*a*b"));
}

}  // namespace
}  // namespace tessera::optim
