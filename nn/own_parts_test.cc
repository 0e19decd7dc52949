// SPDX-License-Identifier: Apache-2.0
// Blocks around an attention and a feed-forward part of one's own, and where errors say they are.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "autograd/gradcheck.h"
#include "nn/linear.h"
#include "nn/transformer_block.h"
#include "ops/elementwise/elementwise.h"
#include "ops/matmul/matmul.h"
#include "ops/testing/op_check.h"

namespace tessera::nn {
namespace {

constexpr int64_t kWidth = 6;
constexpr int64_t kTokens = 5;

// Each token reads the mean of a projection of all tokens before it and of itself.
class MeanAttention : public AttentionLayer {
 public:
  explicit MeanAttention(const Scope& scope)
      : AttentionLayer(scope),
        v_({.in_features = kWidth, .out_features = kWidth, .weight_init = Init::Normal(0.5)},
           Child("v")) {}
  Tensor Forward(const Tensor& h, const AttentionMasks&, const ForwardContext&, KeyValueCache*,
                 int) const override {
    return Call(h, [&] {
      const int64_t tokens = h.size(1);
      const Tensor means = Zeros({tokens, tokens}, h.dtype());
      for (int64_t t = 0; t < tokens; ++t) {
        for (int64_t s = 0; s <= t; ++s) {
          means.data<double>()[t * tokens + s] = 1.0 / static_cast<double>(t + 1);
        }
      }
      return Matmul(means, v_.Forward(h));
    });
  }

 private:
  ReplicatedLinear v_;
};

// A linear layer; of the wrong size where it is asked for.
class OneLinear : public FeedForward {
 public:
  OneLinear(int64_t in, const Scope& scope)
      : FeedForward(scope),
        up_({.in_features = in, .out_features = kWidth, .weight_init = Init::Normal(0.5)},
            Child("up_proj")) {}
  Tensor Forward(const Tensor& h, const ForwardContext&) const override {
    return Call(h, [&] { return up_.Forward(h); });
  }

 private:
  ReplicatedLinear up_;
};

TransformerBlockConfig Block(int64_t in = kWidth) {
  TransformerBlockConfig config;
  config.attention.hidden_size = kWidth;
  config.make_attention = [](const Scope& scope) { return std::make_unique<MeanAttention>(scope); };
  config.feed_forward = [in](const Scope& scope) { return std::make_unique<OneLinear>(in, scope); };
  return config;
}

Tensor Hidden() { return RandomTensor({2, kTokens, kWidth}, 1); }

TEST(OwnPartsTest, StandUnderTheBlocksNamesAndTrain) {
  TransformerBlock block(Block(), Scope::Root({.dtype = DType::kFloat64, .seed = 3}));
  std::vector<Tensor> inputs = {RequireGrad(Hidden())};
  std::string names;
  block.VisitParameters([&](Parameter& p) {
    inputs.push_back(p.tensor);
    names += p.name + " ";
  });
  EXPECT_EQ(names,
            "ln_1.weight ln_1.bias attn.v.weight attn.v.bias ln_2.weight ln_2.bias "
            "mlp.up_proj.weight mlp.up_proj.bias ");
  const GradCheckResult result = GradCheck(
      [&](const std::vector<Tensor>& in) {
        return std::vector<Tensor>{block.Forward(in[0], {}, {})};
      },
      inputs);
  EXPECT_TRUE(result.ok) << result.message;
}

std::string ErrorOf(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// The innermost module is named, with the rule; outside of a Forward none is.
TEST(OwnPartsTest, ErrorsBeginWithTheModulesPath) {
  TransformerBlock block(Block(kWidth + 1), Scope::Root({.dtype = DType::kFloat64, .seed = 3}));
  const std::string error = ErrorOf([&] { block.Forward(Hidden(), {}, {}); });
  EXPECT_EQ(error.find("mlp.up_proj: linear: cannot apply "), 0u) << error;
  EXPECT_NE(error.find("the last dim must be the weight's `in`"), std::string::npos) << error;
  EXPECT_EQ(ErrorOf([] { Add(Zeros({2}), Zeros({3})); }),
            "add: shapes [2] and [3] do not broadcast");
  try {
    block.Forward(Hidden(), {}, {});
  } catch (const Error& caught) {
    EXPECT_EQ(caught.operation(), "linear");
    EXPECT_EQ(caught.detail().find("cannot apply "), 0u);
  }
}

}  // namespace
}  // namespace tessera::nn
