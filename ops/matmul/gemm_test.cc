// SPDX-License-Identifier: Apache-2.0
#include "ops/matmul/gemm.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "core/cpu/float_control.h"
#include "core/cpu_amx.h"
#include "core/cpu_isa.h"
#include "core/thread_pool.h"
#include "ops/matmul/gemm_kernel.h"
#include "ops/matmul/gemm_tiles.h"

#if defined(__x86_64__)
#include "ops/matmul/gemm_amx_model.h"
#endif

namespace tessera {
namespace {

// Runs `body` once per instruction set that this machine has.
template <typename Body>
void ForEachIsa(const Body& body) {
  const CpuIsa active = ActiveIsa();
  for (CpuIsa isa : kCpuIsas) {
    if (isa > DetectedIsa() || CpuIsaName(isa) == "avx512vnni")
      continue;  // whose products are avx512's
    SetActiveIsa(isa);
    SCOPED_TRACE(std::string(CpuIsaName(isa)));
    body();
  }
  SetActiveIsa(active);
}

// What computes products of bfloat16 by bfloat16: the instruction set, the model of AMX's tiles, or
// the code for AMX on emulated tiles or the machine's.
enum class Tiles { kNone, kModel, kEmulated, kReal };

// Runs `body` with each of these, and once per instruction set without tiles.
template <typename Body>
void ForEachPairKernels(const Body& body) {
  ForEachIsa([&] { body(Tiles::kNone); });
#if defined(__x86_64__)
  const GemmKernels<float>* const before = InsteadOfGemmPairKernels();
  InsteadOfGemmPairKernels() = &kModelKernels;
  {
    SCOPED_TRACE("modelled tiles");
    body(Tiles::kModel);
  }
  InsteadOfGemmPairKernels() = &amx::kGemmPairs;
  if (HasAmx()) {
    SCOPED_TRACE("AMX");
    body(Tiles::kReal);
  } else if (DetectedIsa() >= CpuIsa::kAvx512) {  // which packs for tiles
    SCOPED_TRACE("emulated tiles");
    const EmulatedTiles emulated;
    const int threads = NumThreads();
    SetNumThreads(1);
    body(Tiles::kEmulated);
    SetNumThreads(threads);
  }
  InsteadOfGemmPairKernels() = before;
#endif
}

// A matrix (or a batch of them) of any dtype with room around its elements, filled with a marker.
struct Operand {
  DType dtype;
  int64_t rows, columns;
  int64_t row_stride, column_stride;
  std::vector<char> bytes;

  static constexpr int64_t kMargin = 16;
  Operand(DType type, int64_t r, int64_t c, int64_t rs, int64_t cs, int64_t extra = 0)
      : dtype(type), rows(r), columns(c), row_stride(rs), column_stride(cs) {
    const int64_t last =
        std::max<int64_t>(0, r - 1) * rs + std::max<int64_t>(0, c - 1) * cs + extra;
    bytes.assign(static_cast<size_t>(last + 1 + 2 * kMargin) * DTypeSize(dtype), 0x5a);
  }
  char* data() { return bytes.data() + kMargin * static_cast<int64_t>(DTypeSize(dtype)); }
  int64_t Offset(int64_t i, int64_t j) const { return i * row_stride + j * column_stride; }
  double Get(int64_t offset) {
    return DispatchFloat(dtype, "test", [&](auto zero) -> double {
      decltype(zero) value;
      std::memcpy(&value, data() + offset * static_cast<int64_t>(sizeof(value)), sizeof(value));
      return static_cast<double>(value);
    });
  }
  void Set(int64_t offset, double x) {
    DispatchFloat(dtype, "test", [&](auto zero) {
      using T = decltype(zero);
      T value;
      if constexpr (std::is_same_v<T, double>) {
        value = x;
      } else {
        value = T(static_cast<float>(x));
      }
      std::memcpy(data() + offset * static_cast<int64_t>(sizeof(value)), &value, sizeof(value));
    });
  }
  void Fill(std::mt19937& random, int64_t shift = 0) {
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) Set(shift + Offset(i, j), uniform(random));
    }
  }
};

struct Layout {
  bool transposed;
  int64_t padding;    // of the longer stride
  int64_t inner = 1;  // the shorter stride
};

Operand MakeOperand(DType dtype, int64_t rows, int64_t columns, const Layout& layout,
                    int64_t extra = 0) {
  if (layout.transposed) {
    return Operand(dtype, rows, columns, layout.inner,
                   std::max<int64_t>(1, rows) * layout.inner + layout.padding, extra);
  }
  return Operand(dtype, rows, columns,
                 std::max<int64_t>(1, columns) * layout.inner + layout.padding, layout.inner,
                 extra);
}

