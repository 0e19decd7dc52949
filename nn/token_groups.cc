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
  groups.place = Empty(chosen.shape(), DType::kInt64, chosen.device());
  return groups;
}

}  // namespace

TokenGroups GroupTokens(const Tensor& chosen, int64_t experts, int64_t capacity) {
  if (chosen.device().is_meta()) return GroupsOnMeta(chosen, experts);
  const std::vector<int64_t> expert_of = CopyTo(chosen, Device::Cpu()).ToVector<int64_t>();
  TokenGroups groups;
  groups.counts.assign(static_cast<size_t>(experts), 0);
  std::vector<int64_t> place;  // within the expert's rows at first
  for (const int64_t expert : expert_of) {
    TESSERA_CHECK(expert >= 0 && expert < experts, "token_groups", "expert ", expert, " of ",
                  experts);
    int64_t& count = groups.counts[static_cast<size_t>(expert)];
    place.push_back(capacity > 0 && count == capacity ? -1 : count++);
  }
  std::vector<int64_t> begin(groups.counts.size(), 0);  // the first row of each expert
  for (size_t e = 1; e < begin.size(); ++e) begin[e] = begin[e - 1] + groups.counts[e - 1];
  for (size_t i = 0; i < place.size(); ++i) {
    if (place[i] >= 0) place[i] += begin[static_cast<size_t>(expert_of[i])];
  }
  groups.place = CopyTo(Tensor::FromVector(place, chosen.shape()), chosen.device());
  return groups;
}

}  // namespace tessera::nn
