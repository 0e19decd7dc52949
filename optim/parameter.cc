// SPDX-License-Identifier: Apache-2.0
#include "optim/parameter.h"

#include "autograd/autograd.h"

namespace tessera::optim {

Placement PlacementOf(const Parameter& parameter) {
  const Placement& placement = parameter.placement;
  const bool given = placement.global_shape().ndim() > 0 || !placement.boxes().empty();
  return given ? placement : Placement::Whole(parameter.tensor.shape());
}

Tensor GradOrNone(const Tensor& leaf) { return IsLeaf(leaf) ? Grad(leaf) : Tensor(); }

void JoinTiedGradients(const std::vector<Parameter>& parameters) {
  for (const Parameter& parameter : parameters) {
    for (const Tensor& tied : parameter.tied) {
      const Tensor more = GradOrNone(tied);
      if (!more.defined()) continue;
      const Tensor sum = Grad(parameter.tensor);
      if (sum.defined()) {
        AddInto(sum, more);
      } else {
        SetGrad(parameter.tensor, more);
      }
      SetGrad(tied, Tensor());
    }
  }
}

void ZeroGrad(const std::vector<Parameter>& parameters, ZeroGradMode mode) {
  const auto clear = [mode](const Tensor& leaf) {
    const Tensor grad = GradOrNone(leaf);
    if (!grad.defined()) return;
    if (mode == ZeroGradMode::kRelease) {
      SetGrad(leaf, Tensor());
    } else {
      Fill(grad, 0);
    }
  };
  for (const Parameter& parameter : parameters) {
    clear(parameter.tensor);
    for (const Tensor& tied : parameter.tied) clear(tied);
  }
}

std::vector<Parameter> AllParameters(const std::vector<ParameterGroup>& groups) {
  std::vector<Parameter> all;
  for (const ParameterGroup& group : groups) {
    all.insert(all.end(), group.parameters.begin(), group.parameters.end());
  }
  return all;
}

Device CommonDevice(const std::vector<Parameter>& parameters) {
  if (parameters.empty()) return Device::Cpu();
  const Device& device = parameters.front().tensor.device();
  for (const Parameter& parameter : parameters) {
    TESSERA_CHECK(parameter.tensor.device() == device, "optim", "'", parameter.name, "' is on ",
                  parameter.tensor.device(), ", '", parameters.front().name, "' on ", device);
  }
  return device;
}

}  // namespace tessera::optim
