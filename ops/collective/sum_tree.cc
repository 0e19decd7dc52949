// SPDX-License-Identifier: Apache-2.0
#include "ops/collective/sum_tree.h"

#include <algorithm>
#include <utility>

#include "autograd/autograd.h"
#include "ops/reduction/sum.h"
#include "ops/view/view.h"

namespace tessera {

std::shared_ptr<const SumTree> MakeSumTree(const std::vector<SumBlock>& blocks,
                                           const Group& group) {
  const int ranks = group == nullptr ? 1 : group->size();
  if (kSumLeaves % ranks != 0) return nullptr;
  SumTree tree{ranks == 1 ? nullptr : group, {}};
  for (int i = 0; i < kSumLeaves / ranks; ++i) {
    std::vector<Share>& leaf = tree.leaves.emplace_back();
    int64_t begin = 0;
    for (const SumBlock& block : blocks) {
      const Share units = EvenShare(block.units, kSumLeaves / ranks, i);
      if (units.count > 0) {
        leaf.push_back({begin + units.begin * block.unit, units.count * block.unit});
      }
      begin += block.units * block.unit;
    }
  }
  return std::make_shared<const SumTree>(std::move(tree));
}

namespace {

// Of the repeats [first, first + repeats) of one element, counted as dy's places along dim; some
// may lie elsewhere.
Tensor SumOfRepeats(const Tensor& dy, int dim, const Share& repeats, const SumTree& tree) {
  std::vector<Tensor> terms;
  for (const std::vector<Share>& leaf : tree.leaves) {
    Tensor& term = terms.emplace_back();
    for (const Share& run : leaf) {
      const int64_t begin = std::max(run.begin, repeats.begin);
      const int64_t count = std::min(run.begin + run.count, repeats.begin + repeats.count) - begin;
      if (count <= 0) continue;
      const Tensor wide = CastCopy(Slice(dy, dim, begin, count), AccumulateDType(dy.dtype()));
      Shape shape = wide.shape();
      shape[dim] = 1;
      const Tensor sum = SumTo(wide, shape);
      if (term.defined()) AddInto(term, sum);
      if (!term.defined()) term = sum;
    }
  }
  return SumOfLeaves(terms);
}

}  // namespace

Tensor RepeatInTree(const Tensor& x, int64_t repeats, int dim, int64_t begin,
                    const std::shared_ptr<const SumTree>& tree) {
  dim = x.shape().Normalize(dim, "repeat_in_tree");
  int64_t own = 0;
  for (const std::vector<Share>& leaf : tree->leaves) {
    for (const Share& run : leaf) own += run.count;
  }
  TESSERA_CHECK(repeats > 0 && begin >= 0 && begin + own <= x.size(dim) * repeats, "repeat_in_tree",
                own, " of ", repeats, " repeats of ", x, " along dim ", dim, " from ", begin);
  Shape shape = x.shape();
  shape[dim] = own;
  const Tensor y = Empty(shape, x.dtype(), x.device());
  for (int64_t i = 0; i < own; ++i) {
    CopyInto(Slice(y, dim, i, 1), Slice(x.Detach(), dim, (begin + i) / repeats, 1));
  }
  if (!AnyRequiresGrad({x})) return y;
  Record("repeat_in_tree", {x}, {y},
         [repeats, dim, begin, tree, shape = x.shape(), dtype = x.dtype()](GradContext& ctx) {
           const NoGrad no_grad;
           Shape one = shape;
           one[dim] = 1;
           const Tensor& dy = ctx.grad();
           const DType wide = AccumulateDType(dtype);
           const Tensor sums = Empty(shape, wide, dy.device());
           for (int64_t i = 0; i < shape[dim]; ++i) {
             const Tensor sum = SumOfRepeats(dy, dim, {i * repeats - begin, repeats}, *tree);
             CopyInto(Slice(sums, dim, i, 1),
                      sum.defined() ? sum : Full(one, -0.0, wide, dy.device()));
           }
           SumInTree(sums, tree->group);
           ctx.set(0, dtype == wide ? sums : CastCopy(sums, dtype));
         });
  return y;
}

Tensor SumOfLeaves(const std::vector<Tensor>& terms) {
  std::vector<Tensor> level = terms;
  for (size_t n = terms.size(); n > 1; n /= 2) {
    for (size_t i = 0; i < n / 2; ++i) {
      const Tensor first = level[2 * i];
      const Tensor second = level[2 * i + 1];
      if (first.defined() && second.defined()) AddInto(first, second);
      level[i] = first.defined() ? first : second;
    }
  }
  return level[0];
}

void SumInTree(const Tensor& t, const Group& group) {
  if (group == nullptr || group->size() == 1) return;
  const int64_t ranks = group->size();
  if (ranks == 2) {  // of two there is one order
    group->AllReduce(t, ReduceOp::kSum)->Wait();
    return;
  }
  const int64_t n = t.numel();
  const int64_t each = (n + ranks - 1) / ranks;
  const Tensor all = Zeros({ranks * each}, t.dtype(), t.device());
  const auto part = [&](const Tensor& of, int64_t begin, int64_t count) {
    return of.AsStrided({count}, {1}, begin);
  };
  const Tensor flat = t.AsStrided({n}, {1}, 0);
  CopyInto(part(all, 0, n), flat);
  const Tensor received = Empty(all.shape(), t.dtype(), t.device());
  group->AllToAll(received, all)->Wait();
  for (int64_t step = 1; step < ranks; step *= 2) {
    for (int64_t r = 0; r < ranks; r += 2 * step) {
      AddInto(part(received, r * each, each), part(received, (r + step) * each, each));
    }
  }
  group->AllGather(all, part(received, 0, each))->Wait();
  CopyInto(flat, part(all, 0, n));
}

}  // namespace tessera
