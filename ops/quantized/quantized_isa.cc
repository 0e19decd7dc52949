// Products of rows of integers for one instruction set.
//
// The order of a sum (quantized_linear.h): of each group of 32 columns the exact sums of 4
// neighbours, 8 of them; those of an even group go to sums 0 to 7, of an odd group to sums 8 to 15,
// each times the group's two scales; the 16 are added up as by ReduceAdd. It is the same whatever
// the instruction set and the number of rows (`baseline` has no fma and rounds each product).
#include <type_traits>

#include "core/cpu/simd.h"
#include "ops/quantized/quantized_rows.h"

namespace tessera::TESSERA_ISA {
namespace {

constexpr int64_t kGroup = 32;
constexpr int64_t kPair = 64;
constexpr int64_t kSums = 16;

constexpr int64_t BlockBytes(QuantType type) { return type == QuantType::kQ4_0 ? 18 : 34; }
// What the weights' integers are too large by where they are unsigned.
constexpr int32_t ZeroOf(QuantType type) { return type == QuantType::kQ4_0 ? 8 : 128; }

TESSERA_SIMD uint16_t HalfAt(const uint8_t* p) {
  uint16_t bits;
  __builtin_memcpy(&bits, p, 2);
  return bits;
}

// ---- A pair of groups
// ----------------------------------------------------------------------------
//
// Weights: the integers of two groups, or of one and zeros, and their scales. Activations likewise.
// Sums: the 16 of one output and row. Whole: the sums of kInt8, which are integers to the end.

#if defined(TESSERA_ISA_AVX512VNNI)

constexpr int kRows = 4;
constexpr int kOutputs = 4;

struct Weights {
  __m512i bytes;  // unsigned
  __m512 scale;
};
struct Activations {
  __m512i q;
  __m512i offset;
  __m512 scale;
};
struct Sums {
  __m512 v = _mm512_setzero_ps();
};
struct Whole {
  __m512i v = _mm512_setzero_si512();
};

constexpr bool kUnsigned = true;

TESSERA_SIMD __m512i DotUnsigned(__m512i from, __m512i w, __m512i x) {
  return _mm512_dpbusd_epi32(from, w, x);
}

// Two floats, the first over the lower half.
TESSERA_SIMD __m512 Halves(__m128 two) {
  const __m512i index = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
  return _mm512_permutexvar_ps(index, _mm512_castps128_ps512(two));
}

template <QuantType kType, int kGroups>
TESSERA_SIMD Weights LoadWeights(const uint8_t* p) {
  constexpr int64_t kBlock = BlockBytes(kType);
  Weights w;
  if constexpr (kType == QuantType::kInt8) {
    w.bytes = _mm512_loadu_si512(p);
    w.bytes = _mm512_xor_si512(w.bytes, _mm512_set1_epi8(-128));
    return w;
  }
  __m128i halves = _mm_cvtsi32_si128(HalfAt(p));
  if constexpr (kGroups == 2) halves = _mm_insert_epi16(halves, HalfAt(p + kBlock), 1);
  w.scale = Halves(_mm_cvtph_ps(halves));
  if constexpr (kType == QuantType::kQ8_0) {
    w.bytes = _mm512_zextsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 2)));
    if constexpr (kGroups == 2) {
      w.bytes = _mm512_inserti64x4(
          w.bytes, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + kBlock + 2)), 1);
    }
    w.bytes = _mm512_xor_si512(w.bytes, _mm512_set1_epi8(-128));
  } else {
    const auto twice = [](const uint8_t* from) __attribute__((always_inline)) {
      return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    };
    __m512i both = _mm512_zextsi256_si512(twice(p + 2));
    if constexpr (kGroups == 2) both = _mm512_inserti64x4(both, twice(p + kBlock + 2), 1);
    const __m512i shift = _mm512_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4, 0, 0, 0, 0, 4, 4, 4, 4);
    w.bytes = _mm512_and_si512(_mm512_srlv_epi32(both, shift), _mm512_set1_epi8(15));
  }
  return w;
}

