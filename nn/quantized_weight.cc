// SPDX-License-Identifier: Apache-2.0
#include "nn/quantized_weight.h"

#include <optional>

namespace tessera::nn {

Tensor QuantizedWeight::Multiply(const Parameter& weight, LinearLayout layout, const Tensor& x,
                                 const Tensor& bias, const ForwardContext& context) const {
  static_cast<void>(weight), static_cast<void>(layout), static_cast<void>(context);
  return QuantizedLinear(x, matrix_, bias);
}

Tensor QuantizedWeight::LookUp(const Parameter& table, const Tensor& ids,
                               const EmbeddingOptions& options,
                               const ForwardContext& context) const {
  static_cast<void>(context);
  return QuantizedEmbedding(matrix_, ids, table.tensor.dtype(), options);
}

std::map<std::string, LinearLayout> QuantizableWeights(Module& model) {
  std::map<std::string, LinearLayout> weights;
  model.VisitModules([&](Module& layer) {
    std::optional<LinearLayout> layout = layer.linear_layout();
    if (layer.vocabulary_use() == VocabularyUse::kTable) layout = LinearLayout::kOutIn;
    if (!layout) return;
    for (const auto& p : layer.own_parameters()) {
      if (p->name == layer.path() + ".weight" && p->tied_to == nullptr) weights[p->name] = *layout;
    }
  });
  return weights;
}

Tensor OutputsAsRows(const Tensor& weight, LinearLayout layout) {
  if (layout == LinearLayout::kOutIn) return weight;
  return weight.AsStrided({weight.size(1), weight.size(0)}, {weight.stride(1), weight.stride(0)},
                          weight.offset());
}

}  // namespace tessera::nn
