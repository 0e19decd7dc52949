// SPDX-License-Identifier: Apache-2.0
// The parts of a pipeline by themselves: cutting, messages, tied weights, and the one call.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "autograd/autograd.h"
#include "core/batch_keys.h"
#include "core/thread_communicator.h"
#include "dist/pipeline/bundle_channel.h"
#include "dist/pipeline/execute_pipeline.h"
#include "dist/pipeline/partition.h"
#include "nlohmann/json.hpp"
#include "nn/linear.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduction/reduction.h"
#include "ops/testing/op_check.h"
#include "optim/adam/adam.h"

namespace tessera::dist {
namespace {

constexpr TensorKey kA("a", KeyElements::kAny, "[...]", "of this test"),
    kMask("mask", KeyElements::kAny, "[...]", "of this test"),
    kHalf("half", KeyElements::kAny, "[...]", "of this test"),
    kScalar("scalar", KeyElements::kAny, "[...]", "of this test"),
    kNone("none", KeyElements::kAny, "[...]", "of this test"),
    kLocalTable("local.table", KeyElements::kAny, "[...]", "of this test"),
    kChanging("changing", KeyElements::kAny, "[...]", "of this test"),
    kX("x", KeyElements::kAny, "[...]", "of this test"),
    kY("y", KeyElements::kAny, "[...]", "of this test"),
    kSum("sum", KeyElements::kAny, "[...]", "of this test"),
    kProduct("product", KeyElements::kAny, "[...]", "of this test"),
    kOut("out", KeyElements::kAny, "[...]", "of this test"),
    kTarget("target", KeyElements::kAny, "[...]", "of this test"),
    kExtra("extra", KeyElements::kAny, "[...]", "of this test");

using models::Bundle;

// --- Cutting -------------------------------------------------------------------------------------

// The least greatest chunk, and among those cuts the least sum of squares, over all cuts.
std::pair<double, double> BestOfAll(const std::vector<double>& costs, int chunks) {
  std::pair<double, double> best = {1e300, 1e300};
  std::function<void(size_t, int, double, double)> visit = [&](size_t at, int left, double most,
                                                               double squares) {
    if (left == 0) {
      if (at == costs.size()) best = std::min(best, std::pair(most, squares));
      return;
    }
    double sum = 0;
    for (size_t end = at; end + static_cast<size_t>(left) <= costs.size(); ++end) {
      sum += costs[end];
      visit(end + 1, left - 1, std::max(most, sum), squares + sum * sum);
    }
  };
  visit(0, chunks, 0, 0);
  return best;
}

TEST(PartitionTest, CutsAsWellAsTryingAllCuts) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const int64_t blocks = 1 + static_cast<int64_t>(seed * 7 % 12);
    std::vector<double> costs;
    for (const int64_t cost : RandomIndices({blocks}, 9, seed).ToVector<int64_t>()) {
      costs.push_back(static_cast<double>(cost));
    }
    for (int chunks = 1; chunks <= blocks; ++chunks) {
      const auto cuts = CutBlocks(costs, chunks);
      ASSERT_TRUE(cuts.ok());
      ASSERT_EQ(std::ssize(*cuts), chunks + 1);
      ASSERT_EQ(cuts->front(), 0);
      ASSERT_EQ(cuts->back(), blocks);
      double most = 0;
      double squares = 0;
      for (int c = 0; c < chunks; ++c) {
        ASSERT_LT((*cuts)[static_cast<size_t>(c)], (*cuts)[static_cast<size_t>(c) + 1]);
        double sum = 0;
        for (int b = (*cuts)[static_cast<size_t>(c)]; b < (*cuts)[static_cast<size_t>(c) + 1];
             ++b) {
          sum += costs[static_cast<size_t>(b)];
        }
        most = std::max(most, sum);
        squares += sum * sum;
      }
      ASSERT_EQ(std::pair(most, squares), BestOfAll(costs, chunks)) << "seed " << seed;
    }
  }
}

