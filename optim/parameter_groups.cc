// SPDX-License-Identifier: Apache-2.0
#include "optim/parameter_groups.h"

#include <algorithm>

namespace tessera::optim {
namespace {

bool MatchesAny(const std::string& name, const std::vector<std::string>& patterns) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return MatchesPattern(name, pattern); });
}

bool Decays(const Parameter& parameter, const DecayOptions& options) {
  if (MatchesAny(parameter.name, options.no_decay)) return false;
  if (MatchesAny(parameter.name, options.decay)) return true;
  if (MatchesAny(parameter.name, {"*relative_attention_bias*"})) return false;
  if (MatchesAny(parameter.name, {"*lora_magnitude_vector*"})) return true;
  return parameter.tensor.ndim() >= 2;
}

}  // namespace

// Greedy with one point to come back to: linear in practice, never exponential.
bool MatchesPattern(std::string_view name, std::string_view pattern) {
  size_t n = 0;
  size_t p = 0;
  size_t star = std::string_view::npos;
  size_t star_n = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_n = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++star_n;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

std::vector<ParameterGroup> GroupBy(const std::vector<Parameter>& parameters,
                                    const std::vector<GroupRule>& rules) {
  std::vector<ParameterGroup> groups;
  for (const GroupRule& rule : rules) {
    groups.push_back({.parameters = {},
                      .weight_decay = rule.weight_decay,
                      .lr_scale = rule.lr_scale,
                      .name = rule.name});
  }
  for (const Parameter& parameter : parameters) {
    const auto rule = std::find_if(rules.begin(), rules.end(), [&](const GroupRule& r) {
      return r.takes == nullptr || r.takes(parameter);
    });
    TESSERA_CHECK(rule != rules.end(), "group_by", "no rule takes parameter '", parameter.name,
                  "'; a last rule without `takes` has the rest");
    groups[static_cast<size_t>(rule - rules.begin())].parameters.push_back(parameter);
  }
  std::erase_if(groups, [](const ParameterGroup& group) { return group.parameters.empty(); });
  return groups;
}

std::vector<ParameterGroup> SplitByDecay(const std::vector<Parameter>& parameters,
                                         double weight_decay,
                                         const std::function<bool(const Parameter&)>& decays) {
  return GroupBy(parameters, {{.name = "decay", .takes = decays, .weight_decay = weight_decay},
                              {.name = "no_decay", .takes = nullptr}});
}

std::vector<ParameterGroup> SplitByDecay(const std::vector<Parameter>& parameters,
                                         const DecayOptions& options) {
  return SplitByDecay(parameters, options.weight_decay,
                      [&](const Parameter& parameter) { return Decays(parameter, options); });
}

}  // namespace tessera::optim
