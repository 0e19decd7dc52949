// SPDX-License-Identifier: Apache-2.0
#include "dist/store/gradient_norm.h"

#include <algorithm>
#include <utility>

#include "autograd/autograd.h"
#include "dist/store/host_memory.h"
#include "optim/clip.h"

namespace tessera::dist {
namespace {

bool AnyCut(const std::vector<MeasuredParameter>& parameters) {
  return std::any_of(parameters.begin(), parameters.end(),
                     [](const MeasuredParameter& p) { return p.cut; });
}

}  // namespace

GradientNorm::GradientNorm(std::vector<MeasuredParameter> parameters, const StoreGroups& groups,
                           const Stage* stage, const Device& device)
    : parameters_(std::move(parameters)),
      groups_(groups),
      stage_(stage),
      device_(device),
      joins_(groups.data->size() > 1 && (AnyCut(parameters_) || groups.experts->size() > 1)) {}

// Of the ranks that hold all of a gradient, one counts it where their sums are added.
bool GradientNorm::Counts(const MeasuredParameter& parameter) const {
  return parameter.counted && (!joins_ || parameter.cut || parameter.ranks->rank() == 0);
}

Tensor GradientNorm::SquaredNorm(const std::vector<Tensor>& gradients) const {
  const NoGrad no_grad;
  Tensor words;
  for (const bool on_host : {false, true}) {
    std::vector<Tensor> pieces;
    for (size_t p = 0; p < parameters_.size(); ++p) {
      const Tensor& piece = gradients[p];
      if (!piece.defined() || piece.numel() == 0 || !Counts(parameters_[p])) continue;
      if (IsHostMemory(piece.device()) == on_host) pieces.push_back(piece);
    }
    if (on_host && pieces.empty()) continue;
    const Device device = on_host ? pieces.front().device() : device_;
    const Tensor sum = CopyTo(optim::SquareWords(pieces, device), device_);
    if (words.defined()) AddInto(words, sum);
    if (!words.defined()) words = sum;
  }
  const auto join = [&](const std::shared_ptr<Communicator>& ranks) {
    if (ranks->size() > 1) ranks->AllReduce(words, ReduceOp::kSum)->Wait();
  };
  if (joins_) join(groups_.data);
  if (stage_ != nullptr) join(stage_->group());
  join(groups_.tensor);
  return optim::RoundedSum(words);
}

}  // namespace tessera::dist
