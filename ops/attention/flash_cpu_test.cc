// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/flash_cpu.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "core/cpu_isa.h"
#include "core/dtype.h"
#include "core/random.h"
#include "core/thread_pool.h"
#include "ops/attention/every_document.h"

namespace tessera {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <typename Body>
void ForEachIsa(const Body& body) {
  const CpuIsa active = ActiveIsa();
  for (CpuIsa isa : kKernelIsas) {
    if (isa > DetectedIsa()) continue;
    SetActiveIsa(isa);
    SCOPED_TRACE(std::string(CpuIsaName(isa)));
    body();
  }
  SetActiveIsa(active);
}

// A tensor of any floating dtype, read and written as double.
struct Buffer {
  DType dtype;
  std::vector<char> bytes;
  explicit Buffer(DType type = DType::kFloat32, int64_t count = 0) : dtype(type) {
    bytes.assign(static_cast<size_t>(count) * DTypeSize(type), 0x7b);
  }
  void* data() { return bytes.data(); }
  double Get(int64_t i) const {
    return DispatchFloat(dtype, "test", [&](auto zero) -> double {
      std::memcpy(&zero, bytes.data() + i * static_cast<int64_t>(sizeof(zero)), sizeof(zero));
      return static_cast<double>(zero);
    });
  }
  void Set(int64_t i, double x) {
    DispatchFloat(dtype, "test", [&](auto zero) {
      if constexpr (std::is_same_v<decltype(zero), double>) {
        zero = x;
      } else {
        zero = decltype(zero)(static_cast<float>(x));
      }
      std::memcpy(bytes.data() + i * static_cast<int64_t>(sizeof(zero)), &zero, sizeof(zero));
    });
  }
  void Fill(std::mt19937& random, int64_t count) {
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < count; ++i) Set(i, normal(random));
  }
};

struct Case {
  int64_t batch = 2, heads = 2, kv_heads = 2, q_len = 5, k_len = 5, head_dim = 8;
  DType dtype = DType::kFloat32;
  bool causal = false, prefix = false, length = false, padding = false, documents = false;
  bool offsets = false;
  int64_t query_offset = 0;
  int64_t window = 0;
  std::vector<int32_t> kv_head_of;
  // Which dimensions (batch, head, query, key) the bias has; none: no bias.
  bool bias = false;
  bool bias_dim[4] = {true, true, true, true};
  float dropout = 0;
  double softcap = 0;

  std::string Name() const {
    return Concat("B", batch, " H", heads, "/", kv_heads, " T", q_len, "/", k_len, " D", head_dim,
                  " ", dtype, causal ? " causal" : "", " window ", window, prefix ? " prefix" : "",
                  length ? " length" : "", padding ? " padding" : "", documents ? " documents" : "",
                  bias ? " bias" : "", " dropout ", dropout, " softcap ", softcap);
  }
};

// Everything a case needs, laid out as a packed [B, T, (H + 2G), D] query-key-value tensor.
struct Problem {
  Case c;
  Buffer qkv_q, qkv_k, o, lse, bias, d_o, dq, dk, dv, dbias;
  std::vector<int32_t> prefix, length, query_document, key_document, offsets;
  std::vector<uint8_t> padding;
  FlashBackwardArgs args;

  static constexpr uint64_t kKeyHi = 0x123456789abcdef0u, kKeyLo = 0xfedcba9876543210u;