template <QuantType kType>
TESSERA_SIMD Activations LoadActivations(const QuantizedActivations& x, int64_t pair) {
  Activations a;
  a.q = _mm512_loadu_si512(x.q + pair * kPair);
  if constexpr (kType != QuantType::kInt8) {
    a.offset = _mm512_loadu_si512(x.offset + pair * kSums);
    a.scale =
        Halves(_mm_castpd_ps(_mm_load_sd(reinterpret_cast<const double*>(x.scale + pair * 2))));
  }
  return a;
}

template <QuantType kType>
TESSERA_SIMD void AddPair(const Weights& w, const Activations& x, Sums* sums) {
  const __m512i dot = DotUnsigned(x.offset, w.bytes, x.q);
  sums->v = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), _mm512_mul_ps(w.scale, x.scale), sums->v);
}
TESSERA_SIMD void AddPair(const Weights& w, const Activations& x, Whole* sums) {
  sums->v = DotUnsigned(sums->v, w.bytes, x.q);
}

TESSERA_SIMD float Total(const Sums& sums) { return ReduceAdd(VecF{sums.v}); }
TESSERA_SIMD int32_t Total(const Whole& sums) { return _mm512_reduce_add_epi32(sums.v); }

#elif defined(TESSERA_ISA_AVX2)

constexpr int kRows = 2;
constexpr int kOutputs = 2;
constexpr bool kUnsigned = false;

struct Weights {
  __m256i bytes[2];
  float scale[2];
};
struct Activations {
  __m256i q[2];
  __m256i offset[2];
  float scale[2];
};
struct Sums {
  __m256 v[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
};
struct Whole {
  __m256i v = _mm256_setzero_si256();
};

TESSERA_SIMD __m256i DotUnsigned(__m256i from, __m256i w, __m256i x) {
  return _mm256_add_epi32(from,
                          _mm256_madd_epi16(_mm256_maddubs_epi16(w, x), _mm256_set1_epi16(1)));
}
TESSERA_SIMD __m256i DotSigned(__m256i from, __m256i w, __m256i x) {
  return DotUnsigned(from, _mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
}

template <QuantType kType, int kGroups>
TESSERA_SIMD Weights LoadWeights(const uint8_t* p) {
  Weights w = {};
#pragma GCC unroll 2
  for (int g = 0; g < kGroups; ++g) {
    if constexpr (kType == QuantType::kInt8) {
      w.bytes[g] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + g * kGroup));
      continue;
    }
    const uint8_t* block = p + g * BlockBytes(kType);
    w.scale[g] = _cvtsh_ss(HalfAt(block));
    if constexpr (kType == QuantType::kQ8_0) {
      w.bytes[g] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(block + 2));
    } else {
      const __m256i twice =
          _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(block + 2)));
      w.bytes[g] =
          _mm256_and_si256(_mm256_srlv_epi32(twice, _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4)),
                           _mm256_set1_epi8(15));
    }
  }
  return w;
}

template <QuantType kType>
TESSERA_SIMD Activations LoadActivations(const QuantizedActivations& x, int64_t pair) {
  Activations a;
#pragma GCC unroll 2
  for (int g = 0; g < 2; ++g) {
    a.q[g] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x.q + pair * kPair + g * kGroup));
    if constexpr (kType == QuantType::kInt8) continue;
    a.offset[g] =
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x.offset + pair * kSums + g * 8));
    a.scale[g] = x.scale[pair * 2 + g];
  }
  return a;
}

template <QuantType kType>
TESSERA_SIMD void AddPair(const Weights& w, const Activations& x, Sums* sums) {
#pragma GCC unroll 2
  for (int g = 0; g < 2; ++g) {
    const __m256i dot = kType == QuantType::kQ8_0
                            ? DotSigned(_mm256_setzero_si256(), w.bytes[g], x.q[g])
                            : DotUnsigned(x.offset[g], w.bytes[g], x.q[g]);
    sums->v[g] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), _mm256_set1_ps(w.scale[g] * x.scale[g]),
                                 sums->v[g]);
  }
}
TESSERA_SIMD void AddPair(const Weights& w, const Activations& x, Whole* sums) {
#pragma GCC unroll 2
  for (int g = 0; g < 2; ++g) sums->v = DotSigned(sums->v, w.bytes[g], x.q[g]);
}

