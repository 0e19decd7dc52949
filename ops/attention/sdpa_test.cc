// SPDX-License-Identifier: Apache-2.0
// The graphs given to cuDNN, evaluated operation by operation on the host against attention written
// out; which calls have a graph.
#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "gtest/gtest.h"
#include "ops/attention/sdpa_graph.h"

namespace tessera {
namespace {

TEST(SdpaShapeTest, ABatchThatNeedsMoreMemoryIsCutIntoEqualParts) {
  SdpaShape s;
  s.heads = s.kv_heads = 12;
  s.q_len = s.k_len = 1024;
  s.head_dim = 64;
  s.backward = true;
  const auto rows = [&](int64_t batch, size_t bytes) {
    s.batch = batch;
    return SdpaRowsAtOnce(s, bytes);
  };
  EXPECT_EQ(rows(42, size_t{1} << 30), 42);
  EXPECT_EQ(rows(43, size_t{1} << 30), 22);
  EXPECT_EQ(rows(64, size_t{1} << 30), 32);
  EXPECT_EQ(rows(200, size_t{1} << 30), 40);
  EXPECT_EQ(rows(64, size_t{25} << 20), 1);
  EXPECT_EQ(rows(64, size_t{24} << 20), 0);
  s.kv_heads = 4;
  EXPECT_EQ(rows(42, size_t{1} << 30), 21);
  s.backward = false;
  EXPECT_EQ(rows(64, size_t{1} << 20), 64);
}

// ---- Evaluating a graph

int64_t Span(const GraphTensor& t) {
  int64_t last = 0;
  for (int d = 0; d < 4; ++d) last += (t.dims[d] - 1) * t.strides[d];
  return last + 1;
}

using Index = std::array<int64_t, 4>;

void ForEach(const Dims4& dims, const std::function<void(const Index&)>& f) {
  Index i;
  for (i[0] = 0; i[0] < dims[0]; ++i[0]) {
    for (i[1] = 0; i[1] < dims[1]; ++i[1]) {
      for (i[2] = 0; i[2] < dims[2]; ++i[2]) {
        for (i[3] = 0; i[3] < dims[3]; ++i[3]) f(i);
      }
    }
  }
}

// Memory of every tensor, in float64.
class Evaluation {
 public:
  explicit Evaluation(const OperationGraph& graph) : graph_(graph) {}

  std::vector<double>& memory(int64_t uid) {
    std::vector<double>& m = memory_[uid];
    if (m.empty()) m.assign(static_cast<size_t>(Span(graph_.tensor(uid))), NAN);
    return m;
  }
  // Dims that are 1 are broadcast; of grouped heads, h is the group's.
  double At(int64_t uid, Index i, const Dims4& dims) {
    const GraphTensor& t = graph_.tensor(uid);
    for (int d = 0; d < 4; ++d) {
      if (t.dims[d] != dims[d]) i[d] = i[d] / (dims[d] / t.dims[d]);
    }
    return memory(uid)[Offset(t, i)];
  }
  double& At(int64_t uid, const Index& i) {
    const GraphTensor& t = graph_.tensor(uid);
    for (int d = 0; d < 4; ++d) TESSERA_CHECK(i[d] < t.dims[d], "evaluation", t.name);
    return memory(uid)[Offset(t, i)];
  }

  void Run() {
    for (const GraphOperation& operation : graph_.operations) Run(operation);
  }

 private:
  static size_t Offset(const GraphTensor& t, const Index& i) {
    int64_t at = 0;
    for (int d = 0; d < 4; ++d) at += i[d] * t.strides[d];
    return static_cast<size_t>(at);
  }

