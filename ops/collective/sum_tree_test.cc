// SPDX-License-Identifier: Apache-2.0
#include "ops/collective/sum_tree.h"

#include <gtest/gtest.h>

#include <vector>

#include "autograd/autograd.h"
#include "core/thread_communicator.h"
#include "ops/testing/op_check.h"

namespace tessera {
namespace {

// On any number of ranks that a tree knows its leaves are the same features, each once.
TEST(SumTreeTest, LeavesAreTheSameOnAnyNumberOfRanks) {
  for (const int64_t units : {0, 1, 3, 8, 12, 13, 64, 100}) {
    std::vector<std::vector<Share>> one;
    for (const int ranks : {1, 2, 4, 8}) {
      std::vector<std::vector<Share>> all;
      RunRanks(ranks, [&](std::shared_ptr<Communicator> world) {
        for (int turn = 0; turn < world->size(); ++turn) {
          if (turn == world->rank()) {
            const Share own = EvenShare(units, ranks, turn);
            const auto tree = MakeSumTree({{.units = own.count, .unit = 2}}, world);
            ASSERT_EQ(std::ssize(tree->leaves), kSumLeaves / ranks);
            for (const std::vector<Share>& leaf : tree->leaves) {
              std::vector<Share>& global = all.emplace_back();
              for (const Share& run : leaf)
                global.push_back({run.begin + 2 * own.begin, run.count});
            }
          }
          world->Barrier();
        }
      });
      int64_t next = 0;
      for (const std::vector<Share>& leaf : all) {
        for (const Share& run : leaf) {
          EXPECT_EQ(run.begin, next);
          next = run.begin + run.count;
        }
      }
      EXPECT_EQ(next, 2 * units);
      if (ranks == 1) one = all;
      ASSERT_EQ(all.size(), one.size());
      for (size_t i = 0; i < all.size(); ++i) {
        ASSERT_EQ(all[i].size(), one[i].size()) << units << " on " << ranks;
        for (size_t r = 0; r < all[i].size(); ++r) {
          EXPECT_EQ(all[i][r].begin, one[i][r].begin) << units << " on " << ranks;
        }
      }
    }
  }
}

TEST(SumTreeTest, RanksThatDoNotShareOutTheLeavesHaveNone) {
  RunRanks(3, [&](std::shared_ptr<Communicator> world) {
    EXPECT_EQ(MakeSumTree({{.units = 12}}, world), nullptr);
  });
}

// ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)), in float32 and to the bit, on every rank.
TEST(SumTreeTest, RanksAddInATree) {
  for (const int ranks : {1, 2, 4, 8}) {
    std::vector<Tensor> terms;
    std::vector<Tensor> copies;
    for (int r = 0; r < ranks; ++r) {
      terms.push_back(CastCopy(RandomTensor({3, 7}, static_cast<uint64_t>(r)), DType::kFloat32));
      copies.push_back(CastCopy(terms.back(), DType::kFloat32));
    }
    const std::vector<float> expected = SumOfLeaves(copies).ToVector<float>();
    RunRanks(ranks, [&](std::shared_ptr<Communicator> world) {
      const Tensor t = CastCopy(terms[static_cast<size_t>(world->rank())], DType::kFloat32);
      SumInTree(t, world);
      EXPECT_EQ(t.ToVector<float>(), expected) << ranks;
    });
  }
}

// Of 3 elements 5 repeats each, shared out over ranks.
TEST(SumTreeTest, RepeatsHaveOneGradientOnAnyNumberOfRanks) {
  constexpr int64_t kElements = 3, kRepeats = 5, kAll = kElements * kRepeats;
  CheckOp({.name = "repeat_in_tree",
           .op =
               [](const Tensors& in) {
                 return Tensors{
                     RepeatInTree(in[0], kRepeats, 1, 0, MakeSumTree({{.units = kAll}}, nullptr))};
               },
           .reference =
               [](const Tensors& in) {
                 const Tensor y = Empty({2, kAll, 2}, DType::kFloat64);
                 for (int64_t i = 0; i < y.numel(); ++i) {
                   const int64_t row = i / (kAll * 2), at = i / 2 % kAll, last = i % 2;
                   y.data<double>()[i] =
                       in[0].data<double>()[(row * kElements + at / kRepeats) * 2 + last];
                 }
                 return Tensors{y};
               },
           .inputs = {RandomTensor({2, kElements, 2}, 1)}});
  const Tensor dy = CastCopy(RandomTensor({2, kAll, 2}, 3), DType::kFloat32);
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    const Tensor x = CastCopy(RandomTensor({2, kElements, 2}, 1), dtype);
    std::vector<float> one;
    for (const int ranks : {1, 2, 4, 8}) {
      RunRanks(ranks, [&](std::shared_ptr<Communicator> world) {
        const Share share = EvenShare(kAll, ranks, world->rank());
        const Tensor leaf = RequireGrad(CastCopy(x, dtype), dtype);
        const Tensor y = RepeatInTree(leaf, kRepeats, 1, share.begin,
                                      MakeSumTree({{.units = share.count}}, world));
        ASSERT_EQ(y.size(1), share.count);
        const Tensor own = dy.AsStrided({2, share.count, 2}, dy.strides(), 2 * share.begin);
        Backward({y}, {CastCopy(own, dtype)});
        const std::vector<float> grad = Grad(leaf).ToVector<float>();
        if (ranks == 1) one = grad;
        EXPECT_EQ(grad, one) << ranks << " " << dtype;
      });
    }
  }
  const auto tree = MakeSumTree({{.units = 4}}, nullptr);
  EXPECT_THROW(RepeatInTree(RandomTensor({1, 2}, 1), 2, 1, 1, tree), Error);
}

// Two blocks of features, whose first eighths are one leaf: both are repeats of one element.
TEST(SumTreeTest, ALeafAddsAllRepeatsThatItHas) {
  constexpr int64_t kElements = 2, kRepeats = 16;
  const auto tree = MakeSumTree({{.units = 8}, {.units = 8}, {.units = 16}}, nullptr);
  const Tensor x = RequireGrad(RandomTensor({kElements}, 4), DType::kFloat64);
  const Tensor y = RepeatInTree(x, kRepeats, 0, 0, tree);
  std::vector<double> dy(kElements * kRepeats);
  std::vector<double> expected(kElements, 0.0);
  for (size_t i = 0; i < dy.size(); ++i) {
    dy[i] = static_cast<double>(i * i);
    expected[i / kRepeats] += dy[i];
  }
  Backward({y}, {Tensor::FromVector(dy, {std::ssize(dy)})});
  EXPECT_EQ(Grad(x).ToVector<double>(), expected);
}

TEST(SumTreeTest, LeavesThatAreNotThereAreNoPart) {
  const auto number = [](double x) { return Full({1}, x); };
  EXPECT_FALSE(SumOfLeaves({Tensor(), Tensor()}).defined());
  EXPECT_EQ(SumOfLeaves({Tensor(), number(3)}).Item(), 3);
  EXPECT_EQ(SumOfLeaves({number(1), Tensor(), Tensor(), number(4)}).Item(), 5);
  // In float32 the order shows.
  EXPECT_EQ(SumOfLeaves({number(1), number(0x1p24), number(-0x1p24), number(1)}).Item(), 1);
  EXPECT_EQ(SumOfLeaves({number(1), number(1), number(0x1p24), number(-0x1p24)}).Item(), 2);
}

}  // namespace
}  // namespace tessera