TESSERA_SIMD float Total(const Sums& sums) {
  return ReduceAdd(VecF{_mm256_add_ps(sums.v[0], sums.v[1])});
}
TESSERA_SIMD int32_t Total(const Whole& sums) {
  __m128i v = _mm_add_epi32(_mm256_castsi256_si128(sums.v), _mm256_extracti128_si256(sums.v, 1));
  v = _mm_add_epi32(v, _mm_shuffle_epi32(v, 0x4e));
  v = _mm_add_epi32(v, _mm_shuffle_epi32(v, 0xb1));
  return _mm_cvtsi128_si32(v);
}

#else

constexpr int kRows = 1;
constexpr int kOutputs = 1;

struct Weights {
  int8_t bytes[kPair];
  float scale[2];
};
struct Activations {
  const int8_t* q;
  float scale[2];
};
struct Sums {
  float v[kSums] = {};
};
struct Whole {
  int32_t v = 0;
};

template <QuantType kType, int kGroups>
TESSERA_SIMD Weights LoadWeights(const uint8_t* p) {
  Weights w = {};
  if constexpr (kType == QuantType::kInt8) {
    __builtin_memcpy(w.bytes, p, kPair);
    return w;
  }
  for (int g = 0; g < kGroups; ++g) {
    const uint8_t* block = p + g * BlockBytes(kType);
    const uint16_t half = HalfAt(block);
    w.scale[g] = LoadN(reinterpret_cast<const F16*>(&half), 1).v[0];
    if constexpr (kType == QuantType::kQ8_0) {
      __builtin_memcpy(w.bytes + g * kGroup, block + 2, kGroup);
    } else {
      for (int64_t i = 0; i < kGroup / 2; ++i) {
        w.bytes[g * kGroup + i] = static_cast<int8_t>((block[2 + i] & 15) - 8);
        w.bytes[g * kGroup + kGroup / 2 + i] = static_cast<int8_t>((block[2 + i] >> 4) - 8);
      }
    }
  }
  return w;
}

template <QuantType kType>
TESSERA_SIMD Activations LoadActivations(const QuantizedActivations& x, int64_t pair) {
  if constexpr (kType == QuantType::kInt8) return {x.q + pair * kPair, {}};
  return {x.q + pair * kPair, {x.scale[pair * 2], x.scale[pair * 2 + 1]}};
}

TESSERA_SIMD int32_t DotOf4(const int8_t* w, const int8_t* x) {
  return w[0] * x[0] + w[1] * x[1] + w[2] * x[2] + w[3] * x[3];
}

template <QuantType kType>
TESSERA_SIMD void AddPair(const Weights& w, const Activations& x, Sums* sums) {
  for (int64_t i = 0; i < kSums; ++i) {
    const float scale = w.scale[i / 8] * x.scale[i / 8];
    sums->v[i] += static_cast<float>(DotOf4(w.bytes + 4 * i, x.q + 4 * i)) * scale;
  }
}
TESSERA_SIMD void AddPair(const Weights& w, const Activations& x, Whole* sums) {
  for (int64_t i = 0; i < kSums; ++i) sums->v += DotOf4(w.bytes + 4 * i, x.q + 4 * i);
}

TESSERA_SIMD float Total(const Sums& sums) {
  float v[kSums];
  for (int64_t i = 0; i < kSums; ++i) v[i] = sums.v[i];
  for (int64_t half = kSums / 2; half > 0; half /= 2) {
    for (int64_t i = 0; i < half; ++i) v[i] += v[i + half];
  }
  return v[0];
}
TESSERA_SIMD int32_t Total(const Whole& sums) { return sums.v; }
constexpr bool kUnsigned = false;

#endif

// ---- Products
// ------------------------------------------------------------------------------------

