// SPDX-License-Identifier: Apache-2.0
// Attention without tensor cores: float32, float64, and shapes that the flash kernels do not take,
// of any head size. Products are those of Wide<T>, float or double, summed in order.
//
// Method: T. Dao, "FlashAttention-2", arXiv:2307.08691, as in flash_cuda.cu. The backward pass runs
// one kernel twice, for blocks that own queries (dq) and for blocks that own keys (dk, dv): each
// sums in one fixed order, with no atomic addition, at the price of computing the scores twice.
//
// Everything is done in square tiles (attention_tiles.cuh). Where head_dim is more than a tile's
// features, products of rows are added tile by tile, and there is a block for each tile of the
// features that are written, which computes the scores for itself.
//
// Letters: Q queries of a tile, K keys of a tile, D features of a tile, beyond head_dim zeros.
#include <algorithm>

#include "core/cuda/launch.h"
#include "core/cuda/math.cuh"
#include "core/cuda/reduce.cuh"
#include "core/formula.h"
#include "ops/attention/attention_cuda.h"
#include "ops/attention/attention_mask.cuh"
#include "ops/attention/attention_tiles.cuh"

namespace tessera::cuda {
namespace {

// ---- Scores -----------------------------------------------------------------------------------

// Which tile of scores, of query head h and the key/value head that it reads.
struct PairPlace {
  int64_t b, h, key_head;
  int q_begin, k_begin;
};

// What is known of a tile's queries and keys, in shared memory.
template <typename W>
struct Sides {
  Query queries[kTile<W>];
  Key keys[kTile<W>];
  uint16_t kept[kTile<W> * kTile<W> / 16];  // with dropout
};

// Between barriers that all threads of a block pass.
template <typename W>
__device__ __forceinline__ void LoadSides(Sides<W>& sides, const FlashArgs& args,
                                          const KeyRange& range, const PairPlace& at) {
  if (threadIdx.x < kTile<W>) {
    const int n = threadIdx.x;
    sides.queries[n] = MasksOf<Query, true>(args, range, at.b, at.q_begin + n);
    sides.keys[n] = MasksOf<Key, true>(args, range, at.b, at.k_begin + n);
  }
  if (args.dropout.p > 0.0f) {
    ComputeKept<kTile<W>, kTile<W>>(sides.kept, args, at.b, at.h, at.q_begin, at.k_begin);
  }
}

// Scores that are not -inf += the bias; `bias` is that of the tile's first row and column.
template <typename W, typename B>
__device__ __forceinline__ void AddBias(Part<W>& s, const B* bias, int64_t row_stride,
                                        int64_t column_stride, const Place& place) {
  const B* row = bias + place.row * row_stride + place.column * column_stride;
#pragma unroll
  for (int m = 0; m < kRows<W>; ++m) {
    const B* at = row;
#pragma unroll
    for (int n = 0; n < kColumns<W>; ++n) {
      if (s[m][n] != static_cast<W>(-INFINITY)) s[m][n] += static_cast<W>(ToWide(*at));
      at += kColumnThreads * column_stride;
    }
    row += kRowThreads * row_stride;
  }
}

// Turns products into scores: scale q.k, capped, + bias, -inf where the query does not see the key.
// Rows are queries, or with kOfKeys keys.
template <bool kOfKeys, typename W>
__device__ __forceinline__ void ScoreProducts(Part<W>& s, const FlashArgs& args,
                                              const KeyRange& range, const Sides<W>& sides,
                                              const PairPlace& at, const Place& place) {
  const W scale = static_cast<W>(args.scale);
  EachPair<W>(place, [&](int m, int n, int, int) { s[m][n] *= scale; });
  if (args.softcap > 0) {
    const W cap = static_cast<W>(args.softcap);
    EachPair<W>(place,
                [&](int m, int n, int, int) { s[m][n] = cap * formula::Tanh(s[m][n] / cap); });
  }
  if (args.key_padding == nullptr && args.key_document == nullptr && args.bias == nullptr &&
      range.IsWhole(at.q_begin, kTile<W>, at.k_begin, kTile<W>)) {
    return;
  }
  EachPair<W>(place, [&](int m, int n, int row, int column) {
    const Query& query = sides.queries[kOfKeys ? column : row];
    const Key& key = sides.keys[kOfKeys ? row : column];
    if (!Sees(query, key)) s[m][n] = static_cast<W>(-INFINITY);
  });
  if (args.bias == nullptr) return;
  const FlashBiasStrides& stride = args.bias_stride;
  const int64_t first = at.b * stride.batch + at.h * stride.head + at.q_begin * stride.query +
                        at.k_begin * stride.key;
  const auto add = [&](auto element) {
    AddBias(s, static_cast<const decltype(element)*>(args.bias) + first,
            kOfKeys ? stride.key : stride.query, kOfKeys ? stride.query : stride.key, place);
  };
  if constexpr (std::is_same_v<W, double>) {
    add(double{});
  } else if (args.bias_dtype == DType::kBFloat16) {
    add(BF16{});
  } else if (args.bias_dtype == DType::kFloat16) {
    add(F16{});
  } else {
    add(float{});
  }
}

// ---- Forward ----------------------------------------------------------------------------------

// Which tiles a block of a flat grid owns: of features that are written, of rows of a head.
struct BlockPlace {
  int features, rows;
  int64_t h, b;
};
__device__ __forceinline__ BlockPlace PlaceOfBlock(int feature_tiles, int row_tiles,
                                                   int64_t heads) {
  unsigned rest = blockIdx.x;
  const auto next = [&](unsigned n) {
    const unsigned digit = rest % n;
    rest /= n;
    return static_cast<int>(digit);
  };
  const int features = next(static_cast<unsigned>(feature_tiles));
  const int rows = next(static_cast<unsigned>(row_tiles));
  const int h = next(static_cast<unsigned>(heads));
  return {features, rows, h, static_cast<int64_t>(rest)};
}
// Tiles of features; one where there are none, for what is written beside them.
template <typename W>
__host__ __device__ constexpr int FeatureTiles(const FlashArgs& args) {
  return args.head_dim == 0 ? 1 : TilesOf(args.head_dim, kTile<W>);
}

template <typename T>
__global__ void __launch_bounds__(kThreadsOfBlock, 3)
    ForwardKernel(const __grid_constant__ FlashArgs args) {
  using W = Wide<T>;
  const W lowest = static_cast<W>(-INFINITY);
  auto& sides = BlockShared<Sides<W>>();
  W* q_QD = DynamicShared<W>();
  W* k_KD = q_QD + kTileSize<W>;
  W* v_KD = k_KD + kTileSize<W>;
  W* p_QK = v_KD + kTileSize<W>;

  const int q_len = static_cast<int>(args.q_len);
  const int head_dim = static_cast<int>(args.head_dim);
  const int chunks = FeatureTiles<W>(args);
  const int query_tiles = TilesOf(q_len, kTile<W>);
  const BlockPlace block = PlaceOfBlock(chunks, query_tiles, args.heads);
  const Place place = PlaceOfThread();
  // The last queries see most keys under a causal mask: they go first.
  const int q_begin = (query_tiles - 1 - block.rows) * kTile<W>;
  const int d_begin = block.features * kTile<W>;
  const int64_t b = block.b;
  const int64_t h = block.h;
  const int64_t key_head = FlashKeyHead(args, h);
  // What lies behind the last key that is seen may be no number at all, which even a probability
  // of zero does not make one.
  const auto load_keys = [&](W* tile, const void* data, const FlashStrides& stride, int begin,
                             int end, int d) {
    if (args.pages.table == nullptr) {
      LoadTile<T>(tile, data, stride, b, key_head, begin, end, d, head_dim);
    } else {
      LoadTile<T, 1>(tile, data, stride, begin, end, d, head_dim,
                     [&](int j) { return FlashKeyOffset(args, stride, b, key_head, j); });
    }
  };

  const KeyRange range(args, b);
  const int begin = range.First(q_begin) / kTile<W> * kTile<W>;
  const int end = range.Limit(min(q_begin + kTile<W>, q_len) - 1);

  Part<W> o = {};
  W max_score[kRows<W>];
  W sum[kRows<W>] = {};  // this thread's share
#pragma unroll
  for (int m = 0; m < kRows<W>; ++m) max_score[m] = lowest;

  for (int k_begin = begin; k_begin < end; k_begin += kTile<W>) {
    const PairPlace at = {b, h, key_head, q_begin, k_begin};
    Part<W> p = {};
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const int d = chunk * kTile<W>;
      __syncthreads();  // what is there has been read
      if (k_begin == begin || chunks > 1) {
        LoadTile<T>(q_QD, args.q, args.q_stride, b, h, q_begin, q_len, d, head_dim);
      }
      load_keys(k_KD, args.k, args.k_stride, k_begin, end, d);
      if (chunk == 0) {
        load_keys(v_KD, args.v, args.v_stride, k_begin, end, d_begin);
        LoadSides(sides, args, range, at);
      }
      __syncthreads();
      AddRowsByRows(p, q_QD, k_KD, min(kTile<W>, head_dim - d), place);
    }
    ScoreProducts<false>(p, args, range, sides, at, place);
#pragma unroll
    for (int m = 0; m < kRows<W>; ++m) {
      W new_max = max_score[m];
#pragma unroll
      for (int n = 0; n < kColumns<W>; ++n) new_max = max(new_max, p[m][n]);
      new_max = ReduceColumns(new_max, MaxOp());
      const W base = new_max == lowest ? W(0) : new_max;
      const W shrink = formula::Exp(max_score[m] - base);
      max_score[m] = new_max;
      sum[m] *= shrink;
#pragma unroll
      for (int n = 0; n < kColumns<W>; ++n) {
        o[m][n] *= shrink;
        p[m][n] = formula::Exp(p[m][n] - base);
        sum[m] += p[m][n];
      }
    }
    if (args.dropout.p > 0.0f) {
      EachPair<W>(place, [&](int m, int n, int row, int column) {
        if (!IsKept<kTile<W>>(sides.kept, row, column)) p[m][n] = W(0);
      });
    }
    StorePart(p_QK, p, place);
    AddRowsByColumns(o, p_QK, v_KD, min(kTile<W>, end - k_begin), place);
  }

