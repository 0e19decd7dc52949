// SPDX-License-Identifier: Apache-2.0
// The parameters of modules, as an optimizer takes them.
#ifndef TESSERA_DIST_STORE_OPTIMIZED_PARAMETERS_H_
#define TESSERA_DIST_STORE_OPTIMIZED_PARAMETERS_H_

#include <vector>

#include "nn/module.h"
#include "optim/parameter.h"

namespace tessera::dist {

// Those that train, in order, tied ones with their leaves.
std::vector<optim::Parameter> OptimizedParameters(const std::vector<nn::Parameter*>& parameters);
std::vector<optim::Parameter> OptimizedParameters(nn::Module& model);

// Where their elements are: a quantised one, which has none of its own, is on meta wherever the
// model is. Without parameters, the CPU.
Device DeviceOf(const std::vector<nn::Parameter*>& parameters);

}  // namespace tessera::dist

#endif  // TESSERA_DIST_STORE_OPTIMIZED_PARAMETERS_H_
