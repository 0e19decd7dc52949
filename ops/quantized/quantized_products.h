// SPDX-License-Identifier: Apache-2.0
// Sums of products of activations and kLanes rows of integers. For quantized_isa.cc.
#ifndef TESSERA_OPS_QUANTIZED_QUANTIZED_PRODUCTS_H_
#define TESSERA_OPS_QUANTIZED_QUANTIZED_PRODUCTS_H_

#include <cstdint>
#include <type_traits>

#include "core/cpu/simd.h"
#include "ops/quantized/quantized_bytes.h"
#include "ops/quantized/quantized_lanes.h"
#include "ops/quantized/quantized_panel.h"

namespace tessera::TESSERA_ISA {
namespace {

TESSERA_SIMD VecI VectorAt(const int8_t* q) { return Load(reinterpret_cast<const int32_t*>(q)); }
TESSERA_SIMD VecI FourAt(const int8_t* q) {
  int32_t four;
  __builtin_memcpy(&four, q, 4);
  return SetI(four);
}

// Sums of a row of x: floats, or those of kInt8, which are integers to the end.
template <QuantType kType>
using SumsOf = std::conditional_t<kType == QuantType::kInt8, VecI, VecF>;
template <QuantType kType>
using SumOf = std::conditional_t<kType == QuantType::kInt8, int32_t, float>;

// Adds a panel's groups to the sums of kRows rows of x; `next`: what is fetched meanwhile, as many
// bytes as the panel's.
template <QuantType kType, int kRows>
TESSERA_SIMD void AddGroups(const Panel& panel, int64_t groups, const QuantizedActivations& x,
                            int64_t x_groups, const uint8_t* next, SumOf<kType>* sums) {
  SumsOf<kType> sum[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) sum[r] = Load(sums + r * kLanes);
  constexpr int kParts = Parts(kType);
  constexpr int64_t kPartSteps = kSteps / kParts;
  for (int64_t g = 0; g < groups; ++g) {
    Fetch<LanesBytes(kType, 1)>(next + LanesBytes(kType, g));
#pragma GCC unroll 2
    for (int p = 0; p < kParts; ++p) {
      // What is added to one sum waits for what was added before: as many as the processor works
      // at are added to in turns.
      constexpr bool kFine = kType != QuantType::kInt8;
      constexpr int kMostSums = kMostRows >= 8 ? 16 : 8;
      constexpr int kOfRow = kMostSums / (kRows * (kFine ? 2 : 1));
      constexpr int kChains = kUnrolled == 1 || kOfRow < 2 ? 1 : kOfRow < 4 ? 2 : 4;
      VecI dot[kRows][kChains], lower[kRows][kFine ? kChains : 1];
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
        for (int i = 0; i < kChains; ++i) {
          dot[r][i] = SetI(0);
          if constexpr (kFine) lower[r][i] = SetI(0);
        }
        if constexpr (!kFine) {
          dot[r][0] = sum[r];
        } else if constexpr (ZeroOf(kType) != 0) {
          lower[r][0] = SetI(x.offset[2 * (r * x_groups + g) + p]);
        }
      }
#pragma GCC unroll kUnrolled
      for (int64_t c = 0; c < kPartSteps; ++c) {
        const int64_t step = p * kPartSteps + c;
        const VecI w = Load(panel.bytes + (g * kSteps + step) * kLanes);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          const int64_t at = (r * x_groups + g) * kGroup + 4 * step;
          VecI& to = dot[r][c % kChains];
          to = Dot<kType>(to, w, FourAt(x.upper + at));
          if constexpr (kFine) {
            VecI& to_lower = lower[r][c % kChains];
            to_lower = Dot<kType>(to_lower, w, FourAt(x.lower + at));
          }
        }
      }
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
        for (int i = 1; i < kChains; ++i) {
          dot[r][0] = dot[r][0] + dot[r][i];
          if constexpr (kFine) lower[r][0] = lower[r][0] + lower[r][i];
        }
        if constexpr (!kFine) {
          sum[r] = dot[r][0];
        } else {
          dot[r][0] = Raised(dot[r][0]) + lower[r][0];
          const VecF x_scale = Set(x.scale[r * x_groups + g]);
          const int64_t at = (kParts * g + p) * kLanes;
          sum[r] = Fma(ToFloat(dot[r][0]), Load(panel.scales + at) * x_scale, sum[r]);
          if constexpr (LayoutOf(kType).has_minima()) {
            const auto total = static_cast<float>(x.offset[2 * (r * x_groups + g) + p]);
            sum[r] = NegFma(Set(total), Load(panel.minima + at) * x_scale, sum[r]);
          }
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) Store(sums + r * kLanes, sum[r]);
}

// Adds columns [begin, end) of kLanes outputs to the sums of one row of x, to which bringing them
// into columns is not worth it: integers are added along the rows of weights instead, which is the
// same, and then the sums of kLanes outputs brought side by side.
template <QuantType kType>
TESSERA_SIMD void AddAlong(const uint8_t* w, int64_t row_bytes, int64_t begin, int64_t end,
                           const QuantizedActivations& x, SumOf<kType>* sums) {
  constexpr int64_t kColumns = VectorColumns(kType) > kGroup ? VectorColumns(kType) : kGroup;
  constexpr int64_t kVectors = kColumns / VectorColumns(kType);
  constexpr int64_t kGroups = kColumns / kGroup;
  constexpr int64_t kQuarters = kLanes / 4;
  SumsOf<kType> sum = Load(sums);
  for (int64_t column = begin; column < end; column += kColumns) {
    VecI dots[kLanes];
    const int64_t from = column - begin;
    Fetch<LanesBytes(kType, kGroups)>(NextOf<kType>(w, row_bytes, column));
#pragma GCC unroll 16
    for (int64_t i = 0; i < kLanes; ++i) {
      const uint8_t* const row = w + i * row_bytes;
      if constexpr (kType == QuantType::kQ4_0) {
        const auto half = [from](const int8_t* part, int64_t at) __attribute__((always_inline)) {
          return Sixteens(reinterpret_cast<const uint8_t*>(part) + from + at, kGroup);
        };
        const VecI bytes = Bytes<kType>(row, column), four = SetI(0x0f0f0f0f);
        const VecI numbers[] = {bytes & four, ShiftRight<4>(bytes) & four};
        const VecI upper[] = {half(x.upper, 0), half(x.upper, 16)};
        const VecI lower[] = {half(x.lower, 0), half(x.lower, 16)};
        dots[i] = DotOfParts<kType>(numbers, upper, lower);
      } else {
        dots[i] = SetI(0);
        VecI bytes[kVectors], upper[kVectors], lower[kVectors];
#pragma GCC unroll 2
        for (int64_t v = 0; v < kVectors; ++v) {
          const int64_t at = v * VectorColumns(kType);
          bytes[v] = Bytes<kType>(row, column + at);
          upper[v] = VectorAt(x.upper + from + at);
          if constexpr (kType == QuantType::kInt8) {
            dots[i] = Dot<kType>(dots[i], bytes[v], upper[v]);
          } else {
            lower[v] = VectorAt(x.lower + from + at);
          }
        }
        if constexpr (kType != QuantType::kInt8) dots[i] = DotOfParts<kType>(bytes, upper, lower);
      }
    }
    SumQuarters(dots);
    if constexpr (kType == QuantType::kInt8) {
#pragma GCC unroll 4
      for (int64_t i = 0; i < kQuarters; ++i) sum = sum + dots[i];
    } else {
      constexpr int64_t kOfGroup = kQuarters / kGroups;
      const uint8_t* block = BlockAt(kType, w, column);
#pragma GCC unroll 4
      for (int64_t i = 0; i < kGroups; ++i, block += BlockBytes(kType)) {
        const int64_t g = (column - begin) / kGroup + i;
        VecI dot = dots[i * kOfGroup];
        if constexpr (kOfGroup == 2) dot = dot + dots[i * kOfGroup + 1];
        if constexpr (ZeroOf(kType) != 0) dot = dot + SetI(x.offset[2 * g]);
        sum = Fma(ToFloat(dot), HalvesAt(block, row_bytes) * Set(x.scale[g]), sum);
      }
    }
  }
  Store(sums, sum);
}

// Likewise of types that follow their layout: whole blocks.
template <QuantType kType>
TESSERA_SIMD void AddBlocksAlong(const uint8_t* w, int64_t row_bytes, int64_t begin, int64_t end,
                                 const QuantizedActivations& x, float* sums) {
  constexpr QuantLayout kLayout = LayoutOf(kType);
  constexpr int64_t kVector = 4 * kLanes;
  // Columns that scales are made of, and those that are added up at a time.
  constexpr int64_t kColumns = kVector > kLayout.columns ? kVector : kLayout.columns;
  constexpr int64_t kStep = kVector > kLayout.group ? kVector : kLayout.group;
  constexpr int64_t kGroups = kStep / kLayout.group;
  constexpr int64_t kQuarters = kLanes / 4;
  constexpr int64_t kAllScales = kColumns / kLayout.group * kLanes;
  VecF sum = Load(sums);
  for (int64_t column = begin; column < end; column += kColumns) {
    alignas(64) float scales[kAllScales];
    alignas(64) float minima[kAllScales];
#pragma GCC unroll 2
    for (int64_t b = 0; b < kColumns / kLayout.columns; ++b) {
      const int64_t at = b * kLayout.groups() * kLanes;
      PutScales<kType>(BlockAt(kType, w, column) + b * BlockBytes(kType), row_bytes, scales + at,
                       minima + at);
    }
    const uint8_t* const next = NextOf<kType>(w, row_bytes, column);
    for (int64_t in_block = 0; in_block < kColumns; in_block += kStep) {
      const int64_t from = column + in_block;
      Fetch<LanesBytes(kType, 1) * kStep / kGroup>(next + LanesBytes(kType, 1) * in_block / kGroup);
      VecI dots[kLanes];
#pragma GCC unroll 16
      for (int64_t i = 0; i < kLanes; ++i) {
        VecI numbers[kStep / kVector], upper[kStep / kVector], lower[kStep / kVector];
#pragma GCC unroll 2
        for (int64_t v = 0; v < kStep; v += kVector) {
          numbers[v / kVector] = Numbers<kType>(w + i * row_bytes, from + v);
          upper[v / kVector] = VectorAt(x.upper + (from - begin + v));
          lower[v / kVector] = VectorAt(x.lower + (from - begin + v));
        }
        dots[i] = DotOfParts<kType>(numbers, upper, lower);
      }
      SumQuarters(dots);
      constexpr int64_t kOfGroup = kGroups > kQuarters ? 1 : kQuarters / kGroups;
#pragma GCC unroll 4
      for (int64_t i = 0; i < kGroups; ++i) {
        const int64_t begins = from - begin + i * kLayout.group;
        const int32_t offset = x.offset[2 * (begins / kGroup) + begins % kGroup / 16];
        const VecF x_scale = Set(x.scale[begins / kGroup]);
        const int64_t at = (in_block / kLayout.group + i) * kLanes;
        VecI dot = dots[i * kOfGroup];
        if constexpr (kOfGroup == 2) dot = dot + dots[i * kOfGroup + 1];
        if constexpr (ZeroOf(kType) != 0) dot = dot + SetI(offset);
        sum = Fma(ToFloat(dot), Load(scales + at) * x_scale, sum);
        if constexpr (kLayout.has_minima()) {
          sum = NegFma(Set(static_cast<float>(offset)), Load(minima + at) * x_scale, sum);
        }
      }
    }
  }
  Store(sums, sum);
}

}  // namespace
}  // namespace tessera::TESSERA_ISA

#endif  // TESSERA_OPS_QUANTIZED_QUANTIZED_PRODUCTS_H_