  W inverse[kRows<W>];
#pragma unroll
  for (int m = 0; m < kRows<W>; ++m) {
    const W total = ReduceColumns(sum[m], SumOp());
    inverse[m] = total == W(0) ? W(0) : KeptScale<W>(args) / total;
    const int i = q_begin + place.row + m * kRowThreads;
    if (block.features == 0 && place.column == 0 && i < q_len) {
      static_cast<W*>(args.lse)[(b * args.heads + h) * args.q_len + i] =
          total == W(0) ? lowest : max_score[m] + formula::Log(total);
    }
  }
  StoreSums<T>(args.o, args.o_stride, b, h, q_begin, q_len, d_begin, head_dim, o, inverse, place);
}

// ---- Backward ---------------------------------------------------------------------------------

template <typename T>
__global__ void DeltaKernel(FlashBackwardArgs args, Wide<T>* delta) {
  using W = Wide<T>;
  const FlashArgs& f = args.forward;
  const int lane = threadIdx.x % 32;
  const int64_t rows = f.batch * f.heads * f.q_len;
  for (int64_t row = GridThread() / 32; row < rows; row += GridThreads() / 32) {
    const int64_t i = row % f.q_len;
    const int64_t h = row / f.q_len % f.heads;
    const int64_t b = row / (f.q_len * f.heads);
    const T* o = static_cast<const T*>(f.o) + FlashOffset(f.o_stride, b, h, i);
    const T* d_o = static_cast<const T*>(args.d_o) + FlashOffset(args.d_o_stride, b, h, i);
    W sum = 0;
    for (int64_t x = lane; x < f.head_dim; x += 32) sum += ToWide(o[x]) * ToWide(d_o[x]);
    sum = WarpReduce(sum, SumOp());
    if (lane == 0) delta[row] = sum;
  }
}

// Of a query: the log-sum-exp, +inf where its probabilities are to be zeros, and the sum of o * do.
template <typename W>
struct QueryStats {
  W lse;
  W delta;
};
template <typename W>
__device__ __forceinline__ QueryStats<W> StatsOf(const FlashArgs& args, const W* delta, int64_t b,
                                                 int64_t h, int i) {
  const W highest = static_cast<W>(INFINITY);
  if (i >= args.q_len) return {highest, W(0)};
  const int64_t row = (b * args.heads + h) * args.q_len + i;
  const W lse = static_cast<const W*>(args.lse)[row];
  return {lse == -highest ? highest : lse, delta[row]};
}

// The tiles of a block in shared memory: of the side that it owns and of that which it steps over,
// q or k and do or v; and probabilities or gradients of scores.
template <typename W>
struct GradTiles {
  W* own_first = DynamicShared<W>();
  W* own_second = own_first + kTileSize<W>;
  W* step_first = own_second + kTileSize<W>;
  W* step_second = step_first + kTileSize<W>;
  W* pairs = step_second + kTileSize<W>;
};
template <typename W>
inline constexpr size_t kGradTilesBytes = 5 * kTileSize<W> * sizeof(W);

// The probabilities of a tile after dropout, without its scale, and the gradients of its scores;
// rows are queries, or with kOfKeys keys. Leaves the tiles of feature tile `features` in shared
// memory. `fresh` says that the block's own may not be there. Keys from `k_end` on are zeros.
template <typename T, bool kOfKeys>
__device__ __forceinline__ void ComputeGrads(Part<Wide<T>>& p, Part<Wide<T>>& ds,
                                             const GradTiles<Wide<T>>& tiles,
                                             const FlashBackwardArgs& args, const Wide<T>* delta,
                                             const KeyRange& range, const PairPlace& at, int k_end,
                                             int features, bool fresh, const Place& place) {
  using W = Wide<T>;
  const FlashArgs& f = args.forward;
  auto& sides = BlockShared<Sides<W>>();
  auto& stats = BlockShared<QueryStats<W>[kTile<W>]>();
  const int q_len = static_cast<int>(f.q_len);
  const int head_dim = static_cast<int>(f.head_dim);
  const int chunks = FeatureTiles<W>(f);
  EachPair<W>(place, [&](int m, int n, int, int) { p[m][n] = ds[m][n] = W(0); });
  for (int n = 1; n <= chunks; ++n) {
    const int d = (features + n) % chunks * kTile<W>;  // `features` comes last
    __syncthreads();                                   // what is there has been read
    if (!kOfKeys || fresh || chunks > 1) {
      LoadTile<T>(kOfKeys ? tiles.own_first : tiles.step_first, f.k, f.k_stride, at.b, at.key_head,
                  at.k_begin, k_end, d, head_dim);
      LoadTile<T>(kOfKeys ? tiles.own_second : tiles.step_second, f.v, f.v_stride, at.b,
                  at.key_head, at.k_begin, k_end, d, head_dim);
    }
    if (kOfKeys || fresh || chunks > 1) {
      LoadTile<T>(kOfKeys ? tiles.step_first : tiles.own_first, f.q, f.q_stride, at.b, at.h,
                  at.q_begin, q_len, d, head_dim);
      LoadTile<T>(kOfKeys ? tiles.step_second : tiles.own_second, args.d_o, args.d_o_stride, at.b,
                  at.h, at.q_begin, q_len, d, head_dim);
    }
    if (n == 1) {
      LoadSides(sides, f, range, at);
      if (threadIdx.x < kTile<W>) {
        stats[threadIdx.x] = StatsOf(f, delta, at.b, at.h, at.q_begin + threadIdx.x);
      }
    }
    __syncthreads();
    const int depth = min(kTile<W>, head_dim - d);
    AddRowsByRows(p, tiles.own_first, tiles.step_first, depth, place);
    AddRowsByRows(ds, tiles.own_second, tiles.step_second, depth, place);
  }
  ScoreProducts<kOfKeys>(p, f, range, sides, at, place);
  const bool drops = f.dropout.p > 0.0f;
  const W kept_scale = KeptScale<W>(f);
  EachPair<W>(place, [&](int m, int n, int row, int column) {
    const QueryStats<W>& of_query = stats[kOfKeys ? column : row];
    const W value = formula::Exp(p[m][n] - of_query.lse);
    const bool keep =
        !drops || IsKept<kTile<W>>(sides.kept, kOfKeys ? column : row, kOfKeys ? row : column);
    W d_value = (keep ? kept_scale * ds[m][n] : W(0)) - of_query.delta;
    if (f.softcap > 0) {
      const W tanh = p[m][n] / static_cast<W>(f.softcap);
      d_value *= W(1) - tanh * tanh;
    }
    // What is not seen may be no number.
    ds[m][n] = value == W(0) ? W(0) : value * d_value;
    p[m][n] = keep ? value : W(0);
  });
}

// With kOfKeys a block owns keys and steps over the queries that see them, of each head that reads
// them; its sums are transposed: rows are keys, columns are queries. Otherwise it owns queries and
// steps over the keys that they see.
template <typename T, bool kOfKeys>
__global__ void __launch_bounds__(kThreadsOfBlock, 2)
    BackwardKernel(const __grid_constant__ FlashBackwardArgs args, const Wide<T>* delta) {
  using W = Wide<T>;
  const FlashArgs& f = args.forward;
  const GradTiles<W> tiles;
  const int q_len = static_cast<int>(f.q_len);
  const int k_len = static_cast<int>(f.k_len);
  const int head_dim = static_cast<int>(f.head_dim);
  const int own_len = kOfKeys ? k_len : q_len;
  const int own_tiles = TilesOf(own_len, kTile<W>);
  const int64_t shared_by = f.heads / f.kv_heads;
  const BlockPlace block =
      PlaceOfBlock(FeatureTiles<W>(f), own_tiles, kOfKeys ? f.kv_heads : f.heads);
  const Place place = PlaceOfThread();
  // Under a causal mask the last queries, and the first keys, have most to do: they go first.
  const int own_begin = (kOfKeys ? block.rows : own_tiles - 1 - block.rows) * kTile<W>;
  const int d_begin = block.features * kTile<W>;
  const int64_t b = block.b;
  const int64_t key_head = kOfKeys ? block.h : block.h / shared_by;
  const int64_t first_head = kOfKeys ? block.h * shared_by : block.h;
  const int64_t end_head = first_head + (kOfKeys ? shared_by : 1);

  // The rows [begin, end) that are stepped over, for every head.
  const KeyRange range(f, b);
  int begin = 0;
  int end = 0;
  if constexpr (kOfKeys) {
    begin = range.FirstQuery(own_begin);
    end = static_cast<int>(min(int64_t{q_len}, range.QueryLimit(own_begin + kTile<W> - 1)));
  } else {
    begin = range.First(own_begin);
    end = range.Limit(min(own_begin + kTile<W>, q_len) - 1);
  }
  begin = begin / kTile<W> * kTile<W>;

  Part<W> first_sums = {};   // dq or dk
  Part<W> second_sums = {};  // dv
  bool fresh = true;
  for (int64_t h = first_head; h < end_head; ++h) {
    for (int step = begin; step < end; step += kTile<W>) {
      const PairPlace at = {b, h, key_head, kOfKeys ? step : own_begin, kOfKeys ? own_begin : step};
      Part<W> p;
      Part<W> ds;
      ComputeGrads<T, kOfKeys>(p, ds, tiles, args, delta, range, at, kOfKeys ? k_len : end,
                               block.features, fresh, place);
      fresh = false;
      const int depth = min(kTile<W>, end - step);
      StorePart(tiles.pairs, ds, place);
      AddRowsByColumns(first_sums, tiles.pairs, tiles.step_first, depth, place);
      if constexpr (kOfKeys) {
        StorePart(tiles.pairs, p, place);
        AddRowsByColumns(second_sums, tiles.pairs, tiles.step_second, depth, place);
      }
    }
  }
  W scales[kRows<W>];
#pragma unroll
  for (int m = 0; m < kRows<W>; ++m) scales[m] = static_cast<W>(f.scale);
  StoreSums<T>(kOfKeys ? args.dk : args.dq, kOfKeys ? args.dk_stride : args.dq_stride, b, block.h,
               own_begin, own_len, d_begin, head_dim, first_sums, scales, place);
  if constexpr (kOfKeys) {
#pragma unroll
    for (int m = 0; m < kRows<W>; ++m) scales[m] = KeptScale<W>(f);
    StoreSums<T>(args.dv, args.dv_stride, b, block.h, own_begin, own_len, d_begin, head_dim,
                 second_sums, scales, place);
  }
}

// Sizes of dbias: 1 along dims where it is the same.
struct BiasSizes {
  int64_t batch, heads;
  int queries, keys;
};

// A block owns a tile of dbias. A dim of size 1 is walked whole, in order: of any other a block, or
// in the end a thread, has its own.
template <typename T>
__global__ void __launch_bounds__(kThreadsOfBlock, 2)
    BiasGradKernel(const __grid_constant__ FlashBackwardArgs args, const Wide<T>* delta,
                   BiasSizes sizes) {
  using W = Wide<T>;
  const FlashArgs& f = args.forward;
  const GradTiles<W> tiles;
  const BlockPlace block =
      PlaceOfBlock(TilesOf(sizes.keys, kTile<W>), TilesOf(sizes.queries, kTile<W>), sizes.heads);
  const Place place = PlaceOfThread();
  const int q_len = static_cast<int>(f.q_len);
  const int q_first = block.rows * kTile<W>;
  const int q_end = sizes.queries == 1 ? q_len : q_first + 1;
  const int k_first = block.features * kTile<W>;
  const int k_last = sizes.keys == 1 ? static_cast<int>(f.k_len) : k_first + 1;
  Part<W> sum = {};
  for (int64_t b = block.b; b < f.batch; b += sizes.batch) {
    const KeyRange range(f, b);
    for (int64_t h = block.h; h < f.heads; h += sizes.heads) {
      for (int q_begin = q_first; q_begin < q_end; q_begin += kTile<W>) {
        const int k_end = range.Limit(min(q_begin + kTile<W>, q_len) - 1);
        for (int k_begin = k_first; k_begin < min(k_last, k_end); k_begin += kTile<W>) {
          if (k_begin + kTile<W> <= range.First(q_begin)) continue;
          Part<W> p;
          Part<W> ds;
          ComputeGrads<T, false>(p, ds, tiles, args, delta, range,
                                 {b, h, FlashKeyHead(f, h), q_begin, k_begin}, k_end, 0, true,
                                 place);
          EachPair<W>(place, [&](int m, int n, int, int) { sum[m][n] += ds[m][n]; });
        }
      }
    }
  }
  StorePart(tiles.pairs, sum, place);
  __syncthreads();
  const int queries = min(kTile<W>, sizes.queries - q_first);
  const int keys = min(kTile<W>, sizes.keys - k_first);
  const int query_step = sizes.queries == 1 ? 1 : kTile<W>;
  const int key_step = sizes.keys == 1 ? 1 : kTile<W>;
  const FlashBiasStrides& s = args.dbias_stride;
  W* to = static_cast<W*>(args.dbias) + block.b * s.batch + block.h * s.head;
  for (int e = threadIdx.x; e < queries * keys; e += kThreadsOfBlock) {
    W total = 0;
    for (int i = e / keys; i < kTile<W>; i += query_step) {
      for (int j = e % keys; j < kTile<W>; j += key_step) total += tiles.pairs[i * kStride<W> + j];
    }
    to[(q_first + e / keys) * s.query + (k_first + e % keys) * s.key] = total;
  }
}

// ---- Launches ---------------------------------------------------------------------------------

LaunchShape FlatGrid(int64_t blocks, size_t shared_bytes) {
  TESSERA_CHECK(blocks < (int64_t{1} << 31), "attention", "more than 2^31 tiles");
  return {static_cast<unsigned>(blocks), kThreadsOfBlock, shared_bytes};
}

}  // namespace

