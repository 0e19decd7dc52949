// SPDX-License-Identifier: Apache-2.0
// What the forward and the backward pass share: products of tiles, moving, masks, bias, dropout.
//
// For flash_forward_isa.cc and flash_backward_isa.cc, which are compiled once per instruction set.
// Everything has internal linkage, so that no copy can be merged with another's.
//
// Letters: D head_dim, W D rounded up to whole vectors, T queries or keys of one head.
#ifndef TESSERA_OPS_ATTENTION_FLASH_TILE_H_
#define TESSERA_OPS_ATTENTION_FLASH_TILE_H_

#include "core/cpu/philox_simd.h"
#include "core/cpu/simd.h"
#include "core/cpu/simd_transpose.h"
#include "ops/attention/flash_kernel.h"

namespace tessera::TESSERA_ISA {
namespace {

// Keys are taken in blocks [96 n, 96 n + 96) of their index, as panels of kPanel for the scores.
constexpr int64_t kBlock = 96;
constexpr int kPanelVectors = 3;
constexpr int64_t kPanel = kPanelVectors * kLanes;
static_assert(kBlock % kPanel == 0);
// Rows of a register tile.
#if defined(TESSERA_ISA_AVX512)
constexpr int kRows = 8;
#else
constexpr int kRows = 4;
#endif

// A head's rows are short pieces of memory far from each other, which no processor fetches ahead by
// itself: so many rows before they are moved, the next ones are asked for.
constexpr int64_t kRowsAhead = 8;

constexpr float kInfinity = __builtin_inff();

TESSERA_SIMD int64_t RoundUp(int64_t a, int64_t b) { return (a + b - 1) / b * b; }
TESSERA_SIMD int64_t Lesser(int64_t a, int64_t b) { return a < b ? a : b; }

// ---- Products -----------------------------------------------------------------------------------

// A matrix read one element at a time: (i, k) at data[i * row + k * depth].
struct Factor {
  const float* data;
  int64_t row;
  int64_t depth;
};

// c[i][j] (+)= the chain of a(i, k) * b[k][j] over k, for kHeight x kVectors vectors.
template <int kHeight, int kVectors, bool kAdd>
TESSERA_SIMD void Tile(int64_t depth, Factor a, const float* b, int64_t b_stride, float* c,
                       int64_t c_stride) {
  VecF sum[kHeight][kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kHeight; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) {
      sum[i][j] = kAdd ? Load(c + i * c_stride + j * kLanes) : Zero();
    }
  }
  const float* factor = a.data;
  for (int64_t k = 0; k < depth; ++k) {
    VecF row[kVectors];
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) row[j] = Load(b + j * kLanes);
#pragma GCC unroll 8
    for (int i = 0; i < kHeight; ++i) {
      const VecF x = Set(factor[i * a.row]);
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) sum[i][j] = Fma(x, row[j], sum[i][j]);
    }
    factor += a.depth;
    b += b_stride;
  }
#pragma GCC unroll 8
  for (int i = 0; i < kHeight; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) Store(c + i * c_stride + j * kLanes, sum[i][j]);
  }
}

// The same for `width` columns, a whole number of vectors.
template <int kHeight, bool kAdd>
TESSERA_SIMD void Strip(int64_t depth, Factor a, const float* b, int64_t b_stride, int64_t width,
                        float* c, int64_t c_stride) {
  int64_t j = 0;
  while (j < width) {
    const int64_t left = (width - j) / kLanes;
    if (left >= 5 || left == 3) {
      Tile<kHeight, 3, kAdd>(depth, a, b + j, b_stride, c + j, c_stride);
      j += 3 * kLanes;
    } else if (left >= 2) {
      Tile<kHeight, 2, kAdd>(depth, a, b + j, b_stride, c + j, c_stride);
      j += 2 * kLanes;
    } else {
      Tile<kHeight, 1, kAdd>(depth, a, b + j, b_stride, c + j, c_stride);
      j += kLanes;
    }
  }
}

// Rows are taken kRows at a time: buffers have room, and a finite content, up to that. A single row
// is taken alone.
template <bool kAdd>
__attribute__((noinline)) void Multiply(int64_t rows, int64_t depth, Factor a, const float* b,
                                        int64_t b_stride, int64_t width, float* c,
                                        int64_t c_stride) {
  if (rows == 1) return Strip<1, kAdd>(depth, a, b, b_stride, width, c, c_stride);
  for (int64_t i = 0; i < rows; i += kRows) {
    Strip<kRows, kAdd>(depth, {a.data + i * a.row, a.row, a.depth}, b, b_stride, width,
                       c + i * c_stride, c_stride);
  }
}

