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