  Problem(const Case& x, unsigned seed) : c(x) {
    std::mt19937 random(seed);
    const int64_t b = c.batch, h = c.heads, g = c.kv_heads, tq = c.q_len, tk = c.k_len,
                  d = c.head_dim;
    const DType wide = AccumulateDType(c.dtype);
    const auto fill = [&](Buffer* buffer, DType dtype, int64_t count) {
      *buffer = Buffer(dtype, count);
      buffer->Fill(random, count);
    };
    // Queries in a buffer of their own; keys and values interleaved, [B, Tk, G, 2, D].
    fill(&qkv_q, c.dtype, b * tq * h * d);
    fill(&qkv_k, c.dtype, b * tk * g * 2 * d);
    fill(&d_o, c.dtype, b * h * tq * d);
    o = Buffer(c.dtype, b * tq * h * d);
    lse = Buffer(wide, b * h * tq);
    dq = Buffer(c.dtype, b * tq * h * d);
    dk = Buffer(c.dtype, b * tk * g * d);
    dv = Buffer(c.dtype, b * tk * g * d);
    FlashArgs& f = args.forward;
    f.batch = b;
    f.heads = h;
    f.kv_heads = g;
    f.q_len = tq;
    f.k_len = tk;
    f.head_dim = d;
    f.dtype = c.dtype;
    const int64_t size = static_cast<int64_t>(DTypeSize(c.dtype));
    f.q = qkv_q.data();
    f.q_stride = {tq * h * d, d, h * d};
    f.k = qkv_k.data();
    f.v = qkv_k.bytes.data() + d * size;
    f.k_stride = f.v_stride = {tk * g * 2 * d, 2 * d, g * 2 * d};
    f.o = o.data();
    f.o_stride = {tq * h * d, d, h * d};
    f.lse = lse.data();
    f.scale = 0.7 / std::sqrt(static_cast<double>(std::max<int64_t>(1, d)));
    f.softcap = c.softcap;
    f.causal = c.causal;
    f.query_offset = c.query_offset;
    f.window = c.window;
    if (!c.kv_head_of.empty()) f.kv_head_of = c.kv_head_of.data();
    for (int64_t i = 0; i < b; ++i) {
      prefix.push_back(static_cast<int32_t>(random() % (tk + 1)));
      length.push_back(static_cast<int32_t>(random() % (tk + 1)));
      offsets.push_back(static_cast<int32_t>(random() % 5) - 2);
      for (int64_t j = 0; j < tk; ++j) padding.push_back(random() % 3 != 0);
      for (int64_t j = 0; j < tk; ++j) {
        const auto own = static_cast<int32_t>(j * 3 / std::max<int64_t>(tk, 1));
        key_document.push_back(j % 11 == 1 ? kEveryDocument : own);
      }
      for (int64_t j = 0; j < tq; ++j) {
        query_document.push_back(static_cast<int32_t>(j * 4 / std::max<int64_t>(tq, 1)));
      }
    }
    if (c.prefix) f.prefix_length = prefix.data();
    if (c.length) f.key_length = length.data();
    if (c.offsets) f.query_offsets = offsets.data();
    if (c.padding) f.key_padding = padding.data();
    if (c.documents) {
      f.query_document = query_document.data();
      f.key_document = key_document.data();
    }
    if (c.bias) {
      const int64_t sizes[4] = {b, h, tq, tk};
      int64_t strides[4], count = 1;
      for (int dim = 3; dim >= 0; --dim) {
        strides[dim] = c.bias_dim[dim] ? count : 0;
        if (c.bias_dim[dim]) count *= sizes[dim];
      }
      fill(&bias, wide, count);
      dbias = Buffer(wide, count);
      f.bias = bias.data();
      f.bias_dtype = wide;
      f.bias_stride = {strides[0], strides[1], strides[2], strides[3]};
      args.dbias = dbias.data();
      args.dbias_stride = f.bias_stride;
    }
    f.dropout.p = c.dropout;
    f.dropout.key_hi = kKeyHi;
    f.dropout.key_lo = kKeyLo;
    args.d_o = d_o.data();
    args.d_o_stride = {h * tq * d, tq * d, d};  // [B, H, Tq, D]
    args.dq = dq.data();
    args.dq_stride = f.q_stride;
    args.dk = dk.data();
    args.dv = dv.data();
    args.dk_stride = args.dv_stride = {tk * g * d, d, g * d};
  }
  // The buffers are pointed to by args.
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;

  void Run() {
    FlashForward(args.forward);
    FlashBackward(args);
  }
};

// ---- The reference: the formulas, with the whole matrix, in float64
// ------------------------------

bool Sees(const Problem& p, int64_t b, int64_t i, int64_t j) {
  const Case& c = p.c;
  if (c.length && j >= p.length[b]) return false;
  if (c.padding && !p.padding[b * c.k_len + j]) return false;
  if (c.documents && p.key_document[b * c.k_len + j] != kEveryDocument &&
      p.query_document[b * c.q_len + i] != p.key_document[b * c.k_len + j]) {
    return false;
  }
  const int64_t offset = c.query_offset + (c.offsets ? p.offsets[b] : 0);
  if (c.window > 0 && j <= i + offset - c.window) return false;
  if (c.window > 0 && !c.causal && j >= i + offset + c.window) return false;
  return !c.causal || j <= i + offset || (c.prefix && j < p.prefix[b]);
}

