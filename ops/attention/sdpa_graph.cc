// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/sdpa_graph.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"

namespace tessera {
namespace {

using Place = GraphTensor::Place;

const char* NameOf(GraphOp op) {
  switch (op) {
    case GraphOp::kMatmul:
      return "matmul";
    case GraphOp::kAdd:
      return "add";
    case GraphOp::kSub:
      return "sub";
    case GraphOp::kMul:
      return "mul";
    case GraphOp::kDiv:
      return "div";
    case GraphOp::kExp:
      return "exp";
    case GraphOp::kLog:
      return "log";
    case GraphOp::kIndex:
      return "index";
    case GraphOp::kGreaterEqual:
      return "greater_equal";
    case GraphOp::kSelect:
      return "select";
    case GraphOp::kMaxOf:
      return "max_of";
    case GraphOp::kSumOf:
      return "sum_of";
    case GraphOp::kView:
      return "view";
  }
  return "";
}

Dims4 Packed(const Dims4& dims) {
  return {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1};
}

bool Aligned(const void* data, const FlashStrides& s) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && s.batch % 8 == 0 && s.head % 8 == 0 &&
         s.time % 8 == 0;
}

// Steps along a dim of one element, which may be anything, are what they would be in dense memory.
SdpaShape::Strides StridesOf(const FlashStrides& s, const FlashArgs& args, int64_t heads,
                             int64_t time) {
  SdpaShape::Strides strides{s.batch, s.head, s.time};
  if (heads == 1) strides[1] = args.head_dim;
  if (time == 1) strides[2] = heads * strides[1];
  if (args.batch == 1) strides[0] = std::max(heads * strides[1], time * strides[2]);
  return strides;
}

// Adds tensors and operations; what both graphs share.
class Builder {
 public:
  explicit Builder(const SdpaShape& shape) : s_(shape) {}

  int64_t Device(int64_t uid, const char* name, DType dtype, const Dims4& dims,
                 const Dims4& strides) {
    graph_.tensors.push_back({uid, name, dtype, Place::kDevice, dims, strides});
    return uid;
  }
  // [B, heads, T, D], or [B, heads, D, T] when transposed.
  int64_t Heads(int64_t uid, const char* name, int64_t heads, int64_t time,
                const SdpaShape::Strides& strides, bool transposed = false) {
    Dims4 dims{s_.batch, heads, time, s_.head_dim};
    Dims4 steps{strides[0], strides[1], strides[2], 1};
    if (transposed) {
      std::swap(dims[2], dims[3]);
      std::swap(steps[2], steps[3]);
    }
    return Device(uid, name, s_.dtype, dims, steps);
  }
  int64_t Row(int64_t uid, const char* name) {
    const Dims4 dims{s_.batch, s_.heads, s_.q_len, 1};
    return Device(uid, name, DType::kFloat32, dims, Packed(dims));
  }
  int64_t Value(int64_t uid, const char* name, DType dtype) {
    graph_.tensors.push_back({uid, name, dtype, Place::kByValue, {1, 1, 1, 1}, {1, 1, 1, 1}});
    return uid;
  }
  int64_t Virtual(const char* name, DType dtype, const Dims4& dims, const Dims4& strides) {
    graph_.tensors.push_back({next_, name, dtype, Place::kVirtual, dims, strides});
    return next_++;
  }
  int64_t Scores(const char* name, DType dtype = DType::kFloat32) {
    const Dims4 dims{s_.batch, s_.heads, s_.q_len, s_.k_len};
    return Virtual(name, dtype, dims, Packed(dims));
  }
  int64_t Do(GraphOp op, std::vector<int64_t> inputs, int64_t output,
             DType compute = DType::kFloat32, int axis = -1) {
    graph_.operations.push_back({op, std::move(inputs), output, compute, axis});
    return output;
  }

