// SPDX-License-Identifier: Apache-2.0
// Activation functions by the names that Hugging Face configurations use.
#ifndef TESSERA_NN_ACTIVATION_H_
#define TESSERA_NN_ACTIVATION_H_

#include <string_view>

#include "base/status.h"
#include "core/tensor.h"

namespace tessera::nn {

using Activation = Tensor (*)(const Tensor&);

// "gelu", "gelu_new" and its synonyms (gelu_pytorch_tanh, gelu_fast), "relu", "silu" (swish),
// "tanh", "sigmoid", "linear". Any other name is an error that lists these.
StatusOr<Activation> FindActivation(std::string_view name);

}  // namespace tessera::nn

#endif  // TESSERA_NN_ACTIVATION_H_
