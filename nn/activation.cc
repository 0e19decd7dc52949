// SPDX-License-Identifier: Apache-2.0
#include "nn/activation.h"

#include "ops/elementwise/elementwise.h"

namespace tessera::nn {
namespace {

Tensor Identity(const Tensor& x) { return x; }
Tensor Relu2(const Tensor& x) { return Square(Relu(x)); }
Tensor Relu6(const Tensor& x) { return Clamp(Relu(x), 0, 6); }
Tensor QuickGelu(const Tensor& x) { return Mul(x, Sigmoid(Mul(x, 1.702))); }
Tensor Gelu10(const Tensor& x) { return Clamp(Gelu(x), -10, 10); }
// The slope at 0 is 0.01, as PyTorch's.
Tensor LeakyRelu(const Tensor& x) {
  return Where(Compare(x, 0.0, Comparison::kGreater), x, Mul(x, 0.01));
}
// transformers rounds the mean and the deviation, the roots of 1/2 and of 1/(4 pi).
Tensor Laplace(const Tensor& x) { return NormalCdf(Div(Sub(x, 0.707107), 0.282095)); }
Tensor Mish(const Tensor& x) { return Mul(x, Tanh(Softplus(x))); }

constexpr struct {
  std::string_view name;
  Activation function;
} kActivations[] = {
    {"gelu", Gelu},
    {"gelu_new", GeluTanh},
    {"gelu_pytorch_tanh", GeluTanh},
    {"gelu_fast", GeluTanh},
    {"relu", Relu},
    {"silu", Silu},
    {"swish", Silu},
    {"tanh", Tanh},
    {"sigmoid", Sigmoid},
    {"linear", Identity},
    {"relu2", Relu2},
    {"relu6", Relu6},
    {"mish", Mish},
    {"quick_gelu", QuickGelu},
    {"gelu_python", Gelu},
    {"gelu_python_tanh", GeluTanh},
    {"gelu_accurate", GeluTanh},
    {"gelu_10", Gelu10},
    {"leaky_relu", LeakyRelu},
    {"laplace", Laplace},
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