GemmArgs ArgsOf(Operand& a, Operand& b, Operand& c) {
  GemmArgs args;
  args.m = a.rows;
  args.n = b.columns;
  args.k = a.columns;
  args.a = a.data();
  args.a_row_stride = a.row_stride;
  args.a_col_stride = a.column_stride;
  args.a_dtype = a.dtype;
  args.b = b.data();
  args.b_row_stride = b.row_stride;
  args.b_col_stride = b.column_stride;
  args.b_dtype = b.dtype;
  args.c = c.data();
  args.c_row_stride = c.row_stride;
  args.c_dtype = c.dtype;
  return args;
}

// Half a unit in the last place of the dtype, relative.
double Epsilon(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16:
      return std::ldexp(1.0, -8);
    case DType::kFloat16:
      return std::ldexp(1.0, -11);
    case DType::kFloat64:
      return std::ldexp(1.0, -53);
    default:
      return std::ldexp(1.0, -24);
  }
}

// C against sums in float64. An element's error is bounded by (k + 4) eps sum |a b| for the chain,
// plus one rounding to C's dtype.
void CheckAgainstNaive(Operand& a, Operand& b, Operand& c, Operand& before, const GemmArgs& args,
                       int64_t a_shift = 0, int64_t b_shift = 0, int64_t c_shift = 0) {
  const double chain = Epsilon(AccumulateDType(c.dtype));
  for (int64_t i = 0; i < args.m; ++i) {
    for (int64_t j = 0; j < args.n; ++j) {
      double sum = 0, size = 0;
      for (int64_t k = 0; k < args.k; ++k) {
        const double product = a.Get(a_shift + a.Offset(i, k)) * b.Get(b_shift + b.Offset(k, j));
        sum += product;
        size += std::abs(product);
      }
      const double old = args.accumulate ? before.Get(c_shift + c.Offset(i, j)) : 0.0;
      const double want = args.alpha * sum + old;
      const double got = c.Get(c_shift + c.Offset(i, j));
      const double tolerance =
          static_cast<double>(args.k + 4) * chain * (std::abs(args.alpha) * size + std::abs(old)) +
          2 * Epsilon(c.dtype) * std::abs(want) + 1e-7 * (c.dtype == DType::kFloat16);
      ASSERT_NEAR(got, want, tolerance)
          << "at " << i << ", " << j << " of " << args.m << "x" << args.n << "x" << args.k;
    }
  }
}

// Everything of C's storage but its elements must be as before.
void CheckSurroundings(Operand& c, Operand& before, int64_t m, int64_t n) {
  Operand copy = c;
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) copy.Set(c.Offset(i, j), before.Get(c.Offset(i, j)));
  }
  Operand same = before;
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) same.Set(c.Offset(i, j), before.Get(c.Offset(i, j)));
  }
  EXPECT_EQ(copy.bytes, same.bytes) << "wrote outside C";
}

void RunCase(std::mt19937& random, int64_t m, int64_t n, int64_t k, const Layout& la,
             const Layout& lb, DType ta, DType tb, DType tc, bool accumulate, float alpha) {
  SCOPED_TRACE(testing::Message() << m << "x" << n << "x" << k << " " << ta << " " << tb << " "
                                  << tc << " ta " << la.transposed << " tb " << lb.transposed
                                  << " accumulate " << accumulate);
  Operand a = MakeOperand(ta, m, k, la);
  Operand b = MakeOperand(tb, k, n, lb);
  Operand c = MakeOperand(tc, m, n, {false, 3});
  a.Fill(random);
  b.Fill(random);
  c.Fill(random);
  Operand before = c;
  GemmArgs args = ArgsOf(a, b, c);
  args.accumulate = accumulate;
  args.alpha = alpha;
  Gemm(args);
  CheckAgainstNaive(a, b, c, before, args);
  CheckSurroundings(c, before, m, n);
}

TEST(Gemm, AgreesWithNaiveSumsForAllLayouts) {
  const int64_t shapes[][3] = {{1, 1, 1},    {1, 100, 70},  {2, 49, 385}, {3, 1, 40},
                               {4, 300, 17}, {5, 47, 5},    {8, 48, 16},  {9, 49, 400},
                               {70, 3, 64},  {97, 101, 33}, {130, 2, 50}, {200, 97, 31}};
  ForEachIsa([&] {
    std::mt19937 random(1);
    for (const auto& [m, n, k] : shapes) {
      for (int layout = 0; layout < 4; ++layout) {
        RunCase(random, m, n, k, {(layout & 1) != 0, 5}, {(layout & 2) != 0, 2}, DType::kFloat32,
                DType::kFloat32, DType::kFloat32, layout == 2, layout == 1 ? 0.5f : 1.0f);
      }
      RunCase(random, m, n, k, {false, 1, 2}, {true, 4, 3}, DType::kFloat32, DType::kFloat32,
              DType::kFloat32, true, -1.25f);
    }
  });
}

