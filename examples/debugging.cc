// SPDX-License-Identifier: Apache-2.0
// The program of docs/debugging.md, which shows what it prints.
#include <iostream>

#include <tessera/nn/linear.h>
#include <tessera/ops/elementwise/elementwise.h>
#include <tessera/ops/reduction/reduction.h>

using namespace tessera;

namespace {

// How far two texts are from one another: its gradient has no end where they are the same.
class Distance : public nn::Module {
 public:
  explicit Distance(const nn::Scope& scope) : Module(scope) {}
  Tensor Forward(const Tensor& a_BC, const Tensor& b_BC) const {
    return Call(a_BC,
                [&] { return Sqrt(Sum(Square(up_.Forward(a_BC) - up_.Forward(b_BC)), {1})); });
  }

 private:
  nn::ReplicatedLinear up_{{.in_features = 3, .out_features = 4}, Child("up")};
};

class Net : public nn::Module {
 public:
  explicit Net(const nn::Scope& scope) : Module(scope) {}
  Tensor Loss(const Tensor& a_BC, const Tensor& b_BC) const {
    return Mean(distance_.Forward(a_BC, b_BC));
  }

 private:
  Distance distance_{Child("distance")};
};

void ShowParameters(Net& net) { std::cout << net.Summary(); }

void FindTheAnomaly(const Net& net) {
  const Tensor x = Full({2, 3}, 1.0);
  const DetectAnomaly detect;
  try {
    Backward(net.Loss(x, x));
  } catch (const Error& error) {
    std::cout << error.what() << "\n";
  }
}

void LookAtAGradient() {
  const Tensor w = RequireGrad(Tensor::FromVector<float>({1, -2}, {2}));
  const Tensor h = Square(w);
  AddGradHook(h, [](const Tensor& grad) {
    std::cout << "of h: " << grad << "\n";
    return grad;
  });
  Backward(Sum(h * w));
  std::cout << "of w: " << Grad(w) << "\n";
}

void LeaveTheTape() {
  const Tensor w = RequireGrad(Full({2, 2}, 1.0));
  try {
    Mul(w, CastCopy(w, DType::kFloat64));
  } catch (const Error& error) {
    std::cout << error.what() << "\n";
  }
}

}  // namespace

int main() {
  Net net(nn::Scope::Root({.seed = 1}));
  ShowParameters(net);
  FindTheAnomaly(net);
  LookAtAGradient();
  LeaveTheTape();
}
