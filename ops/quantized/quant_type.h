// SPDX-License-Identifier: Apache-2.0
// How rows of weights are held as small integers.
//
// kInt8 has int8 numbers, zeros up to a multiple of 64, and then a float32 scale for the row. The
// other types are GGML's: a row is blocks of 32 or 256 columns, one after the other. A block has
// groups of 16 or 32 columns, and a number q of a group stands for
//
//   scale * q             or, in types with minima,            scale * q - minimum
//
// d and m are float16 numbers of the block. In blocks of 32, scale = d and minimum = -m. In blocks
// of 256, scale = d * (an integer of the group), minimum = m * (another one, not negative).
//
//   type     block  bytes  group  q                     integers of groups: scale, minimum
//   q8_0        32     34     32  -128 .. 127
//   q4_0        32     18     32  -8 .. 7
//   q4_1        32     20     32  0 .. 15, minimum
//   q5_0        32     22     32  -16 .. 15
//   q5_1        32     24     32  0 .. 31, minimum
//   q2_k       256     84     16  0 .. 3, minimum       0 .. 15, 0 .. 15
//   q3_k       256    110     16  -4 .. 3               -32 .. 31
//   q4_k       256    144     32  0 .. 15, minimum      0 .. 63, 0 .. 63
//   q5_k       256    176     32  0 .. 31, minimum      0 .. 63, 0 .. 63
//   q6_k       256    210     16  -32 .. 31             -128 .. 127
//   iq4_nl      32     18     32  one of kIq4Numbers
//   iq4_xs     256    136     32  one of kIq4Numbers    -32 .. 31
#ifndef TESSERA_OPS_QUANTIZED_QUANT_TYPE_H_
#define TESSERA_OPS_QUANTIZED_QUANT_TYPE_H_

#include <cstdint>

namespace tessera {

enum class QuantType : uint8_t {
  kInt8,
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ2K,
  kQ3K,
  kQ4K,
  kQ5K,
  kQ6K,
  kIq4Nl,
  kIq4Xs
};
inline constexpr QuantType kQuantTypes[] = {
    QuantType::kInt8, QuantType::kQ8_0,  QuantType::kQ4_0, QuantType::kQ4_1, QuantType::kQ5_0,
    QuantType::kQ5_1, QuantType::kQ2K,   QuantType::kQ3K,  QuantType::kQ4K,  QuantType::kQ5K,
    QuantType::kQ6K,  QuantType::kIq4Nl, QuantType::kIq4Xs};

// Where a block has small unsigned numbers: `bits` of each, in bytes from `at` on. The first `run`
// numbers are the lowest bits of the first `run` bytes, the next ones the bits above them, and so
// on until these bytes are full; then come the next `run` bytes. 0 bits: there are none.
struct QuantBits {
  int at = 0;
  int run = 1;
  int bits = 0;

  // The byte of number i, and the place of its lowest bit there.
  constexpr int ByteOf(int i) const { return at + i / (run * 8 / bits) * run + i % run; }
  constexpr int ShiftOf(int i) const { return i % (run * 8 / bits) / run * bits; }
};

// How one type lays out its blocks.
struct QuantLayout {
  const char* name;
  int columns;  // of a block
  int bytes;    // of a block
  int group;    // columns with one scale
  int d;        // where d is
  int m = -1;   // where m is; -1: the type has no minima
  // Numbers of columns, the lower and the upper bits; what is read is larger by `zero`.
  QuantBits low = {}, high = {};
  int zero = 0;
  // Integers of scales, and behind them of minima; what is read is larger by `scale_zero`. (q4_k
  // and q5_k have their own way: quant_blocks.cc.)
  QuantBits scale_low = {}, scale_high = {};
  int scale_zero = 0;

  constexpr int groups() const { return columns / group; }
  constexpr bool has_minima() const { return m >= 0; }
};

// In the order of kQuantTypes. An int8 is a block here; the row's scale is not counted.
inline constexpr QuantLayout kQuantLayouts[] = {
    {.name = "int8", .columns = 1, .bytes = 1, .group = 1, .d = 0},
    {.name = "q8_0", .columns = 32, .bytes = 34, .group = 32, .d = 0, .low = {2, 32, 8}},
    {.name = "q4_0", .columns = 32, .bytes = 18, .group = 32, .d = 0, .low = {2, 16, 4}, .zero = 8},
    {.name = "q4_1", .columns = 32, .bytes = 20, .group = 32, .d = 0, .m = 2, .low = {4, 16, 4}},
    {.name = "q5_0",
     .columns = 32,
     .bytes = 22,
     .group = 32,
     .d = 0,
     .low = {6, 16, 4},
     .high = {2, 1, 1},
     .zero = 16},
    {.name = "q5_1",
     .columns = 32,
     .bytes = 24,
     .group = 32,
     .d = 0,
     .m = 2,
     .low = {8, 16, 4},
     .high = {4, 1, 1}},
    {.name = "q2_k",
     .columns = 256,
     .bytes = 84,
     .group = 16,
     .d = 80,
     .m = 82,
     .low = {16, 32, 2},
     .scale_low = {0, 16, 4}},
    {.name = "q3_k",
     .columns = 256,
     .bytes = 110,
     .group = 16,
     .d = 108,
     .low = {32, 32, 2},
     .high = {0, 32, 1},
     .zero = 4,
     .scale_low = {96, 8, 4},
     .scale_high = {104, 4, 2},
     .scale_zero = 32},
    {.name = "q4_k", .columns = 256, .bytes = 144, .group = 32, .d = 0, .m = 2, .low = {16, 32, 4}},
    {.name = "q5_k",
     .columns = 256,
     .bytes = 176,
     .group = 32,
     .d = 0,
     .m = 2,
     .low = {48, 32, 4},
     .high = {16, 32, 1}},
    {.name = "q6_k",
     .columns = 256,
     .bytes = 210,
     .group = 16,
     .d = 208,
     .low = {0, 64, 4},
     .high = {128, 32, 2},
     .zero = 32,
     .scale_low = {192, 16, 8}},
    {.name = "iq4_nl", .columns = 32, .bytes = 18, .group = 32, .d = 0, .low = {2, 16, 4}},
    {.name = "iq4_xs",
     .columns = 256,
     .bytes = 136,
     .group = 32,
     .d = 0,
     .low = {8, 16, 4},
     .scale_low = {4, 1, 4},
     .scale_high = {2, 1, 2},
     .scale_zero = 32},
};
static_assert(sizeof(kQuantLayouts) / sizeof(QuantLayout) ==
              sizeof(kQuantTypes) / sizeof(QuantType));

// Of one type.
constexpr const QuantLayout& LayoutOf(QuantType type) {
  return kQuantLayouts[static_cast<int>(type)];
}

// What the four bits of iq4_nl and iq4_xs stand for.
inline constexpr int8_t kIq4Numbers[] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                         1,    13,   25,  38,  53,  69,  89,  113};
constexpr bool IsIq4(QuantType type) {
  return type == QuantType::kIq4Nl || type == QuantType::kIq4Xs;
}

}  // namespace tessera

#endif  // TESSERA_OPS_QUANTIZED_QUANT_TYPE_H_
