// SPDX-License-Identifier: Apache-2.0
#include "optim/multi_tensor_optimizer.h"

#include <cmath>
#include <cstddef>
#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <unordered_set>
#include <utility>

#include "autograd/autograd.h"

namespace tessera::optim {
namespace {

bool IsFactor(double value) { return std::isfinite(value) && value >= 0; }

void CheckGroups(const std::vector<ParameterGroup>& groups) {
  std::unordered_set<std::string> names;
  std::unordered_set<const AutogradRecord*> leaves;
  const auto check_leaf = [&](const std::string& name, const Tensor& t) {
    TESSERA_CHECK(t.defined() && IsLeaf(t), "optimizer", "'", name, "' (", t,
                  ") is not a leaf that requires a gradient");
    TESSERA_CHECK(leaves.insert(t.record().get()).second, "optimizer", "'", name,
                  "' is given twice");
  };
  // A weight that is used twice and given as two parameters would be stepped twice, each time with
  // a part of its gradient. Pieces of one bucket lie apart.
  std::map<const void*, std::pair<const void*, std::string>> taken;  // by begin: end, name
  const auto check_memory = [&](const std::string& name, const Tensor& t) {
    if (t.device().is_meta() || t.numel() == 0) return;
    const auto* const begin = static_cast<const std::byte*>(t.raw_data());
    const std::byte* const end = begin + t.nbytes();
    const auto after = taken.lower_bound(end);
    if (after != taken.begin()) {
      const auto& [other_end, other] = std::prev(after)->second;
      TESSERA_CHECK(std::less_equal<>()(other_end, static_cast<const void*>(begin)), "optimizer",
                    "'", name, "' and '", other,
                    "' have the same memory: they are one tied weight, ",
                    "which optim::ParametersOf(module) gives as one parameter");
    }
    taken.emplace(begin, std::pair(end, name));
  };
  for (const ParameterGroup& group : groups) {
    TESSERA_CHECK(IsFactor(group.weight_decay) && IsFactor(group.lr_scale), "optimizer", "group '",
                  group.name, "' has weight decay ", group.weight_decay, " and lr_scale ",
                  group.lr_scale);
    for (const Parameter& p : group.parameters) {
      check_leaf(p.name, p.tensor);
      check_memory(p.name, p.tensor);
      TESSERA_CHECK(!p.name.empty() && names.insert(p.name).second, "optimizer",
                    "two parameters are named '", p.name, "'");
      TESSERA_CHECK(PlacementOf(p).local_shape() == p.tensor.shape(), "optimizer", "'", p.name,
                    "' is ", p.tensor, ", its placement ", PlacementOf(p).local_shape());
      for (const Tensor& tied : p.tied) {
        check_leaf(p.name, tied);
        TESSERA_CHECK(tied.storage() == p.tensor.storage() && tied.shape() == p.tensor.shape() &&
                          tied.offset() == p.tensor.offset(),
                      "optimizer", "a leaf tied to '", p.name, "' is not the same memory: ", tied,
                      " and ", p.tensor);
      }
    }
  }
}

void* DataOrNull(const Tensor& t) { return t.defined() ? t.raw_data() : nullptr; }

// What the kernels can read: contiguous, and float64 only for float64 parameters.
Tensor KernelGrad(const Parameter& parameter) {
  Tensor grad = GradOrNone(parameter.tensor);
  if (!grad.defined()) return grad;
  TESSERA_CHECK(IsFloating(grad.dtype()) && grad.shape() == parameter.tensor.shape() &&
                    grad.device() == parameter.tensor.device(),
                "optimizer", "'", parameter.name, "' is ", parameter.tensor, ", its gradient ",
                grad);
  const bool narrow =
      grad.dtype() == DType::kFloat64 && parameter.tensor.dtype() != DType::kFloat64;
  return narrow ? CastCopy(grad, DType::kFloat32) : grad.ContiguousCopy();
}

}  // namespace

MultiTensorOptimizer::MultiTensorOptimizer(std::vector<ParameterGroup> groups, double lr,
                                           const StateDeclaration& states)
    : groups_(std::move(groups)) {
  TESSERA_CHECK(IsFactor(lr), "optimizer", "learning rate ", lr);
  CheckGroups(groups_);
  device_ = CommonDevice(parameters());
  learning_rate_ = Full({}, lr, DType::kFloat64, device_);
  step_ = Zeros({}, DType::kInt64, device_);
  for (const ParameterGroup& group : groups_) {
    for (const Parameter& p : group.parameters) {
      OptimizedParameter own{p, group.lr_scale, group.weight_decay, states(p), {}, {}};
      own.parameter.placement = PlacementOf(p);
      if (IsHalf(p.tensor.dtype())) own.master = CastCopy(p.tensor, DType::kFloat32);
      for (const StateKind& kind : own.kinds) {
        own.states.push_back(Zeros(StatePlacement(kind.shape, p).local_shape(),
                                   AccumulateDType(p.tensor.dtype()), device_));
      }
      parameters_.push_back(std::move(own));
    }
  }
}

void MultiTensorOptimizer::VisitState(const StateVisitor& visit) const {
  visit("", "step", step_, Placement::Whole({}));
  for (const OptimizedParameter& own : parameters_) {
    const std::string& name = own.parameter.name;
    if (own.master.defined()) visit(name, "master", own.master, own.parameter.placement);
    for (size_t i = 0; i < own.kinds.size(); ++i) {
      visit(name, own.kinds[i].name, own.states[i],
            StatePlacement(own.kinds[i].shape, own.parameter));
    }
  }
}

void MultiTensorOptimizer::RefreshMasterWeights() {
  for (const OptimizedParameter& own : parameters_) {
    if (own.master.defined()) CopyInto(own.master, own.parameter.tensor);
  }
}

UpdateScalars MultiTensorOptimizer::ScalarsOf(const StepInputs& inputs) const {
  const auto pointer = [this](const Tensor& t, const char* what) -> const float* {
    if (!t.defined()) return nullptr;
    TESSERA_CHECK(t.ndim() == 0 && t.dtype() == DType::kFloat32 && t.device() == device_,
                  "optimizer step", what, " is ", t, ", expected float32[] on ", device_);
    return t.device().is_meta() ? nullptr : t.data<float>();
  };
  return {static_cast<const double*>(learning_rate_.raw_data()),
          static_cast<int64_t*>(step_.raw_data()), pointer(inputs.clip_factor, "the clip factor"),
          pointer(inputs.loss_scale, "the loss scale"),
          pointer(inputs.found_inf, "the found-inf flag")};
}

std::vector<UpdateTensor> MultiTensorOptimizer::KernelTensors(
    const std::vector<PendingUpdate>& updates) {
  std::vector<UpdateTensor> tensors;
  for (const PendingUpdate& update : updates) {
    const OptimizedParameter& own = *update.of;
    const auto state = [&](size_t i) {
      return i < own.states.size() ? own.states[i].raw_data() : nullptr;
    };
    tensors.push_back({.n = update.weights.numel(),
                       .dtype = update.weights.dtype(),
                       .grad_dtype = update.grad.dtype(),
                       .param = update.weights.raw_data(),
                       .grad = update.grad.raw_data(),
                       .master = static_cast<float*>(DataOrNull(own.master)),
                       .states = {state(0), state(1)},
                       .lr_scale = own.lr_scale,
                       .weight_decay = own.weight_decay});
  }
  return tensors;
}

void MultiTensorOptimizer::DoStep(const StepInputs& inputs) {
  const NoGrad no_grad;
  const UpdateScalars scalars = ScalarsOf(inputs);
  for (const ParameterGroup& group : groups_) JoinTiedGradients(group.parameters);
  std::vector<PendingUpdate> updates;
  for (const OptimizedParameter& own : parameters_) {
    const Tensor grad = KernelGrad(own.parameter);
    if (grad.defined()) updates.push_back({&own, grad, own.parameter.tensor.ContiguousCopy()});
  }
  advance_step.Launch(device_, {scalars});
  Update(updates, inputs);
  for (const PendingUpdate& update : updates) {
    const Tensor& parameter = update.of->parameter.tensor;
    if (parameter.is_contiguous()) {
      parameter.storage()->BumpVersion();
    } else {
      CopyInto(parameter, update.weights);
    }
  }
}

}  // namespace tessera::optim
