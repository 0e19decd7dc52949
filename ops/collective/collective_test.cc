// SPDX-License-Identifier: Apache-2.0
#include "ops/collective/collective.h"

#include <gtest/gtest.h>

#include <numeric>

#include "autograd/autograd.h"
#include "core/placement.h"
#include "core/thread_communicator.h"
#include "ops/testing/op_check.h"
#include "ops/view/view.h"

namespace tessera {
namespace {

// Runs `op` on every rank and checks its result and gradient: `forward` and `backward` say what a
// rank gets of the ranks' inputs and of the ranks' incoming gradients.
using PerRank = std::function<Tensor(const Tensors& of_all, int rank)>;

void CheckCollective(int ranks, std::function<Tensor(const Tensor&, const Group&)> op,
                     std::function<Tensor(int rank)> input, PerRank forward, PerRank backward) {
  Tensors inputs;
  for (int r = 0; r < ranks; ++r) inputs.push_back(input(r));
  Tensors grads;
  for (int r = 0; r < ranks; ++r) {
    grads.push_back(RandomTensor(forward(inputs, r).shape(), 100 + static_cast<uint64_t>(r)));
  }
  RunRanks(ranks, [&](std::shared_ptr<Communicator> world) {
    const int r = world->rank();
    const Tensor x = RequireGrad(CastCopy(inputs[r], DType::kFloat64));
    const Tensor y = op(x, world);
    ExpectClose(y, forward(inputs, r), 1e-15, "forward");
    Backward({y}, {grads[r]});
    ExpectClose(Grad(x), backward(grads, r), 1e-14, "backward");
  });
}

Tensor SumOf(const Tensors& all) {
  const Tensor sum = ZerosLike(all[0]);
  for (const Tensor& t : all) AddInto(sum, t);
  return sum;
}

TEST(CollectiveTest, AllOfThemOnTwoAndThreeRanks) {
  constexpr int64_t kSize = 7;  // divided by neither
  for (const int ranks : {1, 2, 3}) {
    const auto whole = [](int r) { return RandomTensor({2, kSize, 3}, static_cast<uint64_t>(r)); };
    const auto same = [](int) { return RandomTensor({2, kSize, 3}, 5); };
    const auto share = [ranks](const Tensor& t, int r) {
      const Share s = EvenShare(kSize, ranks, r);
      return Slice(t, 1, s.begin, s.count);
    };
    const auto part = [&](int r) { return share(same(0), r); };
    const auto own = [](const Tensors& all, int r) { return all[static_cast<size_t>(r)]; };
    const auto sum = [](const Tensors& all, int) { return SumOf(all); };
    const auto join = [](const Tensors& all, int) { return Cat(all, 1); };
    const auto share_of_own = [&](const Tensors& all, int r) {
      return share(all[static_cast<size_t>(r)], r);
    };
    const auto share_of_sum = [&](const Tensors& all, int r) { return share(SumOf(all), r); };

    CheckCollective(ranks, CopyToGroup, whole, own, sum);
    CheckCollective(ranks, ReduceFromGroup, whole, sum, own);
    CheckCollective(
        ranks, [](const Tensor& x, const Group& g) { return ScatterToGroup(x, 1, g); }, same,
        share_of_own, join);
    CheckCollective(
        ranks, [](const Tensor& x, const Group& g) { return GatherFromGroup(x, 1, kSize, g); },
        part, join, share_of_own);
    CheckCollective(
        ranks, [](const Tensor& x, const Group& g) { return AllGatherToGroup(x, 1, kSize, g); },
        part, join, share_of_sum);
    CheckCollective(
        ranks, [](const Tensor& x, const Group& g) { return ReduceScatterToGroup(x, 1, g); }, whole,
        share_of_sum, join);
  }
}

TEST(CollectiveTest, ExchangedRows) {
  // Rows from one rank to another; between some there are none.
  const auto count = [](int from, int to) -> int64_t {
    return (from + 2 * to) % 3 + (from == to ? 1 : 0);
  };
  for (const int ranks : {1, 2, 3}) {
    const auto sent = [&](int from) {
      std::vector<int64_t> counts;
      for (int to = 0; to < ranks; ++to) counts.push_back(count(from, to));
      return counts;
    };
    const auto received = [&](int to) {
      std::vector<int64_t> counts;
      for (int from = 0; from < ranks; ++from) counts.push_back(count(from, to));
      return counts;
    };
    const auto rows = [&](int r) {
      const std::vector<int64_t> counts = sent(r);
      return RandomTensor({std::accumulate(counts.begin(), counts.end(), int64_t{0}), 2},
                          static_cast<uint64_t>(r));
    };
    CheckCollective(
        ranks,
        [&](const Tensor& x, const Group& g) {
          return ExchangeRows(x, sent(g->rank()), received(g->rank()), g);
        },
        rows,
        [&](const Tensors& all, int r) {
          Tensors parts;
          for (int from = 0; from < ranks; ++from) {
            parts.push_back(Split(all[static_cast<size_t>(from)], sent(from), 0)[r]);
          }
          return Cat(parts, 0);
        },
        [&](const Tensors& all, int r) {
          Tensors parts;
          for (int to = 0; to < ranks; ++to) {
            parts.push_back(Split(all[static_cast<size_t>(to)], received(to), 0)[r]);
          }
          return Cat(parts, 0);
        });
  }
}

TEST(CollectiveTest, RefusesAWrongShare) {
  EXPECT_THROW(RunRanks(2,
                        [](std::shared_ptr<Communicator> world) {
                          GatherFromGroup(Zeros({3}), 0, 5, world);  // rank 1 has 2 of 5
                        }),
               Error);
}

}  // namespace
}  // namespace tessera
