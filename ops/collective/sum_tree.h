// SPDX-License-Identifier: Apache-2.0
// Sums over features that are cut over ranks, in an order that does not depend on the ranks: those
// of kSumLeaves runs of features, the leaves, are added in a binary tree. Each of a group of 1, 2,
// 4 or 8 ranks has as many neighbouring leaves, whose sum is one node of the tree.
//
//   const auto tree = MakeSumTree({{.units = my_features}}, tp);
//   y = Linear(x, weight, bias, layout, {.inputs = tree});    // the same bits for any size of tp
#ifndef TESSERA_OPS_COLLECTIVE_SUM_TREE_H_
#define TESSERA_OPS_COLLECTIVE_SUM_TREE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "core/placement.h"
#include "ops/collective/collective.h"

namespace tessera {

inline constexpr int kSumLeaves = 8;

// The leaves of this rank, as runs of its own features, and the ranks that have the others
// (nullptr: none).
struct SumTree {
  Group group;
  std::vector<std::vector<Share>> leaves;
};

// Features of this rank: so many units of `unit` features, which stay together.
struct SumBlock {
  int64_t units;
  int64_t unit = 1;
};

// Of blocks that lie one behind the other; a leaf has a part of each. nullptr where the ranks do
// not share out the leaves.
std::shared_ptr<const SumTree> MakeSumTree(const std::vector<SumBlock>& blocks, const Group& group);

// Of a linear layer: y is summed over its inputs, and dx over its outputs. nullptr: these lie on
// one rank, or the caller adds the ranks' terms.
struct LinearTrees {
  std::shared_ptr<const SumTree> inputs = nullptr;
  std::shared_ptr<const SumTree> outputs = nullptr;
};

// Sums over the tokens of [B, T, ...]. Each rank of `group` has EvenShare(T, ranks, rank) of the
// tokens; without a group one rank has all. A leaf is an EvenShare of T, too.
struct TokenTree {
  Group group;
};

// Each element of x along dim `repeats` times in a row, and of all these the rank's own: those that
// the tree has, from `begin` on. Backward: an element's gradient is summed over its repeats in the
// tree and over its ranks, in float32 (float64 of float64).
//
//   k_BTHD = RepeatInTree(k_BTGD, H / G, 2, first_head, heads);    // a key for each query head
Tensor RepeatInTree(const Tensor& x, int64_t repeats, int dim, int64_t begin,
                    const std::shared_ptr<const SumTree>& tree);

// The sum of leaves' terms in a binary tree, which is written over the first of them; undefined
// ones are no part of it. Off the tape.
Tensor SumOfLeaves(const std::vector<Tensor>& terms);

// t (contiguous) becomes the sum of the ranks' t, a power of two of them, which are added in a
// binary tree: ((0 + 1) + (2 + 3)). Off the tape.
void SumInTree(const Tensor& t, const Group& group);

}  // namespace tessera

#endif  // TESSERA_OPS_COLLECTIVE_SUM_TREE_H_
