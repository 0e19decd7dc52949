// SPDX-License-Identifier: Apache-2.0
// The order in which experts work on tokens.
//
//   const TokenGroups groups = GroupTokens(chosen_Nk, /*experts=*/8);
//   Tensor rows_RC = IndexSelect(h_NC, 0, groups.token);           // sorted by expert, then token
//   ... Split(rows_RC, groups.counts, 0) ...
//   Tensor each_NkC = IndexSelect(results_RC, 0, groups.row);      // by token again
//
// On meta, where there are no numbers, experts have equal shares.
#ifndef TESSERA_NN_TOKEN_GROUPS_H_
#define TESSERA_NN_TOKEN_GROUPS_H_

#include <cstdint>
#include <vector>

#include "core/tensor.h"

namespace tessera::nn {

struct TokenGroups {
  std::vector<int64_t> counts;  // [E], rows of each expert; R is their sum
  Tensor token;                 // int64 [R], the token of a row
  Tensor row;                   // int64 [N * k], the row of each choice; 0 where it is left out
  Tensor kept;                  // float32 [N, k]: 0 where a choice is left out; undefined: nowhere
};

// Of what N tokens chose: int64 [N, k], each below `experts`. An expert gets at most its first
// `capacity` tokens; 0: all. Reads `chosen` from its device.
TokenGroups GroupTokens(const Tensor& chosen, int64_t experts, int64_t capacity = 0);

}  // namespace tessera::nn

#endif  // TESSERA_NN_TOKEN_GROUPS_H_
