#include "optim/multi_tensor_optimizer.h"

#include <cmath>
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
  for (const ParameterGroup& group : groups) {
    TESSERA_CHECK(IsFactor(group.weight_decay) && IsFactor(group.lr_scale), "optimizer", "group '",
                  group.name, "' has weight decay ", group.weight_decay, " and lr_scale ",
                  group.lr_scale);
    for (const Parameter& p : group.parameters) {
      check_leaf(p.name, p.tensor);
      TESSERA_CHECK(!p.name.empty() && names.insert(p.name).second, "optimizer",
                    "two parameters are named '", p.name, "'");
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
  TESSERA_CHECK(IsFloating(grad.dtype()) && grad.device() == parameter.tensor.device(), "optimizer",
                "'", parameter.name, "' is ", parameter.tensor, ", its gradient ", grad);
  const bool narrow =
      grad.dtype() == DType::kFloat64 && parameter.tensor.dtype() != DType::kFloat64;
  return narrow ? CastCopy(grad, DType::kFloat32) : grad.ContiguousCopy();
}

}  // namespace

MultiTensorOptimizer::MultiTensorOptimizer(std::vector<ParameterGroup> groups, double lr,
                                           std::vector<std::string> state_names)
    : groups_(std::move(groups)), state_names_(std::move(state_names)) {
  TESSERA_CHECK(IsFactor(lr), "optimizer", "learning rate ", lr);
  TESSERA_CHECK(state_names_.size() <= 2, "optimizer", "more than two states per parameter");
  CheckGroups(groups_);
  device_ = CommonDevice(parameters());
  learning_rate_ = Full({}, lr, DType::kFloat64, device_);
  step_ = Zeros({}, DType::kInt64, device_);
  for (const ParameterGroup& group : groups_) {
    for (const Parameter& p : group.parameters) {
      State state;
      const DType dtype = AccumulateDType(p.tensor.dtype());
      if (IsHalf(p.tensor.dtype())) state.master = CastCopy(p.tensor, DType::kFloat32);
      for (size_t i = 0; i < state_names_.size(); ++i) {
        state.states.push_back(Zeros(p.tensor.shape(), dtype, device_));
      }
      states_.push_back(std::move(state));
    }
  }
}

void MultiTensorOptimizer::VisitState(const StateVisitor& visit) const {
  visit("", "step", step_);
  size_t next = 0;
  for (const ParameterGroup& group : groups_) {
    for (const Parameter& p : group.parameters) {
      const State& state = states_[next++];
      if (state.master.defined()) visit(p.name, "master", state.master);
      for (size_t i = 0; i < state_names_.size(); ++i) {
        visit(p.name, state_names_[i], state.states[i]);
      }
    }
  }
}

void MultiTensorOptimizer::RefreshMasterWeights() {
  size_t next = 0;
  for (const ParameterGroup& group : groups_) {
    for (const Parameter& p : group.parameters) {
      const State& state = states_[next++];
      if (state.master.defined()) CopyInto(state.master, p.tensor);
    }
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

void MultiTensorOptimizer::DoStep(const StepInputs& inputs) {
  const NoGrad no_grad;
  const UpdateScalars scalars = ScalarsOf(inputs);
  std::vector<UpdateTensor> tensors;
  std::vector<Tensor> keep_alive;
  std::vector<std::pair<Tensor, Tensor>> updated;  // the parameter, and what the kernel changes
  size_t next = 0;
  for (const ParameterGroup& group : groups_) {
    JoinTiedGradients(group.parameters);
    for (const Parameter& p : group.parameters) {
      const State& state = states_[next++];
      const Tensor grad = KernelGrad(p);
      if (!grad.defined()) continue;
      const Tensor target = p.tensor.ContiguousCopy();  // itself but for strided parameters
      tensors.push_back({.n = target.numel(),
                         .dtype = target.dtype(),
                         .grad_dtype = grad.dtype(),
                         .param = target.raw_data(),
                         .grad = grad.raw_data(),
                         .master = static_cast<float*>(DataOrNull(state.master)),
                         .first = state.states.empty() ? nullptr : state.states[0].raw_data(),
                         .second = state.states.size() < 2 ? nullptr : state.states[1].raw_data(),
                         .lr_scale = group.lr_scale,
                         .weight_decay = group.weight_decay});
      keep_alive.push_back(grad);
      updated.emplace_back(p.tensor, target);
    }
  }
  advance_step.Launch(device_, {scalars});
  Update(device_, tensors, scalars);
  for (const auto& [parameter, target] : updated) {
    if (parameter.is_contiguous()) {
      parameter.storage()->BumpVersion();
    } else {
      CopyInto(parameter, target);
    }
  }
}

}  // namespace tessera::optim