struct Reference {
  std::vector<double> o, lse, dq, dk, dv, dbias;
};

Reference Compute(const Problem& p) {
  const Case& c = p.c;
  const int64_t h_count = c.heads, tq = c.q_len, tk = c.k_len, d = c.head_dim;
  Reference r;
  r.o.assign(c.batch * tq * h_count * d, 0);
  r.lse.assign(c.batch * h_count * tq, -kInfinity);
  r.dq.assign(r.o.size(), 0);
  r.dk.assign(c.batch * tk * c.kv_heads * d, 0);
  r.dv.assign(r.dk.size(), 0);
  r.dbias.assign(p.dbias.bytes.size() / DTypeSize(p.dbias.dtype), 0);
  const FlashBiasStrides& s = p.args.forward.bias_stride;
  const RandomKey key{Problem::kKeyHi, Problem::kKeyLo};
  for (int64_t b = 0; b < c.batch; ++b) {
    for (int64_t h = 0; h < h_count; ++h) {
      const int64_t g = c.kv_head_of.empty() ? h / (h_count / c.kv_heads) : c.kv_head_of[h];
      const auto q_at = [&](int64_t i, int64_t x) { return ((b * tq + i) * h_count + h) * d + x; };
      const auto kv_at = [&](int64_t j, int64_t x) {
        return ((b * tk + j) * c.kv_heads + g) * 2 * d + x;
      };
      const auto dk_at = [&](int64_t j, int64_t x) {
        return ((b * tk + j) * c.kv_heads + g) * d + x;
      };
      const auto do_at = [&](int64_t i, int64_t x) { return ((b * h_count + h) * tq + i) * d + x; };
      for (int64_t i = 0; i < tq; ++i) {
        std::vector<double> score(tk, -kInfinity), prob(tk, 0), kept(tk, 0), dp(tk, 0);
        double highest = -kInfinity, sum = 0, weighted = 0;
        for (int64_t j = 0; j < tk; ++j) {
          if (!Sees(p, b, i, j)) continue;
          double dot = 0;
          for (int64_t x = 0; x < d; ++x) dot += p.qkv_q.Get(q_at(i, x)) * p.qkv_k.Get(kv_at(j, x));
          score[j] = p.args.forward.scale * dot;
          if (c.softcap > 0) score[j] = c.softcap * std::tanh(score[j] / c.softcap);
          if (c.bias) {
            score[j] += p.bias.Get(b * s.batch + h * s.head + i * s.query + j * s.key);
          }
          highest = std::max(highest, score[j]);
        }
        if (highest == -kInfinity) continue;
        for (int64_t j = 0; j < tk; ++j) sum += std::exp(score[j] - highest);
        r.lse[(b * h_count + h) * tq + i] = highest + std::log(sum);
        for (int64_t j = 0; j < tk; ++j) {
          prob[j] = std::exp(score[j] - highest) / sum;
          const uint64_t index = static_cast<uint64_t>(((b * h_count + h) * tq + i) * tk + j);
          kept[j] = UniformFloat(key, index) < c.dropout
                        ? 0.0
                        : 1.0 / (1.0 - static_cast<double>(c.dropout));
          for (int64_t x = 0; x < d; ++x) {
            const double v = p.qkv_k.Get(kv_at(j, d + x));
            r.o[q_at(i, x)] += prob[j] * kept[j] * v;
            dp[j] += kept[j] * p.d_o.Get(do_at(i, x)) * v;
            r.dv[dk_at(j, x)] += prob[j] * kept[j] * p.d_o.Get(do_at(i, x));
          }
          weighted += prob[j] * dp[j];
        }
        for (int64_t j = 0; j < tk; ++j) {
          double ds = prob[j] * (dp[j] - weighted);
          if (c.softcap > 0 && prob[j] > 0) ds *= 1 - std::pow(score[j] / c.softcap, 2);
          for (int64_t x = 0; x < d; ++x) {
            r.dq[q_at(i, x)] += p.args.forward.scale * ds * p.qkv_k.Get(kv_at(j, x));
            r.dk[dk_at(j, x)] += p.args.forward.scale * ds * p.qkv_q.Get(q_at(i, x));
          }
          if (c.bias) r.dbias[b * s.batch + h * s.head + i * s.query + j * s.key] += ds;
        }
      }
    }
  }
  return r;
}

