// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "autograd/autograd.h"
#include "core/allocator.h"
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
    int64_t place = i + o.query_offset;
    if (o.query_offsets.defined()) place += at(o.query_offsets, b);
    bool sees = o.window == 0 || (j > place - o.window && (o.causal || j < place + o.window));
    if (o.causal) {
      sees = sees && (j <= place || (o.prefix_length.defined() && j < at(o.prefix_length, b)));
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

// Attention of plain operations: what the fused one must equal, and each query's sum of
// exponentials.
Tensors Composed(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& o) {
  const int64_t group = q.size(1) / k.size(1);
  Tensor kv_head = Empty({q.size(1)}, DType::kInt64);
  for (int64_t h = 0; h < q.size(1); ++h) kv_head.data<int64_t>()[h] = h / group;
  const Tensor keys = IndexSelect(k, 1, kv_head);
  const Tensor values = IndexSelect(v, 1, kv_head);
  const double scale = o.scale != 0 ? o.scale : 1 / std::sqrt(static_cast<double>(q.size(3)));
  Tensor scores = Mul(Matmul(q, Transpose(keys, -1, -2)), scale);
  if (o.softcap > 0) scores = Mul(Tanh(Mul(scores, 1 / o.softcap)), o.softcap);
  if (o.bias.defined()) scores = Add(scores, o.bias);
  const Tensor visible = Visible(q, k, o);
  const Tensor low = Full({1}, -1e300, scores.dtype());
  const Tensor masked = Where(visible, scores, low);
  const Tensor max = Max(masked, -1, true);
  const Tensor weights = Exp(Sub(masked, max));
  const Tensor seen = Where(visible, weights, Zeros({1}, scores.dtype()));
  const Tensor sum = Sum(seen, {-1}, true);
  const Tensor total = Maximum(sum, Full({1}, 1e-300, scores.dtype()));
  return {Matmul(Div(seen, total), values).ContiguousCopy(),
          Reshape(Mul(sum, Exp(max)), {q.size(0), q.size(1), q.size(2)})};
}

OpCheck CheckOf(const std::string& name, const Shape& q, const Shape& k,
                const AttentionOptions& options, const Tensor& bias) {
  const auto with_bias = [=](const Tensors& in) {
    AttentionOptions o = options;
    if (in.size() > 3) o.bias = in[3];
    return o;
  };
  Tensors inputs = {RandomTensor(q, 1), RandomTensor(k, 2), RandomTensor(k, 3)};
  if (bias.defined()) inputs.push_back(bias);
  return {
      .name = name,
      .op =
          [=](const Tensors& in) {
            AttentionOptions o = with_bias(in);
            for (Tensor AttentionOptions::*m :
                 {&AttentionOptions::query_offsets, &AttentionOptions::prefix_length,
                  &AttentionOptions::key_length, &AttentionOptions::key_padding,
                  &AttentionOptions::query_document, &AttentionOptions::key_document}) {
              if ((o.*m).defined()) o.*m = CopyTo(o.*m, in[0].device());
            }
            const AttentionResult result = Attention(in[0], in[1], in[2], o);
            return Tensors{result.output, Exp(result.lse)};
          },
      .reference = [=](const Tensors& in) { return Composed(in[0], in[1], in[2], with_bias(in)); },
      .inputs = inputs,
      .sum_length = 60};
}

void CheckAttention(const std::string& name, const Shape& q, const Shape& k,
                    const AttentionOptions& options, const Tensor& bias = {}) {
  OpCheck check = CheckOf(name, q, k, options, bias);
  for (OpFn* of : {&check.op, &check.reference}) {
    *of = [both = *of](const Tensors& in) { return Tensors{both(in)[0]}; };  // lse is off the tape
  }
  CheckOp(check);
}

// Without gradients, and with lse.
void CheckForward(const std::string& name, const Shape& q, const Shape& k,
                  const AttentionOptions& options, const Tensor& bias = {}) {
  OpCheck check = CheckOf(name, q, k, options, bias);
  check.check_gradient = false;
  CheckOp(check);
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
  CheckAttention("window to both sides", {2, 2, 9, 8}, {2, 1, 9, 8}, {.window = 3});
  CheckAttention("window to both sides over tiles", {1, 2, 150, 8}, {1, 1, 150, 8}, {.window = 20});
  CheckAttention("window to both sides of other places", {2, 2, 7, 5}, {2, 2, 8, 5},
                 {.query_offset = 1,
                  .query_offsets = Int32({5, -4}, {2}),
                  .window = 3,
                  .key_length = Int32({8, 5}, {2})});
  CheckAttention("window to both sides over holes and documents", {1, 1, 6, 3}, {1, 1, 6, 3},
                 {.window = 3,
                  .key_padding = Tensor::FromVector<uint8_t>({1, 1, 0, 0, 1, 1}, {1, 6}),
                  .query_document = Int32({0, 0, 0, 1, 1, 1}, {1, 6}),
                  .key_document = Int32({0, 0, 0, 1, 1, 1}, {1, 6})});
  CheckAttention("window beyond every key", {1, 1, 5, 3}, {1, 1, 7, 3},
                 {.window = std::numeric_limits<int64_t>::max() / 2});
  CheckAttention("capped scores", {2, 4, 5, 8}, {2, 2, 6, 8}, {.scale = 1.0, .softcap = 1.5});
  CheckAttention(
      "capped scores over holes and tiles", {1, 2, 70, 8}, {1, 1, 70, 8},
      {.softcap = 0.5,
       .causal = true,
       .window = 30,
       .key_padding = Cat({Zeros({1, 3}, DType::kBool), Full({1, 67}, 1, DType::kBool)}, 1)});
  CheckAttention("bias", {2, 2, 4, 3}, {2, 2, 5, 3}, {}, RandomTensor({1, 2, 4, 5}, 7));
  CheckAttention("bias per key", {2, 2, 4, 3}, {2, 2, 5, 3}, {.causal = true},
                 RandomTensor({2, 1, 1, 5}, 7));
  CheckAttention("bias of several tiles", {2, 1, 70, 2}, {2, 1, 66, 2}, {},
                 RandomTensor({1, 1, 70, 66}, 7));
  CheckAttention("bias per key over tiles", {1, 2, 70, 2}, {1, 1, 90, 2},
                 {.causal = true, .query_offset = 20}, RandomTensor({1, 1, 1, 90}, 7));
  CheckAttention("bias per query over tiles", {1, 2, 70, 2}, {1, 1, 90, 2},
                 {.causal = true, .query_offset = -5, .window = 30},
                 RandomTensor({1, 2, 70, 1}, 7));
  CheckAttention("bias per head", {2, 2, 5, 2}, {2, 2, 70, 2}, {}, RandomTensor({1, 2, 1, 1}, 7));
}

// What decoding asks for: over one chunk of keys and several (kDecodeChunk), in every count of rows
// that the GPU's kernel is compiled for, and beside it.
TEST(AttentionTest, FewQueriesOfManyKeys) {
  CheckForward("one chunk", {2, 2, 1, 64}, {2, 2, 128, 64}, {});
  CheckForward("a key more", {2, 2, 1, 64}, {2, 2, 129, 64}, {});
  CheckForward("capped scores", {2, 2, 1, 64}, {2, 2, 129, 64}, {.softcap = 0.5});
  CheckForward("several chunks", {2, 3, 1, 8}, {2, 3, 400, 8}, {.scale = -0.3});
  CheckForward("heads that share keys", {2, 8, 1, 16}, {2, 2, 300, 16}, {});
  CheckForward("eight that do", {1, 16, 1, 72}, {1, 2, 200, 72}, {});
  CheckForward("two queries", {1, 4, 2, 128}, {1, 2, 270, 128},
               {.causal = true, .query_offset = 268});
  CheckForward("three queries", {2, 6, 3, 24}, {2, 2, 260, 24},
               {.causal = true, .query_offsets = Int32({257, 126}, {2})});
  CheckForward("four queries", {1, 8, 4, 32}, {1, 2, 131, 32},
               {.causal = true, .query_offset = 126});
  CheckForward("too many queries", {1, 8, 5, 32}, {1, 2, 131, 32},
               {.causal = true, .query_offset = 126});
  CheckForward("large heads", {1, 4, 1, 256}, {1, 1, 140, 256}, {});
  CheckForward("larger ones than are taken", {1, 4, 1, 264}, {1, 1, 140, 264}, {});
  CheckForward("heads of no whole words", {1, 4, 1, 36}, {1, 1, 140, 36}, {});
  CheckForward("odd heads", {1, 4, 1, 37}, {1, 1, 140, 37}, {});
}

TEST(AttentionTest, FewQueriesAndMasks) {
  const Shape q = {4, 4, 2, 16};
  const Shape k = {4, 2, 400, 16};
  const auto bytes = [](auto keeps) {
    Tensor padding = Empty({4, 400}, DType::kUInt8);
    for (int64_t x = 0; x < padding.numel(); ++x) padding.data<uint8_t>()[x] = keeps(x % 400);
    return padding;
  };
  const Tensor offsets = Int32({398, 126, 127, -2}, {4});
  const Tensor lengths = Int32({400, 128, 129, 0}, {4});
  CheckForward("lengths", q, k, {.key_length = lengths});
  CheckForward("lengths and offsets", q, k,
               {.causal = true, .query_offsets = offsets, .key_length = lengths});
  for (const int64_t window : {1, 60, 130, 300}) {
    CheckForward(
        "window", q, k,
        {.causal = true, .query_offsets = offsets, .window = window, .key_length = lengths});
    CheckForward("window to both sides", q, k,
                 {.query_offsets = Int32({200, 126, 127, -2}, {4}), .window = window});
  }
  CheckForward("prefix", q, k,
               {.causal = true,
                .query_offset = 30,
                .prefix_length = Int32({0, 20, 128, 290}, {4}),
                .key_length = Int32({400, 400, 100, 400}, {4})});
  CheckForward("padding", q, k, {.key_padding = bytes([](int64_t j) { return j % 3 != 1; })});
  CheckForward("chunks that are padding", q, k,
               {.causal = true, .query_offsets = offsets, .key_padding = bytes([](int64_t j) {
                                                            return j / 128 == 1;
                                                          })});
  Tensor documents = Empty({4, 400}, DType::kInt32);
  for (int64_t x = 0; x < documents.numel(); ++x) {
    documents.data<int32_t>()[x] = x % 400 < 9 ? kEveryDocument : static_cast<int>(x % 400 / 150);
  }
  CheckForward(
      "documents", q, k,
      {.query_document = Int32({0, 1, 2, 2, 1, 0, 7, 7}, {4, 2}), .key_document = documents});
  CheckForward("bias", q, k, {}, RandomTensor({4, 4, 2, 400}, 7));
  CheckForward("bias of heads and keys", q, k, {.key_length = lengths},
               RandomTensor({1, 4, 1, 400}, 7));
}

// The parts of a packed projection are read where they lie, and their gradients written where that
// of the whole is to be: by part (GPT-2), with grouped heads, by head (GPT-NeoX).
TEST(AttentionTest, PackedProjectionNeedsNoCopy) {
  struct Packing {
    int64_t heads, groups;
    bool by_head;
  };
  for (const Packing& p : {Packing{2, 2, false}, Packing{4, 2, false}, Packing{3, 3, true}}) {
    const int64_t features = (p.heads + 2 * p.groups) * 4;
    const Tensor x = RandomTensor({2, 5, features}, 1);
    const auto keep_grad = [](const Tensor& t, Tensor* grad) {
      AddGradHook(t, [grad](const Tensor& of_t) {
        *grad = of_t;
        return Tensor();
      });
    };
    // The gradients of the leaf, of the whole and of its first part.
    struct Gradients {
      Tensor leaf, whole, part;
    };
    const auto run = [&](bool copied) {
      Gradients grads;
      const Tensor leaf = RequireGrad(x.ContiguousCopy().Detach());
      const Tensor packed = Mul(leaf, 1.0);
      keep_grad(packed, &grads.whole);
      std::vector<Tensor> parts = p.by_head
                                      ? Split(Reshape(packed, {2, 5, p.heads, 12}), {4, 4, 4}, 3)
                                      : Split(packed, {p.heads * 4, p.groups * 4, p.groups * 4}, 2);
      keep_grad(parts[0], &grads.part);
      for (Tensor& part : parts) {
        if (copied) part = Contiguous(part);
        part = Transpose(p.by_head ? part : Reshape(part, {2, 5, part.size(2) / 4, 4}), 1, 2);
      }
      const Tensor o = Attention(parts[0], parts[1], parts[2], {.causal = true}).output;
      EXPECT_EQ(Reshape(Transpose(o, 1, 2), {2, 5, p.heads * 4}).storage(), o.storage());
      Backward({o}, {RandomTensor(o.shape(), 2)});
      grads.leaf = Grad(leaf);
      return grads;
    };
    const Gradients in_place = run(/*copied=*/false);
    const Gradients copied = run(/*copied=*/true);
    EXPECT_EQ(in_place.part.storage(), in_place.whole.storage()) << p.heads << " " << p.groups;
    EXPECT_NE(copied.part.storage(), copied.whole.storage());
    EXPECT_EQ(in_place.leaf.ToVector<double>(), copied.leaf.ToVector<double>());
  }
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

// Not even where it is no number; the gradients of the CPU's kernels do not promise that.
TEST(AttentionTest, WhatLiesBehindTheLastKeyDoesNotMatter) {
  for (const Device& device : TestDevices()) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
      const AttentionOptions options = {.key_length = CopyTo(Int32({41}, {1}), device)};
      const auto results = [&](double behind) {
        const auto leaf = [&](uint64_t seed) {
          const Tensor x = RandomTensor({1, 1, 100, 5}, seed);
          if (seed > 1) {
            for (int64_t n = 41 * 5; n < x.numel(); ++n) x.data<double>()[n] = behind;
          }
          return RequireGrad(CopyTo(CastCopy(x, dtype), device));
        };
        const Tensor q = leaf(1);
        const Tensor k = leaf(2);
        const Tensor v = leaf(3);
        const Tensor o = Attention(q, k, v, options).output;
        Backward({o}, {CopyTo(CastCopy(RandomTensor(o.shape(), 4), dtype), device)});
        std::vector<Tensor> tensors = {o};
        if (!device.is_cpu()) tensors.insert(tensors.end(), {Grad(q), Grad(k), Grad(v)});
        std::vector<std::vector<double>> values;
        for (const Tensor& t : tensors) {
          values.push_back(CopyTo(t, Device::Cpu()).ContiguousCopy().ToVector<double>());
        }
        return values;
      };
      EXPECT_EQ(results(NAN), results(0.0)) << device.ToString();
    }
  }
}

