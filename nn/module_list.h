// SPDX-License-Identifier: Apache-2.0
// Layers in a row, named "0", "1", ... as PyTorch's are.
//
//   class Tower : public Module {
//    public:
//     Tower(int depth, int64_t width, const Scope& scope) : Module(scope) {
//       for (int i = 0; i < depth; ++i) layers_.Add(BlockConfig{.hidden_size = width});
//     }
//     Tensor Forward(Tensor x) const {
//       for (const Block& layer : layers_) x = layer.Forward(x);
//       return x;
//     }
//
//    private:
//     ModuleList<Block> layers_{Child("layers")};                               // layers.0.weight
//   };
//
// A list owns its layers, which stay where they are built. It has no Forward: what is done with the
// layers is its owner's to say (nn/sequential.h: one after the other).
#ifndef TESSERA_NN_MODULE_LIST_H_
#define TESSERA_NN_MODULE_LIST_H_

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "nn/module.h"

namespace tessera::nn {

template <typename Layer>
class ModuleList : public Module {
 public:
  explicit ModuleList(const Scope& scope) : Module(scope) {}

  // Builds Layer(args..., scope) at the end.
  template <typename... Args>
  Layer& Add(Args&&... args) {
    layers_.push_back(
        std::make_unique<Layer>(std::forward<Args>(args)..., Child(std::to_string(size()))));
    return *layers_.back();
  }

  size_t size() const { return layers_.size(); }
  // i < size().
  Layer& operator[](size_t i) const { return *layers_.at(i); }

  class Iterator {
   public:
    explicit Iterator(const std::unique_ptr<Layer>* at) : at_(at) {}
    Layer& operator*() const { return **at_; }
    Iterator& operator++() {
      ++at_;
      return *this;
    }
    friend bool operator==(const Iterator&, const Iterator&) = default;

   private:
    const std::unique_ptr<Layer>* at_;
  };
  Iterator begin() const { return Iterator(layers_.data()); }
  Iterator end() const { return Iterator(layers_.data() + layers_.size()); }

 private:
  std::vector<std::unique_ptr<Layer>> layers_;
};

}  // namespace tessera::nn

#endif  // TESSERA_NN_MODULE_LIST_H_
