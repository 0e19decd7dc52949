// SPDX-License-Identifier: Apache-2.0
#include "models/auxiliary.h"

#include "autograd/autograd.h"
#include "base/error.h"
#include "core/execution_context.h"
#include "models/model.h"
#include "ops/cast/cast.h"
#include "ops/elementwise/elementwise.h"

namespace tessera::models {
namespace {

constexpr std::string_view kPrefix = "auxiliary.";

bool IsAuxiliary(std::string_view name) {
  return name.starts_with(kPrefix) || name == keys::kAuxiliaryLoss.name();
}

void AddNamed(Bundle* bundle, std::string_view name, const Tensor& value) {
  const Tensor* before = bundle->FindNamed(name);
  bundle->SetNamed(name, before == nullptr ? value : Add(*before, value));
}

}  // namespace

void Auxiliaries::Add(std::string_view name, const Tensor& value, double weight) {
  TESSERA_CHECK(!name.empty() && name.find('.') == std::string_view::npos, "auxiliary", "'", name,
                "' is no name: it is empty or has a dot");
  TESSERA_CHECK(value.defined() && value.ndim() == 0 && IsFloating(value.dtype()), "auxiliary",
                name, " must be 0-d, got ", value);
  // Its scale is a number of the host's, which a replayed step would not see change.
  TESSERA_CHECK(ExecutionContext::Current().noise_keys == nullptr, "auxiliary", name,
                " is added in a step that is captured: set cuda_graph to false");
  const Tensor number = value.dtype() == DType::kFloat64 ? value : Cast(value, DType::kFloat32);
  AddNamed(&found_, Concat(kPrefix, name), number);
  if (weight != 0) AddNamed(&found_, keys::kAuxiliaryLoss.name(), Mul(number, weight));
}

void Auxiliaries::Merge(const Bundle& found, Bundle* sums) {
  for (const auto& [name, value] : found.entries()) AddNamed(sums, name, value);
}

Bundle TakeAuxiliaries(Bundle* bundle) {
  Bundle taken;
  Bundle others;
  for (const auto& [name, tensor] : bundle->entries()) {
    (IsAuxiliary(name) ? taken : others).SetNamed(name, tensor);
  }
  *bundle = std::move(others);
  return taken;
}

std::map<std::string, Tensor> AuxiliariesOf(const Bundle& outputs) {
  std::map<std::string, Tensor> values;
  for (const auto& [name, tensor] : outputs.entries()) {
    if (name.starts_with(kPrefix)) values[name.substr(kPrefix.size())] = tensor;
  }
  return values;
}

Tensor WithAuxiliaries(const Tensor& loss, const Bundle& outputs, const RunOptions& options) {
  const double scale = options.loss_reduction == LossReduction::kMean ? 1.0 : options.loss_targets;
  if (scale == 0 || !outputs.has(keys::kAuxiliaryLoss)) return loss;
  return Add(loss, Cast(Mul(outputs.at(keys::kAuxiliaryLoss), scale), loss.dtype()));
}

void FinishAuxiliaries(Bundle* outputs, const RunOptions& options) {
  for (const auto& [name, value] : AuxiliariesOf(*outputs)) {
    outputs->SetNamed(Concat(kPrefix, name), value.Detach());
  }
  // Who makes another loss asks for this one without them by a negative number.
  const bool bare = options.loss_reduction == LossReduction::kNone || options.loss_targets < 0;
  if (!outputs->has(keys::kLoss) || bare) return;
  outputs->set(keys::kLoss, WithAuxiliaries(outputs->at(keys::kLoss), *outputs, options));
}

}  // namespace tessera::models
