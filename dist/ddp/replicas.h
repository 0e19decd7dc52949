// What ranks that hold the same parameters must agree on.
//
//   BroadcastParameters(model, mesh.dp());         // before the first step
//   SumPartialGradients(model);                    // after the last micro-batch of each step
#ifndef TESSERA_DIST_DDP_REPLICAS_H_
#define TESSERA_DIST_DDP_REPLICAS_H_

#include <memory>

#include "core/communicator.h"
#include "nn/module.h"

namespace tessera::dist {

// Every parameter, frozen ones too, becomes that of the group's rank 0.
void BroadcastParameters(nn::Module& model, const std::shared_ptr<Communicator>& group);

// Sums the gradients of parameters that each rank of a tensor-parallel group has seen a part of
// (norms and biases under sequence parallelism: nn::Parameter::gradient_group), in one message per
// group and dtype.
void SumPartialGradients(nn::Module& model);

}  // namespace tessera::dist

#endif  // TESSERA_DIST_DDP_REPLICAS_H_