  // S = scale q k^T; `k` is transposed.
  int64_t ScaledScores(int64_t q, int64_t k) {
    const int64_t scores = Do(GraphOp::kMatmul, {q, k}, Scores("scores"));
    return Do(GraphOp::kMul, {scores, Value(SdpaUid::kScale, "scale", DType::kFloat32)},
              Scores("scaled_scores"));
  }
  // -infinity where the key is behind the query.
  int64_t Masked(int64_t scores) {
    if (!s_.causal) return scores;
    int64_t row = Do(GraphOp::kIndex, {scores}, Scores("row", DType::kInt32), DType::kFloat32, 2);
    const int64_t column =
        Do(GraphOp::kIndex, {scores}, Scores("column", DType::kInt32), DType::kFloat32, 3);
    if (s_.query_offset != 0) {
      row = Do(GraphOp::kAdd, {row, Value(SdpaUid::kOffset, "query_offset", DType::kInt32)},
               Scores("position", DType::kInt32), DType::kInt32);
    }
    const int64_t seen =
        Do(GraphOp::kGreaterEqual, {row, column}, Scores("seen", DType::kBool), DType::kBool);
    const int64_t minus_inf = Value(SdpaUid::kMinusInf, "minus_inf", DType::kFloat32);
    return Do(GraphOp::kSelect, {scores, minus_inf, seen}, Scores("masked_scores"));
  }

  OperationGraph Take() { return std::move(graph_); }

 private:
  const SdpaShape& s_;
  OperationGraph graph_;
  int64_t next_ = SdpaUid::kFirstVirtual;
};

}  // namespace

const GraphTensor& OperationGraph::tensor(int64_t uid) const {
  for (const GraphTensor& t : tensors) {
    if (t.uid == uid) return t;
  }
  throw Error("operation graph", Concat("no tensor ", uid));
}

std::string OperationGraph::ToString() const {
  std::string text;
  const auto describe = [&](int64_t uid) {
    const GraphTensor& t = tensor(uid);
    return Concat(t.name, ":", DTypeName(t.dtype), "[", t.dims[0], ",", t.dims[1], ",", t.dims[2],
                  ",", t.dims[3], "]");
  };
  for (const GraphOperation& operation : operations) {
    text += Concat(describe(operation.output), " = ", NameOf(operation.op), "(");
    for (size_t i = 0; i < operation.inputs.size(); ++i) {
      text += Concat(i == 0 ? "" : ", ", describe(operation.inputs[i]));
    }
    text += ")\n";
  }
  return text;
}

std::optional<SdpaShape> SdpaShape::Of(const FlashArgs& args) {
  const bool plain = args.kv_head_of == nullptr && args.pages.table == nullptr &&
                     args.query_offsets == nullptr && args.window == 0 &&
                     args.prefix_length == nullptr && args.key_length == nullptr &&
                     args.key_padding == nullptr && args.query_document == nullptr &&
                     args.key_document == nullptr && args.bias == nullptr && args.dropout.p == 0.0f;
  const bool sized = args.batch > 0 && args.heads > 0 && args.kv_heads > 0 && args.q_len > 0 &&
                     args.k_len > 0 && args.heads % args.kv_heads == 0 && args.head_dim > 0 &&
                     args.head_dim % 8 == 0 && args.head_dim <= 128;
  // A causal row sees key 0 at least. An offset that lets every query see every key is no mask.
  const bool masked = args.causal && args.query_offset < args.k_len - 1;
  if (!plain || !sized || !IsHalf(args.dtype) || (args.causal && args.query_offset < 0) ||
      args.q_len > std::numeric_limits<int32_t>::max() ||
      args.k_len > std::numeric_limits<int32_t>::max() || !Aligned(args.q, args.q_stride) ||
      !Aligned(args.k, args.k_stride) || !Aligned(args.v, args.v_stride) ||
      !Aligned(args.o, args.o_stride) || !Aligned(args.lse, {})) {
    return std::nullopt;
  }
  SdpaShape shape;
  shape.batch = args.batch;
  shape.heads = args.heads;
  shape.kv_heads = args.kv_heads;
  shape.q_len = args.q_len;
  shape.k_len = args.k_len;
  shape.head_dim = args.head_dim;
  shape.dtype = args.dtype;
  shape.causal = masked;
  shape.query_offset = masked ? args.query_offset : 0;
  shape.q = StridesOf(args.q_stride, args, args.heads, args.q_len);
  shape.k = StridesOf(args.k_stride, args, args.kv_heads, args.k_len);
  shape.v = StridesOf(args.v_stride, args, args.kv_heads, args.k_len);
  shape.o = StridesOf(args.o_stride, args, args.heads, args.q_len);
  return shape;
}