TEST(PartitionTest, RefusesWhatCannotBeCut) {
  EXPECT_EQ(Message(CutBlocks({1, 1, 1}, 4).status()),
            "a model of 3 blocks cannot be cut into 4 chunks (pp times chunks per rank)");
  EXPECT_FALSE(CutBlocks({1, 1}, 0).ok());
  EXPECT_FALSE(CutBlocks({}, 1).ok());
  EXPECT_EQ(Message(CutBlocks({1, -2}, 1).status()), "block 1 of the model costs -2");
  EXPECT_FALSE(CutBlocks({1, std::nan("")}, 1).ok());
  EXPECT_EQ(*CutEvenly(7, 3), (std::vector<int>{0, 2, 4, 7}));
}

nlohmann::json GptConfig(int vocabulary, bool tied = true) {
  return {{"model_type", "gpt2"},
          {"vocab_size", vocabulary},
          {"n_positions", 16},
          {"n_embd", 8},
          {"n_layer", 3},
          {"n_head", 2},
          {"tie_word_embeddings", tied}};
}

TEST(PartitionTest, ComputedCostsCountProducts) {
  const auto costs = ComputedBlockCosts(BlocksOf(GptConfig(1000), {}), 16);
  ASSERT_TRUE(costs.ok()) << Message(costs.status());
  // A layer of width 8: 12 * 64 of matrices, 3*8 + 8 + 4*8 + 8 of biases, 4 * 8 of norms, and
  // attention over 16 keys. The embedding looks up a row each of two tables; the head multiplies.
  const double layer = 12 * 64 + 72 + 32 + 2 * 16 * 8;
  EXPECT_EQ(*costs, (std::vector<double>{16, layer, layer, layer, 8 + 16 + 8000}));
  // So a large vocabulary's head is alone.
  EXPECT_EQ(*CutBlocks(*costs, 2), (std::vector<int>{0, 4, 5}));
}

TEST(PartitionTest, ComputedCostsAreThoseOfTheHeadsAndTheirWindows) {
  nlohmann::json config = {
      {"model_type", "mistral"},  {"vocab_size", 100},      {"hidden_size", 16},
      {"intermediate_size", 32},  {"num_hidden_layers", 2}, {"num_attention_heads", 4},
      {"num_key_value_heads", 1}, {"head_dim", 8},          {"max_position_embeddings", 64},
      {"sliding_window", nullptr}};
  // Queries and outputs of 4 heads of 8, one of keys and one of values; three matrices; two norms.
  const double matrices = 16 * (2 * 32 + 2 * 8) + 3 * 16 * 32 + 2 * 16;
  const auto layer = [&](int64_t tokens) {
    const auto costs = ComputedBlockCosts(BlocksOf(config, {}), tokens);
    EXPECT_TRUE(costs.ok()) << Message(costs.status());
    return costs.ok() ? (*costs)[1] : 0;
  };
  EXPECT_EQ(layer(0), matrices);
  EXPECT_EQ(layer(40), matrices + 2 * 40 * 32);
  config["sliding_window"] = 10;
  EXPECT_EQ(layer(40), matrices + 2 * 10 * 32);
  EXPECT_EQ(layer(4), matrices + 2 * 4 * 32);
}

TEST(PartitionTest, ComputedCostsOfAPictureCountItsPatches) {
  const nlohmann::json config = {{"model_type", "vit"},
                                 {"hidden_size", 8},
                                 {"intermediate_size", 16},
                                 {"num_hidden_layers", 1},
                                 {"num_attention_heads", 2},
                                 {"image_size", 8},
                                 {"patch_size", 4},
                                 {"num_channels", 1},
                                 {"architectures", {"ViTForImageClassification"}}};
  const auto costs = ComputedBlockCosts(BlocksOf(config, {}), 0);
  ASSERT_TRUE(costs.ok()) << Message(costs.status());
  // 4 patches and the class token; matrices with their biases, and two norms.
  const double layer = 4 * (8 * 8 + 8) + 2 * 8 * 16 + 16 + 8 + 4 * 8;
  EXPECT_EQ((*costs)[1], 5 * (layer + 2 * 5 * 8));
  EXPECT_LT(costs->back(), layer);
}

