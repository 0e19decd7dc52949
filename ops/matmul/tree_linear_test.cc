// SPDX-License-Identifier: Apache-2.0
// Linear layers whose sums over features go by trees: the same bits on any number of ranks.
#include <gtest/gtest.h>

#include <mutex>
#include <string>
#include <vector>

#include "autograd/autograd.h"
#include "core/thread_communicator.h"
#include "ops/matmul/low_rank_linear.h"
#include "ops/matmul/matmul.h"
#include "ops/testing/op_check.h"
#include "ops/view/view.h"

namespace tessera {
namespace {

using Trees = std::shared_ptr<const SumTree>;

// The features of a rank: of each block its EvenShare, side by side.
std::vector<Share> RunsOf(const std::vector<int64_t>& blocks, int ranks, int rank) {
  std::vector<Share> runs;
  int64_t begin = 0;
  for (const int64_t size : blocks) {
    const Share share = EvenShare(size, ranks, rank);
    runs.push_back({begin + share.begin, share.count});
    begin += size;
  }
  return runs;
}

Tensor Take(const Tensor& t, int dim, const std::vector<Share>& runs) {
  std::vector<Tensor> parts;
  for (const Share& run : runs) parts.push_back(Slice(t, dim, run.begin, run.count));
  return Cat(parts, dim).ContiguousCopy();
}

Trees TreeOf(const std::vector<Share>& runs, const Group& group) {
  std::vector<SumBlock> blocks;
  for (const Share& run : runs) blocks.push_back({run.count});
  return MakeSumTree(blocks, group);
}

// What one of the ranks has of y = x W + b and of the gradients, in the order of what it computed.
struct Outcome {
  std::vector<std::vector<float>> tensors;
};

// One step of a linear layer. The ranks share out the inputs of W (and x) if `splits_inputs`, else
// its outputs. The outcome has what every rank holds whole.
Outcome Step(const std::vector<int64_t>& blocks, bool splits_inputs, LinearLayout layout,
             DType dtype, bool low_rank, int ranks) {
  int64_t features = 0;
  for (const int64_t size : blocks) features += size;
  constexpr int64_t kRows = 23, kOther = 37, kRank = 5;
  const int64_t in = splits_inputs ? features : kOther;
  const int64_t out = splits_inputs ? kOther : features;
  const bool out_in = layout == LinearLayout::kOutIn;
  const Tensor x = RandomTensor({kRows, in}, 1);
  const Tensor w = RandomTensor(out_in ? Shape{out, in} : Shape{in, out}, 2);
  const Tensor bias = RandomTensor({out}, 3);
  const Tensor dy = RandomTensor({kRows, out}, 4);
  const Tensor a = RandomTensor({kRank, in}, 5);
  const Tensor b = RandomTensor({out, kRank}, 6);
  Outcome outcome;
  std::mutex mutex;
  RunRanks(ranks, [&](std::shared_ptr<Communicator> world) {
    const std::vector<Share> runs = RunsOf(blocks, world->size(), world->rank());
    const Trees tree = TreeOf(runs, world);
    const LinearTrees trees =
        splits_inputs ? LinearTrees{.inputs = tree} : LinearTrees{.outputs = tree};
    const auto leaf = [&](const Tensor& t, int dim) {
      return RequireGrad(CastCopy(dim < 0 ? t : Take(t, dim, runs), dtype));
    };
    const int in_dim = out_in ? 1 : 0;
    const Tensor own_x = leaf(x, splits_inputs ? 1 : -1);
    const Tensor own_w = leaf(w, splits_inputs ? in_dim : 1 - in_dim);
    const Tensor own_bias = leaf(bias, splits_inputs ? -1 : 0);
    const Tensor own_a = leaf(a, splits_inputs ? 1 : -1);
    const Tensor own_b = leaf(b, splits_inputs ? -1 : 0);
    const Tensor y = low_rank
                         ? LowRankLinear(own_x, own_w, own_bias, layout,
                                         {.a = own_a, .b = own_b, .scale = 0.5, .trees = trees})
                         : Linear(own_x, own_w, own_bias, layout, trees);
    Backward({y}, {CastCopy(splits_inputs ? dy : Take(dy, 1, runs), dtype)});
    std::vector<Tensor> same;
    if (splits_inputs) {
      same = {y.Detach(), Grad(own_bias)};
      if (low_rank) same.push_back(Grad(own_b));
    } else {
      same = {Grad(own_x)};
      if (low_rank) same.push_back(Grad(own_a));
    }
    const std::scoped_lock lock(mutex);
    std::vector<std::vector<float>> values;
    for (const Tensor& t : same) values.push_back(CastCopy(t, DType::kFloat32).ToVector<float>());
    if (outcome.tensors.empty()) outcome.tensors = values;
    EXPECT_EQ(values, outcome.tensors) << "rank " << world->rank() << " of " << world->size();
  });
  return outcome;
}

TEST(TreeLinearTest, BitsDoNotDependOnRanks) {
  for (const std::vector<int64_t>& blocks :
       {std::vector<int64_t>{96}, {200, 64, 64}, {13}, {5}, {1}, {2000}}) {
    for (const bool splits_inputs : {true, false}) {
      for (const LinearLayout layout : {LinearLayout::kOutIn, LinearLayout::kInOut}) {
        for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
          for (const bool low_rank : {false, true}) {
            const Outcome one = Step(blocks, splits_inputs, layout, dtype, low_rank, 1);
            for (const int ranks : {2, 4, 8}) {
              EXPECT_EQ(Step(blocks, splits_inputs, layout, dtype, low_rank, ranks).tensors,
                        one.tensors)
                  << ranks << " ranks, " << blocks[0] << " features, "
                  << (splits_inputs ? "inputs " : "outputs ") << dtype << " " << low_rank;
            }
          }
        }
      }
    }
  }
}

// Sums in trees are sums: against the same layers without them.
TEST(TreeLinearTest, GradientsAreThoseOfLinear) {
  for (const bool splits_inputs : {true, false}) {
    const int64_t in = splits_inputs ? 21 : 4;
    const int64_t out = splits_inputs ? 4 : 21;
    const Trees tree = MakeSumTree({{.units = 5, .unit = 3}, {.units = 6}}, nullptr);
    const LinearTrees trees =
        splits_inputs ? LinearTrees{.inputs = tree} : LinearTrees{.outputs = tree};
    CheckOp(
        {.name = "linear",
         .op =
             [&](const Tensors& t) {
               return Tensors{Linear(t[0], t[1], Contiguous(t[2]), LinearLayout::kOutIn, trees)};
             },
         .reference =
             [&](const Tensors& t) {
               const NoGrad no_grad;
               return Tensors{Linear(t[0], t[1], t[2], LinearLayout::kOutIn)};
             },
         .inputs = {RandomTensor({3, in}, 1), RandomTensor({out, in}, 2), RandomTensor({out}, 3)},
         .sum_length = static_cast<double>(in)});
  }
}

}  // namespace
}  // namespace tessera
