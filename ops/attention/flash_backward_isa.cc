// SPDX-License-Identifier: Apache-2.0
// The backward pass of flash attention for one instruction set: blocks of keys, whose dk and dv
// stay in cache, against tiles of queries, whose dq is added to.
#include "ops/attention/flash_kernel.h"
#include "ops/attention/flash_tile.h"

namespace tessera::TESSERA_ISA {
namespace {

// Queries that are taken at a time.
constexpr int64_t kQueryTile = 32;

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

// The derivative of capped scores; that of one that is not seen, -inf, is zero.
TESSERA_SIMD VecF SoftcapSlope(const Row& row, VecF s) {
  const VecF tanh = Max(s, Set(-row.softcap)) * Set(1.0f / row.softcap);
  return Set(1.0f) - tanh * tanh;
}

// From the products S (in `scores`) and dO V^T (in `d_scores`) of a row: the probabilities with
// dropout, and the gradients of the scores.
TESSERA_SIMD void GradientRow(const Row& row, int64_t width, float lse, float delta, float* scores,
                              float* d_scores) {
  for (int64_t x = 0; x < width; x += kLanes) {
    const VecF s = MaskedScore(row, scores, x);
    VecF p = Exp(s - Set(lse));
    VecF dp = Load(d_scores + x);
    VecF kept = p;
    if (row.random != nullptr) {
      dp = Dropped(row, dp, x);
      kept = Dropped(row, p, x);
    }
    VecF ds = p * (dp - Set(delta));
    if (row.softcap > 0) ds = ds * SoftcapSlope(row, s);
    Store(d_scores + x, ds);
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
      if (limit <= j || FlashFirstKey(f, b, i) >= j + n) continue;
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

const FlashBackwardKernel kFlashBackward = {BackwardScratch, Backward};

}  // namespace tessera::TESSERA_ISA
