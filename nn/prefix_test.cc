// SPDX-License-Identifier: Apache-2.0
// Attention with a prefix against attention with a past of the same keys and values, on 1 to 4
// ranks, whole and step by step; its gradients against finite differences.
#include "nn/prefix.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "autograd/autocast.h"
#include "autograd/gradcheck.h"
#include "core/thread_communicator.h"
#include "nn/attention.h"
#include "ops/collective/collective.h"
#include "ops/reduction/sum.h"
#include "ops/testing/op_check.h"
#include "ops/view/view.h"

namespace tessera::nn {
namespace {

constexpr int64_t kRows = 2;
constexpr int64_t kTokens = 5;
constexpr int64_t kHidden = 12;
constexpr int64_t kPrefix = 3;

struct Case {
  std::string name;
  SelfAttentionConfig config;
  bool takes_positions = true;
};

std::vector<Case> Cases() {
  const SelfAttentionConfig gpt = {.hidden_size = kHidden,
                                   .num_heads = 3,
                                   .weight_init = Init::Normal(0.4),
                                   .output_init = Init::Normal(0.4)};
  SelfAttentionConfig llama = gpt;
  llama.num_heads = 4;
  llama.num_key_value_heads = 2;
  llama.head_dim = 4;
  llama.qkv_names = {"q_proj", "k_proj", "v_proj"};
  llama.rotary = RotaryConfig{.base = 100.0};
  std::vector<Case> cases = {{"gpt", gpt}, {"llama", llama}};
  const auto add = [&](const std::string& name, SelfAttentionConfig config, const auto& change) {
    change(&config);
    cases.push_back({name, config, name != "chatglm"});
  };
  add("six heads of two groups", llama, [](auto* c) { c->num_heads = 6; });
  add("one group", llama, [](auto* c) { c->num_key_value_heads = 1; });
  add("mistral", llama, [](auto* c) { c->window = 4; });
  add("qwen3", llama, [](auto* c) {
    c->head_norm_names = {"q_norm", "k_norm"};
    c->qkv_bias = false;
  });
  add("chatglm", gpt, [](auto* c) {
    c->qkv_by_head = true;
    c->rotary = RotaryConfig{.base = 50.0};
  });
  return cases;
}

BuildContext Float64(const Group& group = nullptr, bool sequence_parallel = false) {
  return {.dtype = DType::kFloat64,
          .seed = 3,
          .tensor_parallel = group,
          .sequence_parallel = sequence_parallel};
}

// An attention whose adapter 0 is a prefix, with an encoder (of hidden size 4) if asked for.
struct Prefixed {
  Prefixed(const Case& c, const BuildContext& build, bool projected, bool first_layer = true)
      : attention(c.config, Scope{"layer", nullptr, std::make_shared<const BuildContext>(build)}) {
    PrefixConfig config = {.tokens = kPrefix,
                           .heads = attention.prefix_heads(),
                           .takes_positions = c.takes_positions,
                           .first_layer = first_layer};
    const auto shared = std::make_shared<const BuildContext>(build);
    if (projected) {
      const int64_t features = config.heads.count * config.heads.head_dim;
      encoder =
          std::make_shared<PrefixEncoder>(kPrefix, features, 4, Scope{"encoder", nullptr, shared});
      config.encoder = encoder;
    }
    attention.SetPrefix(
        0, std::make_shared<KeyValuePrefix>(config, Scope{"layer.prefix", &attention, shared}));
  }
  // What its keys and values come from, tied ones as they are used.
  std::vector<Parameter*> Parameters() const {
    std::vector<Parameter*> all;
    for (const auto& p : attention.prefix(0)->own_parameters()) all.push_back(p.get());
    if (encoder == nullptr || all.size() > 4) return all;
    for (const auto& p : encoder->own_parameters()) all.push_back(p.get());
    return all;
  }
  SelfAttention attention;
  std::shared_ptr<PrefixEncoder> encoder;
};

Tensor Input() { return CastCopy(RandomTensor({kRows, kTokens, kHidden}, 5), DType::kFloat64); }

Tensor Positions(int64_t begin, int64_t count = kTokens) {
  Tensor positions = Empty({kRows, count}, DType::kInt64);
  for (int64_t i = 0; i < positions.numel(); ++i) {
    positions.data<int64_t>()[i] = begin + i % count;
  }
  return positions;
}

// [kRows, G, n, D] of what a prefix gives in one process.
Tensor AsHeads(const Tensor& x_1nF, int64_t head_dim) {
  const Tensor x = Transpose(Reshape(x_1nF, {1, kPrefix, -1, head_dim}), 1, 2);
  return BroadcastTo(x, {kRows, x.size(1), kPrefix, head_dim}).ContiguousCopy();
}

// Without any of the code of prefixes: a cache holds the keys and values before the first step.
Tensor WithPast(const Case& c, const Prefixed& plain) {
  const auto numbers = plain.attention.prefix(0)->Forward();
  const int64_t head_dim = HeadDim(c.config);
  KeyValueCache cache(1);
  cache.BeginStep(std::vector<int64_t>(kRows, kPrefix));
  cache.Append(0, AsHeads(numbers.k, head_dim), AsHeads(numbers.v, head_dim));
  cache.EndStep();
  cache.BeginStep(std::vector<int64_t>(kRows, kTokens));
  return plain.attention.Forward(Input(),
                                 {.rotary_positions = Positions(c.takes_positions ? kPrefix : 0)},
                                 {.adapter = ForwardContext::kNoAdapter}, &cache);
}

TEST(PrefixTest, IsAPastOfTheSameKeysAndValues) {
  const NoGrad no_grad;
  for (const Case& c : Cases()) {
    for (const bool projected : {false, true}) {
      const std::string name = c.name + (projected ? ", projected" : "");
      const Prefixed plain(c, Float64(), projected);
      const Tensor expected = WithPast(c, plain);
      const Tensor without = plain.attention.Forward(Input(), {.rotary_positions = Positions(0)},
                                                     {.adapter = ForwardContext::kNoAdapter});
      EXPECT_NE(expected.ToVector<double>(), without.ToVector<double>()) << name;
      for (const int ranks : {1, 2, 3, 4}) {
        RunRanks(ranks, [&](std::shared_ptr<Communicator> world) {
          const NoGrad of_this_rank;
          const Prefixed mine(c, Float64(world), projected);
          const std::string where = Concat(name, " on ", ranks);
          ExpectClose(mine.attention.Forward(Input(), {.rotary_positions = Positions(0)}, {}),
                      expected, 1e-12, where);
          // Its first step begins with the prefix; row 1 is one token behind.
          KeyValueCache cache(1);
          const auto step = [&](int64_t begin, int64_t count, std::vector<int64_t> new_tokens) {
            cache.BeginStep(new_tokens);
            const Tensor y =
                mine.attention.Forward(Slice(Input(), 1, begin, count),
                                       {.rotary_positions = Positions(begin, count)}, {}, &cache);
            cache.EndStep();
            ExpectClose(y, Slice(expected, 1, begin, count), 1e-12, Concat(where, " from ", begin));
          };
          step(0, 2, {kPrefix + 2, kPrefix + 2});
          step(2, 1, {1, 1});
          step(3, 2, {2, 2});
        });
      }
    }
  }
}

// Rows join a batch: those that begin take the prefix along, others continue.
TEST(PrefixTest, RowsBeginWhenTheyDo) {
  const NoGrad no_grad;
  const Case c = Cases()[1];
  const Prefixed layer(c, Float64(), false);
  const Tensor expected = layer.attention.Forward(Input(), {.rotary_positions = Positions(0)}, {});
  KeyValueCache cache(1);
  cache.BeginStep({kPrefix + 3, 0});
  layer.attention.Forward(Slice(Input(), 1, 0, 3), {.rotary_positions = Positions(0, 3)}, {},
                          &cache);
  cache.EndStep();
  // Row 0 has its last two tokens, row 1 its first two.
  const auto row = [](const Tensor& t, int64_t b, int64_t begin) {
    return Slice(Slice(t, 0, b, 1), 1, begin, 2);
  };
  Tensor positions = Positions(0, 2);
  positions.data<int64_t>()[0] = 3;
  positions.data<int64_t>()[1] = 4;
  cache.BeginStep({2, kPrefix + 2});
  const Tensor y = layer.attention.Forward(Cat({row(Input(), 0, 3), row(Input(), 1, 0)}, 0),
                                           {.rotary_positions = positions}, {}, &cache);
  ExpectClose(row(y, 0, 0), row(expected, 0, 3), 1e-13, "the row that goes on");
  ExpectClose(row(y, 1, 0), row(expected, 1, 0), 1e-13, "the row that begins");
}

// Tokens of two documents, or of one and padding, behind one prefix.
TEST(PrefixTest, MasksKnowNothingOfIt) {
  const NoGrad no_grad;
  for (const Case& c : Cases()) {
    if (c.config.window > 0) continue;
    const Prefixed layer(c, Float64(), false);
    const Tensor x = Input();
    const auto alone = [&](int64_t begin, int64_t count) {
      return layer.attention.Forward(Slice(x, 1, begin, count),
                                     {.rotary_positions = Positions(0, count)}, {});
    };
    Tensor positions = Positions(0);
    Tensor documents = Empty({kRows, kTokens}, DType::kInt32);
    Tensor padding = Full({kRows, kTokens}, 1, DType::kBool);
    for (int64_t i = 0; i < documents.numel(); ++i) {
      const int64_t t = i % kTokens;
      documents.data<int32_t>()[i] = t < 2 ? 0 : 1;
      if (t >= 2) positions.data<int64_t>()[i] = t - 2;
      if (t < 2) padding.data<bool>()[i] = false;
    }
    const AttentionMasks packed = {.document = documents, .rotary_positions = positions};
    const Tensor y = layer.attention.Forward(x, packed, {});
    ExpectClose(y, Cat({alone(0, 2), alone(2, 3)}, 1), 1e-13, c.name + ", documents");
    const AttentionMasks padded = {.key_padding = padding, .rotary_positions = positions};
    ExpectClose(Slice(layer.attention.Forward(x, padded, {}), 1, 2, 3), alone(2, 3), 1e-13,
                c.name + ", padded");
    // What a language model's prefix lets every token see comes behind this one; a bias knows
    // nothing of it either.
    const AttentionMasks seen = {.prefix_length = Full({kRows}, kTokens, DType::kInt32),
                                 .rotary_positions = Positions(0)};
    const Tensor hidden = Full({1, 1, kTokens, kTokens}, 0, DType::kFloat64);
    AttentionMasks biased = {.bias = hidden, .rotary_positions = Positions(0)};
    ExpectClose(layer.attention.Forward(x, biased, {}), alone(0, kTokens), 1e-13,
                c.name + ", bias of zeros");
    SelfAttentionConfig both = c.config;
    both.causal = false;
    const Prefixed whole({c.name, both, c.takes_positions}, Float64(), false);
    ExpectClose(layer.attention.Forward(x, seen, {}),
                whole.attention.Forward(x, {.rotary_positions = Positions(0)}, {}), 1e-13,
                c.name + ", a prefix of tokens");
  }
}

TEST(PrefixTest, PackedRowsAreNoLongerThanAWindow) {
  Case c = Cases()[4];
  c.config.window = kPrefix + kTokens;
  const AttentionMasks masks = {.document = Full({kRows, kTokens}, 0, DType::kInt32),
                                .rotary_positions = Positions(0)};
  const Prefixed fits(c, Float64(), false);
  EXPECT_EQ(fits.attention.Forward(Input(), masks, {}).size(1), kTokens);
  c.config.window -= 1;
  const Prefixed longer(c, Float64(), false);
  EXPECT_THROW(longer.attention.Forward(Input(), masks, {}), Error);
}

const ForwardContext kTraining = {
    .training = true, .seed = 1, .step = 2, .sequence_length = kTokens};

TEST(PrefixTest, Gradients) {
  for (Case& c : Cases()) {
    c.config.attention_dropout = 0.2;
    // Numbers, those of an encoder, and those of a use that is tied to one.
    for (const int which : {0, 1, 2}) {
      Prefixed layer(c, Float64(), which > 0, which == 1);
      const PrefixEncoder* const encoder = layer.encoder.get();
      EXPECT_EQ(encoder == nullptr, which == 0);
      const KeyValuePrefix& prefix = *layer.attention.prefix(0);
      EXPECT_EQ(prefix.own_parameters().size(), which == 0 ? 2u : which == 1 ? 4u : 7u);
      Tensors inputs = {RequireGrad(Input())};
      for (const Parameter* p : layer.Parameters()) inputs.push_back(p->tensor);
      EXPECT_EQ(inputs.size(), which == 0 ? 3u : 8u);
      const auto forward = [&](const Tensors& in) {
        return Tensors{
            layer.attention.Forward(in[0], {.rotary_positions = Positions(0)}, kTraining)};
      };
      const GradCheckResult result = GradCheck(forward, inputs, {.max_elements = 25});
      EXPECT_TRUE(result.ok) << c.name << ": " << result.message;
    }
  }
}

TEST(PrefixTest, EveryRankHasTheGradientsOfOneProcess) {
  for (Case& c : Cases()) {
    c.config.attention_dropout = 0.2;
    for (const bool projected : {false, true}) {
      std::map<std::string, Tensor> expected;
      const auto run = [&](Prefixed& layer, const Group& world, bool sequence_parallel) {
        const AttentionMasks masks = {.rotary_positions = Positions(0)};
        Tensor x = Input();
        if (sequence_parallel) x = ScatterToGroup(x, 1, world);
        Tensor y = layer.attention.Forward(x, masks, kTraining);
        if (sequence_parallel) y = GatherFromGroup(y, 1, kTokens, world);
        Backward({y}, {RandomTensor({kRows, kTokens, kHidden}, 6)});
      };
      Prefixed plain(c, Float64(), projected);
      run(plain, nullptr, false);
      for (const Parameter* p : plain.Parameters()) expected[p->name] = Grad(p->tensor);
      for (const int ranks : {2, 3, 4}) {
        for (const bool sequence_parallel : {false, true}) {
          RunRanks(ranks, [&](std::shared_ptr<Communicator> world) {
            Prefixed mine(c, Float64(world, sequence_parallel), projected);
            run(mine, world, sequence_parallel);
            for (const Parameter* p : mine.Parameters()) {
              const Tensor part = Zeros(p->placement.local_shape(), DType::kFloat64);
              CopyGlobalToLocal(p->placement, expected.at(p->name), part);
              ExpectClose(Grad(p->tensor), part, 1e-11, Concat(c.name, " ", p->name, " on ", ranks),
                          1e-2);
            }
          });
        }
      }
    }
  }
}

TEST(PrefixTest, TiedOnesShareTheirNumbers) {
  Prefixed layer(Cases()[0], Float64(), false);
  SelfAttention& attention = layer.attention;
  const auto build = std::make_shared<const BuildContext>(Float64());
  const auto source = std::make_shared<KeyValuePrefix>(
      PrefixConfig{.tokens = kPrefix, .heads = attention.prefix_heads()},
      Scope{"source", nullptr, build});
  attention.SetPrefix(1, source);
  attention.SetPrefix(2, std::make_shared<KeyValuePrefix>(source, Scope{"use", nullptr, build}));
  const auto output = [&](int adapter) {
    return attention.Forward(Input(), {}, {.adapter = adapter}).ToVector<double>();
  };
  EXPECT_EQ(output(1), output(2));
  EXPECT_NE(output(0), output(1));
  EXPECT_EQ(attention.prefix(3), nullptr);
  EXPECT_EQ(attention.prefix(ForwardContext::kNoAdapter), nullptr);
  EXPECT_EQ(attention.prefix(2)->own_parameters()[0]->tied_to, source->own_parameters()[0].get());
  EXPECT_THROW(attention.SetPrefix(1, source), Error);
}

TEST(PrefixTest, UnderAutocastIsOfItsKeys) {
  const Case c = Cases()[5];
  const Prefixed layer(c, BuildContext{.seed = 3}, true);
  const Tensor x = CastCopy(Input(), DType::kFloat32);
  const Tensor exact = layer.attention.Forward(x, {.rotary_positions = Positions(0)}, {});
  const AutocastScope scope(DType::kBFloat16);
  ExpectClose(CastCopy(layer.attention.Forward(x, {.rotary_positions = Positions(0)}, {}).Detach(),
                       DType::kFloat32),
              exact.Detach(), 0.1, "bfloat16");
}

}  // namespace
}  // namespace tessera::nn
