// SPDX-License-Identifier: Apache-2.0
#include "train/engine/bad_operation_watch.h"

#include "autograd/engine.h"

namespace tessera::train {
namespace {

void Keep(const std::string& name, const Tensor& t, Bundle* tensors) {
  const Tensor host = CopyTo(t.Detach(), Device::Cpu());
  const Tensor copy = Empty(host.shape(), host.dtype());
  CopyInto(copy, host);
  tensors->SetNamed(name, copy);
}

// Those that are defined, numbered.
void KeepAll(const std::string& kind, const std::vector<Tensor>& all, Bundle* tensors) {
  int64_t number = 0;
  for (const Tensor& t : all) {
    if (t.defined()) Keep(Concat(kind, number++), t, tensors);
  }
}

}  // namespace

template <typename Look>
bool BadOperationWatch::Finds(const Look& look) {
  const bool had = watch_.found().has_value();
  const PassPlace before = had ? watch_.found()->place : PassPlace();
  look();
  if (!watch_.found() || (had && !(watch_.found()->place < before))) return false;
  tensors_ = {};
  return true;
}

void BadOperationWatch::EnterBefore() {
  PassPlace at = place();
  --at.operation;
  watch_.Enter(at);
}

void BadOperationWatch::StopIfWanted() const {
  if (stops_) throw Stop();
}

void BadOperationWatch::Results(const Origin& origin, const std::vector<Tensor>& operands,
                                const std::vector<Tensor>& results) {
  EnterBefore();
  if (!Finds([&] { watch_.SeeResults(origin, operands, results); })) return;
  KeepAll("input.", operands, &tensors_);
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i].defined()) Keep(Concat("result.", i), results[i], &tensors_);
  }
  StopIfWanted();
}

void BadOperationWatch::Arriving(const Origin& origin, const std::vector<Tensor>& of_results) {
  gradients_.clear();
  EnterBefore();
  if (!Finds([&] { watch_.SeeArriving(origin, of_results); })) return;
  KeepAll("gradient.result.", of_results, &tensors_);
  StopIfWanted();
}

void BadOperationWatch::Gradient(const Origin& origin, size_t operand, const Tensor& gradient,
                                 const std::vector<Tensor>& of_results) {
  if (gradients_of_ != &of_results) gradients_.clear();
  gradients_of_ = &of_results;
  gradients_.emplace_back(operand, gradient);
  watch_.Enter(place());
  if (!Finds([&] { watch_.SeeGradient(origin, operand, gradient, of_results); })) return;
  KeepAll("gradient.result.", of_results, &tensors_);
  for (const auto& [number, t] : gradients_) {
    Keep(Concat("gradient.input.", number), t, &tensors_);
  }
  StopIfWanted();
}

}  // namespace tessera::train
