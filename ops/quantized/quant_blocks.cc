// SPDX-License-Identifier: Apache-2.0
#include "ops/quantized/quant_blocks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <limits>
#include <utility>

#include "core/dtype.h"

namespace tessera {
namespace {

constexpr int kMostColumns = 256;
constexpr int kMostGroups = 16;
constexpr int kKScales = 4;  // where q4_k and q5_k have integers of scales and minima
// Scales that are tried to either side of the plain one, and how far they are apart.
constexpr int kWays = 10;
constexpr float kWay = 0.02f;

// ---- Bits ---------------------------------------------------------------------------------------

// Adds `count` numbers, shifted by `up`, to u.
void AddBits(const uint8_t* block, const QuantBits& field, int count, int up, uint8_t* u) {
  if (field.bits == 0) return;
  const int mask = (1 << field.bits) - 1;
  for (int first = 0; first < count; first += field.run) {
    const uint8_t* const from = block + field.ByteOf(first);
    const int shift = field.ShiftOf(first);
    for (int i = 0; i < std::min(field.run, count - first); ++i) {
      u[first + i] = static_cast<uint8_t>(u[first + i] | ((from[i] >> shift) & mask) << up);
    }
  }
}

// Their bits from `down` on, into a block where zeros are.
void PutBits(const uint8_t* u, const QuantBits& field, int count, int down, uint8_t* block) {
  if (field.bits == 0) return;
  const int mask = (1 << field.bits) - 1;
  for (int i = 0; i < count; ++i) {
    uint8_t& byte = block[field.ByteOf(i)];
    byte = static_cast<uint8_t>(byte | ((u[i] >> down) & mask) << field.ShiftOf(i));
  }
}

// ---- Integers of groups -------------------------------------------------------------------------

struct GroupIntegers {
  int scale[kMostGroups];
  int minimum[kMostGroups];
};

bool HasKScales(QuantType type) { return type == QuantType::kQ4K || type == QuantType::kQ5K; }

// Of eight scales and eight minima, twelve bytes: the lower six bits of bytes 0 to 7 are the first
// four scales and the first four minima. The others have their lower four bits in bytes 8 to 11
// (scales in the lower half), the upper two in the same place of bytes 0 to 7.
void ReadKScales(const uint8_t* s, GroupIntegers* to) {
  for (int i = 0; i < 4; ++i) {
    to->scale[i] = s[i] & 63;
    to->minimum[i] = s[4 + i] & 63;
    to->scale[4 + i] = (s[8 + i] & 15) | (s[i] >> 6) << 4;
    to->minimum[4 + i] = s[8 + i] >> 4 | (s[4 + i] >> 6) << 4;
  }
}
void PutKScales(const GroupIntegers& from, uint8_t* s) {
  for (int i = 0; i < 4; ++i) {
    const int scale = from.scale[4 + i], minimum = from.minimum[4 + i];
    s[i] = static_cast<uint8_t>(from.scale[i] | (scale >> 4) << 6);
    s[4 + i] = static_cast<uint8_t>(from.minimum[i] | (minimum >> 4) << 6);
    s[8 + i] = static_cast<uint8_t>((scale & 15) | (minimum & 15) << 4);
  }
}

GroupIntegers ReadGroups(QuantType type, const uint8_t* block) {
  GroupIntegers result;
  if (HasKScales(type)) {
    ReadKScales(block + kKScales, &result);
    return result;
  }
  const QuantLayout& layout = LayoutOf(type);
  const int groups = layout.groups();
  uint8_t u[2 * kMostGroups] = {};
  const int count = layout.has_minima() ? 2 * groups : groups;
  AddBits(block, layout.scale_low, count, 0, u);
  AddBits(block, layout.scale_high, count, layout.scale_low.bits, u);
  for (int g = 0; g < groups; ++g) {
    const int read = layout.scale_low.bits == 8 ? static_cast<int8_t>(u[g]) : u[g];
    result.scale[g] = read - layout.scale_zero;
    result.minimum[g] = layout.has_minima() ? u[groups + g] : 0;
  }
  return result;
}

void PutGroups(QuantType type, const GroupIntegers& from, uint8_t* block) {
  if (HasKScales(type)) return PutKScales(from, block + kKScales);
  const QuantLayout& layout = LayoutOf(type);
  const int groups = layout.groups();
  uint8_t u[2 * kMostGroups] = {};
  for (int g = 0; g < groups; ++g) {
    u[g] = static_cast<uint8_t>(from.scale[g] + layout.scale_zero);
    if (layout.has_minima()) u[groups + g] = static_cast<uint8_t>(from.minimum[g]);
  }
  const int count = layout.has_minima() ? 2 * groups : groups;
  PutBits(u, layout.scale_low, count, 0, block);
  PutBits(u, layout.scale_high, count, layout.scale_low.bits, block);
}

void ReadGroupScales(QuantType type, const uint8_t* block, float* scale, float* minimum) {
  const QuantLayout& layout = LayoutOf(type);
  const float d = HalfAt(block + layout.d);
  const float m = layout.has_minima() ? HalfAt(block + layout.m) : 0;
  const GroupIntegers integers = ReadGroups(type, block);
  for (int g = 0; g < layout.groups(); ++g) {
    scale[g] = d * static_cast<float>(integers.scale[g]);
    minimum[g] = m * static_cast<float>(integers.minimum[g]);
  }
}

inline void ReadScales(QuantType type, const uint8_t* block, float* scale, float* minimum) {
  const QuantLayout& layout = LayoutOf(type);
  if (layout.groups() > 1) return ReadGroupScales(type, block, scale, minimum);
  scale[0] = HalfAt(block + layout.d);
  minimum[0] = layout.has_minima() ? -HalfAt(block + layout.m) : 0;
}

// ---- Numbers of columns -------------------------------------------------------------------------

// For each type a function in which the layout is constant.
template <QuantType kType>
void ReadNumbers(const uint8_t* block, int8_t* q) {
  constexpr QuantLayout kLayout = LayoutOf(kType);
  constexpr QuantBits kLow = kLayout.low, kHigh = kLayout.high;
  if constexpr (kType == QuantType::kQ8_0) {
    std::memcpy(q, block + kLow.at, 32);
  } else {
    for (int first = 0; first < kLayout.columns; first += kLow.run) {
      const uint8_t* const from = block + kLow.ByteOf(first);
      const int shift = kLow.ShiftOf(first);
      for (int i = 0; i < kLow.run; ++i) {
        const int read = (from[i] >> shift) & ((1 << kLow.bits) - 1);
        q[first + i] = static_cast<int8_t>(read - kLayout.zero);
      }
    }
    if constexpr (kHigh.bits != 0) {
      for (int first = 0; first < kLayout.columns; first += kHigh.run) {
        const uint8_t* const from = block + kHigh.ByteOf(first);
        const int shift = kHigh.ShiftOf(first);
        for (int i = 0; i < kHigh.run; ++i) {
          const int read = (from[i] >> shift) & ((1 << kHigh.bits) - 1);
          q[first + i] = static_cast<int8_t>(q[first + i] + (read << kLow.bits));
        }
      }
    }
    if constexpr (IsIq4(kType)) {
      for (int i = 0; i < kLayout.columns; ++i) q[i] = kIq4Numbers[q[i]];
    }
  }
}

template <QuantType kType>
void Decode(const uint8_t* block, float* x) {
  constexpr QuantLayout kLayout = LayoutOf(kType);
  int8_t q[kMostColumns];
  float scale[kMostGroups], minimum[kMostGroups];
  ReadNumbers<kType>(block, q);
  ReadScales(kType, block, scale, minimum);
  for (int g = 0; g < kLayout.groups(); ++g) {
    const float s = scale[g], m = minimum[g];
    for (int i = g * kLayout.group; i < (g + 1) * kLayout.group; ++i) {
      x[i] = s * static_cast<float>(q[i]);
      if constexpr (kLayout.has_minima()) x[i] -= m;
    }
  }
}

template <size_t... kType>
constexpr auto ReadersOf(std::index_sequence<kType...>) {
  return std::array{ReadNumbers<static_cast<QuantType>(kType + 1)>...};
}
template <size_t... kType>
constexpr auto DecodersOf(std::index_sequence<kType...>) {
  return std::array{Decode<static_cast<QuantType>(kType + 1)>...};
}
// kInt8, the first, has no blocks.
using BlockTypes = std::make_index_sequence<std::size(kQuantTypes) - 1>;
constexpr auto kReadNumbers = ReadersOf(BlockTypes());
constexpr auto kDecode = DecodersOf(BlockTypes());
size_t PlaceOf(QuantType type) { return static_cast<size_t>(type) - 1; }

// ---- Rounding -----------------------------------------------------------------------------------

typedef float Four __attribute__((vector_size(16)));

Four LoadFour(const float* x) {
  Four v;
  std::memcpy(&v, x, sizeof(v));
  return v;
}
float SumOf(Four v) { return (v[0] + v[1]) + (v[2] + v[3]); }
// To nearest even; |x| < 2^22.
template <typename T>
T Rounded(T x) {
  constexpr float kShift = 12582912.0f;  // 1.5 * 2^23
  return (x + kShift) - kShift;
}

// Which of kIq4Numbers is next to a number from -127 + i / 2 to -127 + (i + 1) / 2: what lies half
// way between two of them is a multiple of 1 / 2.
constexpr int kIq4Cells = 2 * (113 + 127) + 1;
constexpr auto kIq4Nearest = [] {
  std::array<uint8_t, kIq4Cells> nearest = {};
  for (int i = 0, n = 0; i < kIq4Cells; ++i) {
    while (n < 15 && i - 254 >= kIq4Numbers[n] + kIq4Numbers[n + 1]) ++n;
    nearest[static_cast<size_t>(i)] = static_cast<uint8_t>(n);
  }
  return nearest;
}();

// The numbers that columns of a type can have: kIq4Numbers, or all from -zero to top.
struct Numbers {
  explicit Numbers(QuantType type)
      : iq4(IsIq4(type)),
        zero(LayoutOf(type).zero),
        top((1 << (LayoutOf(type).low.bits + LayoutOf(type).high.bits)) - 1 - zero) {}

