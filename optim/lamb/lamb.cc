// SPDX-License-Identifier: Apache-2.0
#include "optim/lamb/lamb.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/options.h"
#include "ops/view/view.h"
#include "optim/lamb/lamb_kernel.h"
#include "optim/optimizer_kind.h"

namespace tessera::optim {
namespace {

bool IsSplit(const PendingUpdate& update) { return update.of->parameter.group != nullptr; }

int64_t ChunksOf(const std::vector<UpdateTensor>& tensors) {
  int64_t chunks = 0;
  for (const UpdateTensor& t : tensors) chunks += (t.n + kUpdateChunk - 1) / kUpdateChunk;
  return chunks;
}

}  // namespace

const OptionTable& LambOptions::Table() {
  static const auto* table = new OptionTable(
      OptionTable::Of<LambOptions>("LAMB")
          .Add("betas", &LambOptions::betas, "decay rates of the two moments",
               {.least = 0, .below = 1, .count = 2})
          .Add("eps", &LambOptions::eps, "added to the root of the second moment", {.above = 0}));
  return *table;
}

std::vector<StateKind> Lamb::States(const Parameter&, const Options&) {
  return {{"exp_avg"}, {"exp_avg_sq"}};
}

Lamb::Lamb(std::vector<ParameterGroup> groups, const LambOptions& options)
    : MultiTensorOptimizer(std::move(groups), options.lr,
                           [&](const Parameter& p) { return States(p, options); }),
      options_(options) {
  CheckOptions("lamb", options);
  std::shared_ptr<Communicator> group;
  for (const Parameter& p : parameters()) {
    if (group == nullptr) group = p.group;
    TESSERA_CHECK(p.group == nullptr || p.group == group, "lamb", "the parts of '", p.name,
                  "' lie over another group than those of other parameters");
  }
}

void Lamb::Update(const std::vector<PendingUpdate>& updates, const StepInputs& inputs) {
  // Those in parts first, so that one exchange sums all of their norms.
  std::vector<PendingUpdate> ordered = updates;
  const auto rest = std::stable_partition(ordered.begin(), ordered.end(), IsSplit);
  const int64_t split = rest - ordered.begin();
  const std::vector<UpdateTensor> tensors = KernelTensors(ordered);
  const Tensor sums = Empty({ChunksOf(tensors), 2}, DType::kFloat64, device());
  const Tensor norms = Zeros({std::ssize(tensors), 2}, DType::kFloat64, device());
  const LambArgs args{tensors,
                      ScalarsOf(inputs),
                      {{options_.betas[0], options_.betas[1]}, options_.eps},
                      static_cast<double*>(sums.raw_data()),
                      static_cast<double*>(norms.raw_data())};
  lamb_moments.Launch(device(), args);
  lamb_norms.Launch(device(), args);
  if (split > 0) {
    const Tensor of_parts = Slice(norms, 0, 0, split);
    ordered.front().of->parameter.group->AllReduce(of_parts, ReduceOp::kSum)->Wait();
  }
  lamb_apply.Launch(device(), args);
}

TESSERA_REGISTER_OPTIMIZER(Lamb, "lamb",
                           "LAMB: Adam with a ratio of norms per parameter (You et al. 2020)");

}  // namespace tessera::optim
