// SPDX-License-Identifier: Apache-2.0
#include "data/dataset/blended_dataset.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.h"

namespace tessera::data {
namespace {

// Whole numbers >= 1 that sum to `total`, in the proportion of the weights as near as may be.
std::vector<int64_t> WholeShares(const std::vector<double>& weights, int64_t total) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<int64_t> shares;
  std::vector<double> exact;
  for (const double weight : weights) {
    exact.push_back(weight / sum * static_cast<double>(total));
    shares.push_back(std::max<int64_t>(1, static_cast<int64_t>(exact.back())));
  }
  int64_t left = total - std::accumulate(shares.begin(), shares.end(), int64_t{0});
  // Give to those that lag most, take from those that have most too many.
  for (; left != 0; left += left > 0 ? -1 : 1) {
    int64_t best = -1;
    for (int64_t d = 0; d < std::ssize(shares); ++d) {
      if (left < 0 && shares[d] == 1) continue;
      const auto lag = [&](int64_t i) {
        const double missing = exact[i] - static_cast<double>(shares[i]);
        return left > 0 ? missing : -missing;
      };
      if (best < 0 || lag(d) > lag(best)) best = d;
    }
    shares[best] += left > 0 ? 1 : -1;
  }
  return shares;
}

}  // namespace

StatusOr<std::shared_ptr<const BlendedDataset>> BlendedDataset::Create(
    std::vector<std::shared_ptr<const TokenDataset>> datasets, const std::vector<double>& weights) {
  if (datasets.empty() || datasets.size() > 1024 || datasets.size() != weights.size()) {
    return InvalidArgument("blend: ", datasets.size(), " datasets with ", weights.size(),
                           " weights (1 to 1024 of each)");
  }
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (size_t d = 0; d < datasets.size(); ++d) {
    if (!(weights[d] > 0) || !std::isfinite(sum)) {
      return InvalidArgument("blend: weight ", weights[d], " of dataset ", d,
                             " is not a positive number");
    }
    if (datasets[d]->size() < 1) return InvalidArgument("blend: dataset ", d, " has no samples");
    if (datasets[d]->seq_len() != datasets[0]->seq_len() ||
        datasets[d]->has_document_ids() != datasets[0]->has_document_ids()) {
      return InvalidArgument("blend: dataset ", d, " has samples of another form than dataset 0");
    }
  }
  std::shared_ptr<BlendedDataset> blend(new BlendedDataset());
  blend->datasets_ = std::move(datasets);
  blend->shares_ = WholeShares(weights, kPeriod);
  blend->FillTable(blend->shares_);
  for (size_t d = 0; d < blend->datasets_.size(); ++d) {
    const int64_t samples = blend->datasets_[d]->size();
    const int64_t share = blend->shares_[d];
    const int64_t periods = samples / share;
    if (periods >= std::numeric_limits<int64_t>::max() / kPeriod - 1) {
      return InvalidArgument("blend: dataset ", d, " is too large for its weight ", weights[d]);
    }
    // The position behind the last of `samples` slots of this dataset.
    int64_t end = periods * kPeriod;
    if (int64_t rest = samples % share; rest > 0) {
      while (rest > 0) rest -= blend->table_[end++ % kPeriod].dataset == static_cast<int32_t>(d);
    }
    blend->size_ = std::max(blend->size_, end);
  }
  return std::shared_ptr<const BlendedDataset>(std::move(blend));
}

void BlendedDataset::FillTable(const std::vector<int64_t>& shares) {
  std::vector<int64_t> taken(shares.size(), 0);
  table_.reserve(kPeriod);
  for (int64_t i = 0; i < kPeriod; ++i) {
    size_t best = 0;
    const auto lag = [&](size_t d) { return shares[d] * (i + 1) - kPeriod * taken[d]; };
    for (size_t d = 1; d < shares.size(); ++d) {
      if (lag(d) > lag(best)) best = d;
    }
    table_.push_back({static_cast<int32_t>(best), static_cast<int32_t>(taken[best]++)});
  }
}

BlendedDataset::Place BlendedDataset::PlaceOf(int64_t index) const {
  TESSERA_CHECK(index >= 0, "BlendedDataset::PlaceOf", "sample ", index);
  const Slot& slot = table_[index % kPeriod];
  const int64_t number = index / kPeriod * shares_[slot.dataset] + slot.before;
  return {slot.dataset, number % datasets_[slot.dataset]->size()};
}

int64_t BlendedDataset::length(int64_t index) const {
  const Place place = PlaceOf(index);
  return datasets_[place.dataset]->length(place.index);
}

Status BlendedDataset::Fill(int64_t index, const SampleRow& row) const {
  const Place place = PlaceOf(index);
  return datasets_[place.dataset]->Fill(place.index, row);
}

}  // namespace tessera::data
