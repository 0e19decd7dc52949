// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/ring_attention.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "autograd/autograd.h"
#include "core/thread_communicator.h"
#include "ops/collective/sequence_runs.h"
#include "ops/testing/op_check.h"
#include "ops/view/view.h"

namespace tessera {
namespace {

// B rows, H query heads, G key/value heads, T and S tokens, D features.
constexpr int64_t kB = 2;
constexpr int64_t kH = 4;
constexpr int64_t kD = 8;

struct Case {
  std::string name;
  int64_t kv_heads = 4;
  int64_t queries = 37;
  int64_t keys = 37;
  std::function<void(AttentionOptions*)> set = nullptr;
  Shape bias = {};
};

Tensor Int32(const std::vector<int32_t>& values, const Shape& shape) {
  return Tensor::FromVector(values, shape);
}

// Documents of 5, 9 and the rest tokens; of the second row 20 and the rest.
Tensor Documents(int64_t tokens) {
  std::vector<int32_t> ids;
  for (int64_t t = 0; t < tokens; ++t) ids.push_back(t < 5 ? 0 : t < 14 ? 1 : 2);
  for (int64_t t = 0; t < tokens; ++t) ids.push_back(t < 20 ? 0 : 1);
  return Int32(ids, {kB, tokens});
}

// The first row lacks tokens in front, the second one behind.
Tensor Padding(int64_t tokens) {
  const Tensor padding = Full({kB, tokens}, 1.0, DType::kUInt8);
  for (int64_t t = 0; t < 6; ++t) {
    padding.data<uint8_t>()[t] = 0;
    padding.data<uint8_t>()[2 * tokens - 1 - t] = 0;
  }
  return padding;
}

std::vector<Case> Cases() {
  const auto causal = [](AttentionOptions* o) { o->causal = true; };
  const auto also = [&](std::function<void(AttentionOptions*)> more) {
    return [more](AttentionOptions* o) {
      o->causal = true;
      more(o);
    };
  };
  const auto documents = [](AttentionOptions* o) {
    o->query_document = o->key_document = Documents(37);
  };
  const auto drops = [](AttentionOptions* o) {
    o->dropout_p = 0.3;
    o->dropout_key = RandomKey::FromSeed(7);
    o->head_begin = 3;
    o->heads_total = 12;
  };
  return {
      {.name = "full"},
      {.name = "causal", .set = causal},
      {.name = "grouped", .kv_heads = 2, .set = causal},
      {.name = "one_key_head", .kv_heads = 1, .set = causal},
      {.name = "window", .set = also([](AttentionOptions* o) { o->window = 6; })},
      {.name = "both_sides", .set = [](AttentionOptions* o) { o->window = 4; }},
      {.name = "softcap", .set = also([](AttentionOptions* o) { o->softcap = 2; })},
      {.name = "documents", .kv_heads = 2, .set = also(documents)},
      {.name = "padding", .set = also([](AttentionOptions* o) { o->key_padding = Padding(37); })},
      {.name = "prefix", .set = also([](AttentionOptions* o) {
                           o->prefix_length = Int32({0, 21}, {kB});
                         })},
      {.name = "dropout", .set = also(drops)},
      {.name = "dropped_window", .kv_heads = 2, .set = also([drops](AttentionOptions* o) {
                                                  drops(o);
                                                  o->window = 11;
                                                })},
      {.name = "bias", .bias = {1, kH, 37, 37}},
      {.name = "causal_bias", .set = causal, .bias = {kB, 1, 37, 37}},
      {.name = "bias_of_keys", .bias = {kB, 1, 1, 37}},
      {.name = "crossed",
       .queries = 11,
       .keys = 30,
       .set = [](AttentionOptions* o) { o->key_padding = Padding(30); }},
      {.name = "few_tokens", .queries = 3, .keys = 3, .set = causal},
      {.name = "one_token", .queries = 1, .keys = 1, .set = causal},
  };
}

struct Inputs {
  Tensor q, k, v, bias, grad;
};

Inputs InputsOf(const Case& c, DType dtype) {
  const auto random = [&](const Shape& shape, uint64_t seed) {
    return CastCopy(RandomTensor(shape, seed), dtype);
  };
  return {random({kB, kH, c.queries, kD}, 1), random({kB, c.kv_heads, c.keys, kD}, 2),
          random({kB, c.kv_heads, c.keys, kD}, 3), c.bias.empty() ? Tensor() : random(c.bias, 4),
          random({kB, kH, c.queries, kD}, 5)};
}

struct Found {
  AttentionResult result;
  std::vector<Tensor> grads;  // of q, k, v and bias
};

Found Compute(const Inputs& in, AttentionOptions options, const SequenceRing& ring) {
  const auto leaf = [](const Tensor& t) {
    return t.defined() ? RequireGrad(t.ContiguousCopy().Detach()) : Tensor();
  };
  const Tensor q = leaf(in.q);
  const Tensor k = leaf(in.k);
  const Tensor v = leaf(in.v);
  options.bias = leaf(in.bias);
  Found found = {.result = RingAttention(q, k, v, options, ring), .grads = {}};
  Backward({found.result.output}, {in.grad.ContiguousCopy()});
  for (const Tensor& t : {q, k, v}) found.grads.push_back(Grad(t));
  if (options.bias.defined()) found.grads.push_back(Grad(options.bias));
  return found;
}

void ExpectShare(const Tensor& mine, const Tensor& whole, int dim,
                 const std::vector<SequenceRun>& runs, double tolerance, const std::string& what) {
  ExpectClose(mine, CastCopy(dim < 0 ? whole : TakeRuns(whole, dim, runs), DType::kFloat64),
              tolerance, what);
}

class RingAttentionTest : public testing::TestWithParam<Case> {};

// What each rank of 1, 2, 3 and 4 finds beside one rank that has all tokens.
TEST_P(RingAttentionTest, RanksTogetherAreOne) {
  const Case& c = GetParam();
  AttentionOptions options;
  if (c.set != nullptr) c.set(&options);
  for (const auto& [dtype, tolerance] :
       {std::pair(DType::kFloat64, 1e-14), std::pair(DType::kFloat32, 2e-6)}) {
    const Inputs in = InputsOf(c, dtype);
    const Found whole = Compute(in, options, {});
    for (const int ranks : {1, 2, 3, 4}) {
      // A bias that all queries share has a part of its gradient on each rank.
      Tensor summed;
      RunRanks(ranks, [&](std::shared_ptr<Communicator> world) {
        const int r = world->rank();
        const auto q_runs = SequenceRuns(c.queries, ranks, r);
        const auto k_runs = SequenceRuns(c.keys, ranks, r);
        Inputs mine = {TakeRuns(in.q, 2, q_runs), TakeRuns(in.k, 2, k_runs),
                       TakeRuns(in.v, 2, k_runs), in.bias, TakeRuns(in.grad, 2, q_runs)};
        const bool by_query = in.bias.defined() && in.bias.size(2) > 1;
        if (by_query) mine.bias = TakeRuns(in.bias, 2, q_runs);
        const Found found = Compute(mine, options, {world, c.queries, c.keys});
        const std::string where = Concat(c.name, ", rank ", r, " of ", ranks, ": ");
        ExpectShare(found.result.output, whole.result.output, 2, q_runs, tolerance,
                    where + "output");
        ExpectShare(found.result.lse, whole.result.lse, 2, q_runs, tolerance, where + "lse");
        ExpectShare(found.grads[0], whole.grads[0], 2, q_runs, tolerance, where + "dq");
        ExpectShare(found.grads[1], whole.grads[1], 2, k_runs, tolerance, where + "dk");
        ExpectShare(found.grads[2], whole.grads[2], 2, k_runs, tolerance, where + "dv");
        if (!in.bias.defined()) return;
        Tensor d_bias = found.grads[3];
        if (!by_query) world->AllReduce(d_bias, ReduceOp::kSum)->Wait();
        ExpectShare(d_bias, whole.grads[3], by_query ? 2 : -1, q_runs, tolerance, where + "dbias");
      });
    }
  }
}

// The same bits each time, and half precision near float32.
TEST_P(RingAttentionTest, RepeatsItselfAndHalfPrecisionIsNear) {
  const Case& c = GetParam();
  AttentionOptions options;
  if (c.set != nullptr) c.set(&options);
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16, DType::kFloat32}) {
    const Inputs in = InputsOf(c, dtype);
    const Found whole = Compute(in, options, {});
    RunRanks(2, [&](std::shared_ptr<Communicator> world) {
      const auto q_runs = SequenceRuns(c.queries, 2, world->rank());
      const auto k_runs = SequenceRuns(c.keys, 2, world->rank());
      Inputs mine = {TakeRuns(in.q, 2, q_runs), TakeRuns(in.k, 2, k_runs),
                     TakeRuns(in.v, 2, k_runs), in.bias, TakeRuns(in.grad, 2, q_runs)};
      if (in.bias.defined() && in.bias.size(2) > 1) mine.bias = TakeRuns(in.bias, 2, q_runs);
      const Found first = Compute(mine, options, {world, c.queries, c.keys});
      const Found second = Compute(mine, options, {world, c.queries, c.keys});
      for (size_t i = 0; i < first.grads.size(); ++i) {
        EXPECT_EQ(first.grads[i].ToVector<double>(), second.grads[i].ToVector<double>()) << c.name;
      }
      EXPECT_EQ(first.result.output.dtype(), dtype);
      const double tolerance = dtype == DType::kBFloat16  ? 0.04
                               : dtype == DType::kFloat16 ? 5e-3
                                                          : 2e-6;
      ExpectShare(first.result.output, whole.result.output, 2, q_runs, tolerance, c.name);
      ExpectShare(first.grads[1], whole.grads[1], 2, k_runs, tolerance, c.name + " dk");
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Masks, RingAttentionTest, testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

TEST(RingAttentionErrorTest, WhatIsNotCutIsRefused) {
  RunRanks(2, [&](std::shared_ptr<Communicator> world) {
    const Tensor q = RandomTensor({1, 2, 4, 8}, 1);
    const auto message = [&](const AttentionOptions& options, int64_t tokens) -> std::string {
      try {
        RingAttention(q, q, q, options, {world, tokens, tokens});
      } catch (const Error& error) {
        return error.what();
      }
      return "";
    };
    EXPECT_NE(message({}, 12).find("are not the share of rank"), std::string::npos);
    AttentionOptions options;
    options.key_padding = Full({1, 4}, 1.0, DType::kUInt8);
    EXPECT_NE(message(options, 8).find("key_padding"), std::string::npos);
    options = {};
    options.query_offsets = Int32({0}, {1});
    EXPECT_NE(message(options, 8).find("query_offsets"), std::string::npos);
  });
}

}  // namespace
}  // namespace tessera