TEST(Gemm, RandomOddShapes) {
  ForEachIsa([&] {
    std::mt19937 random(2);
    for (int round = 0; round < 40; ++round) {
      const int64_t m = 1 + random() % 140, n = 1 + random() % 140, k = 1 + random() % 90;
      RunCase(random, m, n, k, {random() % 2 == 0, static_cast<int64_t>(random() % 4)},
              {random() % 2 == 0, static_cast<int64_t>(random() % 4)}, DType::kFloat32,
              DType::kFloat32, DType::kFloat32, random() % 2 == 0, 1.0f);
    }
  });
}

TEST(Gemm, AllDtypes) {
  const DType f32 = DType::kFloat32, bf16 = DType::kBFloat16, f16 = DType::kFloat16;
  const DType kinds[][3] = {
      {bf16, bf16, bf16}, {f16, f16, f16},
      {bf16, bf16, f32},  {bf16, f32, f32},
      {f32, bf16, f32},   {f32, f32, bf16},
      {f16, bf16, f16},   {DType::kFloat64, DType::kFloat64, DType::kFloat64}};
  const int64_t shapes[][3] = {
      {1, 131, 400}, {3, 50, 20}, {20, 60, 390}, {131, 1, 50}, {110, 75, 41}};
  ForEachPairKernels([&](Tiles) {
    std::mt19937 random(3);
    for (const auto& kind : kinds) {
      for (const auto& [m, n, k] : shapes) {
        const bool ta = random() % 2 == 0, tb = random() % 2 == 0;
        RunCase(random, m, n, k, {ta, 1}, {tb, 1}, kind[0], kind[1], kind[2], random() % 2 == 0,
                1.0f);
        RunCase(random, m, n, k, {!ta, 0}, {!tb, 0}, kind[0], kind[1], kind[2], false, 0.5f);
      }
    }
  });
}

TEST(Gemm, EmptySizes) {
  std::vector<float> a(12, 1.0f), b(12, 1.0f), c(12, 7.0f);
  GemmArgs args;
  args.m = 3;
  args.n = 2;
  args.k = 0;
  args.a = a.data();
  args.b = b.data();
  args.b_row_stride = 2;
  args.c = c.data();
  args.c_row_stride = 4;
  args.accumulate = true;
  Gemm(args);
  EXPECT_EQ(c, std::vector<float>(12, 7.0f));
  args.accumulate = false;
  Gemm(args);
  EXPECT_EQ(c, (std::vector<float>{0, 0, 7, 7, 0, 0, 7, 7, 0, 0, 7, 7}));
  for (int empty = 0; empty < 2; ++empty) {
    args.m = empty == 0 ? 0 : 3;
    args.n = empty == 0 ? 2 : 0;
    args.k = 4;
    args.a = args.b = args.c = nullptr;
    Gemm(args);
    BatchedGemm(args, {5, 0, 0, 0});
  }
  BatchedGemm(args, {0, 0, 0, 0});
}

TEST(Gemm, RefusesWhatItCannotDo) {
  GemmArgs args;
  args.m = -1;
  EXPECT_THROW(Gemm(args), Error);
  args.m = 1;
  args.c_dtype = DType::kFloat64;
  EXPECT_THROW(Gemm(args), Error);
  args.c_dtype = DType::kInt64;
  EXPECT_THROW(BatchedGemm(args, {1, 0, 0, 0}), Error);
  const float packed = 0;
  GemmArgs shared;
  shared.packed_b = &packed;
  EXPECT_THROW(BatchedGemm(shared, {.count = 2, .b_stride = 1}), Error);
}

TEST(Gemm, NanAndInfinityAreNotSkipped) {
  ForEachIsa([&] {
    for (int64_t m : {1, 100}) {
      std::vector<float> a(static_cast<size_t>(m * 10), 0.0f), b(10 * 60, 1.0f), c(m * 60, 5.0f);
      b[3 * 60 + 7] = std::numeric_limits<float>::quiet_NaN();
      b[4 * 60 + 8] = std::numeric_limits<float>::infinity();
      GemmArgs args;
      args.m = m;
      args.n = 60;
      args.k = 10;
      args.a = a.data();
      args.a_row_stride = 10;
      args.b = b.data();
      args.b_row_stride = 60;
      args.c = c.data();
      args.c_row_stride = 60;
      Gemm(args);
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < 60; ++j) {
          EXPECT_EQ(std::isnan(c[i * 60 + j]), j == 7 || j == 8);
        }
      }
    }
  });
}

