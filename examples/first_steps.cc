// SPDX-License-Identifier: Apache-2.0
// Trains a two-layer network on XOR: tensors, layers, the tape and an optimizer in 25 lines.
#include <iostream>

#include <tessera/nn/linear.h>
#include <tessera/ops/elementwise/elementwise.h>
#include <tessera/ops/reduction/reduction.h>
#include <tessera/optim/adam/adam.h>
#include <tessera/optim/modules/module_parameters.h>

int main() {
  using namespace tessera;
  struct Net : nn::Module {
    explicit Net(const nn::Scope& scope) : Module(scope) {}
    Tensor Forward(const Tensor& x) const { return down.Forward(Tanh(up.Forward(x))); }
    nn::ReplicatedLinear up{
        {.in_features = 2, .out_features = 8, .weight_init = nn::Init::Normal(1)}, Child("up")};
    nn::ReplicatedLinear down{{.in_features = 8, .out_features = 1}, Child("down")};
  } net(nn::Scope::Root({.seed = 1}));

  const Tensor x = Tensor::FromVector<float>({0, 0, 0, 1, 1, 0, 1, 1}, {4, 2});
  const Tensor y = Tensor::FromVector<float>({0, 1, 1, 0}, {4, 1});
  optim::AdamW optimizer({{.parameters = optim::ParametersOf(net)}}, {.lr = 0.05});
  for (int step = 0; step < 200; ++step) {
    const Tensor loss = Mean(Square(Sub(net.Forward(x), y)));
    Backward(loss);
    optimizer.Step();
    optimizer.ZeroGrad();
    if (step % 50 == 49) std::cout << "step " << step + 1 << "  loss " << loss.Item() << "\n";
  }
}
