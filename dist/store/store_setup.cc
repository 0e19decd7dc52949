// SPDX-License-Identifier: Apache-2.0
#include "dist/store/store_setup.h"

namespace tessera::dist {
namespace {

Tensor At(const Tensor& t, const Device& device) {
  if (!t.defined() || t.device() == device) return t;
  return t.device().is_meta() && !device.is_meta() ? Tensor() : CopyTo(t, device);
}

}  // namespace

StoreGroups StoreGroupsOf(const Mesh& mesh) {
  return {.data = mesh.dp(), .tensor = mesh.tp(), .experts = mesh.ep(), .expert_data = mesh.edp()};
}

optim::StepInputs InputsAt(const optim::StepInputs& inputs, const Device& device) {
  return {At(inputs.clip_factor, device), At(inputs.loss_scale, device),
          At(inputs.found_inf, device)};
}

}  // namespace tessera::dist
