// SPDX-License-Identifier: Apache-2.0
#include "nn/running_statistics.h"

#include <algorithm>
#include <utility>

#include "ops/cast/cast.h"
#include "ops/elementwise/elementwise.h"
#include "ops/view/view.h"

namespace tessera::nn {
namespace {

constinit thread_local RunningStatistics* current = nullptr;

}  // namespace

RunningStatistics::Scope::Scope(RunningStatistics* statistics) : before_(current) {
  current = statistics;
}
RunningStatistics::Scope::~Scope() { current = before_; }

RunningStatistics* RunningStatistics::Current() { return current; }

void RunningStatistics::Add(Parameter& running, const Tensor& found, double momentum) {
  Add(running, found, [momentum](const Tensor& before, const Tensor& mean) {
    return tessera::Add(Mul(before, 1.0 - momentum), Mul(mean, momentum));
  });
}

void RunningStatistics::Add(Parameter& running, const Tensor& found, Update update) {
  const auto entry = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& e) { return e.running == &running; });
  const NoGrad no_grad;
  if (entry == entries_.end()) {
    entries_.push_back({&running, found.Detach(), 1, std::move(update)});
  } else {
    entry->sum = tessera::Add(entry->sum, found);
    entry->count += 1;
  }
}

void RunningStatistics::Apply(const Group& group, const Tensor& left_out) {
  const std::vector<Entry> entries = std::move(entries_);
  entries_.clear();
  if (entries.empty()) return;
  const NoGrad no_grad;
  const int ranks = group == nullptr ? 1 : group->size();
  std::vector<Tensor> means;
  std::vector<int64_t> sizes;
  DType dtype = entries[0].sum.dtype();
  for (const Entry& e : entries) {
    if (e.sum.dtype() != dtype) dtype = DType::kFloat64;
  }
  for (const Entry& e : entries) {
    means.push_back(Mul(Cast(Reshape(e.sum, {-1}), dtype), 1.0 / (e.count * ranks)));
    sizes.push_back(e.sum.numel());
  }
  const Tensor all = Cat(means, 0);
  if (ranks > 1) group->AllReduce(all, ReduceOp::kSum)->Wait();
  const std::vector<Tensor> found = Split(all, sizes, 0);
  for (size_t i = 0; i < entries.size(); ++i) {
    const Tensor& running = entries[i].running->tensor;
    const Tensor before = Cast(running.Detach(), all.dtype());
    Tensor after = entries[i].update(before, Reshape(found[i], running.shape()));
    if (left_out.defined()) {
      after = Where(Compare(left_out, 0.0, Comparison::kNotEqual), before, after);
    }
    CopyInto(running, after);
  }
}

}  // namespace tessera::nn
