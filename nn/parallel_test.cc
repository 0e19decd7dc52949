// SPDX-License-Identifier: Apache-2.0
// Every parallel layer: finite differences over its global parameters and its input on 1 to 4
// ranks, in float64, and equality with the plain layer.
#include <gtest/gtest.h>

#include <cmath>

#include "core/thread_communicator.h"
#include "nn/activation.h"
#include "nn/cross_attention.h"
#include "nn/embedding.h"
#include "nn/layer_check.h"
#include "nn/low_rank.h"
#include "nn/relative_position.h"
#include "nn/transformer_block.h"
#include "ops/elementwise/elementwise.h"
#include "ops/testing/op_check.h"
#include "ops/view/view.h"

namespace tessera::nn {
namespace {

class ParallelLayerTest : public testing::TestWithParam<int> {};

TEST_P(ParallelLayerTest, ColumnThenRowParallelLinear) {
  for (const LinearLayout layout : {LinearLayout::kOutIn, LinearLayout::kInOut}) {
    const Tensor x = RandomTensor({2, 3, 5}, 1);
    std::vector<double> plain;
    {
      ColumnParallelLinear up({.in_features = 5,
                               .out_features = 7,
                               .layout = layout,
                               .weight_init = Init::Normal(1),
                               .bias_init = Init::Normal(1)},
                              Scope{"up", nullptr, RootScope(nullptr).build});
      RowParallelLinear down({.in_features = 7,
                              .out_features = 4,
                              .layout = layout,
                              .weight_init = Init::Normal(1),
                              .bias_init = Init::Normal(1)},
                             Scope{"down", nullptr, RootScope(nullptr).build});
      plain = down.Forward(Silu(up.Forward(x))).ToVector<double>();
    }
    RunRanks(GetParam(), [&](std::shared_ptr<Communicator> world) {
      struct Both : Module {
        Both(const LinearConfig& a, const LinearConfig& b, const Scope& s)
            : Module(s), up(a, Child("up")), down(b, Child("down")) {}
        ColumnParallelLinear up;
        RowParallelLinear down;
      } both({.in_features = 5,
              .out_features = 7,
              .layout = layout,
              .weight_init = Init::Normal(1),
              .bias_init = Init::Normal(1)},
             {.in_features = 7,
              .out_features = 4,
              .layout = layout,
              .weight_init = Init::Normal(1),
              .bias_init = Init::Normal(1)},
             RootScope(world));
      const auto forward = [&](const Tensor& in) {
        return both.down.Forward(Silu(both.up.Forward(in)));
      };
      ExpectClose(forward(x), Tensor::FromVector(plain, {2, 3, 4}), 1e-13, "result");
      CheckGradients(world, both, x, forward);
    });
  }
}

struct UpAndDown : Module {
  UpAndDown(LinearLayout layout, const Scope& s)
      : Module(s),
        up({.in_features = 5,
            .out_features = 7,
            .layout = layout,
            .weight_init = Init::Normal(1),
            .bias_init = Init::Normal(1)},
           Child("up")),
        down({.in_features = 7,
              .out_features = 4,
              .layout = layout,
              .weight_init = Init::Normal(1),
              .bias_init = Init::Normal(1)},
             Child("down")) {}
  // Terms beside both, none of them nothing.
  void Adapt(int adapter, const LowRankConfig& config) {
    for (Module* layer : {static_cast<Module*>(&up), static_cast<Module*>(&down)}) {
      LowRankTerm& term = AdaptedWeight::Of(*layer).AddTerm(adapter, config);
      for (const auto& p : term.own_parameters()) {
        p->init = Init::Normal(1);
        InitialiseParameter(*p, 3);
      }
    }
  }
  Tensor Forward(const Tensor& x, const ForwardContext& context) const {
    return down.Forward(Silu(up.Forward(x, context)), context);
  }
  ColumnParallelLinear up;
  RowParallelLinear down;
};

// x W + scale (x A) B with the numbers of the layer, in one piece.
Tensor WithTerm(Module& layer, const std::string& suffix, double scale, bool magnitude,
                const Tensor& x) {
  const auto tensor = [&](const std::string& name) {
    return layer.FindParameter(layer.path() + name)->tensor;
  };
  const Tensor weight =
      MergedWeight(tensor(".weight"), *layer.linear_layout(),
                   tensor(".lora_A" + suffix + ".weight"), tensor(".lora_B" + suffix + ".weight"),
                   scale, magnitude ? tensor(".lora_magnitude_vector" + suffix) : Tensor());
  return Linear(x, weight, tensor(".bias"), *layer.linear_layout());
}

TEST_P(ParallelLayerTest, LowRankTermsAreCutAsTheirWeights) {
  const LowRankConfig lora = {.rank = 3, .scale = 0.7};
  const LowRankConfig dora = {.rank = 2, .scale = 1.3, .magnitude = true};
  const ForwardContext second = {.adapter = 1};
  const ForwardContext none = {.adapter = ForwardContext::kNoAdapter};
  for (const LinearLayout layout : {LinearLayout::kOutIn, LinearLayout::kInOut}) {
    const Tensor x = RandomTensor({2, 3, 5}, 1);
    UpAndDown plain(layout, RootScope(nullptr));
    const Tensor base = plain.Forward(x, {}).Detach();
    plain.Adapt(0, lora);
    plain.Adapt(1, dora);
    const NoGrad no_grad;
    const auto expected = [&](const std::string& suffix, double scale, bool magnitude) {
      return WithTerm(plain.down, suffix, scale, magnitude,
                      Silu(WithTerm(plain.up, suffix, scale, magnitude, x)));
    };
    const Tensor with_lora = expected("", 0.7, false);
    const Tensor with_dora = expected(".1", 1.3, true);
    RunRanks(GetParam(), [&](std::shared_ptr<Communicator> world) {
      UpAndDown both(layout, RootScope(world));
      both.Adapt(0, lora);
      both.Adapt(1, dora);
      ExpectClose(both.Forward(x, {}), with_lora, 1e-12, "lora");
      ExpectClose(both.Forward(x, second), with_dora, 1e-12, "dora");
      ExpectClose(both.Forward(x, none), base, 1e-13, "none");
    });
  }
}

TEST_P(ParallelLayerTest, GradientsOfLowRankTerms) {
  for (const LinearLayout layout : {LinearLayout::kOutIn, LinearLayout::kInOut}) {
    RunRanks(GetParam(), [&](std::shared_ptr<Communicator> world) {
      UpAndDown both(layout, RootScope(world));
      both.Adapt(0, {.rank = 3, .scale = 0.7, .dropout = 0.3});
      const LowRankTerm* const term = AdaptedWeight::Of(both.up).term(0);
      ASSERT_NE(term, nullptr);
      const ForwardContext context = {.training = true, .seed = 5, .step = 1};
      CheckGradients(world, both, RandomTensor({2, 3, 5}, 1),
                     [&](const Tensor& in) { return both.Forward(in, context); });
    });
  }
}

// What drops is a function of the whole input, whichever part a rank has; the norms of DoRA have no
// gradient.
TEST_P(ParallelLayerTest, TermsWithDropoutAndMagnitudesAreThoseOfOneRank) {
  const ForwardContext context = {.training = true, .seed = 5, .step = 1};
  const Tensor x = RandomTensor({2, 3, 5}, 1);
  const LowRankConfig config = {.rank = 2, .scale = 1.3, .dropout = 0.4, .magnitude = true};
  std::map<std::string, std::vector<double>> expected;
  UpAndDown plain(LinearLayout::kOutIn, RootScope(nullptr));
  plain.Adapt(0, config);
  const Tensor y = plain.Forward(x, context);
  Backward({y}, {ProjectionGrad(y)});
  for (Parameter* p : plain.Parameters()) expected[p->name] = Grad(p->tensor).ToVector<double>();
  RunRanks(GetParam(), [&](std::shared_ptr<Communicator> world) {
    UpAndDown both(LinearLayout::kOutIn, RootScope(world));
    both.Adapt(0, config);
    const Tensor result = both.Forward(x, context);
    ExpectClose(result, y.Detach(), 1e-12, "result");
    Backward({result}, {ProjectionGrad(result)});
    for (Parameter* p : both.Parameters()) {
      const Tensor grad = Grad(p->tensor);
      if (p->gradient_group != nullptr) {
        p->gradient_group->AllReduce(grad, ReduceOp::kSum)->Wait();
      }
      const std::vector<double>& want = expected.at(p->name);
      for (int64_t i = 0; i < std::ssize(want); ++i) {
        const int64_t at = LocalOffset(*p, i);
        if (at < 0) continue;
        EXPECT_NEAR(grad.ContiguousCopy().data<double>()[at], want[static_cast<size_t>(i)], 1e-11)
            << p->name << " element " << i;
      }
    }
  });
}

// A table's term is a row of W + scale (B A)^T, on whichever rank the row is.
TEST_P(ParallelLayerTest, TermsOfTablesAreRowsOfTheMergedOne) {
  const Tensor ids = RandomIndices({2, 4}, 13, 2);
  const auto adapt = [](Module& table, const LowRankConfig& config) {
    LowRankTerm& term = AdaptedWeight::Of(table).AddTerm(0, config);
    for (const auto& p : term.own_parameters()) {
      p->init = Init::Normal(1);
      InitialiseParameter(*p, 3);
    }
  };
  const auto at = [](const Group& world) { return Scope{"wte", nullptr, RootScope(world).build}; };
  const EmbeddingConfig size = {.rows = 13, .width = 5, .init = Init::Normal(1)};
  for (const bool magnitude : {false, true}) {
    const LowRankConfig config = {.rank = 3, .scale = 0.7, .magnitude = magnitude};
    VocabParallelEmbedding plain(size, at(nullptr));
    const Tensor base = plain.Forward(ids).Detach();
    adapt(plain, config);
    const auto tensor = [&](const std::string& name) {
      return plain.FindParameter("wte." + name)->tensor.Detach();
    };
    const Tensor merged = MergedWeight(tensor("weight"), LinearLayout::kInOut,
                                       tensor("lora_embedding_A"), tensor("lora_embedding_B"), 0.7,
                                       magnitude ? tensor("lora_magnitude_vector") : Tensor());
    const Tensor expected = Embedding(merged, ids);
    RunRanks(GetParam(), [&](std::shared_ptr<Communicator> world) {
      VocabParallelEmbedding split(size, at(world));
      adapt(split, config);
      ExpectClose(split.Forward(ids).Detach(), expected, 1e-12, "vocabulary");
      ExpectClose(split.Forward(ids, {.adapter = ForwardContext::kNoAdapter}).Detach(), base, 1e-13,
                  "none");
      ReplicatedEmbedding whole(size, at(world));
      adapt(whole, config);
      ExpectClose(whole.Forward(ids).Detach(), expected, 1e-12, "whole");
      if (magnitude) return;  // norms have no gradient
      const Tensor scale = Full({1}, 1.5, DType::kFloat64);
      CheckGradients(world, split, scale,
                     [&](const Tensor& s) { return Mul(split.Forward(ids), s); });
    });
  }
}

TEST_P(ParallelLayerTest, ReplicatedLinearAndNorms) {
  RunRanks(GetParam(), [&](std::shared_ptr<Communicator> world) {
    const Tensor x = RandomTensor({2, 3, 5}, 1);
    ReplicatedLinear linear({.in_features = 5, .out_features = 4, .weight_init = Init::Normal(1)},
                            RootScope(world));
    CheckGradients(world, linear, x, [&](const Tensor& in) { return linear.Forward(in); });
    LayerNorm layer_norm({.width = 5}, RootScope(world));
    CheckGradients(world, layer_norm, x, [&](const Tensor& in) { return layer_norm.Forward(in); });
    RmsNorm rms_norm({.width = 5}, RootScope(world));
    CheckGradients(world, rms_norm, CastCopy(x, DType::kFloat64), [&](const Tensor& in) {
      const NormResult r = rms_norm.ForwardResidual(in, in);
      return Add(r.sum, r.normed);
    });
  });
}

TEST_P(ParallelLayerTest, EmbeddingAndHead) {
  RunRanks(GetParam(), [&](std::shared_ptr<Communicator> world) {
    const Tensor ids = RandomIndices({2, 4}, 13, 2);
    struct Lm : Module {
      explicit Lm(const Scope& s)
          : Module(s),
            wte({.rows = 13, .width = 5, .init = Init::Normal(1)}, Scope{"wte", this, s.build}),
            wpe({.rows = 4, .width = 5, .init = Init::Normal(1)}, Scope{"wpe", this, s.build}),
            head({.rows = 13, .width = 5, .init = Init::Normal(1)}, Scope{"head", this, s.build}),
            bias(AddParameter("bias", head.BiasPlacement(), Init::Normal(1))) {}
      VocabParallelEmbedding wte;
      ReplicatedEmbedding wpe;
      VocabParallelHead head;
      Parameter& bias;
    } lm(RootScope(world));
    const Tensor scale = Full({1}, 1.5, DType::kFloat64);
    CheckGradients(world, lm, scale, [&](const Tensor& s) {
      const Tensor positions = Reshape(Arange(4), {1, 4}).AsStrided({2, 4}, {0, 1}, 0);
      const Tensor h = Mul(Add(lm.wte.Forward(ids), lm.wpe.Forward(positions)), s);
      const Tensor logits = lm.head.Forward(h, {}, lm.bias.tensor);
      EXPECT_EQ(lm.head.Gather(logits.Detach()).shape(), (Shape{2, 4, 13}));
      return CrossEntropy(logits, ids, lm.head.LossOptions({}));
    });
  });
}

TEST_P(ParallelLayerTest, TransformerBlocks) {
  for (const bool pre_norm : {true, false}) {
    RunRanks(GetParam(), [&](std::shared_ptr<Communicator> world) {
      TransformerBlockConfig config;
      config.attention = {.hidden_size = 9,
                          .num_heads = 3,
                          .attention_dropout = 0.2,
                          .residual_dropout = 0.2,
                          .weight_init = Init::Normal(0.5),
                          .output_init = Init::Normal(0.5)};
      config.mlp = {.hidden_size = 9,
                    .inner_size = 10,
                    .activation = *FindActivation("gelu"),
                    .dropout = 0.2,
                    .weight_init = Init::Normal(0.5),
                    .output_init = Init::Normal(0.5)};
      if (!pre_norm) config.norm_place = NormPlace::kBehind;
      // Post-norm as BERT has it: q, k and v apart, the feed-forward part under the block's name.
      if (!pre_norm) {
        config.attention.qkv_names = {"self.query", "self.key", "self.value"};
        config.mlp_name = "";
      }
      TransformerBlock block(config, RootScope(world));
      const ForwardContext context = {.training = true, .seed = 1, .step = 2, .sequence_length = 4};
      const Tensor x = RandomTensor({2, 4, 9}, 5);
      TransformerBlock plain(config, RootScope(nullptr));
      ExpectClose(block.Forward(x, {}, context), plain.Forward(x, {}, context).Detach(), 1e-13,
                  "result");
      CheckGradients(world, block, x,
                     [&](const Tensor& in) { return block.Forward(in, {}, context); });
    });
  }
}

TEST_P(ParallelLayerTest, CrossAttentionAndRelativePositions) {
  // A decoder's layer as T5's: relative positions, attention to a memory, a gated feed-forward
  // part.
  class DecoderLayer : public Module {
   public:
    explicit DecoderLayer(const Scope& scope)
        : Module(scope),
          bias({.num_buckets = 4, .max_distance = 5, .num_heads = 3, .init = Init::Normal(1)},
               Child("bias")),
          self(Config(), Child("self")),
          cross(Config(), Child("cross")),
          mlp({.hidden_size = 8,
               .inner_size = 10,
               .activation = *FindActivation("gelu_new"),
               .bias = false,
               .weight_init = Init::Normal(0.5),
               .output_init = Init::Normal(0.5),
               .gate_name = "wi_0",
               .up_name = "wi_1",
               .down_name = "wo"},
              Child("mlp")) {}

    Tensor Forward(const Tensor& x) const {
      return Call(x, [&] {
        const int64_t tokens = x.size(1);
        Tensor values;
        {
          const NoGrad no_grad;
          values = bias.Forward(tokens, tokens);
        }
        AttentionMasks masks;
        masks.bias = bias.ForLayer(bias.weight(), values, {{0, tokens}}, tokens);
        const Tensor h = Add(x, self.Forward(x, masks, {}));
        const Tensor memory = CopyToGroup(Mul(x, 0.7), build().tensor_parallel);
        return mlp.Forward(Add(h, cross.Forward(h, memory, {}, {})), {});
      });
    }

   private:
    static SelfAttentionConfig Config() {
      return {.hidden_size = 8,
              .num_heads = 3,
              .head_dim = 5,
              .scale = 1.0,
              .weight_init = Init::Normal(0.4),
              .output_init = Init::Normal(0.4),
              .qkv_bias = false,
              .output_bias = false,
              .qkv_names = {"q", "k", "v"},
              .output_name = "o"};
    }
    RelativePositionBias bias;
    SelfAttention self;
    CrossAttention cross;
    Mlp mlp;
  };

  const Tensor x = RandomTensor({2, 4, 8}, 5);
  std::vector<double> plain;
  {
    DecoderLayer layer(RootScope(nullptr));
    plain = layer.Forward(x).ToVector<double>();
  }
  RunRanks(GetParam(), [&](std::shared_ptr<Communicator> world) {
    DecoderLayer layer(RootScope(world));
    const std::vector<double> y = layer.Forward(x).ToVector<double>();
    ASSERT_EQ(y.size(), plain.size());
    for (size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], plain[i], 1e-10);
    CheckGradients(world, layer, x, [&](const Tensor& in) { return layer.Forward(in); });
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, ParallelLayerTest, testing::Values(1, 2, 3, 4));

// Jain et al. 2023: uniform noise of the scale alpha / sqrt(tokens * width), in training only.
TEST(EmbeddingNoiseTest, HasTheScaleOfNeftuneAndTheSameBitsOnEveryRank) {
  const int64_t tokens = 64;
  const int64_t width = 48;
  const Tensor ids = Tensor::FromVector<int64_t>(std::vector<int64_t>(2 * tokens, 3), {2, tokens});
  const ForwardContext context = {
      .training = true, .seed = 5, .step = 2, .neftune_noise_alpha = 6.0};
  const double bound = 6.0 / std::sqrt(static_cast<double>(tokens * width));
  std::vector<double> expected;
  for (const int ranks : {1, 3}) {
    RunRanks(ranks, [&](const Group& world) {
      VocabParallelEmbedding table({.rows = 7, .width = width},
                                   Scope::Root({.seed = 1, .tensor_parallel = world}));
      const std::vector<double> plain = table.Forward(ids).ToVector<double>();
      const Tensor y = table.Forward(ids, context);
      const std::vector<double> noisy = y.ToVector<double>();
      double squares = 0;
      double sum = 0;
      for (size_t i = 0; i < plain.size(); ++i) {
        const double noise = noisy[i] - plain[i];
        ASSERT_LE(std::abs(noise), bound * 1.0001);
        squares += noise * noise;
        sum += noise;
      }
      const auto count = static_cast<double>(plain.size());
      EXPECT_NEAR(std::sqrt(squares / count), bound / std::sqrt(3.0), 0.03 * bound);
      EXPECT_NEAR(sum / count, 0.0, 0.03 * bound);
      ForwardContext next = context;
      next.step = 3;
      EXPECT_NE(table.Forward(ids, next).ToVector<double>(), noisy);
      next.training = false;
      EXPECT_EQ(table.Forward(ids, next).ToVector<double>(), plain);
      if (world->rank() != 0) return;
      if (ranks == 1) expected = noisy;
      EXPECT_EQ(noisy, expected);
    });
  }
}

TEST(SequenceParallelTest, BlockEqualsTheWholeOne) {
  TransformerBlockConfig config;
  config.attention = {.hidden_size = 8, .num_heads = 4, .residual_dropout = 0.3};
  config.mlp = {
      .hidden_size = 8, .inner_size = 12, .activation = *FindActivation("relu"), .dropout = 0.3};
  const Tensor x = RandomTensor({2, 5, 8}, 5);
  const ForwardContext context = {.training = true, .seed = 1, .step = 2, .sequence_length = 5};
  TransformerBlock plain(config, Scope::Root({.dtype = DType::kFloat64, .seed = 3}));
  const Tensor whole = RequireGrad(CastCopy(x, DType::kFloat64));
  const Tensor expected = plain.Forward(whole, {}, context);
  Backward({expected}, {ProjectionGrad(expected)});
  for (const int ranks : {2, 3}) {
    RunRanks(ranks, [&](std::shared_ptr<Communicator> world) {
      TransformerBlock block(config, Scope::Root({.dtype = DType::kFloat64,
                                                  .seed = 3,
                                                  .tensor_parallel = world,
                                                  .sequence_parallel = true}));
      const Tensor in = RequireGrad(CastCopy(x, DType::kFloat64));
      const Tensor y =
          GatherFromGroup(block.Forward(ScatterToGroup(in, 1, world), {}, context), 1, 5, world);
      ExpectClose(y, expected.Detach(), 1e-13, "result");
      Backward({y}, {ProjectionGrad(y)});
      ExpectClose(Grad(in), Grad(whole), 1e-13, "input gradient");
      for (Parameter* p : block.Parameters()) {
        if (p->gradient_group != nullptr) {
          p->gradient_group->AllReduce(Grad(p->tensor), ReduceOp::kSum)->Wait();
        }
        const Tensor global = Grad(plain.FindParameter(p->name)->tensor);
        const Tensor mine = Zeros(p->placement.local_shape(), DType::kFloat64);
        CopyGlobalToLocal(p->placement, global, mine);
        ExpectClose(Grad(p->tensor), mine, 1e-12, p->name, 1e-3);
      }
    });
  }
}

}  // namespace
}  // namespace tessera::nn
