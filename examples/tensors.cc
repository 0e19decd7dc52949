// SPDX-License-Identifier: Apache-2.0
// The program of docs/tensors.md, which shows what it prints.
#include <iostream>

#include <tessera/autograd/autograd.h>
#include <tessera/core/random.h>
#include <tessera/ops/cast/cast.h>
#include <tessera/ops/elementwise/elementwise.h>
#include <tessera/ops/matmul/matmul.h>
#include <tessera/ops/random/random.h>
#include <tessera/ops/reduction/reduction.h>
#include <tessera/ops/view/view.h>

using namespace tessera;

namespace {

void MakeTensors() {
  const Tensor a = Tensor::FromVector<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  const Tensor b = Full({3}, 10.0);
  std::cout << a + b << "\n";
  std::cout << a.shape()[0] << " rows of " << a.size(-1) << "\n";
  std::cout << Sum(a, {1}) << "\n";
}

void ShareMemory() {
  const Tensor a = Zeros({2, 3});
  const Tensor row = Select(a, 0, 1);
  Fill(row, 7.0);
  std::cout << a << "\n";
}

void TakeGradients() {
  const Tensor x = Tensor::FromVector<float>({1, 2, 3}, {3});
  const Tensor w = RequireGrad(Tensor::FromVector<float>({0.5, 0, -1}, {3}));
  const Tensor loss = Sum(Square(w * x - 1));
  Backward(loss);
  std::cout << loss.Item() << "\n";
  std::cout << Grad(w) << "\n";
}

void DrawNumbers() {
  const RandomKey key = RandomKey::FromSeed(1);
  const Tensor x = Randn({2, 3}, key.With("x"));
  std::cout << Compare(Randn({2, 3}, key.With("x")), x, Comparison::kEqual) << "\n";
}

void UseLessPrecision() {
  const Tensor x = Cast(Full({2}, 1.0 / 3), DType::kBFloat16);
  std::cout << x << "\n";
  const Tensor planned = Matmul(Empty({1000, 4000}, DType::kFloat32, Device::Meta()),
                                Empty({4000, 500}, DType::kFloat32, Device::Meta()));
  std::cout << planned << "\n";
}

void MakeAMistake() {
  try {
    Matmul(Zeros({2, 3}), Zeros({4, 5}));
  } catch (const Error& error) {
    std::cout << error.what() << "\n";
  }
}

}  // namespace

int main() {
  MakeTensors();
  ShareMemory();
  TakeGradients();
  DrawNumbers();
  UseLessPrecision();
  MakeAMistake();
}
