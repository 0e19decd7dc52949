#include "ops/attention/attention.h"

#include <gtest/gtest.h>

#include <cmath>

#include "autograd/autograd.h"
#include "ops/elementwise/elementwise.h"
#include "ops/index/index.h"
#include "ops/matmul/matmul.h"
#include "ops/reduction/reduction.h"
#include "ops/testing/op_check.h"
#include "ops/view/view.h"

namespace tessera {
namespace {

// Which keys a query sees, by the definition: [B, 1, Tq, Tk] bool.
Tensor Visible(const Tensor& q, const Tensor& k, const AttentionOptions& o) {
  const int64_t tq = q.size(2);
  const int64_t tk = k.size(2);
  Tensor mask = Empty({q.size(0), 1, tq, tk}, DType::kBool);
  for (int64_t x = 0; x < mask.numel(); ++x) {
    const int64_t b = x / (tq * tk);
    const int64_t i = x / tk % tq;
    const int64_t j = x % tk;
    const auto at = [](const Tensor& t, int64_t n) {
      return t.ContiguousCopy().ToVector<int64_t>()[n];
    };
    bool sees = true;
    if (o.causal) {
      int64_t last = i + o.query_offset;
      if (o.query_offsets.defined()) last += at(o.query_offsets, b);
      sees = j <= last || (o.prefix_length.defined() && j < at(o.prefix_length, b));
      sees = sees && (o.window == 0 || j > last - o.window);
    }
    if (o.key_length.defined()) sees = sees && j < at(o.key_length, b);
    if (o.key_padding.defined()) sees = sees && at(o.key_padding, b * tk + j) != 0;
    if (o.query_document.defined()) {
      const int64_t document = at(o.key_document, b * tk + j);
      sees = sees && (document == kEveryDocument || document == at(o.query_document, b * tq + i));
    }
    mask.data<bool>()[x] = sees;
  }
  return mask;
}

// Attention of plain operations: what the fused one must equal.
Tensor Composed(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& o) {
  const int64_t group = q.size(1) / k.size(1);
  Tensor kv_head = Empty({q.size(1)}, DType::kInt64);
  for (int64_t h = 0; h < q.size(1); ++h) kv_head.data<int64_t>()[h] = h / group;
  const Tensor keys = IndexSelect(k, 1, kv_head);
  const Tensor values = IndexSelect(v, 1, kv_head);
  const double scale = o.scale != 0 ? o.scale : 1 / std::sqrt(static_cast<double>(q.size(3)));
  Tensor scores = Mul(Matmul(q, Transpose(keys, -1, -2)), scale);
  if (o.bias.defined()) scores = Add(scores, o.bias);
  const Tensor visible = Visible(q, k, o);
  const Tensor low = Full({1}, -1e300, scores.dtype());
  const Tensor masked = Where(visible, scores, low);
  const Tensor weights = Exp(Sub(masked, Max(masked, -1, true)));
  const Tensor seen = Where(visible, weights, Zeros({1}, scores.dtype()));
  const Tensor total = Maximum(Sum(seen, {-1}, true), Full({1}, 1e-300, scores.dtype()));
  return Matmul(Div(seen, total), values);
}

void CheckAttention(const std::string& name, const Shape& q, const Shape& k,
                    const AttentionOptions& options, const Tensor& bias = {}) {
  const auto with_bias = [=](const Tensors& in) {
    AttentionOptions o = options;
    if (in.size() > 3) o.bias = in[3];
    return o;
  };
  Tensors inputs = {RandomTensor(q, 1), RandomTensor(k, 2), RandomTensor(k, 3)};
  if (bias.defined()) inputs.push_back(bias);
  CheckOp({.name = name,
           .op =
               [=](const Tensors& in) {
                 AttentionOptions o = with_bias(in);
                 for (Tensor AttentionOptions::*m :
                      {&AttentionOptions::query_offsets, &AttentionOptions::prefix_length,
                       &AttentionOptions::key_length, &AttentionOptions::key_padding,
                       &AttentionOptions::query_document, &AttentionOptions::key_document}) {
                   if ((o.*m).defined()) o.*m = CopyTo(o.*m, in[0].device());
                 }
                 return Tensors{Attention(in[0], in[1], in[2], o).output};
               },
           .reference =
               [=](const Tensors& in) {
                 return Tensors{Composed(in[0], in[1], in[2], with_bias(in)).ContiguousCopy()};
               },
           .inputs = inputs,
           .sum_length = 60});
}

Tensor Int32(const std::vector<int32_t>& values, const Shape& shape) {
  return Tensor::FromVector<int32_t>(values, shape);
}

TEST(AttentionTest, MasksBiasAndGroupedHeads) {
  CheckAttention("plain", {2, 3, 5, 7}, {2, 3, 4, 7}, {});
  CheckAttention("causal", {1, 2, 9, 8}, {1, 2, 9, 8}, {.causal = true});
  CheckAttention("cached", {2, 2, 3, 5}, {2, 2, 8, 5}, {.causal = true, .query_offset = 5});
  CheckAttention("grouped", {1, 4, 5, 3}, {1, 2, 5, 3}, {.scale = 0.3, .causal = true});
  CheckAttention("one head for all", {2, 3, 2, 3}, {2, 1, 5, 3}, {});
  CheckAttention(
      "prefix and lengths", {2, 1, 4, 3}, {2, 1, 4, 3},
      {.causal = true, .prefix_length = Int32({3, 0}, {2}), .key_length = Int32({4, 2}, {2})});
  CheckAttention("holes and rows without keys", {2, 2, 4, 3}, {2, 2, 4, 3},
                 {.causal = true,
                  .key_padding = Tensor::FromVector<uint8_t>({0, 1, 0, 1, 1, 1, 0, 0}, {2, 4})});
  CheckAttention("documents", {1, 2, 6, 3}, {1, 2, 6, 3},
                 {.causal = true,
                  .query_document = Int32({0, 0, 1, 1, 1, 2}, {1, 6}),
                  .key_document = Int32({0, 0, 1, 1, 1, 2}, {1, 6})});
  CheckAttention(
      "keys of every document", {1, 2, 6, 3}, {1, 1, 8, 3},
      {.causal = true,
       .query_offset = 2,
       .query_document = Int32({0, 0, 1, 1, 1, 2}, {1, 6}),
       .key_document = Int32({kEveryDocument, kEveryDocument, 0, 0, 1, 1, 1, 2}, {1, 8})});
  CheckAttention("offsets per row", {2, 1, 2, 3}, {2, 1, 5, 3},
                 {.causal = true, .query_offsets = Int32({1, 3}, {2})});
  CheckAttention("window", {2, 2, 9, 8}, {2, 1, 9, 8}, {.causal = true, .window = 3});
  CheckAttention("window that passes over tiles", {1, 2, 150, 8}, {1, 1, 150, 8},
                 {.causal = true, .window = 20});
  CheckAttention("window behind a cache", {2, 2, 3, 5}, {2, 2, 8, 5},
                 {.causal = true,
                  .query_offsets = Int32({5, 2}, {2}),
                  .window = 4,
                  .key_length = Int32({8, 5}, {2})});
  CheckAttention(
      "window over holes", {2, 1, 6, 3}, {2, 1, 6, 3},
      {.causal = true,
       .window = 2,
       .key_padding = Tensor::FromVector<uint8_t>({0, 1, 0, 0, 1, 1, 1, 1, 1, 1, 0, 1}, {2, 6})});
  CheckAttention("bias", {2, 2, 4, 3}, {2, 2, 5, 3}, {}, RandomTensor({1, 2, 4, 5}, 7));
  CheckAttention("bias per key", {2, 2, 4, 3}, {2, 2, 5, 3}, {.causal = true},
                 RandomTensor({2, 1, 1, 5}, 7));
}

TEST(AttentionTest, PackedProjectionNeedsNoCopy) {
  const Tensor qkv = RequireGrad(CastCopy(RandomTensor({2, 5, 3 * 2 * 4}, 1), DType::kFloat64));
  const auto run = [](const Tensor& packed) {
    const Tensor heads = Transpose(Reshape(packed, {2, 5, 6, 4}), 1, 2);
    const std::vector<Tensor> parts = Split(heads, {2, 2, 2}, 1);
    AttentionOptions options;
    options.causal = true;
    return Attention(parts[0], parts[1], parts[2], options).output;
  };
  const Tensor o = run(qkv);
  EXPECT_EQ(Reshape(Transpose(o, 1, 2), {2, 5, 8}).storage(), o.storage());
  Backward({o}, {RandomTensor(o.shape(), 2)});
  EXPECT_TRUE(Grad(qkv).defined());
}

TEST(AttentionTest, DropoutDropsByTheUnshardedIndex) {
  const Tensor q = RandomTensor({2, 4, 6, 5}, 1);
  const Tensor k = RandomTensor({2, 4, 6, 5}, 2);
  const Tensor v = RandomTensor({2, 4, 6, 5}, 3);
  const RandomKey key = NoiseKey(1, "attn", 2, 3);
  const Tensor whole =
      Attention(q, k, v, {.causal = true, .dropout_p = 0.4, .dropout_key = key}).output;
  const auto half = [&](const Tensor& t) { return Slice(t, 1, 2, 2); };
  const Tensor part =
      Attention(
          half(q), half(k), half(v),
          {.causal = true, .dropout_p = 0.4, .dropout_key = key, .head_begin = 2, .heads_total = 4})
          .output;
  EXPECT_EQ(part.ToVector<double>(), half(whole).ToVector<double>());
  const Tensor none = Attention(q, k, v, {.causal = true}).output;
  EXPECT_NE(none.ToVector<double>(), whole.ToVector<double>());
  CheckOp({.name = "attention dropout",
           .op =
               [&](const Tensors& in) {
                 return Tensors{
                     Attention(in[0], in[1], in[2], {.dropout_p = 0.4, .dropout_key = key}).output};
               },
           .reference = nullptr,
           .inputs = {q, k, v},
           .sum_length = 60});
}

TEST(AttentionTest, RefusesMisuse) {
  const Tensor q = Zeros({1, 2, 3, 4});
  EXPECT_THROW(Attention(q, q, Zeros({1, 2, 4, 4}), {}), Error);
  EXPECT_THROW(Attention(q, Zeros({1, 3, 3, 4}), Zeros({1, 3, 3, 4}), {}), Error);
  EXPECT_THROW(Attention(q, q, q, {.window = 2}), Error);
  EXPECT_THROW(Attention(q, q, q, {.causal = true, .window = -1}), Error);
  EXPECT_THROW(Attention(q, q, q, {.key_length = Zeros({1})}), Error);
  EXPECT_THROW(Attention(q, q, q, {.key_padding = Zeros({1, 4}, DType::kBool)}), Error);
  EXPECT_THROW(Attention(q, q, q, {.bias = Zeros({1, 3, 3, 3})}), Error);
  EXPECT_THROW(Attention(q, q, q, {.query_document = Zeros({1, 3}, DType::kInt32)}), Error);
}

}  // namespace
}  // namespace tessera
