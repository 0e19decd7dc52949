// SPDX-License-Identifier: Apache-2.0
#include "optim/muon/muon.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/options.h"
#include "ops/elementwise/elementwise.h"
#include "ops/matmul/product.h"
#include "optim/adam/adam_kernel.h"
#include "optim/optimizer_kind.h"

namespace tessera::optim {
namespace {

constexpr const char* kMatchRms = "match_rms_adamw";

bool IsMatrix(const Parameter& p) { return p.tensor.ndim() == 2 && !p.table; }

// The global tensor that `part` is this rank's part of, on every rank of the parameter's group.
Tensor WholeOf(const Parameter& p, const Tensor& part) {
  if (p.group == nullptr) return part;
  const Tensor whole = Zeros(p.placement.global_shape(), part.dtype(), part.device());
  CopyLocalToGlobal(p.placement, part, whole);
  SumOverParts(p, whole);  // of one part and zeros
  return whole;
}

Tensor PartOf(const Parameter& p, const Tensor& whole) {
  if (p.group == nullptr) return whole;
  const Tensor part = Zeros(p.placement.local_shape(), whole.dtype(), whole.device());
  CopyGlobalToLocal(p.placement, whole, part);
  return part;
}

// u with singular values near 1.
Tensor Orthogonalised(const Tensor& u_RC, const MuonOptions& options) {
  const double a = options.ns_coefficients[0];
  const double b = options.ns_coefficients[1];
  const double c = options.ns_coefficients[2];
  const bool tall = u_RC.size(0) > u_RC.size(1);
  const Tensor norm = AtLeast(Sqrt(SquareSum(u_RC)), options.eps);
  const Tensor one = Full({}, 1.0, DType::kFloat64, norm.device());
  Tensor x = Scaled(tall ? Transposed(u_RC) : u_RC, Div(one, norm));
  for (int64_t i = 0; i < options.ns_steps; ++i) {
    const Tensor y = Product(x, Transposed(x));
    const Tensor polynomial = Add(Mul(y, b), Mul(Product(y, y), c));
    x = Add(Mul(x, a), Product(polynomial, x));
  }
  return tall ? Transposed(x) : x;
}

double RateFactor(const Shape& shape, const std::string& adjust_lr_fn) {
  const auto rows = static_cast<double>(shape[0]);
  const auto columns = static_cast<double>(shape[1]);
  return adjust_lr_fn == kMatchRms ? 0.2 * std::sqrt(std::max(rows, columns))
                                   : std::sqrt(std::max(1.0, rows / columns));
}

}  // namespace

const OptionTable& MuonOptions::Table() {
  static const auto* table = new OptionTable(
      OptionTable::Of<MuonOptions>("Muon")
          .Add("momentum", &MuonOptions::momentum, "decay rate of the momentum of matrices",
               {.least = 0, .below = 1, .neutral = 0})
          .Add("nesterov", &MuonOptions::nesterov, "look one step of the momentum ahead")
          .Add("ns_coefficients", &MuonOptions::ns_coefficients,
               "coefficients of the Newton-Schulz iteration", {.count = 3})
          .Add("ns_steps", &MuonOptions::ns_steps, "Newton-Schulz iterations",
               {.least = 1, .below = 100})
          .Add("eps", &MuonOptions::eps, "least norm that an update is divided by", {.above = 0})
          .Add("adjust_lr_fn", &MuonOptions::adjust_lr_fn,
               "how the learning rate of a matrix follows its shape",
               {.choices = {"original", kMatchRms}})
          .Add("betas", &MuonOptions::betas, "AdamW's, for parameters that are no matrices",
               {.least = 0, .below = 1, .count = 2})
          .Add("adam_eps", &MuonOptions::adam_eps,
               "AdamW's eps, for parameters that are no matrices", {.least = 0}));
  return *table;
}

std::vector<StateKind> Muon::States(const Parameter& p, const Options&) {
  if (IsMatrix(p)) return {{"momentum"}};
  return {{"exp_avg"}, {"exp_avg_sq"}};
}

bool Muon::NeedsWhole(const Parameter& p, const Options&) { return IsMatrix(p); }

Muon::Muon(std::vector<ParameterGroup> groups, const MuonOptions& options)
    : MultiTensorOptimizer(std::move(groups), options.lr,
                           [&](const Parameter& p) { return States(p, options); }),
      options_(options) {
  CheckOptions("muon", options);
}

void Muon::Update(const std::vector<PendingUpdate>& updates, const StepInputs& inputs) {
  const TensorStep step(inputs, learning_rate(), this->step());
  std::vector<PendingUpdate> others;
  for (const PendingUpdate& update : updates) {
    if (IsMatrix(update.of->parameter)) {
      UpdateMatrix(update, step);
    } else {
      others.push_back(update);
    }
  }
  adam_update.Launch(device(), {KernelTensors(others),
                                ScalarsOf(inputs),
                                {{options_.betas[0], options_.betas[1]},
                                 options_.adam_eps,
                                 /*decoupled=*/true}});
}

void Muon::UpdateMatrix(const PendingUpdate& update, const TensorStep& step) const {
  const Parameter& p = update.of->parameter;
  const Shape& global = p.placement.global_shape();
  if (global.numel() == 0) return;
  const Tensor& momentum = update.of->states[0];
  const double mu = options_.momentum;
  const Tensor g = Mul(step.Gradient(update), 1.0 - mu);
  const Tensor moved = Add(Mul(momentum.Detach(), mu), g);
  const Tensor u = options_.nesterov ? Add(Mul(moved, mu), g) : moved;
  const Tensor x = PartOf(p, Orthogonalised(WholeOf(p, u), options_));
  step.Assign(momentum, moved);
  const Tensor weights = TensorStep::Weights(update).Detach();
  const Tensor rate = step.Rate(update);
  const Tensor decayed = Scaled(weights, Affine(rate, -update.of->weight_decay, 1.0));
  step.AssignWeights(update,
                     Sub(decayed, Scaled(x, Mul(rate, RateFactor(global, options_.adjust_lr_fn)))));
}

TESSERA_REGISTER_OPTIMIZER(Muon, "muon",
                           "Muon: orthogonalised momentum of matrices, AdamW for the rest "
                           "(Jordan et al. 2024)");

}  // namespace tessera::optim