// kR rows of x times kO rows of w.
template <QuantType kType, int kR, int kO>
void Tile(const uint8_t* w, int64_t row_bytes, int64_t columns, const QuantizedActivations* x,
          float* y, int64_t y_stride) {
  using SumsOf = std::conditional_t<kType == QuantType::kInt8, Whole, Sums>;
  SumsOf sums[kR][kO];
  constexpr int64_t kPairBytes = kType == QuantType::kInt8 ? kPair : 2 * BlockBytes(kType);
  const auto step = [&](int64_t pair, auto load) __attribute__((always_inline)) {
    Weights weights[kO];
#pragma GCC unroll 4
    for (int o = 0; o < kO; ++o) weights[o] = load(w + o * row_bytes + pair * kPairBytes);
#pragma GCC unroll 4
    for (int r = 0; r < kR; ++r) {
      const Activations a = LoadActivations<kType>(x[r], pair);
#pragma GCC unroll 4
      for (int o = 0; o < kO; ++o) {
        if constexpr (kType == QuantType::kInt8) {
          AddPair(weights[o], a, &sums[r][o]);
        } else {
          AddPair<kType>(weights[o], a, &sums[r][o]);
        }
      }
    }
  };
  // A last group without a second one; kInt8 is filled up with zeros.
  const bool odd = kType != QuantType::kInt8 && columns % kPair != 0;
  const int64_t pairs = QuantPairs(columns) - (odd ? 1 : 0);
  for (int64_t pair = 0; pair < pairs; ++pair) {
    step(
        pair,
        [](const uint8_t* p) __attribute__((always_inline)) { return LoadWeights<kType, 2>(p); });
  }
  if (odd) {
    step(
        pairs,
        [](const uint8_t* p) __attribute__((always_inline)) { return LoadWeights<kType, 1>(p); });
  }
  for (int r = 0; r < kR; ++r) {
    for (int o = 0; o < kO; ++o) {
      if constexpr (kType == QuantType::kInt8) {
        float scale;
        __builtin_memcpy(&scale, w + o * row_bytes + pairs * kPair, 4);
        const int32_t total = Total(sums[r][o]) + (kUnsigned ? x[r].offset[0] : 0);
        y[r * y_stride + o] = static_cast<float>(total) * (scale * x[r].scale[0]);
      } else {
        y[r * y_stride + o] = Total(sums[r][o]);
      }
    }
  }
}

using TileFn = void (*)(const uint8_t* w, int64_t row_bytes, int64_t columns,
                        const QuantizedActivations* x, float* y, int64_t y_stride);
// One row or kRows of them, of one output or kOutputs.
struct Tiles {
  TileFn one, wide, high_and_wide;
};
template <QuantType kType>
constexpr Tiles MakeTiles() {
  return {Tile<kType, 1, 1>, Tile<kType, 1, kOutputs>, Tile<kType, kRows, kOutputs>};
}
constexpr Tiles kTiles[] = {MakeTiles<QuantType::kInt8>(), MakeTiles<QuantType::kQ8_0>(),
                            MakeTiles<QuantType::kQ4_0>()};

void Product(QuantType type, const uint8_t* w, int64_t row_bytes, int64_t outputs, int64_t columns,
             const QuantizedActivations& x, int64_t rows, float* y, int64_t y_stride) {
  const Tiles& tiles = kTiles[static_cast<int>(type)];
  const int64_t pairs = QuantPairs(columns);
  for (int64_t i = 0; i < rows;) {
    const bool high = i + kRows <= rows;
    const int64_t count = high ? kRows : 1;
    const TileFn tile = high ? tiles.high_and_wide : tiles.wide;
    QuantizedActivations some[kRows];
    for (int64_t r = 0; r < count; ++r) some[r] = x.Row(i + r, pairs);
    float* const to = y + i * y_stride;
    int64_t j = 0;
    for (; j + kOutputs <= outputs; j += kOutputs) {
      tile(w + j * row_bytes, row_bytes, columns, some, to + j, y_stride);
    }
    for (; j < outputs; ++j) {
      for (int64_t r = 0; r < count; ++r) {
        tiles.one(w + j * row_bytes, row_bytes, columns, some + r, to + r * y_stride + j, y_stride);
      }
    }
    i += count;
  }
}

// ---- Activations
// ---------------------------------------------------------------------------------

template <typename F>
TESSERA_SIMD void Dispatch(RowType type, F f) {
  switch (type) {
    case RowType::kFloat32:
      return f(static_cast<float*>(nullptr));
    case RowType::kBFloat16:
      return f(static_cast<Bf16*>(nullptr));
    case RowType::kFloat16:
      return f(static_cast<F16*>(nullptr));
  }
}