TEST(Gemm, BatchesWithSharedAndStridedOperands) {
  ForEachIsa([&] {
    std::mt19937 random(4);
    // Many small products (dealt out whole) and few large ones (split inside).
    const int64_t cases[][4] = {{13, 6, 9, 11}, {2, 150, 120, 90}, {3, 1, 70, 33}};
    for (const auto& [count, m, n, k] : cases) {
      for (bool share_b : {false, true}) {
        const int64_t a_step = m * k + 7, b_step = share_b ? 0 : k * n + 1, c_step = m * n;
        Operand a(DType::kFloat32, m, k, k, 1, (count - 1) * a_step);
        Operand b(DType::kFloat32, k, n, 1, k, (count - 1) * b_step);
        Operand c(DType::kFloat32, m, n, n, 1, (count - 1) * c_step);
        for (int64_t i = 0; i < count; ++i) {
          a.Fill(random, i * a_step);
          b.Fill(random, i * b_step);
          c.Fill(random, i * c_step);
        }
        Operand before = c;
        GemmArgs args = ArgsOf(a, b, c);
        args.accumulate = share_b;
        BatchedGemm(args, {count, a_step, b_step, c_step});
        for (int64_t i = 0; i < count; ++i) {
          CheckAgainstNaive(a, b, c, before, args, i * a_step, i * b_step, i * c_step);
        }
      }
    }
  });
}

// ---- The bits -----------------------------------------------------------------------------------

float FusedOrNot(float a, float b, float c) {
  if (!HasFma(ActiveIsa())) {
    const volatile float product = a * b;
    return product + c;
  }
  return std::fma(a, b, c);
}

TEST(GemmBits, AreTheDocumentedChain) {
  ForEachIsa([&] {
    std::mt19937 random(5);
    for (int64_t m : {1, 2, 4, 7, 8, 9, 100}) {
      const int64_t n = 53, k = 2 * kGemmDepthBlock + 9;
      for (bool transposed : {false, true}) {
        Operand a = MakeOperand(DType::kFloat32, m, k, {false, 0});
        Operand b = MakeOperand(DType::kFloat32, k, n, {transposed, 0});
        Operand c = MakeOperand(DType::kFloat32, m, n, {false, 0});
        a.Fill(random);
        b.Fill(random);
        c.Fill(random);
        Operand before = c;
        GemmArgs args = ArgsOf(a, b, c);
        args.alpha = 0.7f;
        args.accumulate = transposed;
        Gemm(args);
        for (int64_t i = 0; i < m; ++i) {
          for (int64_t j = 0; j < n; ++j) {
            float want = static_cast<float>(before.Get(c.Offset(i, j)));
            for (int64_t k0 = 0; k0 < k; k0 += kGemmDepthBlock) {
              float s = 0;
              for (int64_t x = k0; x < std::min(k, k0 + kGemmDepthBlock); ++x) {
                s = FusedOrNot(static_cast<float>(a.Get(a.Offset(i, x))),
                               static_cast<float>(b.Get(b.Offset(x, j))), s);
              }
              want = k0 == 0 && !args.accumulate ? 0.7f * s : FusedOrNot(0.7f, s, want);
            }
            ASSERT_EQ(static_cast<float>(c.Get(c.Offset(i, j))), want) << i << ", " << j;
          }
        }
      }
    }
  });
}

// Products of bfloat16 by bfloat16 take k by pairs, the odd index first, as VDPBF16PS does, or by
// 32, evens and odds apart, as TDPBF16PS does; numbers below the normal ones count as zeros on the
// way.
class PairChain {
 public:
  explicit PairChain(bool tiles) : tiles_(tiles), before_(FloatControl()) {
    SetFloatControl(before_ | kFlushSubnormals);
  }
  ~PairChain() { SetFloatControl(before_); }