// scores[i][j] = sum over d of rows(i, d) * keys(j, d) for the first `width` keys of a block, whose
// panels lie one behind the other as [W][kPanel].
void Scores(int64_t rows, int64_t w, const float* queries, const float* panels, int64_t width,
            float* scores) {
  for (int64_t j = 0; j < width; j += kPanel) {
    Multiply<false>(rows, w, {queries, w, 1}, panels + j * w, kPanel, kPanel, scores + j, kBlock);
  }
}

// ---- Moving -------------------------------------------------------------------------------------

template <typename F>
TESSERA_SIMD void Dispatch(FlashElement element, const void* data, F f) {
  switch (element) {
    case FlashElement::kBFloat16:
      return f(static_cast<const Bf16*>(data));
    case FlashElement::kFloat16:
      return f(static_cast<const F16*>(data));
    default:
      return f(static_cast<const float*>(data));
  }
}

// n rows of d elements, `stride` apart from element `offset` on, as float32 rows of w with zeros
// behind; then zero rows up to `padded`.
void LoadRows(FlashElement element, const void* data, int64_t offset, int64_t stride, int64_t n,
              int64_t padded, int64_t d, int64_t w, float* dst) {
  Dispatch(
      element, data, [&](const auto* src) __attribute__((always_inline)) {
        for (int64_t i = 0; i < n; ++i) {
          const auto* from = src + offset + i * stride;
          float* to = dst + i * w;
          int64_t x = 0;
          for (; x + kLanes <= d; x += kLanes) {
            Store(to + x, Load(from + x));
            __builtin_prefetch(from + kRowsAhead * stride + x);
          }
          if (x < d) Store(to + x, LoadN(from + x, d - x));
        }
      });
  for (int64_t x = n * w; x < padded * w; ++x) dst[x] = 0.0f;
}

template <typename T>
TESSERA_SIMD T* Writable(const T* p) {
  return const_cast<T*>(p);
}

// factor * src back to n rows of d elements.
void StoreRows(FlashElement element, const float* src, float factor, int64_t n, int64_t d,
               int64_t w, void* data, int64_t offset, int64_t stride) {
  Dispatch(
      element, data, [&](const auto* base) __attribute__((always_inline)) {
        const VecF scale = Set(factor);
        for (int64_t i = 0; i < n; ++i) {
          auto* to = Writable(base) + offset + i * stride;
          const float* from = src + i * w;
          int64_t x = 0;
          for (; x + kLanes <= d; x += kLanes) {
            Store(to + x, scale * Load(from + x));
            __builtin_prefetch(to + kRowsAhead * stride + x, 1);
          }
          if (x < d) StoreN(to + x, scale * Load(from + x), d - x);
        }
      });
}

// Rows [width][w] as panels [w][kPanel]; width is a multiple of kPanel.
void TransposeRows(const float* rows, int64_t width, int64_t w, float* panels) {
  for (int64_t j = 0; j < width; j += kLanes) {
    float* panel = panels + j / kPanel * kPanel * w + j % kPanel;
    for (int64_t x = 0; x < w; x += kLanes) {
      VecF square[kLanes];
#pragma GCC unroll 16
      for (int64_t i = 0; i < kLanes; ++i) square[i] = Load(rows + (j + i) * w + x);
      TransposeSquare(square);
#pragma GCC unroll 16
      for (int64_t i = 0; i < kLanes; ++i) Store(panel + (x + i) * kPanel, square[i]);
    }
  }
}

TESSERA_SIMD void Fill(float* p, int64_t n, float value) {
  for (int64_t i = 0; i < n; ++i) p[i] = value;
}

// ---- Masks, bias, dropout -----------------------------------------------------------------------

// Which keys of a block may be seen at all, and their documents.
struct KeyBlock {
  int64_t begin;  // index of its first key
  bool padded;    // `keep` is set
  bool documents;
  int32_t keep[kBlock];
  int32_t document[kBlock];
};

void LoadKeyBlock(const FlashArgs& args, int64_t b, int64_t begin, KeyBlock* block) {
  block->begin = begin;
  block->padded = args.key_padding != nullptr;
  block->documents = args.key_document != nullptr;
  const int64_t n = Lesser(kBlock, args.k_len - begin);
  for (int64_t j = 0; j < kBlock && block->padded; ++j) {
    block->keep[j] = j < n && args.key_padding[b * args.k_len + begin + j] != 0;
  }
  for (int64_t j = 0; j < kBlock && block->documents; ++j) {
    block->document[j] = j < n ? args.key_document[b * args.k_len + begin + j] : 0;
  }
}

// What one row of scores needs besides the products.
struct Row {
  const KeyBlock* keys;
  int64_t seen;      // keys of the block below the row's limit
  int64_t passed;    // of those, the ones that the row's window has passed; negative: none
  int32_t document;  // of the query
  float scale;
  float softcap;           // 0: none
  const float* bias;       // kBlock of them, or null
  const uint32_t* random;  // kBlock of them, or null
  int32_t threshold;       // kept if random / 2^8 >= threshold
  float kept_scale;        // 1 / (1 - p)
  int64_t clear;           // columns before this one are seen: whole vectors
};

