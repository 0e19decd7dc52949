// SPDX-License-Identifier: Apache-2.0
#include "nn/token_groups.h"

#include "base/error.h"
#include "core/placement.h"

namespace tessera::nn {
namespace {

TokenGroups GroupsOnMeta(const Tensor& chosen, int64_t experts) {
  TokenGroups groups;
  for (int64_t e = 0; e < experts; ++e) {
    groups.counts.push_back(EvenShare(chosen.numel(), experts, e).count);
  }
  groups.token = Empty({chosen.numel()}, DType::kInt64, chosen.device());
  groups.row = Empty({chosen.numel()}, DType::kInt64, chosen.device());
  return groups;
}

}  // namespace

TokenGroups GroupTokens(const Tensor& chosen, int64_t experts, int64_t capacity) {
  if (chosen.device().is_meta()) return GroupsOnMeta(chosen, experts);
  const int64_t each = chosen.size(1);
  const std::vector<int64_t> expert_of = CopyTo(chosen, Device::Cpu()).ToVector<int64_t>();
  TokenGroups groups;
  groups.counts.assign(static_cast<size_t>(experts), 0);
  std::vector<float> kept(expert_of.size(), 1);
  bool all_kept = true;
  for (size_t i = 0; i < expert_of.size(); ++i) {
    TESSERA_CHECK(expert_of[i] >= 0 && expert_of[i] < experts, "token_groups", "expert ",
                  expert_of[i], " of ", experts);
    int64_t& count = groups.counts[static_cast<size_t>(expert_of[i])];
    if (capacity > 0 && count == capacity) {
      kept[i] = 0;
      all_kept = false;
    } else {
      ++count;
    }
  }
  std::vector<int64_t> next(groups.counts.size(), 0);  // the next row of each expert
  for (size_t e = 1; e < next.size(); ++e) next[e] = next[e - 1] + groups.counts[e - 1];
  const int64_t rows = next.back() + groups.counts.back();
  std::vector<int64_t> token(static_cast<size_t>(rows));
  std::vector<int64_t> row(expert_of.size(), 0);
  for (size_t i = 0; i < expert_of.size(); ++i) {
    if (kept[i] == 0) continue;
    row[i] = next[static_cast<size_t>(expert_of[i])]++;
    token[static_cast<size_t>(row[i])] = static_cast<int64_t>(i) / each;
  }
  const auto there = [&](const auto& values, const Shape& shape) {
    return CopyTo(Tensor::FromVector(values, shape), chosen.device());
  };
  groups.token = there(token, {rows});
  groups.row = there(row, {std::ssize(row)});
  if (!all_kept) groups.kept = there(kept, chosen.shape());
  return groups;
}

}  // namespace tessera::nn
