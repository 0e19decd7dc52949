// SPDX-License-Identifier: Apache-2.0
// Replicas (ZeRO stage 0): what leaves have as their gradients once they were summed.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <mutex>

#include "autograd/autograd.h"
#include "core/random.h"
#include "core/thread_communicator.h"
#include "dist/store/parameter_store.h"
#include "dist/store/replicas.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduction/sum.h"
#include "optim/modules/module_parameters.h"
#include "optim/sgd/sgd.h"

namespace tessera::dist {
namespace {

const std::vector<Shape> kShapes = {{3, 5}, {7}, {2, 2, 3}, {1}, {11}};

class Leaves : public nn::Module {
 public:
  Leaves() : Module(nn::Scope::Root({})) {
    for (size_t i = 0; i < kShapes.size(); ++i) {
      AddParameter(Concat("p", i), Placement::Whole(kShapes[i]), nn::Init::Zeros());
    }
  }
  const Tensor& leaf(size_t i) const { return own_parameters()[i]->tensor; }
};

ParameterStore MakeStore(Leaves& leaves, const std::shared_ptr<Communicator>& group,
                         ZeroOptions options) {
  options.stage = 0;
  return ParameterStore(
      leaves, {{optim::ParametersOf(leaves)}},
      [](std::vector<optim::ParameterGroup> groups) {
        return std::make_unique<optim::Sgd>(std::move(groups), optim::SgdOptions{});
      },
      {.data = group}, options);
}

// What the loss of a global micro-batch gives leaf i as its gradient.
Tensor Given(int64_t micro_batch, size_t i) {
  const Tensor g = Empty(kShapes[i]);
  for (int64_t k = 0; k < g.numel(); ++k) {
    // Of several magnitudes, so that the order of a sum shows in its bits.
    const double x = std::sin(static_cast<double>(1 + k + 17 * static_cast<int64_t>(i)) *
                              static_cast<double>(3 + micro_batch));
    g.data<float>()[k] = static_cast<float>(x * std::exp2(static_cast<double>(micro_batch % 3)));
  }
  return g;
}

using Uses = std::function<bool(int64_t micro_batch, size_t leaf)>;

void RunMicroBatch(const Leaves& leaves, int64_t micro_batch, const Uses& uses) {
  Tensor loss = Zeros({});
  for (size_t i = 0; i < kShapes.size(); ++i) {
    if (!uses || uses(micro_batch, i))
      loss = Add(loss, Sum(Mul(leaves.leaf(i), Given(micro_batch, i))));
  }
  Backward(loss);
}

// The gradients of each leaf after `steps` steps on `ranks` ranks, checked to be those of every
// rank.
std::vector<std::vector<float>> Reduced(int ranks, int64_t micro_batches,
                                        const ZeroOptions& options, int steps = 1,
                                        const Uses& uses = nullptr) {
  std::mutex mutex;
  std::map<int, std::vector<std::vector<float>>> by_rank;
  RunRanks(ranks, [&](const std::shared_ptr<Communicator>& world) {
    Leaves leaves;
    ParameterStore store = MakeStore(leaves, world, options);
    for (int step = 0; step < steps; ++step) {
      if (step > 0) leaves.ZeroGrad();
      store.BeginStep(micro_batches);
      for (int64_t m = 0; m < micro_batches; ++m) {
        store.BeginMicroBatch(m);
        RunMicroBatch(leaves, world->rank() * micro_batches + m, uses);
      }
      store.FinishGradients();
    }
    std::vector<std::vector<float>> grads;
    for (size_t i = 0; i < kShapes.size(); ++i) {
      const Tensor grad = Grad(leaves.leaf(i));
      grads.push_back(grad.defined() ? grad.ToVector<float>() : std::vector<float>());
    }
    const std::lock_guard<std::mutex> lock(mutex);
    by_rank[world->rank()] = grads;
  });
  for (const auto& [rank, grads] : by_rank) EXPECT_EQ(grads, by_rank.at(0)) << rank;
  return by_rank.at(0);
}

double Total(int64_t micro_batches, size_t i, int64_t k, const Uses& uses = nullptr) {
  double sum = 0;
  for (int64_t g = 0; g < micro_batches; ++g) {
    if (!uses || uses(g, i)) sum += Given(g, i).ToVector<float>()[static_cast<size_t>(k)];
  }
  return sum;
}

void ExpectTotals(const std::vector<std::vector<float>>& grads, int64_t micro_batches,
                  const Uses& uses = nullptr) {
  for (size_t i = 0; i < kShapes.size(); ++i) {
    ASSERT_EQ(static_cast<int64_t>(grads[i].size()), kShapes[i].numel()) << i;
    for (int64_t k = 0; k < kShapes[i].numel(); ++k) {
      EXPECT_NEAR(grads[i][static_cast<size_t>(k)], Total(micro_batches, i, k, uses), 2e-5)
          << i << " " << k;
    }
  }
}

// Bytes of a few floats per bucket, in megabytes.
constexpr double kSmall = 16.0 * 4 / 1048576;

class ReplicationTest : public testing::TestWithParam<ZeroOptions> {};

TEST_P(ReplicationTest, SumsOverRanksAndMicroBatches) {
  for (const int ranks : {1, 2, 4}) {
    for (const int64_t micro_batches : {1, 2, 4}) {
      for (const int steps : {1, 3}) {
        ExpectTotals(Reduced(ranks, micro_batches, GetParam(), steps), ranks * micro_batches);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Options, ReplicationTest,
    testing::Values(ZeroOptions{}, ZeroOptions{.bucket_cap_mb = kSmall},
                    ZeroOptions{.bucket_cap_mb = kSmall, .deterministic = true},
                    ZeroOptions{.bucket_cap_mb = kSmall, .gradient_as_bucket_view = false},
                    ZeroOptions{.bucket_cap_mb = kSmall,
                                .deterministic = true,
                                .gradient_as_bucket_view = false},
                    ZeroOptions{.bucket_cap_mb = kSmall, .static_graph = true},
                    ZeroOptions{.bucket_cap_mb = kSmall,
                                .deterministic = true,
                                .overlap = false,
                                .static_graph = true,
                                .check_reduction = true}));

TEST(ReplicationTest, ThreeRanksAndThreeMicroBatches) {
  ExpectTotals(Reduced(3, 3, {.bucket_cap_mb = kSmall}), 9);
  EXPECT_THROW(Reduced(3, 1, {.deterministic = true}), Error);
  EXPECT_THROW(Reduced(2, 3, {.deterministic = true}), Error);
}

// Eight micro-batches by every number of ranks: the same bits, and not those of a plain sum.
TEST(ReplicationTest, DeterministicSumsHaveTheBitsOfOneProcess) {
  const ZeroOptions options = {.bucket_cap_mb = kSmall, .deterministic = true};
  const auto one = Reduced(1, 8, options);
  EXPECT_EQ(Reduced(2, 4, options), one);
  EXPECT_EQ(Reduced(4, 2, options), one);
  EXPECT_EQ(Reduced(8, 1, options), one);
  EXPECT_EQ(Reduced(8, 1, {.bucket_cap_mb = 25, .deterministic = true}), one);
  EXPECT_NE(Reduced(1, 8, {}), one);
  // The tree, written out.
  const auto g = [](int64_t m) { return Given(m, 0).ToVector<float>()[4]; };
  const float tree = ((g(0) + g(1)) + (g(2) + g(3))) + ((g(4) + g(5)) + (g(6) + g(7)));
  EXPECT_EQ(one[0][4], tree);
}

TEST(ReplicationTest, UnusedParametersCountAsZeroOrAreNamed) {
  // Leaf 1 is used by odd micro-batches only, leaf 3 by none.
  const Uses uses = [](int64_t m, size_t i) { return i == 1 ? m % 2 == 1 : i != 3; };
  for (const bool deterministic : {false, true}) {
    for (const bool views : {false, true}) {
      auto grads = Reduced(2, 1,
                           {.bucket_cap_mb = kSmall,
                            .deterministic = deterministic,
                            .find_unused_parameters = true,
                            .gradient_as_bucket_view = views},
                           2, uses);
      EXPECT_TRUE(grads[3].empty());  // no gradient: the optimizer leaves it alone
      grads[3] = {static_cast<float>(Total(2, 3, 0, uses))};
      ExpectTotals(grads, 2, uses);
    }
  }
  try {  // of rank 0's leaves the second has no gradient
    Reduced(2, 1, {}, 1, [](int64_t m, size_t i) { return i != 1 || m == 1; });
    FAIL() << "an unused parameter was accepted";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("'p1'"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("find_unused_parameters"), std::string::npos);
  }
}

TEST(ReplicationTest, BucketsAreReversedAndLimited) {
  Leaves leaves;
  const ParameterStore store =
      MakeStore(leaves, SingleProcessCommunicator(), {.bucket_cap_mb = kSmall});
  using V = std::vector<std::string>;
  EXPECT_EQ(store.BucketNames(), (std::vector<V>{{"p4", "p3"}, {"p2"}, {"p1"}, {"p0"}}));
}

// Gradients arrive in the reverse order of use; the leaves are used in the order 4, 3, ... 0 below,
// so that p0's comes first.
TEST(ReplicationTest, StaticGraphFollowsTheFirstStep) {
  RunRanks(2, [](const std::shared_ptr<Communicator>& world) {
    Leaves leaves;
    ParameterStore store =
        MakeStore(leaves, world, {.bucket_cap_mb = kSmall, .static_graph = true});
    store.BeginStep(1);
    store.BeginMicroBatch(0);
    Tensor loss = Zeros({});
    for (size_t i = kShapes.size(); i-- > 0;) loss = Add(loss, Sum(Mul(leaves.leaf(i), 2.0)));
    Backward(loss);
    store.FinishGradients();
    EXPECT_EQ(store.BucketNames()[0], std::vector<std::string>{"p0"});
    EXPECT_EQ(Grad(leaves.leaf(1)).ToVector<float>(), std::vector<float>(7, 4.0F));
  });
}

// Nothing is copied or kept where one process adds its micro-batches up in order.
TEST(ReplicationTest, OneProcessAccumulatesWhereItsGradientsAre) {
  Leaves leaves;
  ParameterStore store = MakeStore(leaves, SingleProcessCommunicator(), {});
  store.BeginStep(2);
  store.BeginMicroBatch(0);
  RunMicroBatch(leaves, 0, nullptr);
  const auto memory = Grad(leaves.leaf(0)).storage();
  EXPECT_EQ(memory->bytes(), static_cast<size_t>(leaves.leaf(0).nbytes()));
  store.BeginMicroBatch(1);
  RunMicroBatch(leaves, 1, nullptr);
  store.FinishGradients();
  EXPECT_EQ(Grad(leaves.leaf(0)).storage(), memory);
}

// One rank's gradients are changed behind the reducer's back, after its sums.
TEST(ReplicationTest, CheckReductionNamesTheRanks) {
  class Corrupting final : public Communicator {
   public:
    explicit Corrupting(std::shared_ptr<Communicator> base) : base_(std::move(base)) {}
    int rank() const override { return base_->rank(); }
    int size() const override { return base_->size(); }
    const std::string& name() const override { return base_->name(); }
    CommHandlePtr AllReduce(const Tensor& t, ReduceOp op) override {
      CommHandlePtr handle = base_->AllReduce(t, op);
      if (rank() == 1) t.data<float>()[0] += 1;
      return handle;
    }
    CommHandlePtr ReduceScatter(const Tensor& o, const Tensor& i, ReduceOp op) override {
      return base_->ReduceScatter(o, i, op);
    }
    CommHandlePtr AllGather(const Tensor& o, const Tensor& i) override {
      return base_->AllGather(o, i);
    }
    CommHandlePtr Broadcast(const Tensor& t, int root) override {
      return base_->Broadcast(t, root);
    }
    CommHandlePtr AllToAll(const Tensor& o, const std::vector<int64_t>& receive_counts,
                           const Tensor& i, const std::vector<int64_t>& send_counts) override {
      return base_->AllToAll(o, receive_counts, i, send_counts);
    }
    CommHandlePtr Send(const Tensor& t, int d, int tag) override { return base_->Send(t, d, tag); }
    CommHandlePtr Receive(const Tensor& t, int s, int tag) override {
      return base_->Receive(t, s, tag);
    }
    void Barrier() override { base_->Barrier(); }
    std::shared_ptr<Communicator> Split(int c, int k, const std::string& n) override {
      return base_->Split(c, k, n);
    }

   private:
    std::shared_ptr<Communicator> base_;
  };
  try {
    RunRanks(2, [](const std::shared_ptr<Communicator>& world) {
      Leaves leaves;
      ParameterStore store =
          MakeStore(leaves, std::make_shared<Corrupting>(world), {.check_reduction = true});
      store.BeginStep(1);
      store.BeginMicroBatch(0);
      RunMicroBatch(leaves, world->rank(), nullptr);
      store.FinishGradients();
    });
    FAIL() << "different sums were accepted";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("ranks 0 and 1"), std::string::npos) << e.what();
  }
}

class TwoParameters : public nn::Module {
 public:
  TwoParameters(const nn::BuildContext& build, const Group& group)
      : Module(nn::Scope::Root(build)),
        a(AddParameter("a", Placement::Whole({3}), nn::Init::Zeros())),
        b(AddParameter("b", Placement::Whole({2, 2}), nn::Init::Zeros())) {
    b.gradient_group = group;
  }
  nn::Parameter& a;
  nn::Parameter& b;
};

TEST(ReplicasTest, BroadcastAndPartialSums) {
  RunRanks(3, [](const std::shared_ptr<Communicator>& world) {
    TwoParameters model({}, world);
    Fill(model.a.tensor.Detach(), world->rank() + 1.0);
    Fill(model.b.tensor.Detach(), world->rank() + 2.0);
    BroadcastParameters(model.Parameters(), {.data = world});
    EXPECT_EQ(model.a.tensor.ToVector<float>(), std::vector<float>(3, 1.0F));
    EXPECT_EQ(model.b.tensor.ToVector<float>(), std::vector<float>(4, 2.0F));
    SetGrad(model.a.tensor, Full({3}, world->rank() + 1.0));
    SetGrad(model.b.tensor, Full({2, 2}, world->rank() + 1.0));
    SumPartialGradients(model.Parameters());
    EXPECT_EQ(Grad(model.a.tensor).ToVector<float>(),
              std::vector<float>(3, static_cast<float>(world->rank() + 1)));
    EXPECT_EQ(Grad(model.b.tensor).ToVector<float>(), std::vector<float>(4, 6.0F));
  });
}

}  // namespace
}  // namespace tessera::dist
