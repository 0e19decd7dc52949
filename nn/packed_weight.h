// SPDX-License-Identifier: Apache-2.0
// Weights of linear layers beside a copy in the order in which the processor multiplies by them,
// for models that are run many times and do not train.
//
//   PackWeights(*model);      // its outputs have the same bits, sooner for a few dozen rows
//
// A product of few rows takes about as long to bring the weight into that order as to multiply by
// it. The copy takes as much memory as the weight, and is made where the device has such an order
// (the CPU). Where gradients are recorded or the input is of another dtype, the weight itself is
// used.
#ifndef TESSERA_NN_PACKED_WEIGHT_H_
#define TESSERA_NN_PACKED_WEIGHT_H_

#include "nn/module.h"

namespace tessera::nn {

// Of the float32 weights of all linear layers that have no other form. They must not change
// afterwards.
void PackWeights(Module& model);

}  // namespace tessera::nn

#endif  // TESSERA_NN_PACKED_WEIGHT_H_