std::optional<SdpaShape> SdpaShape::Of(const FlashBackwardArgs& args) {
  std::optional<SdpaShape> shape = Of(args.forward);
  if (!shape || args.dbias != nullptr || !Aligned(args.d_o, args.d_o_stride) ||
      !Aligned(args.dq, args.dq_stride) || !Aligned(args.dk, args.dk_stride) ||
      !Aligned(args.dv, args.dv_stride)) {
    return std::nullopt;
  }
  const FlashArgs& f = args.forward;
  shape->backward = true;
  shape->d_o = StridesOf(args.d_o_stride, f, f.heads, f.q_len);
  shape->dq = StridesOf(args.dq_stride, f, f.heads, f.q_len);
  shape->dk = StridesOf(args.dk_stride, f, f.kv_heads, f.k_len);
  shape->dv = StridesOf(args.dv_stride, f, f.kv_heads, f.k_len);
  return shape;
}

std::string SdpaShape::ToString() const {
  const auto sizes = [&](int64_t h, int64_t t) {
    return Concat("[", batch, ", ", h, ", ", t, ", ", head_dim, "]");
  };
  return Concat(DTypeName(dtype), " q ", sizes(heads, q_len), ", k ", sizes(kv_heads, k_len),
                causal ? ", causal" : "",
                query_offset != 0 ? Concat(" with offset ", query_offset) : std::string());
}

int64_t SdpaRowsAtOnce(const SdpaShape& shape, size_t bytes) {
  if (!shape.backward) return shape.batch;
  const auto padded = [](int64_t n) { return (n + 127) / 128 * 128; };
  constexpr int64_t kBeside = 4096;
  int64_t of_row = 2 * shape.heads * padded(shape.q_len) * padded(shape.k_len);
  if (shape.heads != shape.kv_heads) {
    of_row += 4 * shape.heads * padded(shape.k_len) * shape.head_dim;
  }
  const int64_t most = (static_cast<int64_t>(bytes) - kBeside) / of_row;
  if (most <= 0) return 0;
  const int64_t parts = (shape.batch + most - 1) / most;
  return (shape.batch + parts - 1) / parts;
}

OperationGraph SdpaForwardGraph(const SdpaShape& s) {
  Builder b(s);
  const int64_t q = b.Heads(SdpaUid::kQ, "q", s.heads, s.q_len, s.q);
  const int64_t k = b.Heads(SdpaUid::kK, "k", s.kv_heads, s.k_len, s.k, /*transposed=*/true);
  const int64_t v = b.Heads(SdpaUid::kV, "v", s.kv_heads, s.k_len, s.v);
  const int64_t o = b.Heads(SdpaUid::kO, "o", s.heads, s.q_len, s.o);
  const int64_t lse = b.Row(SdpaUid::kLse, "lse");
  const Dims4 row_dims{s.batch, s.heads, s.q_len, 1};
  const auto row = [&](const char* name) {
    return b.Virtual(name, DType::kFloat32, row_dims, Packed(row_dims));
  };

  const int64_t scores = b.Masked(b.ScaledScores(q, k));
  const int64_t max = b.Do(GraphOp::kMaxOf, {scores}, row("max"));
  const int64_t shifted = b.Do(GraphOp::kSub, {scores, max}, b.Scores("shifted_scores"));
  const int64_t exp = b.Do(GraphOp::kExp, {shifted}, b.Scores("exp_scores"));
  const int64_t sum = b.Do(GraphOp::kSumOf, {exp}, row("sum"));
  const int64_t log_sum = b.Do(GraphOp::kLog, {sum}, row("log_sum"));
  b.Do(GraphOp::kAdd, {max, log_sum}, lse);
  const int64_t p = b.Do(GraphOp::kDiv, {exp, sum}, b.Scores("probabilities", s.dtype));
  b.Do(GraphOp::kMatmul, {p, v}, o);
  return b.Take();
}

