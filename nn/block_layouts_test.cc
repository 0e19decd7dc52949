// SPDX-License-Identifier: Apache-2.0
// The layouts of well-known families as configurations of TransformerBlock: on 1 to 4 ranks, with
// and without sequence parallelism, each equals the block of one process, gradients included, and
// that one equals plain loops and finite differences.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "autograd/autocast.h"
#include "core/allocator.h"
#include "core/thread_communicator.h"
#include "nn/activation.h"
#include "nn/transformer_block.h"
#include "ops/testing/op_check.h"
#include "ops/view/view.h"

namespace tessera::nn {
namespace {

constexpr int64_t kRows = 2;
constexpr int64_t kTokens = 7;
constexpr int64_t kHidden = 12;

struct Layout {
  std::string name;
  TransformerBlockConfig config;
};

TransformerBlockConfig Base(int64_t heads, int64_t key_value_heads) {
  TransformerBlockConfig config;
  config.attention = {.hidden_size = kHidden,
                      .num_heads = heads,
                      .num_key_value_heads = key_value_heads,
                      .weight_init = Init::Normal(0.4),
                      .output_init = Init::Normal(0.4)};
  config.mlp = {.hidden_size = kHidden,
                .inner_size = 10,
                .activation = *FindActivation("silu"),
                .bias = false,
                .weight_init = Init::Normal(0.4),
                .output_init = Init::Normal(0.4)};
  return config;
}

TransformerBlockConfig Llama(int64_t heads, int64_t key_value_heads, int64_t head_dim = 4) {
  TransformerBlockConfig config = Base(heads, key_value_heads);
  config.attention.head_dim = head_dim;
  config.attention.qkv_bias = config.attention.output_bias = false;
  config.attention.qkv_names = {"q_proj", "k_proj", "v_proj"};
  config.attention.output_name = "o_proj";
  config.attention.rotary = RotaryConfig{.base = 100.0};
  config.mlp.gate_name = "gate_proj";
  config.mlp.up_name = "up_proj";
  config.mlp.down_name = "down_proj";
  config.norm = NormKind::kRmsNorm;
  config.attention_norm_name = "input_layernorm";
  config.mlp_norm_name = "post_attention_layernorm";
  config.attention_name = "self_attn";
  return config;
}

TransformerBlockConfig NeoX() {
  TransformerBlockConfig config = Base(3, 0);
  config.attention.qkv_name = "query_key_value";
  config.attention.qkv_by_head = true;
  config.attention.rotary = RotaryConfig{.base = 50.0, .share = 0.5};
  config.mlp.bias = true;
  config.parallel = true;
  return config;
}

std::vector<Layout> Layouts() {
  std::vector<Layout> layouts = {{"llama, whole groups", Llama(4, 2, 6)},
                                 {"llama, three groups", Llama(6, 3)},
                                 {"llama, groups that ranks divide", Llama(6, 2)},
                                 {"llama, one group", Llama(3, 1)},
                                 {"neox", NeoX()}};
  const auto add = [&](const std::string& name, TransformerBlockConfig config,
                       const std::function<void(TransformerBlockConfig*)>& change) {
    change(&config);
    layouts.push_back({name, config});
  };
  using Config = TransformerBlockConfig;
  add("mistral", Llama(4, 2), [](Config* c) { c->attention.window = 3; });
  add("qwen2", Llama(4, 2), [](Config* c) { c->attention.qkv_bias = true; });
  add("qwen3", Llama(6, 2, 4), [](Config* c) {
    c->attention.head_norm_names = {"q_norm", "k_norm"};
    c->attention.window = 4;
  });
  add("llama with all biases, dropout", Llama(5, 1, 4), [](Config* c) {
    c->attention.qkv_bias = c->attention.output_bias = c->mlp.bias = true;
    c->attention.attention_dropout = c->attention.residual_dropout = c->mlp.dropout = 0.2;
  });
  add("fused grouped projection", Base(6, 2), [](Config* c) {
    c->attention.head_norm_names = {"q_norm", "k_norm"};
    c->attention.layout = LinearLayout::kInOut;
  });
  add("gpt-j", NeoX(), [](Config* c) {
    c->mlp_norm_name = "";
    c->attention.qkv_by_head = false;
    c->attention.rotary->pairs = RotaryPairs::kInterleaved;
  });
  add("norms on both sides", Llama(4, 1, 4), [](Config* c) {
    c->norm_place = NormPlace::kBothSides;
    c->attention.rotary->scaling = {.kind = RotaryScaling::kYarn,
                                    .factor = 4.0,
                                    .original_positions = 16,
                                    .beta_fast = 2.0,
                                    .beta_slow = 0.5};
  });
  add("gemma3", Llama(6, 1, 4), [](Config* c) {
    c->norm_place = NormPlace::kBothSides;
    c->norm_zero_centered = c->attention.head_norm_zero_centered = true;
    c->attention.head_norm_names = {"q_norm", "k_norm"};
    c->attention.window = 4;
    c->attention.scale = 0.3;
    c->mlp.activation = *FindActivation("gelu_pytorch_tanh");
  });
  for (const int64_t original : {5, 8}) {
    add(Concat("dynamic scaling beyond ", original), Llama(4, 2), [&](Config* c) {
      c->attention.rotary->scaling = {
          .kind = RotaryScaling::kDynamic, .factor = 2.0, .original_positions = original};
    });
  }
  for (const char* norm : {"attn_norm", ""}) {
    add(Concat("modernbert with the norm '", norm, "'"), Base(3, 0), [&](Config* c) {
      c->attention.causal = false;
      c->attention.window = 2;
      c->attention.rotary = RotaryConfig();
      c->mlp.inner_dropout = 0.2;
      c->mlp.gate_name = c->mlp.up_name = "Wi";
      c->norm_bias = false;
      c->attention_norm_name = norm;
    });
  }
  add("vit", Base(4, 0), [](Config* c) {
    c->attention.causal = false;
    c->attention.qkv_names = {"query", "key", "value"};
  });
  add("bert", Base(4, 2), [](Config* c) {
    c->attention.causal = false;
    c->norm_place = NormPlace::kBehind;
    c->norm_bias = false;
  });
  return layouts;
}

Tensor Positions(int64_t begin, int64_t count) {
  Tensor positions = Empty({kRows, count}, DType::kInt64);
  for (int64_t i = 0; i < positions.numel(); ++i) {
    positions.data<int64_t>()[i] = begin + i % count;
  }
  return positions;
}

AttentionMasks MasksOf(int64_t begin = 0, int64_t count = kTokens) {
  return {.rotary_positions = Positions(begin, count)};
}

const ForwardContext kContext = {
    .training = true, .seed = 1, .step = 2, .sequence_length = kTokens};

BuildContext Float64() { return {.dtype = DType::kFloat64, .seed = 3}; }

Tensor Input() { return CastCopy(RandomTensor({kRows, kTokens, kHidden}, 5), DType::kFloat64); }
Tensor OutputGrad() { return RandomTensor({kRows, kTokens, kHidden}, 6); }

TEST(BlockLayoutsTest, EveryLayoutOfRanksEqualsOneProcess) {
  for (const Layout& layout : Layouts()) {
    SCOPED_TRACE(layout.name);
    TransformerBlock plain(layout.config, Scope::Root(Float64()));
    const Tensor whole = RequireGrad(Input());
    const Tensor expected = plain.Forward(whole, MasksOf(), kContext);
    Backward({expected}, {OutputGrad()});
    for (const int ranks : {2, 3, 4}) {
      for (const bool sequence_parallel : {false, true}) {
        RunRanks(ranks, [&](std::shared_ptr<Communicator> world) {
          BuildContext build = Float64();
          build.tensor_parallel = world;
          build.sequence_parallel = sequence_parallel;
          TransformerBlock block(layout.config, Scope::Root(build));
          const Tensor in = RequireGrad(Input());
          const auto run = [&](const Tensor& x) {
            if (!sequence_parallel) return block.Forward(x, MasksOf(), kContext);
            return GatherFromGroup(block.Forward(ScatterToGroup(x, 1, world), MasksOf(), kContext),
                                   1, kTokens, world);
          };
          const Tensor y = run(in);
          const std::string where =
              Concat(layout.name, " on ", ranks, sequence_parallel ? " with" : " without",
                     " sequence parallelism: ");
          ExpectClose(y, expected.Detach(), 1e-12, where + "result");
          Backward({y}, {OutputGrad()});
          ExpectClose(Grad(in), Grad(whole), 1e-12, where + "input gradient");
          for (Parameter* p : block.Parameters()) {
            if (p->gradient_group != nullptr) {
              p->gradient_group->AllReduce(Grad(p->tensor), ReduceOp::kSum)->Wait();
            }
            const Tensor mine = Zeros(p->placement.local_shape(), DType::kFloat64);
            CopyGlobalToLocal(p->placement, Grad(plain.FindParameter(p->name)->tensor), mine);
            ExpectClose(Grad(p->tensor), mine, 1e-11, where + p->name, 1e-2);
          }
        });
      }
    }
  }
}

TEST(BlockLayoutsTest, GradientsAreThoseOfFiniteDifferences) {
  for (const Layout& layout : Layouts()) {
    TransformerBlock block(layout.config, Scope::Root(Float64()));
    const Tensor x = RequireGrad(Input());
    Backward({block.Forward(x, MasksOf(), kContext)}, {OutputGrad()});
    const NoGrad no_grad;
    const std::vector<double> weights = OutputGrad().ToVector<double>();
    const auto projected = [&] {
      const std::vector<double> y = block.Forward(x, MasksOf(), kContext).ToVector<double>();
      double sum = 0;
      for (size_t i = 0; i < y.size(); ++i) sum += weights[i] * y[i];
      return sum;
    };
    const auto check = [&](const Tensor& t, const std::string& name) {
      const std::vector<double> grad = Grad(t).ContiguousCopy().ToVector<double>();
      for (int64_t i = 0; i < t.numel(); i += std::max<int64_t>(1, t.numel() / 11)) {
        double* const element = t.data<double>() + i;
        const double original = *element;
        *element = original + 1e-6;
        const double above = projected();
        *element = original - 1e-6;
        const double numeric = (above - projected()) / 2e-6;
        *element = original;
        EXPECT_NEAR(grad[static_cast<size_t>(i)], numeric, 1e-6 * (1 + std::abs(numeric)))
            << layout.name << ": " << name << " element " << i;
      }
    };
    check(x, "input");
    for (const Parameter* p : block.Parameters()) check(p->tensor, p->name);
  }
}

// Row 1 has two tokens less: its first step is shorter, and so are its rows of the whole.
TEST(BlockLayoutsTest, StepsThroughTheCacheEqualTheWholeSequence) {
  for (const Layout& layout : Layouts()) {
    if (!layout.config.attention.causal) continue;
    if (layout.config.attention.rotary) {
      // Keys in the cache keep the frequencies of the length that they were rotated at.
      const RotaryScaling& scaling = layout.config.attention.rotary->scaling;
      if (scaling.kind == RotaryScaling::kDynamic && scaling.original_positions < kTokens) continue;
    }
    for (const int ranks : {1, 4}) {
      RunRanks(ranks, [&](std::shared_ptr<Communicator> world) {
        const NoGrad no_grad;
        BuildContext build = Float64();
        build.tensor_parallel = world;
        TransformerBlock block(layout.config, Scope::Root(build));
        const Tensor x = Input();
        const Tensor whole = block.Forward(x, MasksOf(), {});
        KeyValueCache cache(1);
        const auto step = [&](const std::vector<int64_t>& begins, int64_t count,
                              const std::vector<int64_t>& new_tokens) {
          std::vector<Tensor> rows;
          Tensor positions = Empty({kRows, count}, DType::kInt64);
          for (int64_t b = 0; b < kRows; ++b) {
            const auto row = static_cast<size_t>(b);
            rows.push_back(Slice(Slice(x, 0, b, 1), 1, begins[row], count));
            for (int64_t t = 0; t < count; ++t) {
              positions.data<int64_t>()[b * count + t] = begins[row] + t;
            }
          }
          cache.BeginStep(new_tokens);
          const Tensor y = block.Forward(Cat(rows, 0), {.rotary_positions = positions}, {}, &cache);
          cache.EndStep();
          for (int64_t b = 0; b < kRows; ++b) {
            const auto row = static_cast<size_t>(b);
            const auto part = [&](const Tensor& t, int64_t begin) {
              return Slice(Slice(t, 0, b, 1), 1, begin, new_tokens[row]);
            };
            ExpectClose(part(y, 0), part(whole, begins[row]), 1e-13, layout.name);
          }
        };
        step({0, 0}, 3, {3, 1});
        for (int64_t t = 0; t + 3 < kTokens; ++t) step({3 + t, 1 + t}, 1, {1, 1});
      });
    }
  }
}

// Attention by its definition, in plain loops, on the parameters of the block.
std::vector<double> NaiveAttention(const SelfAttentionConfig& c, SelfAttention& attention,
                                   const Tensor& x) {
  const int64_t heads = c.num_heads;
  const int64_t groups = c.num_key_value_heads;
  const int64_t d = HeadDim(c);
  const auto parameter = [&](const std::string& name) {
    return attention.FindParameter(name)->tensor.ToVector<double>();
  };
  const std::vector<double> in = x.ToVector<double>();
  // [B, T, heads, D], normed and rotated.
  const auto project = [&](const std::string& name, const std::string& norm, int64_t count,
                           bool rotates) {
    const std::vector<double> weight = parameter(name + ".weight");
    const std::vector<double> scale = parameter(norm + ".weight");
    std::vector<double> y(static_cast<size_t>(kRows * kTokens * count * d));
    for (int64_t row = 0; row < kRows * kTokens * count; ++row) {
      double* head = y.data() + row * d;
      double squares = 0;
      for (int64_t f = 0; f < d; ++f) {
        for (int64_t i = 0; i < kHidden; ++i) {
          head[f] += in[static_cast<size_t>(row / count * kHidden + i)] *
                     weight[static_cast<size_t>((row % count * d + f) * kHidden + i)];
        }
        squares += head[f] * head[f];
      }
      if (!rotates) continue;
      const double rms = std::sqrt(squares / static_cast<double>(d) + c.head_norm_eps);
      for (int64_t f = 0; f < d; ++f) head[f] = head[f] / rms * scale[static_cast<size_t>(f)];
      for (int64_t p = 0; p < d / 2; ++p) {
        const double angle =
            static_cast<double>(row / count % kTokens) *
            std::pow(c.rotary->base, -2.0 * static_cast<double>(p) / static_cast<double>(d));
        const double a = head[p];
        const double b = head[p + d / 2];
        head[p] = a * std::cos(angle) - b * std::sin(angle);
        head[p + d / 2] = a * std::sin(angle) + b * std::cos(angle);
      }
    }
    return y;
  };
  const std::vector<double> q = project("q_proj", "q_norm", heads, true);
  const std::vector<double> k = project("k_proj", "k_norm", groups, true);
  const std::vector<double> v = project("v_proj", "k_norm", groups, false);
  const std::vector<double> out = parameter("o_proj.weight");
  std::vector<double> y(in.size());
  for (int64_t b = 0; b < kRows; ++b) {
    for (int64_t i = 0; i < kTokens; ++i) {
      for (int64_t h = 0; h < heads; ++h) {
        const int64_t g = h / (heads / groups);
        const auto key = [&](int64_t j) { return ((b * kTokens + j) * groups + g) * d; };
        std::vector<double> p(kTokens);
        double total = 0;
        const int64_t end = c.causal ? i + 1 : std::min(kTokens, i + c.window);
        for (int64_t j = std::max<int64_t>(0, i - c.window + 1); j < end; ++j) {
          double score = 0;
          for (int64_t f = 0; f < d; ++f) {
            score += q[static_cast<size_t>(((b * kTokens + i) * heads + h) * d + f)] *
                     k[static_cast<size_t>(key(j) + f)];
          }
          p[static_cast<size_t>(j)] = std::exp(score / std::sqrt(static_cast<double>(d)));
          total += p[static_cast<size_t>(j)];
        }
        for (int64_t f = 0; f < d; ++f) {
          double o = 0;
          for (int64_t j = 0; j < end; ++j) {
            o += p[static_cast<size_t>(j)] / total * v[static_cast<size_t>(key(j) + f)];
          }
          for (int64_t n = 0; n < kHidden; ++n) {
            y[static_cast<size_t>((b * kTokens + i) * kHidden + n)] +=
                o * out[static_cast<size_t>(n * heads * d + h * d + f)];
          }
        }
      }
    }
  }
  return y;
}

TEST(BlockLayoutsTest, AttentionIsThatOfPlainLoops) {
  for (const auto& [window, causal] : {std::pair(3, true), {100, true}, {3, false}, {100, false}}) {
    SelfAttentionConfig config = Llama(6, 2, 8).attention;
    config.head_norm_names = {"q_norm", "k_norm"};
    config.window = window;
    config.causal = causal;
    SelfAttention attention(config, Scope::Root(Float64()));
    for (const char* norm : {"q_norm.weight", "k_norm.weight"}) {
      CopyInto(attention.FindParameter(norm)->tensor, RandomTensor({8}, 9));
    }
    const std::vector<double> expected = NaiveAttention(config, attention, Input());
    ExpectClose(attention.Forward(Input(), MasksOf(), {}),
                Tensor::FromVector(expected, {kRows, kTokens, kHidden}), 1e-13, "attention");
  }
}

TEST(BlockLayoutsTest, DtypesFollowFloat64) {
  for (const Layout& layout : Layouts()) {
    const NoGrad no_grad;
    TransformerBlock exact(layout.config, Scope::Root(Float64()));
    const Tensor expected = exact.Forward(Input(), MasksOf(), {});
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
      TransformerBlock block(layout.config, Scope::Root({.dtype = dtype, .seed = 3}));
      const Tensor y = block.Forward(CastCopy(Input(), dtype), MasksOf(), {});
      EXPECT_EQ(y.dtype(), dtype);
      ExpectClose(CastCopy(y, DType::kFloat64), expected, 100 * Epsilon(dtype),
                  Concat(layout.name, " in ", dtype), 1.0);
    }
  }
}

TEST(BlockLayoutsTest, AutocastFollowsFloat64) {
  for (const Layout& layout : Layouts()) {
    TransformerBlock exact(layout.config, Scope::Root(Float64()));
    const Tensor whole = RequireGrad(Input());
    const Tensor expected = exact.Forward(whole, MasksOf(), {});
    Backward({expected}, {OutputGrad()});
    TransformerBlock block(layout.config, Scope::Root({.dtype = DType::kFloat32, .seed = 3}));
    const Tensor x = RequireGrad(CastCopy(Input(), DType::kFloat32));
    Tensor y;
    {
      const AutocastScope autocast(DType::kBFloat16);
      y = block.Forward(x, MasksOf(), {});
    }
    Backward({y}, {CastCopy(OutputGrad(), y.dtype())});
    const double tolerance = 100 * Epsilon(DType::kBFloat16);
    const auto wide = [](const Tensor& t) { return CastCopy(t, DType::kFloat64); };
    ExpectClose(wide(y), expected.Detach(), tolerance, layout.name + " under autocast", 1.0);
    ExpectClose(wide(Grad(x)), Grad(whole), tolerance, layout.name + ", gradient", 1.0);
  }
}

// A dry run counts the bytes of a real one.
TEST(BlockLayoutsTest, MetaNeedsTheSameBytes) {
  for (const Layout& layout : Layouts()) {
    const auto peak = [&](const Device& device) {
      BuildContext build = {.dtype = DType::kFloat32, .device = device, .seed = 3};
      TransformerBlock block(layout.config, Scope::Root(build));
      const Tensor x = RequireGrad(CopyTo(CastCopy(Input(), DType::kFloat32), device));
      AttentionMasks masks = MasksOf();
      masks.rotary_positions = CopyTo(masks.rotary_positions, device);
      Allocator& allocator = Allocator::For(device);
      const int64_t before = allocator.stats().current_bytes;
      allocator.ResetPeak();
      const Tensor y = block.Forward(x, masks, kContext);
      Backward({y}, {Empty(y.shape(), DType::kFloat32, device)});
      return allocator.stats().peak_bytes - before;
    };
    EXPECT_EQ(peak(Device::Meta()), peak(Device::Cpu())) << layout.name;
  }
}

TEST(BlockLayoutsTest, RefusesWhatDoesNotGoTogether) {
  const auto refuses = [](TransformerBlockConfig config,
                          const std::function<void(TransformerBlockConfig*)>& change) {
    change(&config);
    EXPECT_THROW(TransformerBlock(config, Scope::Root(Float64())), Error);
  };
  using Config = TransformerBlockConfig;
  refuses(Llama(4, 2), [](Config* c) { c->attention.num_key_value_heads = 3; });
  refuses(Llama(4, 2), [](Config* c) { c->attention.head_norm_names = {"q_norm"}; });
  refuses(Llama(4, 2), [](Config* c) { c->attention.qkv_names = {"q", "k"}; });
  refuses(Llama(4, 2), [](Config* c) { c->attention.qkv_by_head = true; });
  refuses(Llama(4, 2), [](Config* c) { c->attention.window = -2; });
  refuses(NeoX(), [](Config* c) { c->attention_norm_name = ""; });
  refuses(Base(4, 0), [](Config* c) {
    c->norm_place = NormPlace::kBehind;
    c->attention_norm_name = "";
  });
  refuses(NeoX(), [](Config* c) { c->norm_place = NormPlace::kBehind; });
  refuses(NeoX(), [](Config* c) { c->alpha = 2.0; });
  refuses(Llama(4, 2), [](Config* c) { c->mlp_norm_name = ""; });
  TransformerBlock block(Llama(4, 2, 6), Scope::Root(Float64()));
  EXPECT_THROW(block.Forward(Input(), {}, {}), Error);  // no positions
}

}  // namespace
}  // namespace tessera::nn