  float Element(Operand& a, Operand& b, int64_t i, int64_t j, const GemmArgs& args, float old) {
    float c = old;
    for (int64_t k0 = 0; k0 < args.k; k0 += kGemmDepthBlock) {
      const int64_t end = std::min(args.k, k0 + kGemmDepthBlock);
      const auto add = [&](int64_t k, float s) {
        const bool there = k < end;
        return Fused(there ? static_cast<float>(a.Get(a.Offset(i, k))) : 0.0f,
                     there ? static_cast<float>(b.Get(b.Offset(k, j))) : 0.0f, s);
      };
      float s = 0;
      if (tiles_) {
        for (int64_t step = k0; step < end; step += 32) {
          float even = 0, odd = 0;
          for (int64_t k = step; k < step + 32; k += 2) {
            even = add(k, even);
            odd = add(k + 1, odd);
          }
          s += even + odd;
        }
      } else {
        for (int64_t k = k0; k < end; k += 2) s = add(k, add(k + 1, s));
      }
      const bool first = k0 == 0 && !args.accumulate;
      const volatile float scaled = args.alpha * s;
      c = first ? scaled : Fused(args.alpha, s, c);
    }
    return c;
  }

 private:
  float Fused(float a, float b, float c) const {
    return tiles_ ? std::fma(a, b, c) : FusedOrNot(a, b, c);
  }

  bool tiles_;
  FloatControlWord before_;
};

uint32_t BitsOf(double x) {
  const float single = static_cast<float>(x);
  uint32_t bits;
  std::memcpy(&bits, &single, sizeof(bits));
  return bits;
}

// Numbers around 2^exponent, a tenth of them zeros of either sign and numbers below the normal
// ones.
void FillAround(std::mt19937& random, int exponent, Operand& x) {
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (int64_t i = 0; i < x.rows; ++i) {
    for (int64_t j = 0; j < x.columns; ++j) {
      const float value = std::ldexp(uniform(random), exponent + static_cast<int>(random() % 5));
      const bool odd_one = random() % 10 == 0;
      x.Set(x.Offset(i, j),
            odd_one ? std::ldexp(uniform(random), random() % 2 == 0 ? -128 : -200) : value);
    }
  }
}

TEST(GemmBits, OfBFloat16AreTheChainOfPairs) {
  ForEachPairKernels([&](Tiles tiles) {
    std::mt19937 random(9);
    for (int64_t k : {1, 2, 7, 31, 32, 33, 64, 101, static_cast<int>(kGemmDepthBlock) + 35}) {
      for (int64_t m : {1, 2, 4, 5, 8, 9, 98, 130}) {
        for (int round = 0; round < 4; ++round) {
          // The last with sums of which many are below the normal numbers.
          const int64_t n = round == 1 ? 49 : 33;
          Operand a = MakeOperand(DType::kBFloat16, m, k, {round == 1, round});
          Operand b = MakeOperand(DType::kBFloat16, k, n, {round != 2, round, round == 3 ? 2 : 1});
          Operand c = MakeOperand(DType::kFloat32, m, n, {false, 1});
          FillAround(random, round == 3 ? -66 : 0, a);
          FillAround(random, round == 3 ? -66 : 0, b);
          c.Fill(random);
          Operand before = c;
          GemmArgs args = ArgsOf(a, b, c);
          args.alpha = round == 0 ? 1.0f : 0.7f;
          args.accumulate = round == 1;
          Gemm(args);
          PairChain chain(tiles != Tiles::kNone);
          for (int64_t i = 0; i<m; i += m> 9 ? 7 : 1) {
            for (int64_t j = 0; j < n; ++j) {
              const int64_t at = c.Offset(i, j);
              const float want =
                  chain.Element(a, b, i, j, args, static_cast<float>(before.Get(at)));
              ASSERT_EQ(BitsOf(c.Get(at)), BitsOf(want))
                  << m << "x" << n << "x" << k << ", round " << round << " at " << i << ", " << j;
            }
          }
        }
      }
    }
  });
}

// With a B that is packed beforehand; what B was packed from is not looked at.
std::vector<char> ProductOfPacked(GemmArgs args, Operand c) {
  std::vector<float> packed(static_cast<size_t>(PackedGemmElements(args)));
  PackGemmB(args, packed.data());
  args.packed_b = packed.data();
  args.b = nullptr;
  args.c = c.data();
  Gemm(args);
  return c.bytes;
}