// ---- Comparison ---------------------------------------------------------------------------------

// Elementwise, relative to the largest expected value; sums that cancel are compared absolutely
// (the terms are of size 1).
void ExpectClose(const char* what, const Buffer& got, const std::vector<double>& want,
                 double tolerance) {
  double size = 1;
  for (double x : want) {
    if (std::isfinite(x)) size = std::max(size, std::abs(x));
  }
  double worst = 0;
  size_t at = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double x = got.Get(static_cast<int64_t>(i));
    const double difference = x == want[i] ? 0 : std::abs(x - want[i]) / size;
    const double error = std::isnan(difference) ? kInfinity : difference;
    if (error > worst) {
      worst = error;
      at = i;
    }
  }
  EXPECT_LE(worst, tolerance) << what << "[" << at << "] = " << got.Get(static_cast<int64_t>(at))
                              << ", expected " << want[at];
}

double Tolerance(DType dtype, bool gradient) {
  switch (dtype) {
    case DType::kFloat64:
      return 1e-12;
    case DType::kFloat32:
      return 4e-6;
    case DType::kFloat16:
      return gradient ? 4e-3 : 1e-3;
    default:
      return gradient ? 3e-2 : 8e-3;  // the gradients use the rounded output
  }
}

void Check(const Case& c, unsigned seed) {
  SCOPED_TRACE(c.Name());
  Problem p(c, seed);
  p.Run();
  const Reference r = Compute(p);
  const double loose = Tolerance(c.dtype, true);
  ExpectClose("o", p.o, r.o, Tolerance(c.dtype, false));
  ExpectClose("lse", p.lse, r.lse, c.dtype == DType::kFloat64 ? 1e-12 : 2e-6);
  ExpectClose("dq", p.dq, r.dq, loose);
  ExpectClose("dk", p.dk, r.dk, loose);
  ExpectClose("dv", p.dv, r.dv, loose);
  if (c.bias) ExpectClose("dbias", p.dbias, r.dbias, loose);
}

TEST(Flash, EveryMaskCombination) {
  ForEachIsa([] {
    for (int bits = 0; bits < 64; ++bits) {
      Case c;
      c.causal = bits & 1;
      c.prefix = (bits & 2) != 0 && c.causal;
      if ((bits & 2) != 0 && !c.causal) continue;
      c.length = bits & 4;
      c.padding = bits & 8;
      c.documents = bits & 16;
      c.bias = bits & 32;
      c.q_len = 37;
      c.k_len = 101;
      c.query_offset = bits % 3 == 0 ? 64 : bits % 3 == 1 ? 0 : -3;
      c.offsets = bits % 5 == 0;
      c.head_dim = 9;
      c.dropout = bits % 8 == 3 || bits % 8 == 4 ? 0.25f : 0.0f;
      Check(c, static_cast<unsigned>(bits));
    }
  });
}

// Windows that end inside of blocks, tiles and panels, that are wider than all keys, of one key,
// and that leave rows without any; before the query's place, and to both sides of it.
TEST(Flash, Windows) {
  ForEachIsa([] {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat64}) {
      for (const int64_t window : {1, 2, 31, 96, 100, 1000}) {
        for (const auto& [rich, causal] :
             {std::pair(false, true), {true, true}, {false, false}, {true, false}}) {
          Case c;
          c.dtype = dtype;
          c.heads = 4;
          c.q_len = rich ? 75 : 290;
          c.k_len = 290;
          c.query_offset = !rich ? 0 : causal ? 190 : 90;
          c.causal = causal;
          c.window = window;
          c.offsets = c.length = c.padding = c.bias = rich;
          c.prefix = rich && causal;
          c.dropout = rich ? 0.2f : 0.0f;
          c.batch = 1;
          Check(c, static_cast<unsigned>(window));
        }
      }
    }
  });
}

TEST(Flash, Softcap) {
  ForEachIsa([] {
    for (const DType dtype :
         {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64}) {
      for (const double softcap : {0.4, 3.0}) {
        for (const bool masked : {false, true}) {
          Case c;
          c.dtype = dtype;
          c.heads = 4;
          c.q_len = 130;
          c.k_len = 133;
          c.head_dim = 20;
          c.causal = c.length = c.padding = c.documents = masked;
          c.window = masked ? 40 : 0;
          c.dropout = masked ? 0.2f : 0.0f;
          c.softcap = softcap;
          Check(c, 5);
        }
      }
    }
  });
}

