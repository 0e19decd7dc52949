// SPDX-License-Identifier: Apache-2.0
// Layers one after the other, each given what the one before it gives; named "0", "1", ... as
// PyTorch's are.
//
//   class Classifier : public Module {
//    public:
//     explicit Classifier(const Scope& scope) : Module(scope) {
//       body_.Add<ReplicatedLinear>(LinearConfig{.in_features = 784, .out_features = 100});
//       body_.Add(Relu);                                   // a function: takes a number, "1"
//       body_.Add<Dropout>(0.1);
//       body_.Add<ReplicatedLinear>(LinearConfig{.in_features = 100, .out_features = 10});
//       body_.Add([](const Tensor& x) { return LogSoftmax(x, -1); });
//     }
//     Tensor Forward(const Tensor& x, const ForwardContext& context) const {
//       return body_.Forward(x, context);
//     }
//
//    private:
//     Sequential body_{Child("body")};                     // body.0.weight, body.3.weight, ...
//   };
//
// A layer is any Module whose Forward takes a tensor, or a tensor and a ForwardContext, and gives a
// tensor; another Sequential is one. Without layers, Forward gives what it is given.
#ifndef TESSERA_NN_SEQUENTIAL_H_
#define TESSERA_NN_SEQUENTIAL_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "nn/module.h"

namespace tessera::nn {

class Sequential : public Module {
 public:
  explicit Sequential(const Scope& scope) : Module(scope) {}
  std::string_view kind() const override { return "Sequential"; }

  // Builds Layer(args..., scope) at the end.
  template <typename Layer, typename... Args>
  Layer& Add(Args&&... args) {
    auto layer =
        std::make_unique<Layer>(std::forward<Args>(args)..., Child(std::to_string(size())));
    Layer& added = *layer;
    layers_.push_back(std::move(layer));
    steps_.push_back([&added](const Tensor& x, const ForwardContext& context) -> Tensor {
      if constexpr (requires { added.Forward(x, context); }) {
        return added.Forward(x, context);
      } else {
        return added.Forward(x);
      }
    });
    return added;
  }
  void Add(std::function<Tensor(const Tensor&)> function) {
    steps_.push_back(
        [f = std::move(function)](const Tensor& x, const ForwardContext&) { return f(x); });
  }

  size_t size() const { return steps_.size(); }
  Tensor Forward(const Tensor& x, const ForwardContext& context = {}) const {
    return Call(x, [&] {
      Tensor y = x;
      for (const Step& step : steps_) y = step(y, context);
      return y;
    });
  }

 private:
  using Step = std::function<Tensor(const Tensor& x, const ForwardContext& context)>;

  std::vector<std::unique_ptr<Module>> layers_;
  std::vector<Step> steps_;
};

}  // namespace tessera::nn

#endif  // TESSERA_NN_SEQUENTIAL_H_