// However many rows there are, whichever way the weights lie, and packed beforehand or not.
TEST(GemmBits, RowsAloneAreThoseOfMany) {
  ForEachPairKernels([&](Tiles tiles) {
    std::mt19937 random(10);
    const int64_t most = 64, n = 115, k = kGemmDepthBlock + 77;
    for (DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
      if (tiles != Tiles::kNone && dtype != DType::kBFloat16) continue;
      for (const Layout& layout : {Layout{false, 0}, Layout{true, 0}, Layout{true, 3, 2}}) {
        Operand a = MakeOperand(dtype, most, k, {false, 0});
        Operand b = MakeOperand(dtype, k, n, layout);
        Operand all = MakeOperand(DType::kFloat32, most, n, {false, 0});
        FillAround(random, dtype == DType::kFloat16 ? 0 : -60, a);
        FillAround(random, dtype == DType::kFloat16 ? 0 : -60, b);
        Gemm(ArgsOf(a, b, all));
        for (int64_t m : {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 15, 16, 17, 31, 32, 33, 40}) {
          Operand some = MakeOperand(DType::kFloat32, m, n, {false, 0});
          GemmArgs args = ArgsOf(a, b, some);
          args.m = m;
          Gemm(args);
          for (int64_t i = 0; i < m * n; ++i) {
            ASSERT_EQ(BitsOf(some.Get(i)), BitsOf(all.Get(i))) << m << " rows, element " << i;
          }
          const Operand empty = MakeOperand(DType::kFloat32, m, n, {false, 0});
          ASSERT_EQ(ProductOfPacked(args, empty), some.bytes) << m << " rows, packed";
        }
      }
    }
  });
}

// Rows and columns computed alone, in any layout, with any number of threads, as a batch entry, of
// a packed B.
TEST(GemmBits, DoNotDependOnShardsLayoutsThreadsOrBatch) {
  const int threads = NumThreads();
  ForEachPairKernels([&](Tiles tiles) {
    std::mt19937 random(6);
    const int64_t m = 211, n = 307, k = 500;
    for (DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
      if (tiles != Tiles::kNone && dtype != DType::kBFloat16) continue;
      Operand a = MakeOperand(dtype, m, k, {false, 0});
      Operand b = MakeOperand(dtype, k, n, {false, 0});
      Operand c = MakeOperand(dtype, m, n, {false, 0});
      a.Fill(random);
      b.Fill(random);
      SetNumThreads(1);
      Gemm(ArgsOf(a, b, c));
      const auto element = [&](int64_t i, int64_t j) { return c.Get(c.Offset(i, j)); };

      for (int count : {2, 3}) {
        if (tiles == Tiles::kEmulated) continue;  // by one thread
        SetNumThreads(count);
        Operand again = MakeOperand(dtype, m, n, {false, 0});
        Gemm(ArgsOf(a, b, again));
        ASSERT_EQ(again.bytes, c.bytes) << count << " threads";
      }

      Operand bt = MakeOperand(dtype, k, n, {true, 0});
      for (int64_t i = 0; i < k; ++i) {
        for (int64_t j = 0; j < n; ++j) bt.Set(bt.Offset(i, j), b.Get(b.Offset(i, j)));
      }
      const int64_t shards[][4] = {{0, 211, 0, 154}, {0, 211, 154, 153}, {17, 1, 0, 307},
                                   {40, 3, 11, 200}, {100, 9, 5, 1},     {0, 211, 300, 2},
                                   {3, 90, 60, 100}, {210, 1, 306, 1},   {7, 120, 13, 50},
                                   {60, 8, 1, 306},  {90, 5, 100, 49}};
      for (const auto& [i0, rows, j0, columns] : shards) {
        for (Operand* right : {&b, &bt}) {
          Operand part = MakeOperand(dtype, rows, columns, {false, 0});
          GemmArgs args = ArgsOf(a, *right, part);
          args.m = rows;
          args.n = columns;
          const int64_t size = static_cast<int64_t>(DTypeSize(dtype));
          args.a = a.data() + a.Offset(i0, 0) * size;
          args.b = right->data() + right->Offset(0, j0) * size;
          Operand batched(dtype, rows, columns, columns, 1, rows * columns);
          const std::vector<char> of_packed = ProductOfPacked(args, part);
          Gemm(args);
          ASSERT_EQ(of_packed, part.bytes) << "packed, shard " << i0 << "+" << rows << ", " << j0;
          GemmArgs in_batch = args;
          in_batch.c = batched.data();
          BatchedGemm(in_batch, {2, 0, 0, rows * columns});
          for (int64_t i = 0; i < rows; ++i) {
            for (int64_t j = 0; j < columns; ++j) {
              ASSERT_EQ(part.Get(part.Offset(i, j)), element(i0 + i, j0 + j))
                  << "shard " << i0 << "+" << rows << ", " << j0 << "+" << columns;
              for (int64_t shift : {int64_t{0}, rows * columns}) {
                ASSERT_EQ(batched.Get(shift + part.Offset(i, j)), element(i0 + i, j0 + j));
              }
            }
          }
        }
      }
    }
  });
  SetNumThreads(threads);
}