TEST(PartitionTest, MeasuredCostsArePositiveAndAddUp) {
  const Bundle batch = {{keys::kInputIds, RandomIndices({2, 5}, 50, 1)},
                        {keys::kLabels, RandomIndices({2, 5}, 50, 2)}};
  models::RunOptions options;
  options.keep_logits = false;
  const auto times = MeasureBlocks(BlocksOf(GptConfig(50), {}), batch, options);
  ASSERT_TRUE(times.ok()) << Message(times.status());
  ASSERT_EQ(times->forward.size(), 5u);
  const std::vector<double> total = times->Total();
  for (size_t b = 0; b < 5; ++b) {
    EXPECT_GT(times->forward[b], 0);
    EXPECT_GT(times->input_grad[b], 0);
    EXPECT_GT(times->weight_grad[b], 0);
    EXPECT_LT(total[b], 10);
  }
  const BlockTimes chunks = times->OfChunks({0, 2, 5});
  EXPECT_DOUBLE_EQ(chunks.forward[1], times->forward[2] + times->forward[3] + times->forward[4]);
}

// --- Messages ------------------------------------------------------------------------------------

TEST(BundleChannelTest, AnyTensorsArriveAsTheyWere) {
  RunRanks(2, [](const std::shared_ptr<Communicator>& world) {
    BundleChannel channel(world, Device::Cpu());
    const Tensor labels = RandomIndices({4}, 9, 3);
    const Bundle own = {
        {keys::kLabels, world->rank() == 0 ? labels : CopyTo(labels, Device::Cpu())}};
    const Tensor strided =
        Tensor::FromVector<float>({1, 2, 3, 4, 5, 6}, {2, 3}).AsStrided({3, 2}, {1, 3}, 0);
    const Tensor mask = Tensor::FromVector<bool>({true, false, true}, {3, 1});
    const Tensor half = CastCopy(Tensor::FromVector<float>({1.5f, -2}, {2}), DType::kBFloat16);
    for (const int64_t rows : {3, 3, 5, 0}) {
      const Tensor changing = Full({rows, 2}, 7.0);
      if (world->rank() == 0) {
        const int64_t before = channel.bytes_sent();
        channel.Send({{kA, strided},
                      {kMask, mask},
                      {keys::kLabels, labels},
                      {kLocalTable, strided},
                      {kHalf, half},
                      {kScalar, Tensor::Scalar(2.5)},
                      {kNone, Tensor()},
                      {kChanging, changing}},
                     &own, {.peer = 1, .lane = 4, .tag = 17});
        channel.Flush();
        // 24 + 3 + 4 + 4 of elements, a word, and the layout where it is another one.
        const int64_t elements = 24 + 3 + 4 + 4 + rows * 8 + 8;
        const int64_t layout = channel.bytes_sent() - before - elements;
        static thread_local int64_t last = -1;
        EXPECT_EQ(layout == 0, rows == last) << rows;
        last = rows;
        continue;
      }
      const auto received = channel.Receive(&own, {.peer = 0, .lane = 4, .tag = 17});
      const Bundle& in = received.bundle;
      EXPECT_EQ(in.entries().size(), 7u);
      EXPECT_EQ(in.at(kA).ToVector<float>(), (std::vector<float>{1, 4, 2, 5, 3, 6}));
      EXPECT_EQ(in.at(kMask).ToVector<bool>(), (std::vector<bool>{true, false, true}));
      EXPECT_TRUE(in.at(keys::kLabels).is_same(own.at(keys::kLabels)));
      EXPECT_EQ(in.at(kHalf).dtype(), DType::kBFloat16);
      EXPECT_EQ(in.at(kHalf).ToVector<float>(), (std::vector<float>{1.5f, -2}));
      EXPECT_EQ(in.at(kScalar).Item(), 2.5);
      EXPECT_TRUE(in.has(kNone));
      EXPECT_FALSE(in.get(kNone).defined());
      EXPECT_FALSE(in.has(kLocalTable));
      EXPECT_EQ(in.at(kChanging).shape(), (Shape{rows, 2}));
    }
    const Bundle all = channel.Broadcast(
        world->rank() == 1 ? Bundle{{kX, strided}, {kNone, Tensor()}} : Bundle{}, 1);
    EXPECT_EQ(all.at(kX).ToVector<float>(), (std::vector<float>{1, 4, 2, 5, 3, 6}));
    EXPECT_FALSE(all.get(kNone).defined());
  });
}

