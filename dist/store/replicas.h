// SPDX-License-Identifier: Apache-2.0
// What ranks that hold the same parameters must agree on.
//
//   BroadcastParameters(model.Parameters(), ranks);   // before the first step
//   SumPartialGradients(model.Parameters());              // after each step's last micro-batch
#ifndef TESSERA_DIST_STORE_REPLICAS_H_
#define TESSERA_DIST_STORE_REPLICAS_H_

#include <vector>

#include "dist/store/store_setup.h"
#include "nn/module.h"

namespace tessera::dist {

// Gives every rank that holds a parameter, frozen ones too, the numbers of the first such rank.
void BroadcastParameters(const std::vector<nn::Parameter*>& parameters, const StoreGroups& ranks);

// Sums the gradients of parameters that each rank of a tensor-parallel group has seen a part of
// (norms and biases under sequence parallelism: nn::Parameter::gradient_group), in one message per
// group and dtype.
void SumPartialGradients(const std::vector<nn::Parameter*>& parameters);

}  // namespace tessera::dist

#endif  // TESSERA_DIST_STORE_REPLICAS_H_