  void Run(const GraphOperation& operation) {
    const GraphTensor& out = graph_.tensor(operation.output);
    const std::vector<int64_t>& in = operation.inputs;
    switch (operation.op) {
      case GraphOp::kView:
        memory(operation.output) = memory(in[0]);
        ASSERT_EQ(Span(out), Span(graph_.tensor(in[0]))) << out.name;
        return;
      case GraphOp::kMatmul: {
        const GraphTensor& a = graph_.tensor(in[0]);
        const GraphTensor& b = graph_.tensor(in[1]);
        ASSERT_EQ(a.dims[2], out.dims[2]) << out.name;
        ASSERT_EQ(a.dims[3], b.dims[2]) << out.name;
        ASSERT_EQ(b.dims[3], out.dims[3]) << out.name;
        ForEach(out.dims, [&](const Index& i) {
          double sum = 0;
          for (int64_t k = 0; k < a.dims[3]; ++k) {
            const Dims4 a_dims{out.dims[0], out.dims[1], a.dims[2], a.dims[3]};
            const Dims4 b_dims{out.dims[0], out.dims[1], b.dims[2], b.dims[3]};
            sum +=
                At(in[0], {i[0], i[1], i[2], k}, a_dims) * At(in[1], {i[0], i[1], k, i[3]}, b_dims);
          }
          At(operation.output, i) = sum;
        });
        return;
      }
      case GraphOp::kMaxOf:
      case GraphOp::kSumOf: {
        const bool max = operation.op == GraphOp::kMaxOf;
        ForEach(out.dims, [&](const Index& i) { At(operation.output, i) = max ? -INFINITY : 0.0; });
        const Dims4 from = graph_.tensor(in[0]).dims;
        ForEach(from, [&](const Index& i) {
          Index o = i;
          for (int d = 0; d < 4; ++d) o[d] = i[d] / (from[d] / out.dims[d]);
          double& to = At(operation.output, o);
          to = max ? std::fmax(to, At(in[0], i)) : to + At(in[0], i);
        });
        return;
      }
      default:
        ForEach(out.dims, [&](const Index& i) {
          std::vector<double> x;
          for (const int64_t uid : in) x.push_back(At(uid, i, out.dims));
          At(operation.output, i) = Pointwise(operation, x, i);
        });
    }
  }

  static double Pointwise(const GraphOperation& operation, const std::vector<double>& x,
                          const Index& i) {
    switch (operation.op) {
      case GraphOp::kAdd:
        return x[0] + x[1];
      case GraphOp::kSub:
        return x[0] - x[1];
      case GraphOp::kMul:
        return x[0] * x[1];
      case GraphOp::kDiv:
        return x[0] / x[1];
      case GraphOp::kExp:
        return std::exp(x[0]);
      case GraphOp::kLog:
        return std::log(x[0]);
      case GraphOp::kIndex:
        return static_cast<double>(i[static_cast<size_t>(operation.axis)]);
      case GraphOp::kGreaterEqual:
        return x[0] >= x[1] ? 1 : 0;
      default:
        return x[2] != 0 ? x[0] : x[1];
    }
  }