TEST(GemmBits, AccumulatingInOneBlockEqualsStartingFromTheOldValue) {
  ForEachIsa([&] {
    std::mt19937 random(7);
    Operand a = MakeOperand(DType::kFloat32, 33, 20, {true, 0});
    Operand b = MakeOperand(DType::kFloat32, 20, 65, {false, 0});
    Operand product = MakeOperand(DType::kFloat32, 33, 65, {false, 0});
    Operand sum = MakeOperand(DType::kFloat32, 33, 65, {false, 0});
    a.Fill(random);
    b.Fill(random);
    sum.Fill(random);
    Operand before = sum;
    Gemm(ArgsOf(a, b, product));
    GemmArgs args = ArgsOf(a, b, sum);
    args.accumulate = true;
    Gemm(args);
    for (int64_t i = 0; i < 33 * 65; ++i) {
      ASSERT_EQ(static_cast<float>(sum.Get(i)),
                static_cast<float>(before.Get(i)) + static_cast<float>(product.Get(i)));
    }
  });
}

// The tree of leaves [begin, end), each a matrix; those without elements are no part of it.
std::vector<double> InTree(const std::vector<std::vector<double>>& leaves, size_t begin, size_t end,
                           DType dtype) {
  if (end - begin == 1) return leaves[begin];
  const size_t middle = begin + (end - begin) / 2;
  std::vector<double> sum = InTree(leaves, begin, middle, dtype);
  const std::vector<double> rest = InTree(leaves, middle, end, dtype);
  if (sum.empty()) return rest;
  for (size_t i = 0; i < rest.size(); ++i) {
    sum[i] = dtype == DType::kFloat64
                 ? sum[i] + rest[i]
                 : static_cast<double>(static_cast<float>(sum[i]) + static_cast<float>(rest[i]));
  }
  return sum;
}

// Of one block of indices or two that lie apart, as those of fused projections do, with leaves that
// are empty, short, or of many blocks, on tiles and without.
TEST(GemmBits, SumsInATreeAreThoseOfItsLeaves) {
  struct Case {
    int64_t m, n;
    std::vector<int64_t> parts;  // of k, each with a share of every leaf
    size_t leaves;
  };
  const std::vector<Case> cases = {
      {5, 3, {3}, 8},          {97, 49, {64}, 8},    {1, 70, {31, 9}, 8},     {130, 17, {200}, 1},
      {33, 129, {5, 5, 5}, 2}, {200, 40, {2000}, 4}, {50, 30, {8 * 1537}, 8}, {7, 5, {1}, 4}};
  const auto check = [&](DType dtype) {
    std::mt19937 random(11);
    const DType wide = AccumulateDType(dtype);
    for (const Case& one : cases) {
      int64_t k = 0;
      std::vector<std::vector<Share>> leaves(one.leaves);
      for (const int64_t part : one.parts) {
        for (size_t i = 0; i < one.leaves; ++i) {
          const Share share =
              EvenShare(part, static_cast<int64_t>(one.leaves), static_cast<int64_t>(i));
          if (share.count > 0) leaves[i].push_back({k + share.begin, share.count});
        }
        k += part;
      }
      for (const bool transposed : {false, true}) {
        Operand a = MakeOperand(dtype, one.m, k, {transposed, 1});
        Operand b = MakeOperand(dtype, k, one.n, {!transposed, 2});
        Operand c = MakeOperand(wide, one.m, one.n, {false, 3});
        a.Fill(random);
        b.Fill(random);
        Operand before = c;
        std::vector<std::vector<double>> sums;
        for (const std::vector<Share>& leaf : leaves) {
          Operand sum = MakeOperand(wide, one.m, one.n, {false, 0});
          for (const Share& run : leaf) {
            GemmArgs args = ArgsOf(a, b, sum);
            const auto at = [&](Operand& of, int64_t i, int64_t j) {
              return of.data() + of.Offset(i, j) * static_cast<int64_t>(DTypeSize(dtype));
            };
            args.k = run.count;
            args.a = at(a, 0, run.begin);
            args.b = at(b, run.begin, 0);
            args.accumulate = &run != leaf.data();
            Gemm(args);
          }
          std::vector<double>& values = sums.emplace_back();
          for (int64_t i = 0; i < one.m * one.n && !leaf.empty(); ++i) {
            values.push_back(sum.Get(i));
          }
        }
        const std::vector<double> expected = InTree(sums, 0, one.leaves, wide);
        for (const int threads : {1, 3}) {
          SetNumThreads(threads);
          TreeGemm(ArgsOf(a, b, c), leaves);
          for (int64_t i = 0; i < one.m; ++i) {
            for (int64_t j = 0; j < one.n; ++j) {
              ASSERT_EQ(c.Get(c.Offset(i, j)), expected[static_cast<size_t>(i * one.n + j)])
                  << one.m << " " << one.n << " " << k << " " << dtype << " at " << i << ", " << j;
            }
          }
          CheckSurroundings(c, before, one.m, one.n);
        }
        SetNumThreads(AvailableCores());
      }
    }
  };
  ForEachIsa([&] {
    for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kFloat64}) check(dtype);
  });
  ForEachPairKernels([&](Tiles) { check(DType::kBFloat16); });
}