// At most a group as float32, zeros behind it.
struct Group {
  float x[kGroup];
};
TESSERA_SIMD Group LoadGroup(RowType type, const void* row, int64_t begin, int64_t columns) {
  Group group;
  Dispatch(
      type, [&](auto* null) __attribute__((always_inline)) {
        const auto* const x = static_cast<const std::remove_pointer_t<decltype(null)>*>(row);
        for (int64_t i = 0; i < kGroup; i += kLanes) {
          const int64_t left = columns - begin - i;
          Store(group.x + i, left > 0 ? LoadN(x + begin + i, left) : Zero());
        }
      });
  return group;
}

// The bits of the largest |x|: magnitudes lie in the order of their bits, NaN above all.
TESSERA_SIMD int32_t LargestBits(const Group& group) {
  int32_t bits[kGroup];
  for (int64_t i = 0; i < kGroup; i += kLanes) Store(bits + i, BitsAsInt(Abs(Load(group.x + i))));
  int32_t most = 0;
  for (const int32_t b : bits) most = b > most ? b : most;
  return most;
}

struct Scales {
  float scale;    // q to x
  float inverse;  // x to q
};
TESSERA_SIMD Scales ScalesOf(int32_t largest_bits) {
  constexpr float kMost = 3.4028235e38f;
  float largest;
  __builtin_memcpy(&largest, &largest_bits, 4);
  if (!(largest <= kMost)) return {__builtin_nanf(""), 0.0f};
  // What has no inverse counts as zero.
  if (largest < 127.0f / kMost) return {0.0f, 0.0f};
  return {largest / 127.0f, 127.0f / largest};
}

TESSERA_SIMD void QuantizeGroup(const Group& group, float inverse, int32_t zero, int8_t* q,
                                int32_t* offset) {
  int32_t values[kGroup] = {};
  if (inverse != 0.0f) {
    for (int64_t i = 0; i < kGroup; i += kLanes) {
      Store(values + i, ToInt(Load(group.x + i) * Set(inverse)));
    }
  }
  for (int64_t i = 0; i < kGroup; ++i) q[i] = static_cast<int8_t>(values[i]);
  for (int64_t i = 0; i < kGroup / 4; ++i) {
    offset[i] = -zero * (values[4 * i] + values[4 * i + 1] + values[4 * i + 2] + values[4 * i + 3]);
  }
}

void Quantize(QuantType type, RowType row_type, const void* x, int64_t columns,
              const QuantizedActivations& to) {
  const bool whole = type == QuantType::kInt8;
  const int64_t padded = QuantPairs(columns) * kPair;
  int32_t largest = 0;
  for (int64_t begin = 0; whole && begin < padded; begin += kGroup) {
    const int32_t most = LargestBits(LoadGroup(row_type, x, begin, columns));
    largest = most > largest ? most : largest;
  }
  int32_t sum = 0;
  for (int64_t begin = 0; begin < padded; begin += kGroup) {
    const Group group = LoadGroup(row_type, x, begin, columns);
    const Scales scales = ScalesOf(whole ? largest : LargestBits(group));
    int32_t* const offset = to.offset + begin / 4;
    QuantizeGroup(group, scales.inverse, ZeroOf(type), to.q + begin, offset);
    to.scale[begin / kGroup] = scales.scale;
    for (int i = 0; i < 8; ++i) sum += offset[i];
  }
  if (whole) to.offset[0] = sum;
}

void Finish(RowType row_type, const float* y, const void* bias, int64_t n, void* out) {
  Dispatch(
      row_type, [&](auto* null) __attribute__((always_inline)) {
        using T = std::remove_pointer_t<decltype(null)>;
        for (int64_t j = 0; j < n; j += kLanes) {
          const int64_t lanes = n - j < kLanes ? n - j : kLanes;
          VecF v = LoadN(y + j, lanes);
          if (bias != nullptr) v = v + LoadN(static_cast<const T*>(bias) + j, lanes);
          StoreN(static_cast<T*>(out) + j, v, lanes);
        }
      });
}

}  // namespace

const QuantizedRows kQuantizedRows = {Quantize, Product, Finish};

}  // namespace tessera::TESSERA_ISA