namespace {

// to = left^T right, [B, G, Tk, D], where left is [B, H, Tq, Tk] and right [B, H, Tq, D]: summed
// over the query heads of a key/value head.
void GradientOfKeys(Builder& b, const SdpaShape& s, int64_t left, int64_t right, int64_t to,
                    const char* view_name, const char* heads_name) {
  const int64_t scores = s.q_len * s.k_len;
  const int64_t left_t = b.Do(GraphOp::kView, {left},
                              b.Virtual(view_name, s.dtype, {s.batch, s.heads, s.k_len, s.q_len},
                                        {s.heads * scores, scores, 1, s.k_len}));
  if (s.heads == s.kv_heads) {
    b.Do(GraphOp::kMatmul, {left_t, right}, to);
    return;
  }
  const Dims4 dims{s.batch, s.heads, s.k_len, s.head_dim};
  const int64_t all_heads =
      b.Do(GraphOp::kMatmul, {left_t, right}, b.Virtual(heads_name, s.dtype, dims, Packed(dims)));
  b.Do(GraphOp::kSumOf, {all_heads}, to);
}

}  // namespace

OperationGraph SdpaBackwardGraph(const SdpaShape& s) {
  Builder b(s);
  const int64_t q = b.Heads(SdpaUid::kQ, "q", s.heads, s.q_len, s.q);
  const int64_t k = b.Heads(SdpaUid::kK, "k", s.kv_heads, s.k_len, s.k, /*transposed=*/true);
  const int64_t v = b.Heads(SdpaUid::kV, "v", s.kv_heads, s.k_len, s.v, /*transposed=*/true);
  const int64_t o = b.Heads(SdpaUid::kO, "o", s.heads, s.q_len, s.o);
  const int64_t lse = b.Row(SdpaUid::kLse, "lse");
  const int64_t d_o = b.Heads(SdpaUid::kDO, "d_o", s.heads, s.q_len, s.d_o);
  const int64_t delta = b.Row(SdpaUid::kDelta, "delta");
  const int64_t dq = b.Heads(SdpaUid::kDQ, "dq", s.heads, s.q_len, s.dq);
  const int64_t dk = b.Heads(SdpaUid::kDK, "dk", s.kv_heads, s.k_len, s.dk);
  const int64_t dv = b.Heads(SdpaUid::kDV, "dv", s.kv_heads, s.k_len, s.dv);

  const Dims4 o_dims{s.batch, s.heads, s.q_len, s.head_dim};
  const Dims4 row_dims{s.batch, s.heads, s.q_len, 1};
  const int64_t products =
      b.Do(GraphOp::kMul, {d_o, o}, b.Virtual("d_o_o", DType::kFloat32, o_dims, Packed(o_dims)));
  const int64_t sums = b.Do(GraphOp::kSumOf, {products},
                            b.Virtual("sum_d_o_o", DType::kFloat32, row_dims, Packed(row_dims)));
  b.Do(GraphOp::kMul, {sums, b.Value(SdpaUid::kOne, "one", DType::kFloat32)}, delta);

  const int64_t scaled = b.ScaledScores(q, k);
  const int64_t shifted = b.Do(GraphOp::kSub, {scaled, lse}, b.Scores("shifted_scores"));
  const int64_t p = b.Do(GraphOp::kExp, {b.Masked(shifted)}, b.Scores("probabilities"));
  GradientOfKeys(b, s, p, d_o, dv, "probabilities_t", "dv_of_heads");

  const int64_t dp = b.Do(GraphOp::kMatmul, {d_o, v}, b.Scores("dp"));
  const int64_t centred = b.Do(GraphOp::kSub, {dp, delta}, b.Scores("centred_dp"));
  const int64_t unscaled = b.Do(GraphOp::kMul, {centred, p}, b.Scores("unscaled_ds"));
  const int64_t ds = b.Do(GraphOp::kMul, {unscaled, SdpaUid::kScale}, b.Scores("ds"));
  GradientOfKeys(b, s, ds, q, dk, "ds_t", "dk_of_heads");

  const int64_t k_rows =
      b.Do(GraphOp::kView, {k},
           b.Virtual("k_rows", s.dtype, {s.batch, s.kv_heads, s.k_len, s.head_dim},
                     {s.k[0], s.k[1], s.k[2], 1}));
  b.Do(GraphOp::kMatmul, {ds, k_rows}, dq);
  return b.Take();
}

}  // namespace tessera