TEST(BundleChannelTest, ATensorThatTheReceiverLacksIsNamed) {
  RunRanks(2, [](const std::shared_ptr<Communicator>& world) {
    BundleChannel channel(world, Device::Cpu());
    const Bundle own = {{keys::kLabels, Tensor::Scalar(1)}};
    if (world->rank() == 0) {
      channel.Send(own, &own, {.peer = 1, .lane = 0, .tag = 0});
      return;
    }
    const Bundle empty;
    try {
      channel.Receive(&empty, {.peer = 0, .lane = 0, .tag = 0});
      ADD_FAILURE();
    } catch (const Error& e) {
      EXPECT_STREQ(e.what(), "pipeline: rank 1 has no 'labels' in its micro-batch, rank 0 has");
    }
  });
}

TEST(BundleChannelTest, LayoutsSurviveAndDamagedOnesAreRefused) {
  const BundleLayout layout = {
      {.name = "hidden", .differentiates = true, .dtype = DType::kFloat16, .shape = {2, 0, 5}},
      {.name = "", .source = BundleEntry::Source::kOwn},
      {.name = "x", .source = BundleEntry::Source::kUndefined, .dtype = DType::kBool}};
  const std::vector<uint8_t> bytes = EncodeLayout(layout);
  EXPECT_EQ(*DecodeLayout(bytes), layout);
  EXPECT_TRUE(DecodeLayout({}).ok());
  int refused = 0;
  for (size_t n = 1; n < bytes.size(); ++n) {
    if (!DecodeLayout({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n)}).ok()) {
      ++refused;
    }
  }
  EXPECT_EQ(refused, static_cast<int>(bytes.size()) - 3);  // but at the ends of two entries
  for (size_t i = 0; i < bytes.size(); ++i) {              // any byte may be anything
    for (const uint8_t value : {uint8_t{0}, uint8_t{9}, uint8_t{255}}) {
      std::vector<uint8_t> damaged = bytes;
      damaged[i] = value;
      (void)DecodeLayout(damaged).ok();
    }
  }
  std::vector<uint8_t> negative = bytes;
  negative[4 + 6 + 4 + 7] = 255;  // the sign of the first size
  EXPECT_FALSE(DecodeLayout(negative).ok());
}

// --- Any sequence of modules ---------------------------------------------------------------------

// Two tensors in, two out, with a mask between that has no gradient.
class Layer : public nn::Module {
 public:
  explicit Layer(const nn::Scope& scope)
      : Module(scope), linear({.in_features = 4, .out_features = 4}, Child("linear")) {}
  nn::ReplicatedLinear linear;
};

std::unique_ptr<Layer> MakeLayer(const std::string& name) {
  nn::Scope scope = nn::Scope::Root({.seed = 5});
  scope.path = name;
  return std::make_unique<Layer>(scope);
}

// x, y -> x', y' and a mask.
Bundle FirstBlock(Layer& layer, const Bundle& in) {
  const Tensor x = layer.linear.Forward(in.at(kX));
  return {{kSum, Add(x, in.at(kY))},
          {kProduct, Mul(x, in.at(kY))},
          {kMask, Compare(in.at(kY), 0.0, Comparison::kGreater)}};
}
Bundle SecondBlock(Layer& layer, const Bundle& in) {
  const Tensor h = layer.linear.Forward(in.at(kSum));
  return {{kOut, Where(in.at(kMask), h, in.at(kProduct))}, {kExtra, Square(h)}};
}
Tensor Criterion(const Bundle& outputs, const Bundle& inputs) {
  return Add(Mean(Square(Sub(outputs.at(kOut), inputs.at(kTarget)))),
             Mul(Mean(outputs.at(kExtra)), 0.1));
}
Bundle Data(int number) {
  const auto seed = static_cast<uint64_t>(number);
  const auto random = [&](uint64_t k) {
    return CastCopy(RandomTensor({3, 4}, 10 * seed + k), DType::kFloat32);
  };
  return {{kX, random(1)}, {kY, random(2)}, {kTarget, random(3)}};
}

