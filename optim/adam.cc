#include "optim/adam.h"

#include <utility>

namespace tessera::optim {

Adam::Adam(std::vector<ParameterGroup> groups, const AdamOptions& options)
    : Adam(std::move(groups), options, /*decoupled=*/false) {}

Adam::Adam(std::vector<ParameterGroup> groups, const AdamOptions& options, bool decoupled)
    : MultiTensorOptimizer(std::move(groups), options.lr, {"exp_avg", "exp_avg_sq"}),
      options_(options),
      decoupled_(decoupled) {
  TESSERA_CHECK(options.beta1 >= 0 && options.beta1 < 1 && options.beta2 >= 0 && options.beta2 < 1,
                "adam", "betas ", options.beta1, " and ", options.beta2, " are not in [0, 1)");
  TESSERA_CHECK(options.eps >= 0, "adam", "eps is ", options.eps);
}

void Adam::Update(const Device& device, const std::vector<UpdateTensor>& tensors,
                  const UpdateScalars& scalars) {
  adam_update.Launch(device,
                     {tensors, scalars, options_.beta1, options_.beta2, options_.eps, decoupled_});
}

AdamW::AdamW(std::vector<ParameterGroup> groups, const AdamOptions& options)
    : Adam(std::move(groups), options, /*decoupled=*/true) {}

}  // namespace tessera::optim