  // What is written for the one next to x.
  int NearestTo(float x) const {
    if (!iq4) return static_cast<int>(Rounded(std::clamp(x, lowest(), highest()))) + zero;
    return kIq4Nearest[static_cast<size_t>((std::clamp(x, -127.0f, 113.0f) + 127) * 2)];
  }
  float At(int written) const {
    return static_cast<float>(iq4 ? kIq4Numbers[written] : written - zero);
  }
  // The ones next to x.
  Four Nearest(Four x) const {
    if (iq4) {
      for (int i = 0; i < 4; ++i) x[i] = At(NearestTo(x[i]));
      return x;
    }
    const Four low = lowest() - Four{}, high = highest() - Four{};
    x = x < low ? low : x;
    return Rounded(x > high ? high : x);
  }
  float lowest() const { return iq4 ? -127.0f : static_cast<float>(-zero); }
  float highest() const { return iq4 ? 113.0f : static_cast<float>(top); }

  const bool iq4;
  const int zero;
  const int top;
};

// Of a number that has an inverse; otherwise 0.
float InverseOf(float x) { return std::abs(x) < std::numeric_limits<float>::min() ? 0 : 1 / x; }

float FarthestOf(const float* x, int n) {
  float most = 0;
  for (int i = 0; i < n; ++i) {
    if (std::abs(x[i]) > std::abs(most)) most = x[i];
  }
  return most;
}

// The scale by which numbers stand for x with the least squared error: the largest magnitude is
// brought near the lowest and the highest number in several ways, and of each the best scale is
// sum(x q) / sum(q q), which takes sum(x q)^2 / sum(q q) off the error.
float FitScale(const Numbers& numbers, const float* x, int n) {
  const float inverse = InverseOf(FarthestOf(x, n));
  double best = 0;
  float scale = 0;
  if (inverse == 0) return 0;
  for (const float end : {numbers.lowest(), numbers.highest()}) {
    for (int way = -kWays; way <= kWays; ++way) {
      const float to_numbers = inverse * end * (1 + kWay * static_cast<float>(way));
      Four xqs = {}, qqs = {};
      for (int i = 0; i < n; i += 4) {
        const Four at = LoadFour(x + i), q = numbers.Nearest(at * to_numbers);
        xqs += at * q;
        qqs += q * q;
      }
      const double xq = SumOf(xqs), qq = SumOf(qqs);
      if (qq == 0 || xq * xq <= best * qq) continue;
      best = xq * xq / qq;
      scale = static_cast<float>(xq / qq);
    }
  }
  return scale;
}

struct ScaleAndMinimum {
  float scale = 0;
  float minimum = 0;
};

// Likewise with a minimum, which is not negative: numbers 0 to top for x + minimum.
ScaleAndMinimum FitMinimum(int top, const float* x, int n) {
  const float low = std::min(0.0f, *std::min_element(x, x + n));
  const float high = *std::max_element(x, x + n);
  ScaleAndMinimum result = {0, -low};
  const float inverse = InverseOf(high - low), top_q = static_cast<float>(top);
  double best = std::numeric_limits<double>::infinity();
  for (int way = -kWays; way <= kWays && inverse != 0; ++way) {
    const float most = top_q * (1 + kWay * static_cast<float>(way));
    const auto number = [&](int i) {
      const Four q = Rounded((LoadFour(x + i) - low) * (inverse * most)), high_q = top_q - Four{};
      return q > high_q ? high_q : q;
    };
    Four sums = {}, q_sums = {}, xq_sums = {}, qq_sums = {};
    for (int i = 0; i < n; i += 4) {
      const Four at = LoadFour(x + i), q = number(i);
      sums += at;
      q_sums += q;
      xq_sums += at * q;
      qq_sums += q * q;
    }
    const double sx = SumOf(sums), sq = SumOf(q_sums), xq = SumOf(xq_sums), qq = SumOf(qq_sums);
    if (qq == 0) continue;
    const double spread = n * qq - sq * sq;
    double scale = spread > 0 ? (n * xq - sx * sq) / spread : 0;
    double minimum = (scale * sq - sx) / n;
    if (minimum < 0) {
      minimum = 0;
      scale = xq / qq;
    }
    Four squares = {};
    for (int i = 0; i < n; i += 4) {
      const Four off =
          static_cast<float>(scale) * number(i) - static_cast<float>(minimum) - LoadFour(x + i);
      squares += off * off;
    }
    const double error = SumOf(squares);
    if (scale < 0 || !(error < best)) continue;
    best = error;
    result = {static_cast<float>(scale), static_cast<float>(minimum)};
  }
  return result;
}

// Writes d, m and the integers of a block of 256, for scales and minima that are wished for. False
// where they do not fit.
bool PutScales(QuantType type, const float* scale, const float* minimum, uint8_t* block) {
  const QuantLayout& layout = LayoutOf(type);
  const int bits = HasKScales(type) ? 6 : layout.scale_low.bits + layout.scale_high.bits;
  const int levels = 1 << bits;
  const bool is_signed = !layout.has_minima();
  const int low = is_signed ? -levels / 2 : 0, high = low + levels - 1;
  const int groups = layout.groups();
  const auto integer = [&](float wish, float inverse, int least, int most) {
    return std::clamp(static_cast<int>(std::lrintf(std::clamp(wish * inverse, -1e6f, 1e6f))), least,
                      most);
  };
  GroupIntegers integers = {};
  PutHalf(FarthestOf(scale, groups) / static_cast<float>(is_signed ? low : high), block + layout.d);
  const float d = HalfAt(block + layout.d);
  float m = 0;
  if (layout.has_minima()) {
    PutHalf(FarthestOf(minimum, groups) / static_cast<float>(high), block + layout.m);
    m = HalfAt(block + layout.m);
  }
  for (int g = 0; g < groups; ++g) {
    integers.scale[g] = integer(scale[g], InverseOf(d), low, high);
    integers.minimum[g] = integer(minimum[g], InverseOf(m), 0, high);
  }
  PutGroups(type, integers, block);
  return std::isfinite(d) && std::isfinite(m);
}

// ---- Blocks of 32 as GGML makes them ------------------------------------------------------------

bool EncodeRange(QuantType type, const float* x, uint8_t* block) {
  const QuantLayout& layout = LayoutOf(type);
  const auto top = static_cast<float>(Numbers(type).top);
  const auto [low, high] = std::minmax_element(x, x + layout.columns);
  PutHalf((*high - *low) / top, block + layout.d);
  PutHalf(*low, block + layout.m);
  return std::isfinite(HalfAt(block + layout.d)) && std::isfinite(HalfAt(block + layout.m));
}

// The number of largest magnitude becomes the farthest. Numbers are rounded by the scale before it
// is a float16.
bool EncodeFarthest(QuantType type, const float* x, uint8_t* block) {
  const QuantLayout& layout = LayoutOf(type);
  const float scale = FarthestOf(x, layout.columns) / static_cast<float>(-layout.zero);
  const float inverse = InverseOf(scale);
  PutHalf(inverse == 0 ? 0 : scale, block + layout.d);
  const float zero = static_cast<float>(layout.zero) + 0.5f;
  uint8_t u[32];
  for (int i = 0; i < 32; ++i) {
    u[i] = static_cast<uint8_t>(
        std::min(2 * layout.zero - 1, static_cast<int>(x[i] * inverse + zero)));
  }
  PutBits(u, layout.low, 32, 0, block);
  PutBits(u, layout.high, 32, layout.low.bits, block);
  return std::isfinite(HalfAt(block + layout.d));
}

}  // namespace

void PutHalf(float value, uint8_t* to) {
  const Float16 half(value);
  std::memcpy(to, &half.bits, 2);
}
float HalfAt(const uint8_t* from) {
  Float16 half;
  std::memcpy(&half.bits, from, 2);
  return half;
}

QuantBlock ReadBlock(QuantType type, const uint8_t* bytes) {
  QuantBlock block;
  ReadScales(type, bytes, block.scale, block.minimum);
  kReadNumbers[PlaceOf(type)](bytes, block.q);
  return block;
}

void DecodeBlock(QuantType type, const uint8_t* bytes, float* x) {
  kDecode[PlaceOf(type)](bytes, x);
}

bool EncodeBlock(QuantType type, const float* x, uint8_t* bytes) {
  const QuantLayout& layout = LayoutOf(type);
  std::memset(bytes, 0, static_cast<size_t>(layout.bytes));
  if (!std::all_of(x, x + layout.columns, [](float v) { return std::isfinite(v); })) return false;
  const Numbers numbers(type);
  switch (type) {
    case QuantType::kQ4_0:
    case QuantType::kQ5_0:
      return EncodeFarthest(type, x, bytes);
    case QuantType::kQ4_1:
    case QuantType::kQ5_1:
      if (!EncodeRange(type, x, bytes)) return false;
      break;
    case QuantType::kIq4Nl:
      PutHalf(FitScale(numbers, x, layout.columns), bytes + layout.d);
      if (!std::isfinite(HalfAt(bytes + layout.d))) return false;
      break;
    default: {
      float scale[kMostGroups], minimum[kMostGroups] = {};
      for (int g = 0; g < layout.groups(); ++g) {
        const float* const of = x + g * layout.group;
        if (layout.has_minima()) {
          const ScaleAndMinimum fit = FitMinimum(numbers.top, of, layout.group);
          scale[g] = fit.scale;
          minimum[g] = fit.minimum;
        } else {
          scale[g] = FitScale(numbers, of, layout.group);
        }
      }
      if (!PutScales(type, scale, minimum, bytes)) return false;
    }
  }
  // The scales are rounded now: the numbers are those next to x with them.
  float scale[kMostGroups], minimum[kMostGroups];
  ReadScales(type, bytes, scale, minimum);
  uint8_t u[kMostColumns];
  for (int g = 0; g < layout.groups(); ++g) {
    const float inverse = InverseOf(scale[g]);
    for (int i = g * layout.group; i < (g + 1) * layout.group; ++i) {
      u[i] = static_cast<uint8_t>(numbers.NearestTo((x[i] + minimum[g]) * inverse));
    }
  }
  PutBits(u, layout.low, layout.columns, 0, bytes);
  PutBits(u, layout.high, layout.columns, layout.low.bits, bytes);
  return true;
}

}  // namespace tessera
