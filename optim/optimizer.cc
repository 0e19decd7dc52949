// SPDX-License-Identifier: Apache-2.0
#include "optim/optimizer.h"

namespace tessera::optim {

std::string StateName(const std::string& parameter, const std::string& state) {
  return parameter.empty() ? state : parameter + "." + state;
}

void Optimizer::ZeroGrad(ZeroGradMode mode) {
  for (const ParameterGroup& group : groups()) optim::ZeroGrad(group.parameters, mode);
}

int64_t Optimizer::step_count() const {
  const Tensor count = step();
  return count.device().is_meta() ? 0 : count.ToVector<int64_t>()[0];
}

std::map<std::string, Tensor> Optimizer::StateDict() const {
  std::map<std::string, Tensor> states;
  VisitState([&](const std::string& parameter, const std::string& state, const Tensor& t,
                 const Placement&) { states.emplace(StateName(parameter, state), t); });
  return states;
}

Status Optimizer::LoadStateDict(const std::map<std::string, Tensor>& state) {
  const std::map<std::string, Tensor> own = StateDict();
  for (const auto& [name, t] : own) {
    const auto found = state.find(name);
    if (found == state.end()) return NotFound("optimizer state '", name, "' is missing");
    const Tensor& given = found->second;
    if (!given.defined() || given.shape() != t.shape() || given.dtype() != t.dtype()) {
      return InvalidArgument("optimizer state '", name, "' is ", given, ", expected ", t.dtype(),
                             t.shape());
    }
  }
  for (const auto& entry : state) {
    if (own.find(entry.first) == own.end()) {
      return InvalidArgument("optimizer state '", entry.first, "' is unknown to this optimizer");
    }
  }
  for (const auto& [name, t] : own) CopyInto(t, state.at(name));
  return OkStatus();
}

}  // namespace tessera::optim
