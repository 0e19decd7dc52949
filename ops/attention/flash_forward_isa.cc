// SPDX-License-Identifier: Apache-2.0
// The forward pass of flash attention for one instruction set: tiles of queries against aligned
// blocks of keys.
#include "ops/attention/flash_kernel.h"
#include "ops/attention/flash_tile.h"

namespace tessera::TESSERA_ISA {
namespace {

// The running maximum and sum of a row, and its output so far (w floats).
struct RowState {
  float maximum;
  float sum;
};

// Scales and masks `width` products of a row; gives the highest of each lane.
TESSERA_SIMD VecF MaskRow(const Row& row, int64_t width, float* scores) {
  VecF highest = Set(-kInfinity);
  int64_t x = 0;
  if (row.bias == nullptr && row.softcap == 0) {
    for (; x < row.clear; x += kLanes) {
      const VecF s = Load(scores + x) * Set(row.scale);
      Store(scores + x, s);
      highest = Max(highest, s);
    }
  }
  for (; x < width; x += kLanes) {
    const VecF s = MaskedScore(row, scores, x);
    Store(scores + x, s);
    highest = Max(highest, s);
  }
  return highest;
}

// Turns `width` scores into unnormalised probabilities, dropped ones zero; gives their sum, with
// the dropped ones.
TESSERA_SIMD float ProbabilitiesOf(const Row& row, int64_t width, float base, float* scores) {
  VecF sum = Zero();
  for (int64_t x = 0; x < width; x += kLanes) {
    VecF p = Exp(Load(scores + x) - Set(base));
    sum = sum + p;
    if (row.random != nullptr) p = Dropped(row, p, x);
    Store(scores + x, p);
  }
  return ReduceAdd(sum);
}

// Turns `width` products of `height` rows into unnormalised probabilities and brings the rows'
// states and outputs up to date. All rows' maxima come first, since one row's wait for each other.
TESSERA_SIMD void SoftmaxStep(const Row* rows, int64_t height, int64_t width, float* scores,
                              RowState* states, float* output, int64_t w) {
  static_assert(kRows <= kLanes);
  float base[kRows];
  bool raised[kRows];
  alignas(64) float shrink[kLanes] = {};
  for (int64_t r = 0; r < height; ++r) {
    const float before = states[r].maximum;
    const float block = ReduceMax(MaskRow(rows[r], width, scores + r * kBlock));
    const float maximum = block > before ? block : before;
    // Without any key so far the maximum is -inf, and every exp below must be zero, not NaN.
    base[r] = maximum == -kInfinity ? 0.0f : maximum;
    shrink[r] = before - base[r];
    raised[r] = maximum != before;
    states[r].maximum = maximum;
  }
  Store(shrink, Exp(Load(shrink)));
  for (int64_t r = 0; r < height; ++r) {
    const float sum = ProbabilitiesOf(rows[r], width, base[r], scores + r * kBlock);
    if (raised[r]) {
      states[r].sum = states[r].sum * shrink[r];
      float* const out = output + r * w;
      for (int64_t x = 0; x < w; x += kLanes) Store(out + x, Load(out + x) * Set(shrink[r]));
    }
    states[r].sum = states[r].sum + sum;
  }
}

int64_t ForwardScratch(const FlashArgs& args) {
  const int64_t w = RoundUp(args.head_dim, kLanes);
  const int64_t rows = RoundUp(Lesser(args.q_len, kFlashQueryChunk), kRows);
  return 2 * rows * w + 2 * kBlock * w + kRows * kBlock;
}

// LoadRows of `n` keys or values from j on, page by page.
void LoadKeys(const FlashArgs& args, FlashElement element, const void* data,
              const FlashStrides& stride, int64_t b, int64_t g, int64_t j, int64_t n,
              int64_t padded, int64_t w, float* dst) {
  for (int64_t x = 0; x < n;) {
    const int64_t run = FlashKeyRun(args, j + x, n - x);
    LoadRows(element, data, FlashKeyOffset(args, stride, b, g, j + x), stride.time, run,
             x + run == n ? padded - x : run, args.head_dim, w, dst + x * w);
    x += run;
  }
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
  // Later queries begin at later keys.
  const int64_t first = FlashFirstKey(args, b, begin) / kBlock * kBlock;
  for (int64_t i = 0; i < rows; ++i) {
    states[i] = {-kInfinity, 0.0f};
    limits[i] = i < count ? FlashKeyLimit(args, b, begin + i) : 0;
    end = limits[i] > end ? limits[i] : end;
  }
  const HeadContext context = MakeContext(args, bias_element, b, h);
  KeyBlock keys;
  Row tile[kRows];
  RowBuffers buffers[kRows];
  for (int64_t j = first; j < end; j += kBlock) {
    const int64_t n = Lesser(kBlock, end - j);
    LoadKeyBlock(args, b, j, &keys);
    // The values' buffer holds the keys until they are transposed.
    LoadKeys(args, element, args.k, args.k_stride, b, g, j, n, RoundUp(n, kPanel), w, values);
    TransposeRows(values, RoundUp(n, kPanel), w, panels);
    LoadKeys(args, element, args.v, args.v_stride, b, g, j, n, n, w, values);
    for (int64_t i = 0; i < count; i += kRows) {
      const int64_t height = Lesser(kRows, count - i);
      int64_t limit = 0;
      for (int64_t r = 0; r < height; ++r) limit = limits[i + r] > limit ? limits[i + r] : limit;
      if (limit <= j || FlashFirstKey(args, b, begin + i) >= j + n) continue;
      const int64_t depth = Lesser(n, limit - j), width = RoundUp(depth, kPanel);
      Scores(height, w, queries + i * w, panels, width, scores);
      for (int64_t r = 0; r < height; ++r) {
        tile[r] = MakeRow(context, keys, begin + i + r, limits[i + r], width, &buffers[r]);
      }
      SoftmaxStep(tile, height, width, scores, &states[i], output + i * w, w);
      Multiply<true>(height, depth, {scores, kBlock, 1}, values, w, w, output + i * w, w);
    }
  }
  Finish(args, element, b, h, begin, count, states, output, w);
}

}  // namespace

const FlashForwardKernel kFlashForward = {ForwardScratch, Forward};

}  // namespace tessera::TESSERA_ISA
