// SPDX-License-Identifier: Apache-2.0
#include "train/trace/tensor_capture.h"

#include "autograd/engine.h"

namespace tessera::train {

void TensorCapture::See(const Origin& origin, bool gradient, size_t index, const Tensor& t) {
  if (!began_ || !t.defined()) return;
  const PassPlace& at = wanted_.place;
  if (place().micro_batch != at.micro_batch || place().backward != at.backward ||
      place().chunk != at.chunk || gradient != wanted_.gradient ||
      static_cast<int64_t>(index) != wanted_.index || wanted_.operation != origin.name ||
      (origin.module_path == nullptr ? "" : *origin.module_path) != wanted_.module) {
    return;
  }
  if (seen_++ != wanted_.occurrence) return;
  // Later operations may write over what they are given.
  const Tensor now = CopyTo(t.Detach(), Device::Cpu());
  tensor_ = EmptyLike(now);
  CopyInto(tensor_, now);
}

void TensorCapture::Results(const Origin& origin, const std::vector<Tensor>&,
                            const std::vector<Tensor>& results) {
  for (size_t i = 0; i < results.size(); ++i) See(origin, /*gradient=*/false, i, results[i]);
}

void TensorCapture::Gradient(const Origin& origin, size_t operand, const Tensor& gradient,
                             const std::vector<Tensor>&) {
  See(origin, /*gradient=*/true, operand, gradient);
}

}  // namespace tessera::train