TEST(Flash, OddSizes) {
  const int64_t sizes[][3] = {{1, 1, 1},      {1, 200, 64},  {33, 1, 16},
                              {97, 97, 20},   {8, 96, 48},   {95, 193, 3},
                              {300, 300, 64}, {31, 289, 80}, {5, 7, 130}};
  ForEachIsa([&] {
    for (const auto& [tq, tk, d] : sizes) {
      Case c;
      c.batch = 1;
      c.q_len = tq;
      c.k_len = tk;
      c.head_dim = d;
      c.causal = tk >= tq;
      c.query_offset = tk - tq;
      Check(c, static_cast<unsigned>(tq));
    }
  });
}

TEST(Flash, Dtypes) {
  ForEachIsa([] {
    for (DType dtype : {DType::kBFloat16, DType::kFloat16, DType::kFloat64}) {
      for (bool rich : {false, true}) {
        Case c;
        c.dtype = dtype;
        c.q_len = 41;
        c.k_len = 107;
        c.head_dim = 21;
        c.causal = true;
        c.query_offset = 50;
        c.padding = c.bias = rich;
        c.dropout = rich ? 0.1f : 0.0f;
        Check(c, 3);
      }
    }
  });
}

TEST(Flash, GroupedHeads) {
  ForEachIsa([] {
    for (int kind = 0; kind < 3; ++kind) {
      Case c;
      c.heads = 6;
      c.kv_heads = kind == 0 ? 1 : kind == 1 ? 3 : 4;
      if (kind == 2) c.kv_head_of = {2, 0, 0, 2, 1, 2};  // head 3 of the keys serves nobody
      c.q_len = c.k_len = 19;
      c.causal = true;
      c.bias = true;
      c.dropout = 0.3f;
      Check(c, 7);
    }
  });
}

TEST(Flash, BiasGradientIsSummedOverBroadcastDimensions) {
  ForEachIsa([] {
    for (int bits = 0; bits < 16; ++bits) {
      Case c;
      c.batch = 3;
      c.heads = 4;
      c.kv_heads = 2;
      c.q_len = 13;
      c.k_len = 110;
      c.bias = true;
      for (int dim = 0; dim < 4; ++dim) c.bias_dim[dim] = (bits >> dim) & 1;
      c.padding = true;
      Check(c, 11);
    }
  });
}

TEST(Flash, EmptySizes) {
  for (DType dtype : {DType::kFloat32, DType::kFloat64}) {
    for (int which = 0; which < 5; ++which) {
      Case c;
      c.dtype = dtype;
      if (which == 0) c.batch = 0;
      if (which == 1) c.heads = c.kv_heads = 0;
      if (which == 2) c.q_len = 0;  // dk and dv are zero
      if (which == 3) c.k_len = 0;  // o is zero, lse is -inf
      if (which == 4) c.head_dim = 0;
      Check(c, 1);
    }
  }
}

TEST(Flash, RowsWithoutKeysAreZero) {
  ForEachIsa([] {
    Case c;
    c.causal = true;
    c.query_offset = -2;
    c.bias = true;
    Problem p(c, 5);
    // Row 3 sees keys 0 and 1, but the bias forbids both.
    for (int64_t b = 0; b < c.batch; ++b) {
      for (int64_t h = 0; h < c.heads; ++h) {
        for (int64_t j = 0; j < 5; ++j) p.bias.Set(((b * 2 + h) * 5 + 3) * 5 + j, -kInfinity);
      }
    }
    p.Run();
    for (int64_t i : {0, 1, 3}) {
      EXPECT_EQ(p.lse.Get(i), -kInfinity);
      for (int64_t x = 0; x < c.head_dim; ++x) {
        EXPECT_EQ(p.o.Get(i * 2 * 8 + x), 0.0);
        EXPECT_EQ(p.dq.Get(i * 2 * 8 + x), 0.0);
      }
    }
    for (int64_t i = 0; i < 2 * 5 * 2 * 8; ++i) {
      EXPECT_TRUE(std::isfinite(p.dk.Get(i)) && std::isfinite(p.dv.Get(i)));
    }
  });
}