TESSERA_SIMD Mask Seen(const Row& row, int64_t x) {
  Mask seen = FirstN(row.seen - x);
  if (row.passed > x) seen = And(seen, Not(FirstN(row.passed - x)));
  if (row.keys->padded) seen = And(seen, MaskOf(Load(row.keys->keep + x)));
  if (row.keys->documents) {
    const VecI document = Load(row.keys->document + x);
    seen = And(seen, Or(document == SetI(row.document), document == SetI(kEveryDocument)));
  }
  return seen;
}

TESSERA_SIMD VecF MaskedScore(const Row& row, const float* scores, int64_t x) {
  VecF s = Load(scores + x) * Set(row.scale);
  if (row.softcap > 0) s = Set(row.softcap) * Tanh(s * Set(1.0f / row.softcap));
  if (row.bias != nullptr) s = s + Load(row.bias + x);
  if (x >= row.clear) s = Select(Seen(row, x), s, Set(-kInfinity));
  return s;
}

// v where the element is kept, scaled; zero where it is dropped.
TESSERA_SIMD VecF Dropped(const Row& row, VecF v, int64_t x) {
  const VecI bits = ShiftRight<8>(Load(reinterpret_cast<const int32_t*>(row.random) + x));
  return Select(SetI(row.threshold) > bits, Zero(), v * Set(row.kept_scale));
}

// Everything about rows that does not change within a head.
struct HeadContext {
  const FlashArgs* args;
  FlashElement bias_element;
  int64_t b, h;
  int32_t threshold;
  float kept_scale;
};

HeadContext MakeContext(const FlashArgs& args, FlashElement bias_element, int64_t b, int64_t h) {
  const float p = args.dropout.p;
  const float scaled = p * 16777216.0f;
  const int32_t floor = static_cast<int32_t>(scaled);
  return {&args,
          bias_element,
          b,
          h,
          floor + (static_cast<float>(floor) < scaled ? 1 : 0),
          p > 0 ? 1.0f / (1.0f - p) : 1.0f};
}

struct RowBuffers {
  float bias[kBlock];
  uint32_t random[RandomRangeWords(kBlock)];
};

void LoadBias(const HeadContext& context, int64_t i, int64_t begin, float* bias) {
  const FlashArgs& args = *context.args;
  const FlashBiasStrides& stride = args.bias_stride;
  const int64_t n = Lesser(kBlock, args.k_len - begin);
  const int64_t offset =
      context.b * stride.batch + context.h * stride.head + i * stride.query + begin * stride.key;
  Dispatch(
      context.bias_element, args.bias, [&](const auto* base) __attribute__((always_inline)) {
        const auto* from = base + offset;
        for (int64_t x = 0; x < kBlock; x += kLanes) {
          if (stride.key == 1) {
            Store(bias + x, LoadN(from + x, n - x));
          } else {
            for (int64_t j = x; j < x + kLanes; ++j) {
              bias[j] = j < n ? LoadN(from + j * stride.key, 1).v[0] : 0.0f;
            }
          }
        }
      });
}

TESSERA_SIMD Row MakeRow(const HeadContext& context, const KeyBlock& keys, int64_t i, int64_t limit,
                         int64_t width, RowBuffers* buffers) {
  const FlashArgs& args = *context.args;
  Row row;
  row.keys = &keys;
  row.seen = limit - keys.begin;
  row.passed = FlashFirstKey(args, context.b, i) - keys.begin;
  row.document = keys.documents ? args.query_document[context.b * args.q_len + i] : 0;
  row.scale = static_cast<float>(args.scale);
  row.softcap = static_cast<float>(args.softcap);
  row.bias = nullptr;
  row.random = nullptr;
  row.threshold = context.threshold;
  row.kept_scale = context.kept_scale;
  const bool by_limit = row.passed <= 0 && !keys.padded && !keys.documents;
  row.clear = by_limit ? Lesser(width, row.seen / kLanes * kLanes) : 0;
  if (args.bias != nullptr) {
    LoadBias(context, i, keys.begin, buffers->bias);
    row.bias = buffers->bias;
  }
  if (args.dropout.p > 0) {
    const uint64_t index =
        FlashDropoutIndex(args, context.b, context.h, i) + static_cast<uint64_t>(keys.begin);
    row.random =
        RandomRange(args.dropout.key_hi, args.dropout.key_lo, index, kBlock, buffers->random);
  }
  return row;
}

}  // namespace
}  // namespace tessera::TESSERA_ISA

#endif  // TESSERA_OPS_ATTENTION_FLASH_TILE_H_
