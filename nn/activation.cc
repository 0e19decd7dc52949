// SPDX-License-Identifier: Apache-2.0
#include "nn/activation.h"

#include "ops/elementwise/elementwise.h"

namespace tessera::nn {
namespace {

Tensor Identity(const Tensor& x) { return x; }

constexpr struct {
  std::string_view name;
  Activation function;
} kActivations[] = {
    {"gelu", Gelu},          {"gelu_new", GeluTanh}, {"gelu_pytorch_tanh", GeluTanh},
    {"gelu_fast", GeluTanh}, {"relu", Relu},         {"silu", Silu},
    {"swish", Silu},         {"tanh", Tanh},         {"sigmoid", Sigmoid},
    {"linear", Identity},
};

}  // namespace

StatusOr<Activation> FindActivation(std::string_view name) {
  std::string known;
  for (const auto& entry : kActivations) {
    if (entry.name == name) return entry.function;
    known += known.empty() ? "" : ", ";
    known += entry.name;
  }
  return InvalidArgument("activation '", name, "' is not known; known are ", known);
}

}  // namespace tessera::nn
