// SPDX-License-Identifier: Apache-2.0
// How context parallelism cuts a sequence over ranks.
//
//   const std::vector<SequenceRun> mine = SequenceRuns(tokens, cp->size(), cp->rank());
//   Tensor ids_BS = TakeRuns(ids_BT, 1, mine);          // S = RunTokens(mine)
//
// A sequence is cut into 2N runs for N ranks, and rank r has run r and run 2N - 1 - r, in this
// order: with causal attention a token reads all that is before it, and so every rank has about
// equal work (Llama 3, arXiv:2407.21783, section 3.3.2). Lengths need not divide: runs are
// `EvenShare`s, and a rank of a short sequence may have none.
#ifndef TESSERA_OPS_COLLECTIVE_SEQUENCE_RUNS_H_
#define TESSERA_OPS_COLLECTIVE_SEQUENCE_RUNS_H_

#include <cstdint>
#include <vector>

#include "core/tensor.h"

namespace tessera {

// Neighbouring tokens of a sequence: [begin, begin + count).
struct SequenceRun {
  int64_t begin = 0;
  int64_t count = 0;
  friend bool operator==(const SequenceRun&, const SequenceRun&) = default;
};

// What rank `rank` of `ranks` has of `length` tokens: two runs, or one where they are neighbours.
std::vector<SequenceRun> SequenceRuns(int64_t length, int ranks, int rank);

// How many tokens runs have.
int64_t RunTokens(const std::vector<SequenceRun>& runs);

// Of runs that lie one behind the other, the runs of [begin, begin + count) of them.
std::vector<SequenceRun> PartOfRuns(const std::vector<SequenceRun>& runs, int64_t begin,
                                    int64_t count);

// The runs of x along dim, one behind the other. Gradients flow back to their places.
Tensor TakeRuns(const Tensor& x, int dim, const std::vector<SequenceRun>& runs);

}  // namespace tessera

#endif  // TESSERA_OPS_COLLECTIVE_SEQUENCE_RUNS_H_
