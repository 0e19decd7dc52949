// SPDX-License-Identifier: Apache-2.0
// The order in which experts work on tokens.
//
//   const TokenGroups groups = GroupTokens(chosen_Nk, /*experts=*/8);
//   Tensor rows_RC = DispatchRows(h_NC, groups.place, groups.rows());  // by expert, then token
//   ... Split(rows_RC, groups.counts, 0) ...
//   Tensor y_NC = CombineRows(results_RC, weights_Nk, groups.place);   // by token again
//
// On meta, where there are no numbers, experts have equal shares.
#ifndef TESSERA_NN_TOKEN_GROUPS_H_
#define TESSERA_NN_TOKEN_GROUPS_H_

#include <cstdint>
#include <numeric>
#include <vector>

#include "core/tensor.h"

namespace tessera::nn {

struct TokenGroups {
  std::vector<int64_t> counts;  // [E], rows of each expert
  Tensor place;                 // int64 [N, k], the row of each choice; -1 where it is left out
  int64_t rows() const { return std::accumulate(counts.begin(), counts.end(), int64_t{0}); }
};

// Of what N tokens chose: int64 [N, k], each below `experts`. An expert gets at most its first
// `capacity` tokens; 0: all. Reads `chosen` from its device.
TokenGroups GroupTokens(const Tensor& chosen, int64_t experts, int64_t capacity = 0);

}  // namespace tessera::nn

#endif  // TESSERA_NN_TOKEN_GROUPS_H_
