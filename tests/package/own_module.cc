// SPDX-License-Identifier: Apache-2.0
// A module and a loss of one's own, trained for some steps and saved: own_module OUT.safetensors
#include <cstdio>
#include <string>
#include <vector>

#include <tessera/core/safetensors.h>
#include <tessera/nn/linear.h>
#include <tessera/ops/elementwise/elementwise.h>
#include <tessera/ops/reduction/reduction.h>
#include <tessera/optim/adam/adam.h>
#include <tessera/optim/modules/module_parameters.h>

namespace {

using namespace tessera;

struct Net : nn::Module {
  explicit Net(const nn::Scope& scope) : Module(scope) {}
  Tensor Forward(const Tensor& x) const { return down.Forward(Tanh(up.Forward(x))); }
  nn::ReplicatedLinear up{{.in_features = 2, .out_features = 8, .weight_init = nn::Init::Normal(1)},
                          Child("up")};
  nn::ReplicatedLinear down{{.in_features = 8, .out_features = 1}, Child("down")};
};

// The mean of log cosh of the differences, less log 2.
Tensor LogCosh(const Tensor& x, const Tensor& y) {
  const Tensor d = Sub(x, y);
  return Mean(Log(Mul(Add(Exp(d), Exp(Mul(d, -1.0))), 0.5)));
}

Status Save(const std::vector<optim::Parameter>& parameters, const std::string& path) {
  std::vector<NamedTensorView> views;
  for (const optim::Parameter& p : parameters) {
    const Shape& shape = p.tensor.shape();
    views.push_back({p.name,
                     {.dtype = p.tensor.dtype(),
                      .shape = {shape.begin(), shape.end()},
                      .data = static_cast<const std::byte*>(p.tensor.raw_data()),
                      .nbytes = p.tensor.nbytes()}});
  }
  return WriteSafetensors(path, views);
}

Status Run(const std::string& path) {
  Net net(nn::Scope::Root({.seed = 1}));
  const Tensor x = Tensor::FromVector<float>({0, 0, 0, 1, 1, 0, 1, 1}, {4, 2});
  const Tensor y = Tensor::FromVector<float>({0, 1, 1, 0}, {4, 1});
  const std::vector<optim::Parameter> parameters = optim::ParametersOf(net);
  optim::AdamW optimizer({{.parameters = parameters}}, {.lr = 0.05});
  const double before = LogCosh(net.Forward(x), y).Item();
  for (int step = 0; step < 100; ++step) {
    Backward(LogCosh(net.Forward(x), y));
    optimizer.Step();
    optimizer.ZeroGrad();
  }
  const double after = LogCosh(net.Forward(x), y).Item();
  std::printf("loss %.4f, then %.4f\n", before, after);
  if (!(after < 0.1 * before)) return Internal("the loss did not fall");
  TESSERA_RETURN_IF_ERROR(Save(parameters, path));
  TESSERA_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Open(path));
  return file.Get("up.weight").status();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return std::fprintf(stderr, "usage: own_module OUT.safetensors\n"), 2;
  const Status status = Run(argv[1]);
  if (!status.ok()) std::fprintf(stderr, "error: %s\n", Message(status).c_str());
  return status.ok() ? 0 : 1;
}
