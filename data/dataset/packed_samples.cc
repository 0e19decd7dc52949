// SPDX-License-Identifier: Apache-2.0
#include "data/dataset/packed_samples.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "base/error.h"
#include "data/dataset/keyed_permutation.h"

namespace tessera::data {
namespace {

// Appends the rows of the samples in `order`.
void PackWindow(std::span<const int64_t> lengths, std::vector<int64_t> order, int64_t row_length,
                std::vector<std::vector<int64_t>>* rows) {
  const auto length = [&](int64_t sample) { return lengths[static_cast<size_t>(sample)]; };
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return length(a) > length(b); });
  // The room that rows have left, and which they are: of several with the same, the first counts.
  std::set<std::pair<int64_t, size_t>> room;
  for (const int64_t sample : order) {
    const auto found = room.lower_bound({length(sample), 0});
    std::pair<int64_t, size_t> place = {row_length, rows->size()};
    if (found == room.end()) {
      rows->emplace_back();
    } else {
      place = *found;
      room.erase(found);
    }
    (*rows)[place.second].push_back(sample);
    room.insert({place.first - length(sample), place.second});
  }
}

}  // namespace

std::vector<std::vector<int64_t>> PackIntoRows(std::span<const int64_t> lengths,
                                               const SamplePackingOptions& options) {
  constexpr const char* kName = "PackIntoRows";
  TESSERA_CHECK(options.row_length >= 1 && options.window >= 1, kName, "rows of ",
                options.row_length, " tokens, windows of ", options.window, " samples");
  std::vector<std::vector<int64_t>> rows;
  const int64_t total = std::ssize(lengths);
  if (total == 0) return rows;
  for (int64_t i = 0; i < total; ++i) {
    const int64_t length = lengths[static_cast<size_t>(i)];
    TESSERA_CHECK(length >= 0 && length <= options.row_length, kName, "sample ", i, " has ", length,
                  " tokens, a row ", options.row_length);
  }
  const KeyedPermutation shuffled(total, options.seed, /*epoch=*/0);
  for (int64_t begin = 0; begin < total; begin += options.window) {
    std::vector<int64_t> order(static_cast<size_t>(std::min(options.window, total - begin)));
    for (size_t i = 0; i < order.size(); ++i) order[i] = shuffled(begin + static_cast<int64_t>(i));
    PackWindow(lengths, std::move(order), options.row_length, &rows);
  }
  return rows;
}

std::shared_ptr<const PackedSamples> PackedSamples::Create(
    std::shared_ptr<const TokenDataset> samples, const SamplePackingOptions& options) {
  TESSERA_CHECK(samples != nullptr && !samples->has_document_ids(), "PackedSamples",
                "the samples are missing, or have document ids");
  std::vector<int64_t> lengths(static_cast<size_t>(samples->size()));
  for (size_t i = 0; i < lengths.size(); ++i) {
    lengths[i] = samples->length(static_cast<int64_t>(i));
  }
  std::vector<std::vector<int64_t>> rows = PackIntoRows(lengths, options);
  return std::shared_ptr<const PackedSamples>(
      new PackedSamples(std::move(samples), options.row_length, std::move(rows)));
}

int64_t PackedSamples::length(int64_t index) const {
  TESSERA_CHECK(index >= 0 && index < size(), "PackedSamples", "row ", index, " of ", size());
  const std::vector<int64_t>& row = samples_of(index);
  return std::accumulate(row.begin(), row.end(), int64_t{0}, [&](int64_t sum, int64_t sample) {
    return sum + samples_->length(sample);
  });
}

Status PackedSamples::Fill(int64_t index, const SampleRow& row) const {
  TESSERA_CHECK(index >= 0 && index < size(), "PackedSamples", "row ", index, " of ", size());
  size_t begin = 0;
  int64_t number = 0;
  for (const int64_t sample : samples_of(index)) {
    const auto length = static_cast<size_t>(samples_->length(sample));
    TESSERA_RETURN_IF_ERROR(
        samples_->Fill(sample, {.input_ids = row.input_ids.subspan(begin, length),
                                .targets = row.targets.subspan(begin, length),
                                .position_ids = {},
                                .document_ids = {}}));
    const auto positions = row.position_ids.subspan(begin, length);
    std::iota(positions.begin(), positions.end(), 0);
    const auto documents = row.document_ids.subspan(begin, length);
    std::fill(documents.begin(), documents.end(), number);
    begin += length;
    ++number;
  }
  return OkStatus();
}

}  // namespace tessera::data