void RunPlainForward(const FlashArgs& args) {
  DispatchCudaFloat(args.dtype, "attention", [&](auto zero) {
    using T = decltype(zero);
    using W = Wide<T>;
    const int64_t tiles = FeatureTiles<W>(args) * TilesOf(args.q_len, kTile<W>);
    Launch("attention", FlatGrid(args.batch * args.heads * tiles, 4 * kTileSize<W> * sizeof(W)),
           ForwardKernel<T>, args);
  });
}

void RunDelta(const FlashBackwardArgs& args, void* delta) {
  const FlashArgs& f = args.forward;
  DispatchCudaFloat(f.dtype, "attention gradient", [&](auto zero) {
    using T = decltype(zero);
    Launch("attention gradient", {GridFor(f.batch * f.heads * f.q_len * 32), kThreads},
           DeltaKernel<T>, args, static_cast<Wide<T>*>(delta));
  });
}

void RunPlainBackward(const FlashBackwardArgs& args, const void* delta) {
  const FlashArgs& f = args.forward;
  DispatchCudaFloat(f.dtype, "attention gradient", [&](auto zero) {
    using T = decltype(zero);
    using W = Wide<T>;
    const auto launch = [&](auto kernel, int64_t rows, int64_t heads) {
      const int64_t tiles = FeatureTiles<W>(f) * TilesOf(rows, kTile<W>);
      if (tiles * heads == 0) return;
      Launch("attention gradient", FlatGrid(f.batch * heads * tiles, kGradTilesBytes<W>), kernel,
             args, static_cast<const W*>(delta));
    };
    launch(BackwardKernel<T, false>, f.q_len, f.heads);
    launch(BackwardKernel<T, true>, f.k_len, f.kv_heads);
  });
}

void RunBiasGradient(const FlashBackwardArgs& args, const void* delta) {
  const FlashArgs& f = args.forward;
  const FlashBiasStrides& s = args.dbias_stride;
  const auto size = [](int64_t n, int64_t stride) {
    return stride == 0 ? std::min<int64_t>(n, 1) : n;
  };
  const BiasSizes sizes{size(f.batch, s.batch), size(f.heads, s.head),
                        static_cast<int>(size(f.q_len, s.query)),
                        static_cast<int>(size(f.k_len, s.key))};
  DispatchCudaFloat(f.dtype, "attention gradient", [&](auto zero) {
    using T = decltype(zero);
    using W = Wide<T>;
    const int64_t tiles = int64_t{TilesOf(sizes.queries, kTile<W>)} * TilesOf(sizes.keys, kTile<W>);
    if (sizes.batch * sizes.heads * tiles == 0) return;
    Launch("attention gradient", FlatGrid(sizes.batch * sizes.heads * tiles, kGradTilesBytes<W>),
           BiasGradKernel<T>, args, static_cast<const W*>(delta), sizes);
  });
}

}  // namespace tessera::cuda