TEST(Flash, WholeMinusInfinityBlocksAndLargeScoresStayFinite) {
  ForEachIsa([] {
    Case c;
    c.q_len = c.k_len = 200;
    c.bias = true;
    Problem p(c, 6);
    // The first block of keys is closed by the bias; later scores reach 1e4.
    for (int64_t row = 0; row < 2 * 2 * 200; ++row) {
      for (int64_t j = 0; j < 200; ++j) {
        p.bias.Set(row * 200 + j, j < 100 ? -kInfinity : (j == 150 ? 1e4 : -1e4));
      }
    }
    p.Run();
    const Reference r = Compute(p);
    ExpectClose("o", p.o, r.o, 1e-5);
    ExpectClose("lse", p.lse, r.lse, 1e-5);
    ExpectClose("dv", p.dv, r.dv, 1e-5);
  });
}

TEST(Flash, NanOfASeenKeyReachesTheRowAndOfNoOther) {
  ForEachIsa([] {
    Case c;
    c.batch = c.heads = c.kv_heads = 1;
    c.q_len = c.k_len = 12;
    c.causal = true;
    Problem p(c, 8);
    p.qkv_k.Set(6 * 16, std::nan(""));  // key 6
    FlashForward(p.args.forward);
    for (int64_t i = 0; i < 12; ++i) {
      EXPECT_EQ(std::isnan(p.o.Get(i * 8)), i >= 6) << i;
      EXPECT_EQ(std::isnan(p.lse.Get(i)), i >= 6) << i;
    }
  });
}

TEST(Flash, RefusesWhatDoesNotGoTogether) {
  const auto refuses = [](const auto& change) {
    Case c;
    Problem p(c, 1);
    change(&p.args);
    EXPECT_THROW(FlashBackward(p.args), Error);
  };
  refuses([](FlashBackwardArgs* a) { a->forward.q_len = -1; });
  refuses([](FlashBackwardArgs* a) { a->forward.heads = 3; });
  refuses([](FlashBackwardArgs* a) { a->forward.dtype = DType::kInt64; });
  refuses([](FlashBackwardArgs* a) { a->forward.dropout.p = 1.0f; });
  refuses([](FlashBackwardArgs* a) { a->dbias = a->dq; });
  refuses([](FlashBackwardArgs* a) { a->forward.window = -1; });
  static const int32_t kTwo[2] = {0, 2};
  refuses([](FlashBackwardArgs* a) { a->forward.kv_head_of = kTwo; });
  refuses([](FlashBackwardArgs* a) { a->forward.key_document = kTwo; });
  refuses([](FlashBackwardArgs* a) { a->forward.prefix_length = kTwo; });
}

// ---- The bits -----------------------------------------------------------------------------------

TEST(FlashBits, DecodingWithACacheEqualsTheFullCausalPass) {
  ForEachIsa([] {
    for (const auto& [dtype, window] :
         {std::pair{DType::kFloat32, 0}, {DType::kBFloat16, 0}, {DType::kFloat32, 70}}) {
      Case c;
      c.dtype = dtype;
      c.window = window;
      c.q_len = c.k_len = 301;
      c.head_dim = 24;
      c.causal = true;
      c.bias = true;
      c.bias_dim[0] = c.bias_dim[2] = false;
      Problem full(c, 9);
      FlashForward(full.args.forward);
      const int64_t size = static_cast<int64_t>(DTypeSize(dtype));
      // (first query, queries, keys in the cache): single steps, chunks, a cache with room to
      // spare.
      const int64_t steps[][3] = {{0, 1, 1},    {1, 1, 2},      {95, 1, 96},
                                  {96, 1, 97},  {191, 1, 301},  {300, 1, 301},
                                  {40, 17, 57}, {90, 150, 240}, {256, 45, 301}};
      for (const auto& [begin, count, keys] : steps) {
        FlashArgs f = full.args.forward;
        Buffer o(dtype, c.batch * c.heads * count * c.head_dim);
        Buffer lse(DType::kFloat32, c.batch * c.heads * count);
        f.q = full.qkv_q.bytes.data() + begin * f.q_stride.time * size;
        f.q_len = count;
        f.k_len = keys;
        f.query_offset = begin;
        f.o = o.data();
        f.o_stride = {c.heads * count * c.head_dim, count * c.head_dim, c.head_dim};
        f.lse = lse.data();
        FlashForward(f);
        for (int64_t b = 0; b < c.batch; ++b) {
          for (int64_t h = 0; h < c.heads; ++h) {
            for (int64_t i = 0; i < count; ++i) {
              ASSERT_EQ(lse.Get((b * c.heads + h) * count + i),
                        full.lse.Get((b * c.heads + h) * 301 + begin + i));
              for (int64_t x = 0; x < c.head_dim; ++x) {
                ASSERT_EQ(o.Get(((b * c.heads + h) * count + i) * c.head_dim + x),
                          full.o.Get(((b * 301 + begin + i) * c.heads + h) * c.head_dim + x))
                    << begin << "+" << count << " of " << keys << " row " << i;
              }
            }
          }
        }
      }
    }
  });
}