constexpr int kMicroBatches = 4;

// Plain training: losses of three steps, that of the trained model, and the weights.
std::pair<std::vector<double>, std::vector<float>> OneProcess() {
  const auto first = MakeLayer("first");
  const auto second = MakeLayer("second");
  std::vector<optim::Parameter> parameters;
  for (Layer* layer : {first.get(), second.get()}) {
    for (nn::Parameter* p : layer->Parameters()) parameters.push_back({p->name, p->tensor, {}});
  }
  optim::AdamW optimizer({{.parameters = parameters}}, {.lr = 1e-2});
  std::vector<double> losses;
  for (int step = 0; step < 3; ++step) {
    double mean = 0;
    for (int m = 0; m < kMicroBatches; ++m) {
      const Bundle in = Data(m);
      const Tensor loss = Criterion(SecondBlock(*second, FirstBlock(*first, in)), in);
      mean += loss.Item() / kMicroBatches;
      Backward(Mul(loss, 1.0 / kMicroBatches));
    }
    losses.push_back(mean);
    optimizer.Step();
    optimizer.ZeroGrad();
  }
  double mean = 0;  // of the trained model
  for (int m = 0; m < kMicroBatches; ++m) {
    mean += Criterion(SecondBlock(*second, FirstBlock(*first, Data(m))), Data(m)).Item() /
            kMicroBatches;
  }
  losses.push_back(mean);
  return {losses, second->Parameters()[0]->tensor.ToVector<float>()};
}

TEST(StageTest, AChunkThatTakesWhatNoneBeforeItGivesIsRefusedByName) {
  RunRanks(2, [](const std::shared_ptr<Communicator>& pp) {
    const auto chunk = [&](const models::KeyNames& given) {
      models::BlockKeys keys = {.takes = {kX}, .gives = given};
      if (pp->rank() == 1) keys = {.takes = {kHalf, kX}};
      return SequenceOf({{.run = [](const Bundle& in) { return in; }, .keys = keys}});
    };
    EXPECT_NO_THROW(Stage({chunk({kHalf})}, pp));
    try {
      const Stage stage({chunk({kY})}, pp);
      ADD_FAILURE() << "rank " << pp->rank();
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("chunk 1 takes 'half'"), std::string::npos)
          << error.what();
    }
  });
}

TEST(ExecutePipelineTest, AnyModulesTrainAsInOneProcess) {
  const auto [losses, weights] = OneProcess();
  EXPECT_NE(losses[3], losses[0]);
  for (const ScheduleKind kind : {ScheduleKind::kGPipe, ScheduleKind::kOneForwardOneBackward,
                                  ScheduleKind::kZeroBubbleH1, ScheduleKind::kZeroBubbleH2}) {
    RunRanks(2, [&](const std::shared_ptr<Communicator>& pp) {
      const bool head = pp->rank() == 0;
      const auto layer = MakeLayer(head ? "first" : "second");
      const Stage stage({SequenceOf({{layer.get(),
                                      [&](const Bundle& in) {
                                        return head ? FirstBlock(*layer, in)
                                                    : SecondBlock(*layer, in);
                                      }}})},
                        pp);
      PipelineExecutor executor(stage, {.schedule = kind});
      optim::AdamW optimizer({{.parameters = stage.OptimizedParameters()}}, {.lr = 1e-2});
      int next = 0;
      for (size_t step = 0; step < 3; ++step) {
        const PipelineOutput out =
            ExecutePipeline([&] { return Data(next++ % kMicroBatches); }, executor, Criterion,
                            &optimizer, {.micro_batches = kMicroBatches, .return_outputs = true});
        EXPECT_EQ(out.loss, losses[step]) << ScheduleName(kind);
        EXPECT_EQ(out.outputs.size(), head ? 0u : static_cast<size_t>(kMicroBatches));
      }
      if (!head) {
        EXPECT_EQ(layer->Parameters()[0]->tensor.ToVector<float>(), weights);
      }
      // Forward only: the loss of the trained weights, and no gradients.
      const PipelineOutput out =
          ExecutePipeline([&] { return Data(next++ % kMicroBatches); }, executor, Criterion,
                          nullptr, {.micro_batches = kMicroBatches, .forward_only = true});
      EXPECT_EQ(out.loss, losses[3]);
      for (nn::Parameter* p : layer->Parameters()) EXPECT_FALSE(Grad(p->tensor).defined());
    });
  }
}

