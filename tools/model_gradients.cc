// SPDX-License-Identifier: Apache-2.0
#include "tools/model_gradients.h"

#include "autograd/autograd.h"

namespace tessera::tools {

std::vector<std::pair<std::string, Tensor>> CollectGradients(models::Model& model) {
  std::vector<std::pair<std::string, Tensor>> gradients;
  const std::vector<nn::Parameter*> parameters = model.Parameters();
  for (const nn::Parameter* p : parameters) {
    if (p->tied_to != nullptr || !p->can_train) continue;
    const Tensor sum = Zeros(p->tensor.shape(), GradDType(p->tensor), p->tensor.device());
    for (const nn::Parameter* use : parameters) {
      if (use != p && use->tied_to != p) continue;
      const Tensor grad = Grad(use->tensor);
      if (grad.defined()) AddInto(sum, grad);
    }
    gradients.emplace_back(p->name, sum);
  }
  return gradients;
}

}  // namespace tessera::tools
