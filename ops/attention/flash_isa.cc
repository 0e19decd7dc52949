// Flash attention for one instruction set: tiles of queries against aligned blocks of keys.
//
// Letters: D head_dim, W D rounded up to whole vectors, T queries or keys of one head.
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
// Rows of a register tile, and queries that the backward pass takes at a time.
#if defined(TESSERA_ISA_AVX512)
constexpr int kRows = 8;
#else
constexpr int kRows = 4;
#endif
constexpr int64_t kQueryTile = 32;

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
          for (; x + kLanes <= d; x += kLanes) Store(to + x, Load(from + x));
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
          for (; x + kLanes <= d; x += kLanes) Store(to + x, scale * Load(from + x));
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
  int32_t document;  // of the query
  float scale;
  const float* bias;       // kBlock of them, or null
  const uint32_t* random;  // kBlock of them, or null
  int32_t threshold;       // kept if random / 2^8 >= threshold
  float kept_scale;        // 1 / (1 - p)
  bool plain;              // every column below `width` is seen
};

TESSERA_SIMD Mask Seen(const Row& row, int64_t x) {
  Mask seen = FirstN(row.seen - x);
  if (row.keys->padded) seen = And(seen, MaskOf(Load(row.keys->keep + x)));
  if (row.keys->documents) {
    seen = And(seen, Load(row.keys->document + x) == SetI(row.document));
  }
  return seen;
}

