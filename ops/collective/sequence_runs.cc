// SPDX-License-Identifier: Apache-2.0
#include "ops/collective/sequence_runs.h"

#include <algorithm>

#include "core/placement.h"
#include "ops/view/view.h"

namespace tessera {

std::vector<SequenceRun> SequenceRuns(int64_t length, int ranks, int rank) {
  TESSERA_CHECK(0 <= rank && rank < ranks && length >= 0, "sequence_runs", "rank ", rank, " of ",
                ranks, " and ", length, " tokens");
  const Share front = EvenShare(length, 2 * ranks, rank);
  const Share back = EvenShare(length, 2 * ranks, 2 * ranks - 1 - rank);
  if (front.begin + front.count == back.begin) return {{front.begin, front.count + back.count}};
  return {{front.begin, front.count}, {back.begin, back.count}};
}

int64_t RunTokens(const std::vector<SequenceRun>& runs) {
  int64_t tokens = 0;
  for (const SequenceRun& run : runs) tokens += run.count;
  return tokens;
}

std::vector<SequenceRun> PartOfRuns(const std::vector<SequenceRun>& runs, int64_t begin,
                                    int64_t count) {
  std::vector<SequenceRun> part;
  int64_t place = 0;  // of the run among all
  for (const SequenceRun& run : runs) {
    const int64_t first = std::max(begin, place);
    const int64_t end = std::min(begin + count, place + run.count);
    if (first < end) part.push_back({run.begin + first - place, end - first});
    place += run.count;
  }
  return part;
}

Tensor TakeRuns(const Tensor& x, int dim, const std::vector<SequenceRun>& runs) {
  std::vector<Tensor> parts;
  for (const SequenceRun& run : runs) parts.push_back(Slice(x, dim, run.begin, run.count));
  return parts.size() == 1 ? Contiguous(parts[0]) : Cat(parts, dim);
}

}  // namespace tessera