TEST(AttentionTest, RefusesMisuse) {
  const Tensor q = Zeros({1, 2, 3, 4});
  EXPECT_THROW(Attention(q, q, Zeros({1, 2, 4, 4}), {}), Error);
  EXPECT_THROW(Attention(q, Zeros({1, 3, 3, 4}), Zeros({1, 3, 3, 4}), {}), Error);
  EXPECT_THROW(Attention(q, q, q, {.window = -1}), Error);
  EXPECT_THROW(Attention(q, q, q, {.causal = true, .window = -1}), Error);
  EXPECT_THROW(Attention(q, q, q, {.softcap = -1}), Error);
  EXPECT_THROW(Attention(q, q, q, {.softcap = 1, .bias = Zeros({1, 2, 3, 3})}), Error);
  EXPECT_THROW(Attention(q, q, q, {.key_length = Zeros({1})}), Error);
  EXPECT_THROW(Attention(q, q, q, {.key_padding = Zeros({1, 4}, DType::kBool)}), Error);
  EXPECT_THROW(Attention(q, q, q, {.bias = Zeros({1, 3, 3, 3})}), Error);
  EXPECT_THROW(Attention(q, q, q, {.query_document = Zeros({1, 3}, DType::kInt32)}), Error);
}

}  // namespace
}  // namespace tessera
