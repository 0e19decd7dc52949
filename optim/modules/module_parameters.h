// SPDX-License-Identifier: Apache-2.0
// The parameters of modules, as an optimizer takes them.
//
//   optim::AdamW optimizer({{.parameters = optim::ParametersOf(net)}}, {.lr = 1e-3});
#ifndef TESSERA_OPTIM_MODULES_MODULE_PARAMETERS_H_
#define TESSERA_OPTIM_MODULES_MODULE_PARAMETERS_H_

#include <vector>

#include "nn/module.h"
#include "optim/parameter.h"

namespace tessera::optim {

// Those that train, in the module's order. A weight with several uses (nn::Parameter::tied_to) is
// one parameter, whose other uses are its `tied` leaves: their gradients are added up.
std::vector<Parameter> ParametersOf(const std::vector<nn::Parameter*>& parameters);
std::vector<Parameter> ParametersOf(nn::Module& module);

// Where their elements are: a quantised one, which has none of its own, is on meta wherever the
// model is. Without parameters, the CPU.
Device DeviceOf(const std::vector<nn::Parameter*>& parameters);

}  // namespace tessera::optim

#endif  // TESSERA_OPTIM_MODULES_MODULE_PARAMETERS_H_
