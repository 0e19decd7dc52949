// SPDX-License-Identifier: Apache-2.0
#include "optim/optimizer_kind.h"

#include <utility>

#include "base/nearest_name.h"

namespace tessera::optim {
namespace {

constinit const OptimizerRegistration* last_registered = nullptr;

}  // namespace

OptimizerRegistration::OptimizerRegistration(Make make)
    : make_(make), before_(std::exchange(last_registered, this)) {}

std::map<std::string, OptimizerKind> MakeOptimizerKinds() {
  std::map<std::string, OptimizerKind> kinds;
  for (const auto* r = last_registered; r != nullptr; r = r->before_) {
    OptimizerKind kind = r->make_();
    const std::string name = kind.name;
    TESSERA_CHECK(kinds.emplace(name, std::move(kind)).second, "optimizer", "two are named '", name,
                  "'");
  }
  return kinds;
}

namespace {

const std::map<std::string, OptimizerKind>& Registry() {
  static const auto* const kinds = new std::map<std::string, OptimizerKind>(MakeOptimizerKinds());
  return *kinds;
}

}  // namespace

std::vector<std::string> OptimizerNames() {
  std::vector<std::string> names;
  for (const auto& entry : Registry()) names.push_back(entry.first);
  return names;
}

StatusOr<const OptimizerKind*> FindOptimizerKind(const std::string& name) {
  const auto found = Registry().find(name);
  if (found != Registry().end()) return &found->second;
  std::string known;
  for (const std::string& other : OptimizerNames()) known += (known.empty() ? "" : ", ") + other;
  return InvalidArgument("unknown optimizer '", name, "'; known: ", known,
                         DidYouMean(name, OptimizerNames()));
}

}  // namespace tessera::optim