TESSERA_SIMD VecF MaskedScore(const Row& row, const float* scores, int64_t x) {
  VecF s = Load(scores + x) * Set(row.scale);
  if (row.bias != nullptr) s = s + Load(row.bias + x);
  if (!row.plain) s = Select(Seen(row, x), s, Set(-kInfinity));
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
  row.document = keys.documents ? args.query_document[context.b * args.q_len + i] : 0;
  row.scale = static_cast<float>(args.scale);
  row.bias = nullptr;
  row.random = nullptr;
  row.threshold = context.threshold;
  row.kept_scale = context.kept_scale;
  row.plain = row.seen >= width && !keys.padded && !keys.documents;
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

// ---- Forward ------------------------------------------------------------------------------------

// The running maximum and sum of a row, and its output so far (w floats).
struct RowState {
  float maximum;
  float sum;
};

// Turns `width` products of a row into unnormalised probabilities (dropped ones zero) and brings
// the row's state and output up to date.
TESSERA_SIMD void SoftmaxStep(const Row& row, int64_t width, float* scores, RowState* state,
                              float* output, int64_t w) {
  VecF highest = Set(-kInfinity);
  for (int64_t x = 0; x < width; x += kLanes) {
    const VecF s = MaskedScore(row, scores, x);
    Store(scores + x, s);
    highest = Max(highest, s);
  }
  const float before = state->maximum;
  const float block = ReduceMax(highest);
  const float maximum = block > before ? block : before;
  // Without any key so far the maximum is -inf, and every exp below must be zero, not NaN.
  const float base = maximum == -kInfinity ? 0.0f : maximum;
  VecF sum = Zero();
  for (int64_t x = 0; x < width; x += kLanes) {
    VecF p = Exp(Load(scores + x) - Set(base));
    sum = sum + p;
    if (row.random != nullptr) p = Dropped(row, p, x);
    Store(scores + x, p);
  }
  if (maximum != before) {
    const VecF shrink = Exp(Set(before - base));
    state->sum = state->sum * shrink.v[0];
    for (int64_t x = 0; x < w; x += kLanes) Store(output + x, Load(output + x) * shrink);
  }
  state->maximum = maximum;
  state->sum = state->sum + ReduceAdd(sum);
}

int64_t ForwardScratch(const FlashArgs& args) {
  const int64_t w = RoundUp(args.head_dim, kLanes);
  const int64_t rows = RoundUp(Lesser(args.q_len, kFlashQueryChunk), kRows);
  return 2 * rows * w + 2 * kBlock * w + kRows * kBlock;
}

void Finish(const FlashArgs& args, FlashElement element, int64_t b, int64_t h, int64_t begin,
            int64_t count, const RowState* states, float* output, int64_t w) {
  float* lse = static_cast<float*>(args.lse) + (b * args.heads + h) * args.q_len + begin;
  for (int64_t i = 0; i < count; ++i) {
    const RowState& state = states[i];
    // A row that has seen nothing has an output of zeros.
    const bool empty = state.maximum == -kInfinity && state.sum == 0.0f;
    const VecF inverse = Set(empty ? 0.0f : 1.0f / state.sum);
    for (int64_t x = 0; x < w; x += kLanes) {
      Store(output + i * w + x, Load(output + i * w + x) * inverse);
    }
    lse[i] = empty ? -kInfinity : state.maximum + Log(Set(state.sum)).v[0];
  }
  StoreRows(element, output, 1.0f, count, args.head_dim, w, args.o,
            FlashOffset(args.o_stride, b, h, begin), args.o_stride.time);
}

void Forward(const FlashArgs& args, FlashElement element, FlashElement bias_element, int64_t b,
             int64_t h, int64_t begin, int64_t count, float* scratch) {
  const int64_t d = args.head_dim, w = RoundUp(d, kLanes), rows = RoundUp(count, kRows);
  const int64_t g = FlashKeyHead(args, h);
  float* queries = scratch;
  float* output = queries + rows * w;
  float* panels = output + rows * w;
  float* values = panels + kBlock * w;
  float* scores = values + kBlock * w;
  LoadRows(element, args.q, FlashOffset(args.q_stride, b, h, begin), args.q_stride.time, count,
           rows, d, w, queries);
  Fill(output, rows * w, 0.0f);
  RowState states[kFlashQueryChunk + kRows];
  int64_t limits[kFlashQueryChunk + kRows];
  int64_t end = 0;
  for (int64_t i = 0; i < rows; ++i) {
    states[i] = {-kInfinity, 0.0f};
    limits[i] = i < count ? FlashKeyLimit(args, b, begin + i) : 0;
    end = limits[i] > end ? limits[i] : end;
  }
  const HeadContext context = MakeContext(args, bias_element, b, h);
  KeyBlock keys;
  RowBuffers buffers;
  for (int64_t j = 0; j < end; j += kBlock) {
    const int64_t n = Lesser(kBlock, end - j);
    LoadKeyBlock(args, b, j, &keys);
    // The values' buffer holds the keys until they are transposed.
    LoadRows(element, args.k, FlashOffset(args.k_stride, b, g, j), args.k_stride.time, n,
             RoundUp(n, kPanel), d, w, values);
    TransposeRows(values, RoundUp(n, kPanel), w, panels);
    LoadRows(element, args.v, FlashOffset(args.v_stride, b, g, j), args.v_stride.time, n, n, d, w,
             values);
    for (int64_t i = 0; i < count; i += kRows) {
      const int64_t height = Lesser(kRows, count - i);
      int64_t limit = 0;
      for (int64_t r = 0; r < height; ++r) limit = limits[i + r] > limit ? limits[i + r] : limit;
      if (limit <= j) continue;
      const int64_t depth = Lesser(n, limit - j), width = RoundUp(depth, kPanel);
      Scores(height, w, queries + i * w, panels, width, scores);
      for (int64_t r = 0; r < height; ++r) {
        const Row row = MakeRow(context, keys, begin + i + r, limits[i + r], width, &buffers);
        SoftmaxStep(row, width, scores + r * kBlock, &states[i + r], output + (i + r) * w, w);
      }
      Multiply<true>(height, depth, {scores, kBlock, 1}, values, w, w, output + i * w, w);
    }
  }
  Finish(args, element, b, h, begin, count, states, output, w);
}

// ---- Backward -----------------------------------------------------------------------------------

// Where the parts of the backward pass stand in its scratch.
struct BackwardBuffers {
  float *queries, *d_output, *d_queries;    // [Tq up to whole tiles][W] of one head
  float *d_keys, *d_values;                 // [Tk up to whole blocks][W]
  float *lse, *delta;                       // [Tq up to whole tiles]
  float *keys, *key_panels, *value_panels;  // of one block
  float *probabilities, *d_scores;          // [kQueryTile][kBlock]
  int64_t total;
};

BackwardBuffers LayOut(const FlashArgs& args, float* scratch) {
  const int64_t w = RoundUp(args.head_dim, kLanes);
  const int64_t tq = RoundUp(args.q_len, kQueryTile), tk = RoundUp(args.k_len, kBlock);
  int64_t at = 0;
  const auto take = [&](int64_t n) __attribute__((always_inline)) {
    float* p = scratch + at;
    at += RoundUp(n, 16);
    return p;
  };
  BackwardBuffers x;
  x.queries = take(tq * w);
  x.d_output = take(tq * w);
  x.d_queries = take(tq * w);
  x.d_keys = take(tk * w);
  x.d_values = take(tk * w);
  x.lse = take(tq);
  x.delta = take(tq);
  x.keys = take(kBlock * w);
  x.key_panels = take(kBlock * w);
  x.value_panels = take(kBlock * w);
  x.probabilities = take(kQueryTile * kBlock);
  x.d_scores = take(kQueryTile * kBlock);
  x.total = at;
  return x;
}

int64_t BackwardScratch(const FlashArgs& args) {
  alignas(64) static float nothing[16];
  return LayOut(args, nothing).total;
}

// Adds a row of score gradients to the bias' gradient.
void AddBiasGradient(const FlashBackwardArgs& args, int64_t b, int64_t h, int64_t i, int64_t begin,
                     const float* d_scores) {
  const FlashBiasStrides& stride = args.dbias_stride;
  float* to = static_cast<float*>(args.dbias) + b * stride.batch + h * stride.head +
              i * stride.query + begin * stride.key;
  const int64_t n = Lesser(kBlock, args.forward.k_len - begin);
  for (int64_t j = 0; j < n; ++j) to[j * stride.key] += d_scores[j];
}

// From the products S (in `scores`) and dO V^T (in `d_scores`) of a row: the probabilities with
// dropout, and the gradients of the scores.
TESSERA_SIMD void GradientRow(const Row& row, int64_t width, float lse, float delta, float* scores,
                              float* d_scores) {
  for (int64_t x = 0; x < width; x += kLanes) {
    VecF p = Exp(MaskedScore(row, scores, x) - Set(lse));
    VecF dp = Load(d_scores + x);
    VecF kept = p;
    if (row.random != nullptr) {
      dp = Dropped(row, dp, x);
      kept = Dropped(row, p, x);
    }
    Store(d_scores + x, p * (dp - Set(delta)));
    Store(scores + x, kept);
  }
}

// One head's queries, what comes back to them, and per row lse and sum of d_o * o.
void LoadHead(const FlashBackwardArgs& args, FlashElement element, int64_t b, int64_t h, int64_t w,
              const BackwardBuffers& x) {
  const FlashArgs& f = args.forward;
  const int64_t d = f.head_dim, tq = f.q_len, padded = RoundUp(tq, kQueryTile);
  // The outputs pass through the queries' buffer.
  LoadRows(element, f.o, FlashOffset(f.o_stride, b, h, 0), f.o_stride.time, tq, padded, d, w,
           x.queries);
  LoadRows(element, args.d_o, FlashOffset(args.d_o_stride, b, h, 0), args.d_o_stride.time, tq,
           padded, d, w, x.d_output);
  const float* lse = static_cast<const float*>(f.lse) + (b * f.heads + h) * tq;
  for (int64_t i = 0; i < padded; ++i) {
    VecF sum = Zero();
    for (int64_t c = 0; c < w; c += kLanes) {
      sum = Fma(Load(x.d_output + i * w + c), Load(x.queries + i * w + c), sum);
    }
    x.delta[i] = ReduceAdd(sum);
    // exp(s - inf) is zero, also for s = -inf: a row without keys has no gradients.
    x.lse[i] = i < tq && lse[i] != -kInfinity ? lse[i] : kInfinity;
  }
  LoadRows(element, f.q, FlashOffset(f.q_stride, b, h, 0), f.q_stride.time, tq, padded, d, w,
           x.queries);
  Fill(x.d_queries, padded * w, 0.0f);
}

// Queries [i, i + height) against the keys of a block: adds to their dq and the block's dk and dv.
void BackwardTile(const FlashBackwardArgs& args, const HeadContext& context, const KeyBlock& keys,
                  int64_t i, int64_t height, const int64_t* limits, int64_t depth, int64_t w,
                  const BackwardBuffers& x) {
  const int64_t width = RoundUp(depth, kPanel);
  const int64_t whole = RoundUp(height, kRows);
  Scores(whole, w, x.queries + i * w, x.key_panels, width, x.probabilities);
  Scores(whole, w, x.d_output + i * w, x.value_panels, width, x.d_scores);
  RowBuffers buffers;
  for (int64_t r = 0; r < height; ++r) {
    float* p = x.probabilities + r * kBlock;
    float* ds = x.d_scores + r * kBlock;
    const Row row = MakeRow(context, keys, i + r, limits[r], width, &buffers);
    GradientRow(row, width, x.lse[i + r], x.delta[i + r], p, ds);
    if (args.dbias != nullptr) {
      Fill(ds + width, kBlock - width, 0.0f);
      AddBiasGradient(args, context.b, context.h, i + r, keys.begin, ds);
    }
  }
  Fill(x.d_scores + height * kBlock, (whole - height) * kBlock, 0.0f);
  Multiply<true>(whole, depth, {x.d_scores, kBlock, 1}, x.keys, w, w, x.d_queries + i * w, w);
  const int64_t columns = RoundUp(depth, kRows);
  Multiply<true>(columns, height, {x.probabilities, 1, kBlock}, x.d_output + i * w, w, w,
                 x.d_values + keys.begin * w, w);
  Multiply<true>(columns, height, {x.d_scores, 1, kBlock}, x.queries + i * w, w, w,
                 x.d_keys + keys.begin * w, w);
}

void BackwardHead(const FlashBackwardArgs& args, FlashElement element, FlashElement bias_element,
                  int64_t b, int64_t g, int64_t h, int64_t w, const BackwardBuffers& x) {
  const FlashArgs& f = args.forward;
  const int64_t d = f.head_dim;
  LoadHead(args, element, b, h, w, x);
  const HeadContext context = MakeContext(f, bias_element, b, h);
  KeyBlock keys;
  for (int64_t j = 0; j < f.k_len; j += kBlock) {
    const int64_t n = Lesser(kBlock, f.k_len - j), panels = RoundUp(n, kPanel);
    bool loaded = false;
    for (int64_t i = 0; i < f.q_len; i += kQueryTile) {
      const int64_t height = Lesser(kQueryTile, f.q_len - i);
      int64_t limits[kQueryTile];
      int64_t limit = 0, first = height;
      for (int64_t r = 0; r < height; ++r) {
        limits[r] = FlashKeyLimit(f, b, i + r);
        limit = limits[r] > limit ? limits[r] : limit;
        if (limits[r] > j && first == height) first = r / kRows * kRows;
      }
      if (limit <= j) continue;
      if (!loaded) {
        loaded = true;
        LoadKeyBlock(f, b, j, &keys);
        LoadRows(element, f.v, FlashOffset(f.v_stride, b, g, j), f.v_stride.time, n, panels, d, w,
                 x.keys);
        TransposeRows(x.keys, panels, w, x.value_panels);
        LoadRows(element, f.k, FlashOffset(f.k_stride, b, g, j), f.k_stride.time, n, panels, d, w,
                 x.keys);
        TransposeRows(x.keys, panels, w, x.key_panels);
      }
      BackwardTile(args, context, keys, i + first, height - first, limits + first,
                   Lesser(n, limit - j), w, x);
    }
  }
  StoreRows(element, x.d_queries, static_cast<float>(f.scale), f.q_len, d, w, args.dq,
            FlashOffset(args.dq_stride, b, h, 0), args.dq_stride.time);
}

void Backward(const FlashBackwardArgs& args, FlashElement element, FlashElement bias_element,
              int64_t b, int64_t g, float* scratch) {
  const FlashArgs& f = args.forward;
  const int64_t w = RoundUp(f.head_dim, kLanes);
  const BackwardBuffers x = LayOut(f, scratch);
  Fill(x.d_keys, RoundUp(f.k_len, kBlock) * w, 0.0f);
  Fill(x.d_values, RoundUp(f.k_len, kBlock) * w, 0.0f);
  for (int64_t h = 0; h < f.heads; ++h) {
    if (FlashKeyHead(f, h) == g) BackwardHead(args, element, bias_element, b, g, h, w, x);
  }
  StoreRows(element, x.d_keys, static_cast<float>(f.scale), f.k_len, f.head_dim, w, args.dk,
            FlashOffset(args.dk_stride, b, g, 0), args.dk_stride.time);
  StoreRows(element, x.d_values, 1.0f, f.k_len, f.head_dim, w, args.dv,
            FlashOffset(args.dv_stride, b, g, 0), args.dv_stride.time);
}

}  // namespace

const FlashKernels kFlashKernels = {ForwardScratch, Forward, BackwardScratch, Backward};

}  // namespace tessera::TESSERA_ISA
