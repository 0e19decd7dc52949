// SPDX-License-Identifier: Apache-2.0
// Products of rows of integers for one instruction set.
//
// The order of a sum (quantized_matrix.h) is one chain over groups of 32 columns, whatever the
// instruction set and the number of rows (`baseline` has no fma and rounds each product). As many
// outputs as a vector has lanes are taken at a time: a panel of their weights is brought into
// columns, four bytes of each output side by side, and used for all rows of x.
//
// int8, q8_0 and q4_0 have functions of their own. The other types follow kQuantLayouts: Numbers()
// gives a vector of a row's columns as bytes, and PutScales() the scales of kLanes rows.
#include <cstddef>
#include <type_traits>

#include "core/cpu/row_dispatch.h"
#include "core/cpu/simd.h"
#include "ops/quantized/quantized_bytes.h"
#include "ops/quantized/quantized_lanes.h"
#include "ops/quantized/quantized_panel.h"
#include "ops/quantized/quantized_products.h"
#include "ops/quantized/quantized_rows.h"

namespace tessera::TESSERA_ISA {
namespace {

template <QuantType kType>
void AddPanel(const Panel& panel, int64_t groups, const QuantizedActivations& x, int64_t x_groups,
              int64_t rows, const uint8_t* next, SumOf<kType>* sums) {
  int64_t i = 0;
  const auto add = [&](auto of) __attribute__((always_inline)) {
    constexpr int kRows = decltype(of)::value;
    for (; i + kRows <= rows; i += kRows) {
      AddGroups<kType, kRows>(panel, groups, x.Row(i, x_groups), x_groups, next, sums + i * kLanes);
    }
  };
  add(std::integral_constant<int, kMostRows>());
  if constexpr (kMostRows > 4) add(std::integral_constant<int, 4>());
  add(std::integral_constant<int, 1>());
}

// The rows of x times kLanes outputs or fewer.
template <QuantType kType>
void Outputs(const uint8_t* w, int64_t row_bytes, int64_t count, int64_t columns,
             const QuantizedActivations& x, int64_t rows, float* sums, float* y, int64_t y_stride) {
  constexpr bool kWhole = kType == QuantType::kInt8;
  const int64_t x_groups = 2 * QuantPairs(columns);
  const int64_t all = kWhole ? x_groups * kGroup : columns;
  auto* const running = reinterpret_cast<SumOf<kType>*>(sums);
  for (int64_t i = 0; i < rows * kLanes; ++i) running[i] = 0;
  Panel panel;
  for (int64_t begin = 0; begin < all; begin += kPanelGroups * kGroup) {
    const int64_t left = (all - begin) / kGroup;
    const int64_t groups = left < kPanelGroups ? left : kPanelGroups;
    const int64_t width = groups * kGroup;
    const QuantizedActivations from = x.From(begin);
    const bool whole = count == kLanes && width % VectorColumns(kType) == 0;
    if constexpr (!kSmall) {
      if (whole && rows == 1) {
        if constexpr (ByLayout(kType)) {
          AddBlocksAlong<kType>(w, row_bytes, begin, begin + width, from, running);
        } else {
          AddAlong<kType>(w, row_bytes, begin, begin + width, from, running);
        }
        continue;
      }
    }
    // Zeros stand for what is not there.
    constexpr int64_t kStride = LanesBytes(kType, kPanelGroups) / kLanes;
    uint8_t part[kLanes * kStride];
    if (!whole) __builtin_memset(part, 0, sizeof(part));
    for (int64_t o = 0; !whole && o < count; ++o) {
      __builtin_memcpy(part + o * kStride, BlockAt(kType, w + o * row_bytes, begin),
                       static_cast<size_t>(LanesBytes(kType, groups) / kLanes));
    }
    const int64_t padded =
        (width + VectorColumns(kType) - 1) / VectorColumns(kType) * VectorColumns(kType);
    FillPanel<kType>(whole ? w : part, whole ? row_bytes : kStride, whole ? begin : 0,
                     whole ? begin + width : padded, &panel);
    AddPanel<kType>(panel, groups, from, x_groups, rows, NextOf<kType>(w, row_bytes, begin),
                    running);
  }
  float scales[kLanes] = {};
  for (int64_t o = 0; kWhole && o < count; ++o) {
    __builtin_memcpy(scales + o, w + o * row_bytes + all, 4);
  }
  for (int64_t i = 0; i < rows; ++i) {
    VecF sum;
    if constexpr (kWhole) {
      // What unsigned weights add beyond 32 bits, the offset takes away again.
      const VecI total = Load(running + i * kLanes) + SetI(x.offset[2 * i * x_groups]);
      sum = ToFloat(total) * (Load(scales) * Set(x.scale[i * x_groups]));
    } else {
      sum = Load(running + i * kLanes);
    }
    StoreN(y + i * y_stride, sum, count);
  }
}

void Product(QuantType type, const uint8_t* w, int64_t row_bytes, int64_t outputs, int64_t columns,
             const QuantizedActivations& x, int64_t rows, float* sums, float* y, int64_t y_stride) {
  for (int64_t j = 0; j < outputs; j += kLanes) {
    const int64_t count = outputs - j < kLanes ? outputs - j : kLanes;
    const auto run = [&](auto* of) {
      of(w + j * row_bytes, row_bytes, count, columns, x, rows, sums, y + j, y_stride);
    };
    switch (type) {
      case QuantType::kInt8:
        run(Outputs<QuantType::kInt8>);
        break;
      case QuantType::kQ8_0:
        run(Outputs<QuantType::kQ8_0>);
        break;
      case QuantType::kQ4_0:
        run(Outputs<QuantType::kQ4_0>);
        break;
      case QuantType::kQ4_1:
        run(Outputs<QuantType::kQ4_1>);
        break;
      case QuantType::kQ5_0:
        run(Outputs<QuantType::kQ5_0>);
        break;
      case QuantType::kQ5_1:
        run(Outputs<QuantType::kQ5_1>);
        break;
      case QuantType::kQ2K:
        run(Outputs<QuantType::kQ2K>);
        break;
      case QuantType::kQ3K:
        run(Outputs<QuantType::kQ3K>);
        break;
      case QuantType::kQ4K:
        run(Outputs<QuantType::kQ4K>);
        break;
      case QuantType::kQ5K:
        run(Outputs<QuantType::kQ5K>);
        break;
      case QuantType::kQ6K:
        run(Outputs<QuantType::kQ6K>);
        break;
      case QuantType::kIq4Nl:
        run(Outputs<QuantType::kIq4Nl>);
        break;
      case QuantType::kIq4Xs:
        run(Outputs<QuantType::kIq4Xs>);
        break;
    }
  }
}

// ---- Activations --------------------------------------------------------------------------------

// At most a group as float32, zeros behind it.
struct Group {
  float x[kGroup];
};
TESSERA_SIMD Group LoadGroup(RowType type, const void* row, int64_t begin, int64_t columns) {
  Group group;
  DispatchRow(
      type, [&](auto zero) __attribute__((always_inline)) {
        const auto* const x = static_cast<const decltype(zero)*>(row);
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
  float scale;    // integers to x
  float inverse;  // x to integers
};
// `most`: the largest integer.
TESSERA_SIMD Scales ScalesOf(int32_t largest_bits, float most) {
  constexpr float kMost = 3.4028235e38f;
  float largest;
  __builtin_memcpy(&largest, &largest_bits, 4);
  if (!(largest <= kMost)) return {__builtin_nanf(""), 0.0f};
  // What has no inverse counts as zero.
  if (largest < most / kMost) return {0.0f, 0.0f};
  return {largest / most, most / largest};
}

// Gives the sums of the group's first and second half. `fine`: in two parts.
TESSERA_SIMD void QuantizeGroup(const Group& group, float inverse, bool fine, int8_t* upper,
                                int8_t* lower, int32_t (&sums)[2]) {
  int32_t values[kGroup] = {};
  if (inverse != 0.0f) {
    for (int64_t i = 0; i < kGroup; i += kLanes) {
      Store(values + i, ToInt(Load(group.x + i) * Set(inverse)));
    }
  }
  for (int64_t half = 0; half < 2; ++half) {
    int32_t sum = 0;
    for (int64_t i = half * kGroup / 2; i < (half + 1) * kGroup / 2; ++i) sum += values[i];
    sums[half] = sum;
  }
  int32_t uppers[kGroup];
  for (int64_t i = 0; i < kGroup; i += kLanes) {
    const VecI v = Load(values + i);
    // Whole numbers of 255 and half of one are never near: no rounding gives another integer.
    Store(uppers + i, fine ? ToInt(ToFloat(v) * Set(1.0f / kQuantUpper)) : v);
  }
  for (int64_t i = 0; i < kGroup; ++i) {
    upper[i] = static_cast<int8_t>(uppers[i]);
    if (fine) lower[i] = static_cast<int8_t>(values[i] - kQuantUpper * uppers[i]);
  }
}

void Quantize(QuantType type, RowType row_type, const void* x, int64_t columns,
              const QuantizedActivations& to) {
  const bool whole = type == QuantType::kInt8;
  const int64_t padded = QuantPairs(columns) * kQuantPair;
  int32_t largest = 0;
  for (int64_t begin = 0; whole && begin < padded; begin += kGroup) {
    const int32_t most = LargestBits(LoadGroup(row_type, x, begin, columns));
    largest = most > largest ? most : largest;
  }
  const int32_t factor = LayoutOf(type).has_minima() ? 1 : -ZeroOf(type);
  int32_t sum = 0;
  for (int64_t begin = 0; begin < padded; begin += kGroup) {
    const Group group = LoadGroup(row_type, x, begin, columns);
    const Scales scales = whole ? ScalesOf(largest, 127.0f)
                                : ScalesOf(LargestBits(group), static_cast<float>(kQuantMost));
    const int64_t g = begin / kGroup;
    int32_t halves[2];
    QuantizeGroup(group, scales.inverse, !whole, to.upper + begin,
                  whole ? nullptr : to.lower + begin, halves);
    if (Parts(type) == 1) halves[0] += halves[1];
    to.offset[2 * g] = factor * halves[0];
    to.offset[2 * g + 1] = factor * halves[1];
    to.scale[g] = scales.scale;
    if (whole) sum += to.offset[2 * g];
  }
  if (whole) to.offset[0] = sum;
}

void Finish(RowType row_type, const float* y, const void* bias, int64_t n, void* out) {
  DispatchRow(
      row_type, [&](auto zero) __attribute__((always_inline)) {
        using T = decltype(zero);
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
