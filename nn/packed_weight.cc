// SPDX-License-Identifier: Apache-2.0
#include "nn/packed_weight.h"

#include <memory>
#include <optional>

#include "autograd/autograd.h"
#include "nn/weight.h"
#include "ops/cast/autocast.h"
#include "ops/matmul/product.h"
#include "ops/view/view.h"

namespace tessera::nn {
namespace {

class PackedWeight : public WeightForm {
 public:
  PackedWeight(const Tensor& weight, LinearLayout layout)
      : factor_(layout == LinearLayout::kOutIn ? Transposed(weight) : weight) {}

  Tensor Multiply(const Parameter& weight, LinearLayout layout, const Tensor& x, const Tensor& bias,
                  const ForwardContext& context) const override {
    static_cast<void>(context);
    if (!Serves(weight, x) || AnyRequiresGrad({x, weight.tensor, bias})) {
      return Linear(x, weight.tensor, bias, layout);
    }
    const Shape leading(x.shape().begin(), x.shape().end() - 1);
    Shape shape = leading;
    shape.push_back(weight.tensor.size(layout == LinearLayout::kOutIn ? 0 : 1));
    const Tensor rows = Reshape(x, {leading.numel(), x.size(-1)});
    return Reshape(Product(rows, factor_, bias, x.dtype()), shape);
  }

  Tensor LookUp(const Parameter& table, const Tensor& ids, const EmbeddingOptions& options,
                const ForwardContext& context) const override {
    static_cast<void>(context);
    return Embedding(table.tensor, ids, options);
  }

 private:
  // What Linear would refuse, or cast, it shall.
  static bool Serves(const Parameter& weight, const Tensor& x) {
    return !Autocasting() && x.ndim() >= 1 && x.dtype() == weight.tensor.dtype() &&
           x.device() == weight.tensor.device();
  }

  const ProductFactor factor_;
};

}  // namespace

void PackWeights(Module& model) {
  const NoGrad no_grad;
  model.VisitModules([](Module& layer) {
    const std::optional<LinearLayout> layout = layer.linear_layout();
    // Heads over a vocabulary are as large as all else, and embeddings do without them.
    if (!layout || layer.vocabulary_use() != VocabularyUse::kNone) return;
    for (const auto& p : layer.own_parameters()) {
      const bool is_weight = p->tensor.ndim() == 2 && p->tied_to == nullptr;
      if (!is_weight || !IsDense(*p) || p->tensor.dtype() != DType::kFloat32) continue;
      if (p->tensor.device().type != DeviceType::kCpu) continue;
      p->form = std::make_shared<PackedWeight>(p->tensor, *layout);
    }
  });
}

}  // namespace tessera::nn
