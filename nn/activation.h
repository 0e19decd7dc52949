// SPDX-License-Identifier: Apache-2.0
// Activation functions by the names that Hugging Face configurations use.
#ifndef TESSERA_NN_ACTIVATION_H_
#define TESSERA_NN_ACTIVATION_H_

#include <string_view>

#include "base/status.h"
#include "core/tensor.h"

namespace tessera::nn {

using Activation = Tensor (*)(const Tensor&);

// The functions of transformers' ACT2FN:
//   "gelu" (gelu_python), "gelu_10" (clamped to [-10, 10]), "gelu_new" (gelu_pytorch_tanh,
//   gelu_fast, gelu_accurate, gelu_python_tanh), "quick_gelu" x sigmoid(1.702 x)
//   "relu", "relu2" (squared), "relu6" (at most 6), "leaky_relu" (slope 0.01 below 0)
//   "silu" (swish), "mish" x tanh(softplus(x))
//   "laplace" Phi((x - 0.707107) / 0.282095), Phi the normal distribution function
//   "tanh", "sigmoid", "linear"
// Names in brackets alone are synonyms. Any other name is an error that lists the known ones.
StatusOr<Activation> FindActivation(std::string_view name);

}  // namespace tessera::nn

#endif  // TESSERA_NN_ACTIVATION_H_
