// SPDX-License-Identifier: Apache-2.0
// Weights of kLanes rows of integers, brought into columns. For quantized_isa.cc.
#ifndef TESSERA_OPS_QUANTIZED_QUANTIZED_PANEL_H_
#define TESSERA_OPS_QUANTIZED_QUANTIZED_PANEL_H_

#include <cstdint>

#include "core/cpu/simd.h"
#include "core/cpu/simd_transpose.h"
#include "ops/quantized/quantized_bytes.h"
#include "ops/quantized/quantized_lanes.h"

namespace tessera::TESSERA_ISA {
namespace {

// Groups of a panel, which stays in the first-level cache.
constexpr int64_t kPanelGroups = 16;

// Groups of kLanes outputs: `bytes` [groups][kSteps][kLanes][4], `scales` and `minima`
// [groups * Parts][kLanes].
struct Panel {
  alignas(64) int32_t bytes[kPanelGroups * kSteps * kLanes];
  alignas(64) float scales[2 * kPanelGroups * kLanes];
  alignas(64) float minima[2 * kPanelGroups * kLanes];
};

// While columns from `begin` on of kLanes outputs are worked at, as much of the next ones, which
// lie behind them, is brought into the second-level cache: in the order of the memory, which no
// processor's own prefetching sees in rows that are read side by side.
template <QuantType kType>
TESSERA_SIMD const uint8_t* NextOf(const uint8_t* w, int64_t row_bytes, int64_t begin) {
  return w + kLanes * row_bytes + LanesBytes(kType, begin / kGroup);
}
template <int64_t kBytes>
TESSERA_SIMD void Fetch(const uint8_t* from) {
  constexpr int64_t kLine = 64;
#pragma GCC unroll 32
  for (int64_t i = 0; i < kBytes; i += kLine) __builtin_prefetch(from + i, 0, 2);
}

// Whether a type follows its layout, rather than having functions of its own.
constexpr bool ByLayout(QuantType type) {
  return type != QuantType::kInt8 && type != QuantType::kQ8_0 && type != QuantType::kQ4_0;
}

// A field of the columns from c on of the block, and of the next block where that is in the vector.
template <QuantType kType, bool kHigh>
TESSERA_SIMD VecI Field(const uint8_t* block, int64_t c) {
  constexpr QuantBits kField = kHigh ? LayoutOf(kType).high : LayoutOf(kType).low;
  constexpr int64_t kBlockBytes = BlockBytes(kType);
  if constexpr (kField.run == 1) {
    return SingleBits(block + kField.at, kBlockBytes, c);
  } else {
    // Columns of a run, and of the bytes that it fills.
    constexpr int64_t kRun = kField.run, kChunk = kRun * 8 / kField.bits;
    constexpr int64_t kStride = BlockColumns(kType) == kGroup ? kBlockBytes : kRun;
    VecI by = SetI(static_cast<int32_t>(c % kChunk / kRun * kField.bits));
    // Where a vector has columns of more runs than one.
    if constexpr (kRun == 16) by = by + (Iota() & SetI(4));
    if constexpr (kRun == 32) by = by + ShiftRight<3>(Iota()) * SetI(kField.bits);
    static_assert(kRun != 16 || kField.bits == 4);
    const VecI bytes = Run<kRun>(block + kField.at + c / kChunk * kRun + c % kRun, kStride);
    return ShiftEach(bytes, by) & SetI(((1 << kField.bits) - 1) * 0x01010101);
  }
}

// Columns from `column` on, as many as a vector has bytes; too large by ZeroOf.
template <QuantType kType>
TESSERA_SIMD VecI Numbers(const uint8_t* row, int64_t column) {
  const uint8_t* const block = BlockAt(kType, row, column);
  const int64_t c = column % BlockColumns(kType);
  VecI numbers = Field<kType, false>(block, c);
  if constexpr (LayoutOf(kType).high.bits != 0) {
    numbers = numbers | ShiftLeft<LayoutOf(kType).low.bits>(Field<kType, true>(block, c));
  }
  if constexpr (IsIq4(kType)) numbers = Iq4(numbers);
  return numbers;
}

// d of kLanes blocks, and m: four bytes are read of each, none of them behind the block.
template <QuantType kType>
TESSERA_SIMD VecF ScaleOfBlocks(const uint8_t* block, int64_t stride, VecF* m) {
  constexpr QuantLayout kLayout = LayoutOf(kType);
  if constexpr (kLayout.has_minima()) {
    static_assert(kLayout.m == kLayout.d + 2);
    const VecI words = WordsAt(block + kLayout.d, stride);
    *m = HalvesOf(ShiftRight<16>(words));
    return HalvesOf(words);
  } else if constexpr (kLayout.d == 0) {
    return HalvesOf(WordsAt(block, stride));
  } else {
    return HalvesOf(ShiftRight<16>(WordsAt(block + kLayout.d - 2, stride)));
  }
}

// Bits of the words from byte kFrom of kLanes blocks on: numbers of the block's integers.
template <int kFrom>
TESSERA_SIMD VecI BitsOfWords(const VecI* words, const QuantBits& field, int i) {
  const int byte = field.ByteOf(i) - kFrom;
  const VecI by = SetI(byte % 4 * 8 + field.ShiftOf(i));
  return ShiftEach(words[byte / 4], by) & SetI((1 << field.bits) - 1);
}

// The scales [groups][kLanes] of one block of each of kLanes outputs, and the minima.
template <QuantType kType>
TESSERA_SIMD void PutScales(const uint8_t* block, int64_t stride, float* scales, float* minima) {
  constexpr QuantLayout kLayout = LayoutOf(kType);
  constexpr int kGroups = kLayout.groups();
  VecF m = Zero();
  const VecF d = ScaleOfBlocks<kType>(block, stride, &m);
  if constexpr (kLayout.columns == kGroup) {
    Store(scales, d);
    if constexpr (kLayout.has_minima()) Store(minima, -m);
  } else {
    const auto put = [&](int g, VecI scale) __attribute__((always_inline)) {
      Store(scales + g * kLanes, d * ToFloat(scale));
    };
    const auto put_minimum = [&](int g, VecI minimum) __attribute__((always_inline)) {
      Store(minima + g * kLanes, m * ToFloat(minimum));
    };
    constexpr bool kOwnWay = kLayout.scale_low.bits == 0;  // of q4_k and q5_k: quant_blocks.cc
    constexpr int kHighAt = kLayout.scale_high.at, kLowAt = kLayout.scale_low.at;
    constexpr int kFrom = kOwnWay                                            ? 4
                          : kLayout.scale_high.bits == 0 || kLowAt < kHighAt ? kLowAt
                                                                             : kHighAt / 4 * 4;
    constexpr int kWords = kLayout.group == 16 && kLayout.scale_high.bits == 0 ? 4
                           : kType == QuantType::kIq4Xs                        ? 2
                                                                               : 3;
    VecI words[kWords];
#pragma GCC unroll 4
    for (int i = 0; i < kWords; ++i) words[i] = WordsAt(block + kFrom + 4 * i, stride);
    if constexpr (kOwnWay) {
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const VecI by = SetI(8 * i), six = SetI(63), four = SetI(15), two = SetI(0x30);
        const VecI a = ShiftEach(words[0], by), b = ShiftEach(words[1], by);
        const VecI c = ShiftEach(words[2], by);
        put(i, a & six);
        put_minimum(i, b & six);
        put(i + 4, (c & four) | (ShiftRight<2>(a) & two));
        put_minimum(i + 4, (ShiftRight<4>(c) & four) | (ShiftRight<2>(b) & two));
      }
    } else {
#pragma GCC unroll 16
      for (int g = 0; g < kGroups; ++g) {
        VecI scale = BitsOfWords<kFrom>(words, kLayout.scale_low, g);
        if constexpr (kLayout.scale_low.bits == 8) {
          scale = ShiftRightArithmetic<24>(ShiftLeft<24>(scale));
        }
        if constexpr (kLayout.scale_high.bits != 0) {
          scale = scale | ShiftLeft<kLayout.scale_low.bits>(
                              BitsOfWords<kFrom>(words, kLayout.scale_high, g));
        }
        put(g, scale - SetI(kLayout.scale_zero));
        if constexpr (kLayout.has_minima()) {
          put_minimum(g, BitsOfWords<kFrom>(words, kLayout.scale_low, kGroups + g));
        }
      }
    }
  }
}

// Columns [begin, end) of kLanes outputs, whole vectors.
template <QuantType kType>
TESSERA_SIMD void FillPanel(const uint8_t* w, int64_t row_bytes, int64_t begin, int64_t end,
                            Panel* panel) {
  for (int64_t column = begin; column < end; column += VectorColumns(kType)) {
    VecF square[kLanes];
#pragma GCC unroll 16
    for (int64_t i = 0; i < kLanes; ++i) {
      const uint8_t* const row = w + i * row_bytes;
      if constexpr (ByLayout(kType)) {
        square[i] = BitsAsFloat(Numbers<kType>(row, column));
      } else {
        square[i] = BitsAsFloat(Bytes<kType>(row, column));
      }
    }
    TransposeSquare(square);
    int32_t* const to = panel->bytes + (column - begin) / 4 * kLanes;
#pragma GCC unroll 16
    for (int64_t i = 0; i < kLanes; ++i) {
      const VecI bytes = BitsAsInt(square[i]);
      if constexpr (kType == QuantType::kQ4_0) {
        // Of a group the first columns are the lower halves of its bytes, the last ones the upper.
        const VecI lower = SetI(0x0f0f0f0f);
        int32_t* const group = to + i / (kSteps / 2) * kSteps * kLanes + i % (kSteps / 2) * kLanes;
        Store(group, bytes & lower);
        Store(group + kSteps / 2 * kLanes, ShiftRight<4>(bytes) & lower);
      } else {
        Store(to + i * kLanes, bytes);
      }
    }
  }
  if constexpr (kType == QuantType::kInt8) return;
  const uint8_t* block = BlockAt(kType, w, begin);
  constexpr int64_t kColumns = BlockColumns(kType);
  for (int64_t b = 0; b < (end - begin) / kColumns; ++b, block += BlockBytes(kType)) {
    if constexpr (ByLayout(kType)) {
      const int64_t at = b * LayoutOf(kType).groups() * kLanes;
      PutScales<kType>(block, row_bytes, panel->scales + at, panel->minima + at);
    } else {
      Store(panel->scales + b * kLanes, HalvesAt(block, row_bytes));
    }
  }
}

}  // namespace
}  // namespace tessera::TESSERA_ISA

#endif  // TESSERA_OPS_QUANTIZED_QUANTIZED_PANEL_H_
