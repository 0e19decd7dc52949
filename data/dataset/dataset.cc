#include "data/dataset/dataset.h"

#include <algorithm>

#include "core/error.h"

namespace tessera::data {

bool Batch::has(std::string_view name) const {
  return std::any_of(tensors.begin(), tensors.end(),
                     [&](const auto& entry) { return entry.first == name; });
}

const Tensor& Batch::at(std::string_view name) const {
  for (const auto& [key, tensor] : tensors) {
    if (key == name) return tensor;
  }
  throw Error("batch", Concat("there is no '", name, "'"));
}

}  // namespace tessera::data
