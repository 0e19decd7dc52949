// SPDX-License-Identifier: Apache-2.0
#include "ops/quantized/quant_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/dtype.h"

namespace tessera {
namespace {

constexpr int kMostColumns = 256;
constexpr int kMostGroups = 16;
constexpr int kKScales = 4;  // where q4_k and q5_k have integers of scales and minima
// Scales that are tried to either side of the plain one, and how far they are apart.
constexpr int kWays = 10;
constexpr float kWay = 0.02f;

void PutHalf(float value, uint8_t* to) {
  const Float16 half(value);
  std::memcpy(to, &half.bits, 2);
}
float HalfAt(const uint8_t* from) {
  Float16 half;
  std::memcpy(&half.bits, from, 2);
  return half;
}

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

void ReadScales(QuantType type, const uint8_t* block, float* scale, float* minimum) {
  const QuantLayout& layout = LayoutOf(type);
  const float d = HalfAt(block + layout.d);
  if (layout.columns == 32) {
    scale[0] = d;
    minimum[0] = layout.has_minima() ? -HalfAt(block + layout.m) : 0;
    return;
  }
  const float m = layout.has_minima() ? HalfAt(block + layout.m) : 0;
  const GroupIntegers integers = ReadGroups(type, block);
  for (int g = 0; g < layout.groups(); ++g) {
    scale[g] = d * static_cast<float>(integers.scale[g]);
    minimum[g] = m * static_cast<float>(integers.minimum[g]);
  }
}

// ---- Rounding -----------------------------------------------------------------------------------

// The numbers that columns of a type can have: kIq4Numbers, or all from -zero to top.
struct Numbers {
  explicit Numbers(QuantType type)
      : iq4(IsIq4(type)),
        zero(LayoutOf(type).zero),
        top((1 << (LayoutOf(type).low.bits + LayoutOf(type).high.bits)) - 1 - zero) {}

  // What is written for the one next to x.
  int NearestTo(float x) const {
    if (!iq4) {
      const float low = static_cast<float>(-zero), high = static_cast<float>(top);
      return static_cast<int>(std::lrintf(std::clamp(x, low, high))) + zero;
    }
    const auto* const above = std::lower_bound(std::begin(kIq4Numbers), std::end(kIq4Numbers), x);
    const auto i = static_cast<int>(above - std::begin(kIq4Numbers));
    if (i == 0 || i == 16) return std::min(i, 15);
    return x - kIq4Numbers[i - 1] < kIq4Numbers[i] - x ? i - 1 : i;
  }
  float At(int written) const {
    return static_cast<float>(iq4 ? kIq4Numbers[written] : written - zero);
  }
  float lowest() const { return At(0); }
  float highest() const { return At(zero + top); }

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
      double xq = 0, qq = 0;
      for (int i = 0; i < n; ++i) {
        const double q = numbers.At(numbers.NearestTo(x[i] * to_numbers));
        xq += x[i] * q;
        qq += q * q;
      }
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
  const float inverse = InverseOf(high - low);
  double best = std::numeric_limits<double>::infinity();
  for (int way = -kWays; way <= kWays && inverse != 0; ++way) {
    const float most = static_cast<float>(top) * (1 + kWay * static_cast<float>(way));
    const auto number = [&](int i) {
      const float q = std::nearbyint((x[i] - low) * inverse * most);
      return static_cast<double>(std::min(q, static_cast<float>(top)));
    };
    double sx = 0, sq = 0, xq = 0, qq = 0;
    for (int i = 0; i < n; ++i) {
      const double q = number(i);
      sx += x[i];
      sq += q;
      xq += x[i] * q;
      qq += q * q;
    }
    if (qq == 0) continue;
    const double spread = n * qq - sq * sq;
    double scale = spread > 0 ? (n * xq - sx * sq) / spread : 0;
    double minimum = (scale * sq - sx) / n;
    if (minimum < 0) {
      minimum = 0;
      scale = xq / qq;
    }
    double error = 0;
    for (int i = 0; i < n; ++i) {
      const double off = scale * number(i) - minimum - x[i];
      error += off * off;
    }
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

QuantBlock ReadBlock(QuantType type, const uint8_t* bytes) {
  const QuantLayout& layout = LayoutOf(type);
  QuantBlock block;
  ReadScales(type, bytes, block.scale, block.minimum);
  uint8_t u[kMostColumns] = {};
  AddBits(bytes, layout.low, layout.columns, 0, u);
  AddBits(bytes, layout.high, layout.columns, layout.low.bits, u);
  const int zero = layout.zero;
  if (IsIq4(type)) {
    for (int i = 0; i < layout.columns; ++i) block.q[i] = kIq4Numbers[u[i]];
  } else {
    for (int i = 0; i < layout.columns; ++i) block.q[i] = static_cast<int8_t>(u[i] - zero);
  }
  return block;
}

void DecodeBlock(QuantType type, const uint8_t* bytes, float* x) {
  const QuantLayout& layout = LayoutOf(type);
  const QuantBlock block = ReadBlock(type, bytes);
  for (int g = 0; g < layout.groups(); ++g) {
    const float scale = block.scale[g], minimum = block.minimum[g];
    const int begin = g * layout.group;
    for (int i = begin; i < begin + layout.group; ++i) {
      x[i] = scale * static_cast<float>(block.q[i]) - minimum;
    }
  }
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
  for (int i = 0; i < layout.columns; ++i) {
    const int g = i / layout.group;
    u[i] = static_cast<uint8_t>(numbers.NearestTo((x[i] + minimum[g]) * InverseOf(scale[g])));
  }
  PutBits(u, layout.low, layout.columns, 0, bytes);
  PutBits(u, layout.high, layout.columns, layout.low.bits, bytes);
  return true;
}

}  // namespace tessera
