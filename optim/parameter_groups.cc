// SPDX-License-Identifier: Apache-2.0
#include "optim/parameter_groups.h"

#include <algorithm>
#include <utility>

namespace tessera::optim {
namespace {

bool MatchesAny(const std::string& name, const std::vector<std::string>& patterns) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return MatchesPattern(name, pattern); });
}

bool Decays(const Parameter& parameter, const DecayOptions& options) {
  if (MatchesAny(parameter.name, options.no_decay)) return false;
  if (MatchesAny(parameter.name, options.decay)) return true;
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

std::vector<ParameterGroup> SplitByDecay(const std::vector<Parameter>& parameters,
                                         const DecayOptions& options) {
  ParameterGroup decay{.parameters = {}, .weight_decay = options.weight_decay, .name = "decay"};
  ParameterGroup no_decay{.parameters = {}, .weight_decay = 0, .name = "no_decay"};
  for (const Parameter& parameter : parameters) {
    (Decays(parameter, options) ? decay : no_decay).parameters.push_back(parameter);
  }
  std::vector<ParameterGroup> groups;
  if (!decay.parameters.empty()) groups.push_back(std::move(decay));
  if (!no_decay.parameters.empty()) groups.push_back(std::move(no_decay));
  return groups;
}

}  // namespace tessera::optim
