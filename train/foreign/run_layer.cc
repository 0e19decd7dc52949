// SPDX-License-Identifier: Apache-2.0
#include "train/foreign/run_layer.h"

#include <algorithm>
#include <vector>

#include "nlohmann/json.hpp"

namespace tessera::train {
namespace {

// The keys of a run that a verdict's key became: "tp", or "cpu_offload, offload_parameters".
std::vector<std::string> Became(const KeyVerdict& verdict) {
  if (verdict.fate == KeyFate::kHonoured) return {verdict.key};
  if (verdict.fate != KeyFate::kTranslated) return {};
  return KeysOf(verdict.reason);
}

}  // namespace

void RunLayer::ApplyTo(RunConfig* config) {
  for (const auto& [key, value] : given.keys->items()) {
    if (FindRunConfigKey(key) == nullptr) continue;  // "deepspeed", "resume"
    const std::string where = Concat(source, ": '", key, "'");
    const Status set = SetRunConfigKey(config, key, value, where);
    if (!set.ok()) given.verdicts.push_back({key, KeyFate::kRefused, Message(set), set});
  }
}

void RunLayer::Judge(const std::set<std::string>& keys, KeyFate fate, const std::string& reason) {
  for (KeyVerdict& verdict : given.verdicts) {
    const std::vector<std::string> ours = Became(verdict);
    const bool all = std::all_of(ours.begin(), ours.end(),
                                 [&](const std::string& key) { return keys.count(key) > 0; });
    if (ours.empty() || !all) continue;
    const std::string& key = *keys.begin();
    if (fate == KeyFate::kRefused) {
      verdict.failure = InvalidArgument(key, " is set, which ", reason);
    }
    verdict.fate = fate;
    verdict.reason = reason;
  }
}

void RunLayer::JudgeName(const std::string& name, KeyFate fate, const std::string& reason) {
  for (KeyVerdict& verdict : given.verdicts) {
    if (verdict.key != name) continue;
    verdict.fate = fate;
    verdict.reason = reason;
  }
}

bool RunLayer::Says(const std::string& name) const {
  return std::any_of(given.verdicts.begin(), given.verdicts.end(), [&](const KeyVerdict& v) {
    return v.key == name && (v.fate == KeyFate::kHonoured || v.fate == KeyFate::kTranslated);
  });
}

bool RunLayer::Has(const std::string& key) const { return given.keys->contains(key); }

std::optional<int64_t> RunLayer::Integer(const std::string& key) const {
  const auto found = given.keys->find(key);
  if (found == given.keys->end() || !found->is_number()) return std::nullopt;
  return found->get<int64_t>();
}

}  // namespace tessera::train
