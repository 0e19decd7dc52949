#include "optim/sgd.h"

#include <string>
#include <utility>

namespace tessera::optim {
namespace {

std::vector<std::string> StateNames(const SgdOptions& options) {
  if (options.momentum == 0) return {};
  return {"momentum"};
}

}  // namespace

Sgd::Sgd(std::vector<ParameterGroup> groups, const SgdOptions& options)
    : MultiTensorOptimizer(std::move(groups), options.lr, StateNames(options)), options_(options) {
  TESSERA_CHECK(options.momentum >= 0 && options.momentum < 1, "sgd", "momentum ", options.momentum,
                " is not in [0, 1)");
  TESSERA_CHECK(!options.nesterov || options.momentum > 0, "sgd", "nesterov without momentum");
}

void Sgd::Update(const Device& device, const std::vector<UpdateTensor>& tensors,
                 const UpdateScalars& scalars) {
  sgd_update.Launch(device, {tensors, scalars, options_.momentum, options_.nesterov});
}

}  // namespace tessera::optim