TEST(Gemm, RefusesTreesThatDoNotFit) {
  std::mt19937 random(3);
  Operand a = MakeOperand(DType::kFloat32, 2, 8, {false, 0});
  Operand b = MakeOperand(DType::kFloat32, 8, 2, {false, 0});
  Operand c = MakeOperand(DType::kFloat32, 2, 2, {false, 0});
  const GemmArgs args = ArgsOf(a, b, c);
  EXPECT_THROW(TreeGemm(args, {}), Error);
  EXPECT_THROW(TreeGemm(args, {{{0, 3}}, {{3, 3}}, {{6, 2}}}), Error);
  EXPECT_THROW(TreeGemm(args, {{{0, 3}}, {{3, 3}}}), Error);
  GemmArgs adds = args;
  adds.accumulate = true;
  EXPECT_THROW(TreeGemm(adds, {{{0, 4}}, {{4, 4}}}), Error);
  TreeGemm(args, {{{0, 4}}, {{4, 4}}});
}

// Memory whose end borders on a page that may not be touched.
class GuardedMemory {
 public:
  explicit GuardedMemory(size_t bytes) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t body = (bytes + page - 1) / page * page;
    size_ = body + page;
    base_ = static_cast<char*>(
        mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(base_ + body, page, PROT_NONE);
    data_ = base_ + body - bytes;
    std::memset(data_, 0, bytes);
  }
  ~GuardedMemory() { munmap(base_, size_); }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;
  void* data() { return data_; }

 private:
  char* base_;
  char* data_;
  size_t size_;
};

TEST(Gemm, TouchesNothingBehindItsOperands) {
  const int64_t shapes[][3] = {{1, 1, 1},   {1, 67, 35}, {3, 5, 9},      {4, 50, 401},
                               {9, 49, 33}, {61, 1, 47}, {100, 130, 19}, {107, 11, 390}};
  ForEachPairKernels([&](Tiles tiles) {
    for (DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64}) {
      if (tiles != Tiles::kNone && dtype != DType::kBFloat16) continue;
      for (const auto& [m, n, k] : shapes) {
        for (int layout = 0; layout < 8; ++layout) {
          const size_t size = DTypeSize(dtype);
          GuardedMemory a(static_cast<size_t>(m * k) * size), b(static_cast<size_t>(k * n) * size),
              c(static_cast<size_t>(m * n) * size);
          GemmArgs args;
          args.m = m;
          args.n = n;
          args.k = k;
          args.a = a.data();
          args.a_row_stride = (layout & 1) != 0 ? 1 : k;
          args.a_col_stride = (layout & 1) != 0 ? m : 1;
          args.b = b.data();
          args.b_row_stride = (layout & 2) != 0 ? 1 : n;
          args.b_col_stride = (layout & 2) != 0 ? k : 1;
          args.c = c.data();
          args.c_row_stride = n;
          args.a_dtype = args.b_dtype = args.c_dtype = dtype;
          args.accumulate = (layout & 4) != 0;
          Gemm(args);
        }
      }
    }
  });
}

// Shapes that reach the wide, the swapped, the two-block and the unpacked path.
TEST(Gemm, LargeEnoughForEveryPathOnOddEdges) {
  std::mt19937 random(8);
  RunCase(random, 301, 211, 390, {false, 0}, {true, 0}, DType::kBFloat16, DType::kFloat32,
          DType::kBFloat16, true, 1.0f);
  RunCase(random, 1500, 9, 70, {true, 0}, {false, 0}, DType::kFloat32, DType::kFloat32,
          DType::kFloat32, true, 1.0f);
  RunCase(random, 101, 3200, 40, {false, 0}, {false, 0}, DType::kFloat32, DType::kFloat32,
          DType::kFloat32, false, 1.0f);
  RunCase(random, 4, 9000, 30, {false, 0}, {false, 0}, DType::kFloat32, DType::kFloat32,
          DType::kFloat32, false, 1.0f);
}

}  // namespace
}  // namespace tessera