  const OperationGraph& graph_;
  std::map<int64_t, std::vector<double>> memory_;
};

// ---- Attention written out

struct Case {
  int64_t batch, heads, kv_heads, q_len, k_len, dim;
  bool causal;
  int64_t offset;
};

// Arguments over a packed [B, T, H + 2 G, D] projection where the lengths are one, as a model's.
FlashArgs ArgsOf(const Case& c) {
  FlashArgs args;
  args.batch = c.batch;
  args.heads = c.heads;
  args.kv_heads = c.kv_heads;
  args.q_len = c.q_len;
  args.k_len = c.k_len;
  args.head_dim = c.dim;
  args.dtype = DType::kBFloat16;
  const int64_t width = (c.heads + 2 * c.kv_heads) * c.dim;
  args.q_stride = {c.q_len * width, c.dim, width};
  args.k_stride = args.v_stride = {c.k_len * width, c.dim, width};
  args.o_stride = {c.q_len * c.heads * c.dim, c.dim, c.heads * c.dim};
  args.causal = c.causal;
  args.query_offset = c.offset;
  return args;
}

FlashBackwardArgs GradArgsOf(const Case& c) {
  FlashBackwardArgs args;
  args.forward = ArgsOf(c);
  args.d_o_stride = {c.heads * c.q_len * c.dim, c.q_len * c.dim, c.dim};
  args.dq_stride = args.forward.o_stride;
  args.dk_stride = args.dv_stride = {c.k_len * c.kv_heads * c.dim, c.dim, c.kv_heads * c.dim};
  return args;
}

const Case kCases[] = {
    {2, 3, 3, 5, 5, 8, false, 0}, {2, 4, 2, 6, 6, 8, true, 0}, {1, 2, 1, 3, 7, 16, true, 4},
    {1, 2, 2, 4, 9, 8, true, 2},  {2, 6, 2, 4, 3, 8, true, 0}, {1, 1, 1, 1, 6, 8, false, 0},
    {1, 2, 2, 5, 4, 8, true, 50},
};

double Score(Evaluation& e, const Case& c, double scale, const Index& i) {  // i: b, h, query, key
  if (c.causal && i[3] > i[2] + c.offset) return -INFINITY;
  double sum = 0;
  for (int64_t d = 0; d < c.dim; ++d) {
    sum +=
        e.At(SdpaUid::kQ, {i[0], i[1], i[2], d}) *
        e.At(SdpaUid::kK, {i[0], i[1] / (c.heads / c.kv_heads), d, i[3]});  // described [.., D, Tk]
  }
  return scale * sum;
}

void Fill(Evaluation& e, const OperationGraph& graph, const std::vector<int64_t>& uids) {
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  for (const int64_t uid : uids) {
    ForEach(graph.tensor(uid).dims, [&](const Index& i) { e.At(uid, i) = normal(random); });
  }
}

constexpr double kScale = 0.37;

void SetValues(Evaluation& e, const OperationGraph& graph, const Case& c) {
  for (const GraphTensor& t : graph.tensors) {
    if (t.place != GraphTensor::Place::kByValue) continue;
    e.memory(t.uid)[0] = t.uid == SdpaUid::kScale      ? kScale
                         : t.uid == SdpaUid::kMinusInf ? -INFINITY
                         : t.uid == SdpaUid::kOffset   ? static_cast<double>(c.offset)
                                                       : 1.0;
  }
}

TEST(SdpaGraph, ForwardIsAttention) {
  for (const Case& c : kCases) {
    const std::optional<SdpaShape> shape = SdpaShape::Of(ArgsOf(c));
    ASSERT_TRUE(shape);
    const OperationGraph graph = SdpaForwardGraph(*shape);
    Evaluation e(graph);
    Fill(e, graph, {SdpaUid::kQ, SdpaUid::kK, SdpaUid::kV});
    SetValues(e, graph, c);
    e.Run();
    ForEach({c.batch, c.heads, c.q_len, 1}, [&](const Index& i) {
      double sum = 0;
      std::vector<double> o(static_cast<size_t>(c.dim));
      for (int64_t j = 0; j < c.k_len; ++j) {
        const double p = std::exp(Score(e, c, kScale, {i[0], i[1], i[2], j}));
        sum += p;
        for (int64_t d = 0; d < c.dim; ++d) {
          o[static_cast<size_t>(d)] +=
              p * e.At(SdpaUid::kV, {i[0], i[1] / (c.heads / c.kv_heads), j, d});
        }
      }
      EXPECT_NEAR(e.At(SdpaUid::kLse, i), std::log(sum), 1e-12) << shape->ToString();
      for (int64_t d = 0; d < c.dim; ++d) {
        EXPECT_NEAR(e.At(SdpaUid::kO, {i[0], i[1], i[2], d}), o[static_cast<size_t>(d)] / sum,
                    1e-12)
            << shape->ToString();
      }
    });
  }
}

// The gradients by central differences of sum(o * d_o), which shares nothing with the graph.
TEST(SdpaGraph, BackwardIsTheGradient) {
  for (const Case& c : kCases) {
    const std::optional<SdpaShape> shape = SdpaShape::Of(GradArgsOf(c));
    ASSERT_TRUE(shape);
    const OperationGraph backward = SdpaBackwardGraph(*shape);
    SdpaShape forward_shape = *shape;
    const OperationGraph forward = SdpaForwardGraph(forward_shape);
    Evaluation f(forward);
    Evaluation b(backward);
    Fill(f, forward, {SdpaUid::kQ, SdpaUid::kK, SdpaUid::kV});
    Fill(b, backward, {SdpaUid::kDO});
    SetValues(f, forward, c);
    SetValues(b, backward, c);
    f.Run();
    for (const int64_t uid : {SdpaUid::kQ, SdpaUid::kK, SdpaUid::kV, SdpaUid::kO, SdpaUid::kLse}) {
      b.memory(uid) = f.memory(uid);
    }
    b.Run();
    const auto loss = [&] {
      f.Run();
      double sum = 0;
      ForEach(forward.tensor(SdpaUid::kO).dims,
              [&](const Index& i) { sum += f.At(SdpaUid::kO, i) * b.At(SdpaUid::kDO, i); });
      return sum;
    };
    const std::pair<int64_t, int64_t> gradients[] = {
        {SdpaUid::kQ, SdpaUid::kDQ}, {SdpaUid::kK, SdpaUid::kDK}, {SdpaUid::kV, SdpaUid::kDV}};
    for (const auto& [of, gradient] : gradients) {
      const Dims4 dims = backward.tensor(gradient).dims;
      for (const Index& i : {Index{0, 0, 0, 0}, Index{dims[0] - 1, dims[1] - 1, dims[2] - 1, 3},
                             Index{0, dims[1] - 1, dims[2] / 2, dims[3] - 1}}) {
        Index at = i;
        if (of == SdpaUid::kK) std::swap(at[2], at[3]);
        const double before = f.At(of, at);
        constexpr double kStep = 1e-5;
        f.At(of, at) = before + kStep;
        const double up = loss();
        f.At(of, at) = before - kStep;
        const double down = loss();
        f.At(of, at) = before;
        EXPECT_NEAR(b.At(gradient, i), (up - down) / (2 * kStep), 1e-8)
            << backward.tensor(gradient).name << " of " << shape->ToString();
      }
    }
  }
}

TEST(SdpaGraph, TensorsAreWhereTheArgumentsSay) {
  const Case c{2, 4, 2, 6, 6, 8, true, 0};
  const OperationGraph graph = SdpaBackwardGraph(*SdpaShape::Of(GradArgsOf(c)));
  EXPECT_EQ(graph.tensor(SdpaUid::kQ).dims, (Dims4{2, 4, 6, 8}));
  EXPECT_EQ(graph.tensor(SdpaUid::kQ).strides, (Dims4{6 * 64, 8, 64, 1}));
  EXPECT_EQ(graph.tensor(SdpaUid::kK).dims, (Dims4{2, 2, 8, 6}));
  EXPECT_EQ(graph.tensor(SdpaUid::kK).strides, (Dims4{6 * 64, 8, 1, 64}));
  EXPECT_EQ(graph.tensor(SdpaUid::kDV).strides, (Dims4{6 * 16, 8, 16, 1}));
  EXPECT_EQ(graph.tensor(SdpaUid::kLse).dims, (Dims4{2, 4, 6, 1}));
  EXPECT_EQ(graph.tensor(SdpaUid::kLse).strides, (Dims4{24, 6, 1, 1}));
  std::set<int64_t> uids;
  for (const GraphTensor& t : graph.tensors) {
    EXPECT_TRUE(uids.insert(t.uid).second) << t.name;
    EXPECT_EQ(t.place == GraphTensor::Place::kVirtual, t.uid >= SdpaUid::kFirstVirtual) << t.name;
  }
  EXPECT_THROW(graph.tensor(99), Error);
  // Every virtual tensor is computed before it is read.
  std::set<int64_t> known;
  for (const GraphTensor& t : graph.tensors) {
    if (t.place != GraphTensor::Place::kVirtual && t.uid != SdpaUid::kDelta) known.insert(t.uid);
  }
  for (const GraphOperation& operation : graph.operations) {
    for (const int64_t uid : operation.inputs) EXPECT_TRUE(known.count(uid)) << uid;
    known.insert(operation.output);
  }
  EXPECT_NE(graph.ToString().find("= select("), std::string::npos);
}

TEST(SdpaGraph, MasksAreDescribedOnlyWhereTheyMaskSomething) {
  const auto has = [](const Case& c, int64_t uid) {
    for (const GraphTensor& t : SdpaForwardGraph(*SdpaShape::Of(ArgsOf(c))).tensors) {
      if (t.uid == uid) return true;
    }
    return false;
  };
  EXPECT_FALSE(has({1, 1, 1, 4, 4, 8, false, 0}, SdpaUid::kMinusInf));
  EXPECT_TRUE(has({1, 1, 1, 4, 4, 8, true, 0}, SdpaUid::kMinusInf));
  EXPECT_FALSE(has({1, 1, 1, 4, 4, 8, true, 0}, SdpaUid::kOffset));
  EXPECT_TRUE(has({1, 1, 1, 4, 9, 8, true, 2}, SdpaUid::kOffset));
  // One query at the end of its keys: decoding.
  EXPECT_FALSE(has({1, 1, 1, 1, 9, 8, true, 8}, SdpaUid::kMinusInf));
}

TEST(SdpaShape, RefusesWhatTheGraphsDoNotDescribe) {
  const Case c{2, 4, 2, 6, 6, 8, true, 0};
  ASSERT_TRUE(SdpaShape::Of(ArgsOf(c)));
  const auto refused = [&](const std::function<void(FlashArgs&)>& change) {
    FlashArgs args = ArgsOf(c);
    change(args);
    return !SdpaShape::Of(args).has_value();
  };
  const int32_t table[4] = {};
  const uint8_t bytes[16] = {};
  EXPECT_TRUE(refused([](FlashArgs& a) { a.dtype = DType::kFloat32; }));
  EXPECT_TRUE(refused([](FlashArgs& a) { a.dropout.p = 0.1f; }));
  EXPECT_TRUE(refused([&](FlashArgs& a) { a.bias = table; }));
  EXPECT_TRUE(refused([&](FlashArgs& a) { a.key_length = table; }));
  EXPECT_TRUE(refused([&](FlashArgs& a) { a.prefix_length = table; }));
  EXPECT_TRUE(refused([&](FlashArgs& a) { a.query_offsets = table; }));
  EXPECT_TRUE(refused([&](FlashArgs& a) { a.query_document = a.key_document = table; }));
  EXPECT_TRUE(refused([&](FlashArgs& a) { a.key_padding = bytes; }));
  EXPECT_TRUE(refused([&](FlashArgs& a) { a.kv_head_of = table; }));
  EXPECT_TRUE(refused([](FlashArgs& a) { a.query_offset = -1; }));  // a row without any key
  EXPECT_TRUE(refused([](FlashArgs& a) { a.k_len = 0; }));
  EXPECT_TRUE(refused([](FlashArgs& a) { a.head_dim = 12; }));
  EXPECT_TRUE(refused([](FlashArgs& a) { a.head_dim = 136; }));
  EXPECT_TRUE(refused([](FlashArgs& a) { a.k_stride.time += 4; }));
  // Each operand alone at an address that vectors of 16 bytes do not have.
  const uint8_t* const odd = bytes + (reinterpret_cast<uintptr_t>(bytes) % 16 == 0 ? 1 : 0);
  EXPECT_TRUE(refused([&](FlashArgs& a) { a.q = odd; }));
  EXPECT_TRUE(refused([&](FlashArgs& a) { a.k = odd; }));
  EXPECT_TRUE(refused([&](FlashArgs& a) { a.v = odd; }));
  EXPECT_TRUE(refused([&](FlashArgs& a) { a.o = const_cast<uint8_t*>(odd); }));
  EXPECT_TRUE(refused([&](FlashArgs& a) { a.lse = const_cast<uint8_t*>(odd); }));
  FlashBackwardArgs gradient = GradArgsOf(c);
  ASSERT_TRUE(SdpaShape::Of(gradient));
  gradient.dk_stride.head += 2;
  EXPECT_FALSE(SdpaShape::Of(gradient));
}

TEST(SdpaShape, StepsAlongOneElementDoNotMatter) {
  FlashArgs args = ArgsOf({1, 1, 1, 1, 6, 8, false, 0});
  const SdpaShape shape = *SdpaShape::Of(args);
  args.q_stride.batch = args.k_stride.batch = 0;
  args.q_stride.head = args.v_stride.head = 8 << 20;
  args.q_stride.time = 0;
  EXPECT_TRUE(*SdpaShape::Of(args) == shape);
  args.k_stride.time += 8;
  EXPECT_FALSE(*SdpaShape::Of(args) == shape);
}

}  // namespace
}  // namespace tessera