TEST(FlashBits, DoNotDependOnTheNumberOfThreads) {
  const int threads = NumThreads();
  ForEachIsa([] {
    Case c;
    c.batch = 3;
    c.heads = 4;
    c.kv_heads = 2;
    c.q_len = c.k_len = 300;
    c.causal = true;
    c.bias = true;
    c.bias_dim[0] = false;
    c.dropout = 0.1f;
    SetNumThreads(1);
    Problem one(c, 10);
    one.Run();
    for (int count : {2, 4}) {
      SetNumThreads(count);
      Problem many(c, 10);
      many.Run();
      EXPECT_EQ(one.o.bytes, many.o.bytes);
      EXPECT_EQ(one.lse.bytes, many.lse.bytes);
      EXPECT_EQ(one.dq.bytes, many.dq.bytes);
      EXPECT_EQ(one.dk.bytes, many.dk.bytes);
      EXPECT_EQ(one.dv.bytes, many.dv.bytes);
      EXPECT_EQ(one.dbias.bytes, many.dbias.bytes);
    }
  });
  SetNumThreads(threads);
}

// A shard of the batch, of the heads and of the queries drops what the whole does.
TEST(FlashBits, ShardsEqualTheWholeWithDropout) {
  ForEachIsa([] {
    Case c;
    c.batch = 3;
    c.heads = 4;
    c.kv_heads = 4;
    c.q_len = c.k_len = 50;
    c.causal = true;
    c.dropout = 0.4f;
    Problem whole(c, 12);
    FlashForward(whole.args.forward);
    static const int32_t kHeads[2] = {3, 1};
    FlashArgs f = whole.args.forward;
    const int64_t b0 = 1, i0 = 20;
    Buffer o(DType::kFloat32, 2 * 2 * 30 * 8), lse(DType::kFloat32, 2 * 2 * 30);
    f.batch = 2;
    f.heads = f.kv_heads = 4;  // all heads, to be picked below through kv_head_of
    f.q_len = 30;
    f.query_offset = i0;
    f.dropout.batch_begin = b0;
    f.dropout.query_begin = i0;
    f.dropout.heads_total = 4;
    f.dropout.q_total = 50;
    f.dropout.k_total = 50;
    f.heads = 2;
    f.kv_head_of = kHeads;
    f.dropout.head_ids = kHeads;
    // Queries of heads 3 and 1: a negative head stride.
    const float* q = static_cast<const float*>(whole.args.forward.q);
    f.q = q + b0 * f.q_stride.batch + 3 * f.q_stride.head + i0 * f.q_stride.time;
    f.q_stride.head *= -2;
    f.k = static_cast<const float*>(f.k) + b0 * f.k_stride.batch;
    f.v = static_cast<const float*>(f.v) + b0 * f.v_stride.batch;
    f.o = o.data();
    f.o_stride = {2 * 30 * 8, 30 * 8, 8};
    f.lse = lse.data();
    FlashForward(f);
    for (int64_t b = 0; b < 2; ++b) {
      for (int64_t h = 0; h < 2; ++h) {
        for (int64_t i = 0; i < 30; ++i) {
          for (int64_t x = 0; x < 8; ++x) {
            ASSERT_EQ(o.Get(((b * 2 + h) * 30 + i) * 8 + x),
                      whole.o.Get(((b0 + b) * 50 + i0 + i) * 4 * 8 + kHeads[h] * 8 + x));
          }
        }
      }
    }
  });
}

}  // namespace
}  // namespace tessera