// --- Tied weights --------------------------------------------------------------------------------

// Three stages hold one weight; uses come in the order of the chunks, the weight's own first.
TEST(StageTest, TiedGradientsAreSummedInTheOrderOfOneProcess) {
  // In float32 these three sum up differently in every other order.
  const std::vector<float> values = {1e8f, -1e8f, 1.25f};
  for (const int missing : {-1, 0, 1, 2}) {
    RunRanks(3, [&](const std::shared_ptr<Communicator>& pp) {
      const auto layer = MakeLayer("shared");
      const Stage stage({SequenceOf({{layer.get(), nullptr}})}, pp);
      EXPECT_EQ(stage.SharedWeights(),
                (std::vector<std::string>{"shared.linear.weight", "shared.linear.bias"}));
      nn::Parameter* weight = layer->Parameters()[0];
      EXPECT_EQ(stage.Owns(weight->name), pp->rank() == 0);
      if (pp->rank() != missing) {
        SetGrad(weight->tensor, Full({4, 4}, values[static_cast<size_t>(pp->rank())]));
      }
      stage.JoinTiedGradients();
      float expected = 0;
      for (int r = 0; r < 3; ++r) {
        if (r != missing) expected += values[static_cast<size_t>(r)];
      }
      EXPECT_EQ(Grad(weight->tensor).ToVector<float>(), std::vector<float>(16, expected));
      EXPECT_FALSE(Grad(layer->Parameters()[1]->tensor).defined());  // nobody had one
    });
  }
}

TEST(StageTest, PartsOfGradientsJoinLikewise) {
  RunRanks(2, [](const std::shared_ptr<Communicator>& pp) {
    const auto layer = MakeLayer("shared");
    const Stage stage({SequenceOf({{layer.get(), nullptr}})}, pp);
    Tensor joined;
    stage.JoinTiedGradients(
        [&](const nn::Parameter& use) {
          return use.placement.global_shape().ndim() == 2 ? Full({5}, pp->rank() + 1.0) : Tensor();
        },
        [&](const nn::Parameter& weight, const Tensor& sum) {
          EXPECT_EQ(weight.name, "shared.linear.weight");
          joined = sum;
        });
    EXPECT_EQ(joined.ToVector<float>(), std::vector<float>(5, 3));
  });
}

TEST(StageTest, RefusesWhatCannotBe) {
  EXPECT_FALSE(BuildStage(GptConfig(50), {}, {0}, SingleProcessCommunicator()).ok());
  EXPECT_FALSE(
      BuildStage({{"model_type", "nothing"}}, {}, {0, 2}, SingleProcessCommunicator()).ok());
  EXPECT_THROW(Stage(std::vector<Chunk>(), SingleProcessCommunicator()), Error);
  RunRanks(2, [](const std::shared_ptr<Communicator>& pp) {
    EXPECT_FALSE(BuildStage(GptConfig(50), {}, {0, 1, 3, 5}, pp).ok());
    const auto first = MakeLayer("first");
    const auto second = MakeLayer("second");
    std::vector<Chunk> chunks = {SequenceOf({{first.get(), nullptr}})};
    EXPECT_THROW(Stage({chunks[0], chunks[0]}, pp), Error);  // one module in two chunks
    if (pp->rank() == 1) chunks.push_back(SequenceOf({{second.get(), nullptr}}));
    const Stage stage(std::move(chunks), pp);
    EXPECT_THROW(PipelineExecutor(stage, {}), Error);
  });
}

}  // namespace
}  // namespace tessera::dist
