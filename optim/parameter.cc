// SPDX-License-Identifier: Apache-2.0
#include "optim/parameter.h"

#include <utility>

#include "autograd/autograd.h"

namespace tessera::optim {

Placement PlacementOf(const Parameter& parameter) {
  const Placement& placement = parameter.placement;
  const bool given = placement.global_shape().ndim() > 0 || !placement.boxes().empty();
  return given ? placement : Placement::Whole(parameter.tensor.shape());
}

Tensor GradOrNone(const Tensor& leaf) { return IsLeaf(leaf) ? Grad(leaf) : Tensor(); }

Tensor SumOfUses(std::vector<Tensor> gradients, bool in_tree) {
  const auto add = [&](size_t to, size_t from) {
    if (!gradients[from].defined()) return;
    if (gradients[to].defined()) {
      AddInto(gradients[to], gradients[from]);
    } else {
      gradients[to] = gradients[from];
    }
  };
  const size_t n = gradients.size();
  if (in_tree) {
    for (size_t stride = 1; stride < n; stride *= 2) {
      for (size_t i = 0; i + stride < n; i += 2 * stride) add(i, i + stride);
    }
  } else {
    for (size_t i = 1; i < n; ++i) add(0, i);
  }
  return gradients.front();
}

void JoinTiedGradients(const std::vector<Parameter>& parameters) {
  for (const Parameter& parameter : parameters) {
    if (parameter.tied.empty()) continue;
    // A use that was frozen since has none, and a frozen parameter takes none.
    std::vector<Tensor> gradients = {GradOrNone(parameter.tensor)};
    for (const Tensor& tied : parameter.tied) gradients.push_back(GradOrNone(tied));
    const Tensor sum = SumOfUses(std::move(gradients), parameter.adds_in_tree);
    if (IsLeaf(parameter.tensor)) SetGrad(parameter.tensor, sum);
    for (const Tensor& tied : parameter.tied) {
      if (IsLeaf(tied)) SetGrad(tied, Tensor());
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
