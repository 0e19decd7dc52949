// SPDX-License-Identifier: Apache-2.0
#include "ops/collective/sequence_runs.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "autograd/autograd.h"
#include "ops/testing/op_check.h"

namespace tessera {
namespace {

TEST(SequenceRunsTest, EveryTokenIsOneRanksAndWorkIsEven) {
  for (const int ranks : {1, 2, 3, 4, 8}) {
    for (const int64_t length : {0, 1, 2, 5, 16, 47, 512}) {
      std::vector<int> owners(static_cast<size_t>(length), 0);
      std::vector<int64_t> work;
      for (int r = 0; r < ranks; ++r) {
        const std::vector<SequenceRun> runs = SequenceRuns(length, ranks, r);
        ASSERT_TRUE(runs.size() == 1 || runs.size() == 2);
        int64_t reads = 0;  // of keys, by causal attention
        for (const SequenceRun& run : runs) {
          for (int64_t t = run.begin; t < run.begin + run.count; ++t) {
            ++owners[static_cast<size_t>(t)];
            reads += t + 1;
          }
        }
        work.push_back(reads);
        EXPECT_NEAR(RunTokens(runs), static_cast<double>(length) / ranks, 2);
      }
      EXPECT_EQ(std::count(owners.begin(), owners.end(), 1), length);
      const auto [least, most] = std::minmax_element(work.begin(), work.end());
      if (length == 512) {
        EXPECT_LE(*most - *least, ranks == 3 ? length : 0) << ranks;  // 3 does not divide it
      }
    }
  }
}

TEST(SequenceRunsTest, NeighbouringRunsAreOne) {
  EXPECT_EQ(SequenceRuns(12, 2, 0), (std::vector<SequenceRun>{{0, 3}, {9, 3}}));
  EXPECT_EQ(SequenceRuns(12, 2, 1), (std::vector<SequenceRun>{{3, 6}}));
  EXPECT_EQ(SequenceRuns(7, 1, 0), (std::vector<SequenceRun>{{0, 7}}));
}

TEST(SequenceRunsTest, PartsOfRuns) {
  const std::vector<SequenceRun> runs = {{2, 3}, {9, 4}};
  EXPECT_EQ(PartOfRuns(runs, 0, 7), runs);
  EXPECT_EQ(PartOfRuns(runs, 0, 3), (std::vector<SequenceRun>{{2, 3}}));
  EXPECT_EQ(PartOfRuns(runs, 2, 3), (std::vector<SequenceRun>{{4, 1}, {9, 2}}));
  EXPECT_EQ(PartOfRuns(runs, 4, 3), (std::vector<SequenceRun>{{10, 3}}));
  EXPECT_TRUE(PartOfRuns(runs, 3, 0).empty());
}

TEST(SequenceRunsTest, TakenRunsOfEveryDtype) {
  for (const int rank : {0, 1}) {
    CheckOp({.name = "take_runs",
             .op =
                 [rank](const Tensors& in) {
                   return Tensors{TakeRuns(in[0], 1, SequenceRuns(7, 2, rank))};
                 },
             .reference = nullptr,
             .inputs = {RandomTensor({2, 7, 3}, 1)}});
  }
}

TEST(SequenceRunsTest, TakenRunsHaveTheirTokensAndGradients) {
  for (const int ranks : {1, 2, 3}) {
    for (int r = 0; r < ranks; ++r) {
      const std::vector<SequenceRun> runs = SequenceRuns(7, ranks, r);
      const Tensor x = RequireGrad(RandomTensor({2, 7, 3}, 1));
      const Tensor taken = TakeRuns(x, 1, runs);
      const Tensor grad = RandomTensor(taken.shape(), 2);
      Backward({taken}, {grad});
      const std::vector<double> from = x.ToVector<double>();
      const std::vector<double> to = taken.ToVector<double>();
      const std::vector<double> given = grad.ToVector<double>();
      std::vector<double> expected(from.size(), 0.0);
      size_t i = 0;
      for (int64_t b = 0; b < 2; ++b) {
        for (const SequenceRun& run : runs) {
          for (int64_t e = (b * 7 + run.begin) * 3; e < (b * 7 + run.begin + run.count) * 3; ++e) {
            EXPECT_EQ(to[i], from[static_cast<size_t>(e)]);
            expected[static_cast<size_t>(e)] = given[i++];
          }
        }
      }
      EXPECT_EQ(i, to.size());
      EXPECT_EQ(Grad(x).ToVector<double>(), expected);
    }
  }
}

TEST(SequenceRunsTest, RefusesRanksThatAreNotThere) {
  EXPECT_THROW(SequenceRuns(7, 3, -1), Error);
  EXPECT_THROW(SequenceRuns(7, 3, 3), Error);
  EXPECT_THROW(SequenceRuns(-1, 3, 0), Error);
}

}  // namespace
}  // namespace tessera
