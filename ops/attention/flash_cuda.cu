// SPDX-License-Identifier: Apache-2.0
// Attention on tensor cores for bfloat16 and float16: mma.sync m16n8k16 with float32 sums, tiles of
// keys and values (or queries) brought to shared memory by asynchronous copies.
//
// Method: T. Dao, "FlashAttention-2", arXiv:2307.08691. The backward pass runs one kernel twice,
// for blocks that own queries (dq) and for blocks that own keys (dk, dv): each sums in one fixed
// order, with no atomic addition, at the price of computing the scores twice.
//
// The next tile is copied while one is computed on: a barrier per tile. Kernels are compiled with
// and without what a score may meet beside the range of its query's keys (kGeneral of
// flash_scores.cuh), and for dropout (kDrops).
//
// Letters: Q queries of a tile, K keys of a tile, D features (head_dim, padded with zeros to kD).
// A block has 4 warps; each owns 16 rows of its block's 64. In fragments `g` = lane / 4 is a row
// and `t` = lane % 4 a pair of columns, as the PTX manual draws them for m16n8k16.
#include <algorithm>

#include "core/cuda/launch.h"
#include "core/cuda/tensor_core.cuh"
#include "ops/attention/attention_cuda.h"
#include "ops/attention/attention_mask.cuh"
#include "ops/attention/flash_scores.cuh"

namespace tessera::cuda {
namespace {

constexpr int kThreadsOfBlock = 128;
constexpr int kTileRows = 64;  // that a block owns
constexpr float kLn2 = 0.6931471805599453f;

// ---- Products of tiles ------------------------------------------------------------------------

// Rows of shared tiles lie kD + 8 elements apart: 16-byte aligned, and the 8 rows that a matrix
// load reads at once lie in different banks.
template <int kD>
inline constexpr int kRow = kD + 8;

// c [16 rows of a, 8 * kColumnTiles rows of b] += a b^T over kD features: a's rows begin at
// `a_rows`, b's at `b_rows`, both row-major in shared memory. kColumnTiles is even.
template <typename T, int kD, int kColumnTiles>
__device__ __forceinline__ void AddRowsByRows(float (&c)[kColumnTiles][4], const T* a_rows,
                                              const T* b_rows, int lane) {
  // a: matrices (rows 0-7, k 0-7), (8-15, 0-7), (0-7, 8-15), (8-15, 8-15).
  const T* a_at = a_rows + (lane % 16) * kRow<kD> + lane / 16 * 8;
  // b: (rows 0-7, k 0-7), (0-7, 8-15), (8-15, 0-7), (8-15, 8-15).
  const T* b_at = b_rows + (lane % 8 + lane / 16 * 8) * kRow<kD> + lane / 8 % 2 * 8;
#pragma unroll
  for (int k = 0; k < kD; k += 16) {
    uint32_t a[4];
    LoadMatrices(a, a_at + k);
#pragma unroll
    for (int pair = 0; pair < kColumnTiles / 2; ++pair) {
      uint32_t b[4];
      LoadMatrices(b, b_at + pair * 16 * kRow<kD> + k);
      Mma<T>(c[2 * pair], a, b[0], b[1]);
      Mma<T>(c[2 * pair + 1], a, b[2], b[3]);
    }
  }
}

// c [16, kD] += p [16, 16 * kDepth] b [16 * kDepth, kD]: p are the sums of 2 * kDepth column tiles,
// rounded to T; b's rows are row-major in shared memory.
template <typename T, int kD, int kDepth>
__device__ __forceinline__ void AddSumsByColumns(float (&c)[kD / 8][4],
                                                 const float (&p)[2 * kDepth][4], const T* b_rows,
                                                 int lane) {
  // b, transposed on load: (k 0-7, columns 0-7), (8-15, 0-7), (0-7, 8-15), (8-15, 8-15).
  const T* b_at = b_rows + (lane % 16) * kRow<kD> + lane / 16 * 8;
#pragma unroll
  for (int k = 0; k < kDepth; ++k) {
    const uint32_t a[4] = {Pack<T>(p[2 * k][0], p[2 * k][1]), Pack<T>(p[2 * k][2], p[2 * k][3]),
                           Pack<T>(p[2 * k + 1][0], p[2 * k + 1][1]),
                           Pack<T>(p[2 * k + 1][2], p[2 * k + 1][3])};
#pragma unroll
    for (int pair = 0; pair < kD / 16; ++pair) {
      uint32_t b[4];
      LoadMatricesTransposed(b, b_at + k * 16 * kRow<kD> + pair * 16);
      Mma<T>(c[2 * pair], a, b[0], b[1]);
      Mma<T>(c[2 * pair + 1], a, b[2], b[3]);
    }
  }
}

// ---- Tiles ------------------------------------------------------------------------------------

// Begins to copy rows [begin, begin + kRows) to shared memory, row r from base + offset_of(r); rows
// from `rows` on and features from head_dim on become zeros.
template <typename T, int kD, int kRows, typename OffsetOf>
__device__ __forceinline__ void CopyRows(T* shared, const T* base, int begin, int rows,
                                         int head_dim, OffsetOf offset_of) {
  constexpr int kChunks = kD / 8;
  constexpr int kPass = kThreadsOfBlock / kChunks;
  const int r = threadIdx.x / kChunks;
  const int d = threadIdx.x % kChunks * 8;
  const int left = d < head_dim ? rows - begin - r : 0;
#pragma unroll 8
  for (int pass = 0; pass < kRows; pass += kPass) {
    const bool inside = pass < left;
    const T* from = inside ? base + offset_of(begin + r + pass) + d : base;
    BeginCopy16(shared + (r + pass) * kRow<kD> + d, from, inside);
  }
}
// The same of head `h` of row `b`.
template <typename T, int kD, int kRows>
__device__ __forceinline__ void CopyTile(T* shared, const void* from, const FlashStrides& stride,
                                         int64_t b, int64_t h, int begin, int rows, int head_dim) {
  CopyRows<T, kD, kRows>(shared, static_cast<const T*>(from) + FlashOffset(stride, b, h, 0), begin,
                         rows, head_dim, [&](int row) { return row * stride.time; });
}

__device__ __forceinline__ float QuadMax(float v) {
  v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 1));
  return fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 2));
}
__device__ __forceinline__ float QuadSum(float v) {
  v += __shfl_xor_sync(0xffffffffu, v, 1);
  return v + __shfl_xor_sync(0xffffffffu, v, 2);
}

// Writes 16 rows of sums times `scale` of their row to head `h` of row `b`: rows from `begin`, of
// which those from `rows` on are left out.
template <typename T, int kD>
__device__ __forceinline__ void StoreRows(void* to, const FlashStrides& stride, int64_t b,
                                          int64_t h, int begin, int rows, int head_dim,
                                          const float (&c)[kD / 8][4], const float (&scale)[2],
                                          int lane) {
  const int g = lane / 4;
  const int t = lane % 4;
  T* base = static_cast<T*>(to) + FlashOffset(stride, b, h, 0);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = begin + g + half * 8;
    if (row >= rows) continue;
#pragma unroll
    for (int tile = 0; tile < kD / 8; ++tile) {
      const int d = tile * 8 + 2 * t;
      if (d >= head_dim) continue;
      *reinterpret_cast<uint32_t*>(base + row * stride.time + d) =
          Pack<T>(c[tile][2 * half] * scale[half], c[tile][2 * half + 1] * scale[half]);
    }
  }
}

// ---- Forward ----------------------------------------------------------------------------------

template <typename T, int kD>
constexpr size_t ForwardShared() {
  return sizeof(T) * kTileRows * kRow<kD> * 5;  // Q, and two stages of K and V
}

template <typename T, int kD, bool kGeneral, bool kDrops>
__global__ void __launch_bounds__(kThreadsOfBlock)
    ForwardKernel(const __grid_constant__ FlashArgs args) {
  constexpr int kTileSize = kTileRows * kRow<kD>;
  T* q_QD = DynamicShared<T>();
  T* k_KD = q_QD + kTileSize;      // two stages
  T* v_KD = k_KD + 2 * kTileSize;  // two stages

  const int lane = threadIdx.x % 32;
  const int warp_row = threadIdx.x / 32 * 16;
  const int g = lane / 4;
  const int t = lane % 4;
  // The last queries see most keys under a causal mask: they go first.
  const int q_begin = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kTileRows;
  const int q_len = static_cast<int>(args.q_len);
  const int64_t h = blockIdx.y;
  const int64_t b = blockIdx.z;
  const int64_t key_head = FlashKeyHead(args, h);
  const int head_dim = static_cast<int>(args.head_dim);
  const float factor = FactorOfScores<kGeneral>(args);

  const KeyRange range(args, b);
  const int seen_by_any = range.Limit(min(q_begin + kTileRows, q_len) - 1);
  const int tiles = (seen_by_any + kTileRows - 1) / kTileRows;
  const int first_tile = range.First(q_begin) / kTileRows;

  const int row = q_begin + warp_row + g;
  const Query rows[2] = {MasksOf<Query, kGeneral>(args, range, b, row),
                         MasksOf<Query, kGeneral>(args, range, b, row + 8)};
  auto& columns = BlockShared<Key[2][kTileRows]>();  // of kGeneral
  Key ahead{};                                       // that this thread brings
  // Of pages: where the rows of a tile lie, looked up one tile before they are copied.
  auto& places = BlockShared<KeyPlace[2][kTileRows]>();
  KeyPlace place_ahead{};

  float o[kD / 8][4] = {};
  float max[2] = {-INFINITY, -INFINITY};  // of scores before `factor`
  float sum[2] = {0.0f, 0.0f};            // this lane's share

  const bool paged = args.pages.table != nullptr;
  const auto look_up = [&](int tile) {
    const int j = tile * kTileRows + threadIdx.x;
    if (paged && threadIdx.x < kTileRows && j < seen_by_any) place_ahead = PlaceOfKey(args, b, j);
  };
  const auto store_places = [&](int tile) {
    if (paged && threadIdx.x < kTileRows) places[tile % 2][threadIdx.x] = place_ahead;
  };
  const auto copy_keys = [&](T* shared, const void* from, const FlashStrides& stride, int tile) {
    // What lies behind the last key that is seen may be no number at all, which even a probability
    // of zero does not make one.
    const int begin = tile * kTileRows;
    if (!paged) {
      CopyTile<T, kD, kTileRows>(shared, from, stride, b, key_head, begin, seen_by_any, head_dim);
    } else {
      CopyRows<T, kD, kTileRows>(shared, static_cast<const T*>(from), begin, seen_by_any, head_dim,
                                 [&](int j) {
                                   const KeyPlace& place = places[tile % 2][j - begin];
                                   return FlashOffset(stride, place.row, key_head, place.time);
                                 });
    }
  };
  const auto begin_copies = [&](int tile) {
    const int stage = tile % 2 * kTileSize;
    copy_keys(k_KD + stage, args.k, args.k_stride, tile);
    copy_keys(v_KD + stage, args.v, args.v_stride, tile);
    CommitCopies();
    look_up(tile + 1);
    if (kGeneral && threadIdx.x < kTileRows) {
      ahead = MasksOf<Key, kGeneral>(args, range, b, tile * kTileRows + threadIdx.x);
    }
  };
  if (first_tile < tiles) {
    CopyTile<T, kD, kTileRows>(q_QD, args.q, args.q_stride, b, h, q_begin, q_len, head_dim);
    look_up(first_tile);
    store_places(first_tile);
    if (paged) __syncthreads();
    begin_copies(first_tile);
  }

  for (int tile = first_tile; tile < tiles; ++tile) {
    const int k_begin = tile * kTileRows;
    const T* keys = k_KD + tile % 2 * kTileSize;
    const T* values = v_KD + tile % 2 * kTileSize;
    const uint16_t* kept = nullptr;
    if constexpr (kDrops) {
      auto& stages = BlockShared<uint16_t[2][kTileRows * kTileRows / 16]>();
      ComputeKept<kTileRows, kTileRows>(stages[tile % 2], args, b, h, q_begin, k_begin);
      kept = stages[tile % 2];
    }
    if (kGeneral && threadIdx.x < kTileRows) columns[tile % 2][threadIdx.x] = ahead;
    store_places(tile + 1);
    WaitForCopies<0>();
    __syncthreads();  // this tile is there, and the one before it has been read
    if (tile + 1 < tiles) begin_copies(tile + 1);

    float s[8][4] = {};
    AddRowsByRows<T, kD, 8>(s, q_QD + warp_row * kRow<kD>, keys, lane);

    if (kGeneral || !range.IsWhole(q_begin, kTileRows, k_begin, kTileRows)) {
      ScoreProducts<kGeneral>(s, args, range, b, h, row, k_begin + 2 * t, rows,
                              columns[tile % 2] + 2 * t);
    }
    float base[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float tile_max = -INFINITY;
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        tile_max = fmaxf(tile_max, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
      }
      const float new_max = fmaxf(max[half], QuadMax(tile_max));
      base[half] = new_max == -INFINITY ? 0.0f : new_max * factor;
      const float shrink = Exp2(fmaf(max[half], factor, -base[half]));
      max[half] = new_max;
      sum[half] *= shrink;
#pragma unroll
      for (int n = 0; n < kD / 8; ++n) {
        o[n][2 * half] *= shrink;
        o[n][2 * half + 1] *= shrink;
      }
    }
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int half = e / 2;
        const float p = Exp2(fmaf(s[n][e], factor, -base[half]));
        sum[half] += p;
        const bool keep =
            !kDrops || IsKept<kTileRows>(kept, warp_row + g + half * 8, n * 8 + 2 * t + e % 2);
        s[n][e] = keep ? p : 0.0f;
      }
    }
    AddSumsByColumns<T, kD, 4>(o, s, values, lane);
  }

  float inverse[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float total = QuadSum(sum[half]);
    inverse[half] = total == 0.0f ? 0.0f : (kDrops ? KeptScale<float>(args) : 1.0f) / total;
    const int i = q_begin + warp_row + g + half * 8;
    if (t == 0 && i < q_len) {
      static_cast<float*>(args.lse)[(b * args.heads + h) * args.q_len + i] =
          total == 0.0f ? -INFINITY : max[half] * factor * kLn2 + logf(total);
    }
  }
  StoreRows<T, kD>(args.o, args.o_stride, b, h, q_begin + warp_row, q_len, head_dim, o, inverse,
                   lane);
}

// ---- Backward ---------------------------------------------------------------------------------

// Rows of the other side per step: fewer where sums fill the registers and tiles shared memory.
template <int kD>
inline constexpr int kStepRows = kD <= 64 ? 64 : 32;

// Two tiles that a block owns, and two stages of two that it steps over.
template <typename T, int kD>
constexpr size_t BackwardShared() {
  return sizeof(T) * kRow<kD> * (2 * kTileRows + 4 * kStepRows<kD>);
}

// Of a query: the log-sum-exp times log2(e), +inf where its probabilities are to be zeros, and the
// sum of o * do.
struct alignas(8) QueryStats {
  float lse;
  float delta;
};
__device__ __forceinline__ QueryStats StatsOf(const FlashArgs& args, const float* delta, int64_t b,
                                              int64_t h, int i) {
  if (i >= args.q_len) return {INFINITY, 0.0f};
  const int64_t row = (b * args.heads + h) * args.q_len + i;
  const float lse = static_cast<const float*>(args.lse)[row];
  return {lse == -INFINITY ? INFINITY : lse * kLog2E, delta[row]};
}

// With kOfKeys a block owns keys and steps over the queries that see them, of each head that reads
// them; its sums are transposed: rows are keys, columns are queries. Otherwise it owns queries and
// steps over the keys that they see. The first tile of either side is q or k, the second do or v.
// Registers leave room for 3 blocks of a multiprocessor, or 2 where that would spill them.
template <typename T, int kD, bool kOfKeys, bool kGeneral, bool kDrops>
__global__ void __launch_bounds__(kThreadsOfBlock, kOfKeys && (kGeneral || kD > 64) ? 2 : 3)
    BackwardKernel(const __grid_constant__ FlashBackwardArgs args, const float* delta) {
  constexpr int kStep = kStepRows<kD>;
  constexpr int kQueries = kOfKeys ? kStep : kTileRows;  // of a tile of scores
  constexpr int kKeys = kOfKeys ? kTileRows : kStep;
  constexpr int kColumnTiles = kStep / 8;
  constexpr int kStepSize = kStep * kRow<kD>;
  using Row = std::conditional_t<kOfKeys, Key, Query>;
  using Column = std::conditional_t<kOfKeys, Query, Key>;
  auto& column_stats = BlockShared<QueryStats[2][kStep]>();  // of kOfKeys
  auto& columns = BlockShared<Column[2][kStep]>();           // of kGeneral
  T* own_first = DynamicShared<T>();
  T* own_second = own_first + kTileRows * kRow<kD>;
  T* steps_first = own_second + kTileRows * kRow<kD>;  // two stages
  T* steps_second = steps_first + 2 * kStepSize;       // two stages

  const FlashArgs& f = args.forward;
  const int lane = threadIdx.x % 32;
  const int warp_row = threadIdx.x / 32 * 16;
  const int g = lane / 4;
  const int t = lane % 4;
  const int64_t b = blockIdx.z;
  const int q_len = static_cast<int>(f.q_len);
  const int k_len = static_cast<int>(f.k_len);
  const int head_dim = static_cast<int>(f.head_dim);
  const float factor = FactorOfScores<kGeneral>(f);
  const float kept_scale = kDrops ? KeptScale<float>(f) : 1.0f;
  const int64_t shared_by = f.heads / f.kv_heads;
  const int64_t key_head = kOfKeys ? blockIdx.y : blockIdx.y / shared_by;
  const int64_t first_head = kOfKeys ? key_head * shared_by : blockIdx.y;
  // Under a causal mask the last queries, and the first keys, have most to do: they go first.
  const int own_begin =
      static_cast<int>(kOfKeys ? blockIdx.x : gridDim.x - 1 - blockIdx.x) * kTileRows;

  const auto copy_queries = [&](auto count, T* first, T* second, int64_t h, int begin) {
    constexpr int kRows = decltype(count)::value;
    CopyTile<T, kD, kRows>(first, f.q, f.q_stride, b, h, begin, q_len, head_dim);
    CopyTile<T, kD, kRows>(second, args.d_o, args.d_o_stride, b, h, begin, q_len, head_dim);
  };
  const auto copy_keys = [&](auto count, T* first, T* second, int begin) {
    constexpr int kRows = decltype(count)::value;
    CopyTile<T, kD, kRows>(first, f.k, f.k_stride, b, key_head, begin, k_len, head_dim);
    CopyTile<T, kD, kRows>(second, f.v, f.v_stride, b, key_head, begin, k_len, head_dim);
  };

  // The rows [begin, end) that are stepped over, for every head.
  const KeyRange range(f, b);
  int begin = 0;
  int end = 0;
  if constexpr (kOfKeys) {
    begin = range.FirstQuery(own_begin);
    end = static_cast<int>(min(int64_t{q_len}, range.QueryLimit(own_begin + kTileRows - 1)));
  } else {
    begin = range.First(own_begin);
    end = range.Limit(min(own_begin + kTileRows, q_len) - 1);
  }
  begin = begin / kStep * kStep;
  const int row = own_begin + warp_row + g;
  const Row rows[2] = {MasksOf<Row, kGeneral>(f, range, b, row),
                       MasksOf<Row, kGeneral>(f, range, b, row + 8)};
  const int64_t end_head = begin < end ? first_head + (kOfKeys ? shared_by : 1) : first_head;

  QueryStats stats_ahead{};  // of the column that this thread brings
  Column ahead{};
  const auto begin_copies = [&](int stage, int64_t h, int at) {
    T* first = steps_first + stage * kStepSize;
    T* second = steps_second + stage * kStepSize;
    const std::integral_constant<int, kStep> count;
    if constexpr (kOfKeys) {
      copy_queries(count, first, second, h, at);
      if (threadIdx.x < kStep) stats_ahead = StatsOf(f, delta, b, h, at + threadIdx.x);
    } else {
      copy_keys(count, first, second, at);
    }
    CommitCopies();
    if (kGeneral && threadIdx.x < kStep) {
      ahead = MasksOf<Column, kGeneral>(f, range, b, at + threadIdx.x);
    }
  };
  QueryStats row_stats[2];
  if (first_head < end_head) {
    const std::integral_constant<int, kTileRows> count;
    if constexpr (kOfKeys) {
      copy_keys(count, own_first, own_second, own_begin);
    } else {
      copy_queries(count, own_first, own_second, first_head, own_begin);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        row_stats[half] = StatsOf(f, delta, b, first_head, own_begin + warp_row + g + half * 8);
      }
    }
    begin_copies(0, first_head, begin);
  }

  float first_sums[kD / 8][4] = {};   // dq or dk
  float second_sums[kD / 8][4] = {};  // dv
  int stage = 0;
  int64_t next_h = first_head;
  int next_at = begin;
  while (next_h < end_head) {
    const int64_t h = next_h;
    const int at = next_at;
    next_at += kStep;
    if (next_at >= end) {
      next_at = begin;
      ++next_h;
    }
    const int q_begin = kOfKeys ? at : own_begin;
    const int k_begin = kOfKeys ? own_begin : at;
    const T* first = steps_first + stage * kStepSize;
    const T* second = steps_second + stage * kStepSize;
    const uint16_t* kept = nullptr;
    if constexpr (kDrops) {
      auto& stages = BlockShared<uint16_t[2][kQueries * kKeys / 16]>();
      ComputeKept<kQueries, kKeys>(stages[stage], f, b, h, q_begin, k_begin);
      kept = stages[stage];
    }
    if (kOfKeys && threadIdx.x < kStep) column_stats[stage][threadIdx.x] = stats_ahead;
    if (kGeneral && threadIdx.x < kStep) columns[stage][threadIdx.x] = ahead;
    WaitForCopies<0>();
    __syncthreads();  // this step's rows are there, and those before them have been read
    if (next_h < end_head) begin_copies(1 - stage, next_h, next_at);

    float p[kColumnTiles][4] = {};
    AddRowsByRows<T, kD, kColumnTiles>(p, own_first + warp_row * kRow<kD>, first, lane);
    float ds[kColumnTiles][4] = {};
    AddRowsByRows<T, kD, kColumnTiles>(ds, own_second + warp_row * kRow<kD>, second, lane);
    if (kGeneral || !range.IsWhole(q_begin, kQueries, k_begin, kKeys)) {
      const int column = at + 2 * t;
      ScoreProducts<kGeneral>(p, f, range, b, h, kOfKeys ? column : row, kOfKeys ? row : column,
                              rows, columns[stage] + 2 * t);
    }
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int own = warp_row + g + e / 2 * 8;
        const int column = n * 8 + 2 * t + e % 2;
        const QueryStats stats = kOfKeys ? column_stats[stage][column] : row_stats[e / 2];
        const float value = Exp2(fmaf(p[n][e], factor, -stats.lse));
        const bool keep =
            !kDrops || IsKept<kKeys>(kept, kOfKeys ? column : own, kOfKeys ? own : column);
        ds[n][e] = value * (keep ? fmaf(ds[n][e], kept_scale, -stats.delta) : -stats.delta);
        p[n][e] = keep ? value : 0.0f;
      }
    }
    AddSumsByColumns<T, kD, kStep / 16>(first_sums, ds, first, lane);
    if constexpr (kOfKeys) {
      AddSumsByColumns<T, kD, kStep / 16>(second_sums, p, second, lane);
    }
    stage = 1 - stage;
  }
  const auto scale = static_cast<float>(f.scale);
  const float scales[2] = {scale, scale};
  if constexpr (kOfKeys) {
    const float kept_scales[2] = {kept_scale, kept_scale};
    StoreRows<T, kD>(args.dk, args.dk_stride, b, key_head, own_begin + warp_row, k_len, head_dim,
                     first_sums, scales, lane);
    StoreRows<T, kD>(args.dv, args.dv_stride, b, key_head, own_begin + warp_row, k_len, head_dim,
                     second_sums, kept_scales, lane);
  } else {
    StoreRows<T, kD>(args.dq, args.dq_stride, b, first_head, own_begin + warp_row, q_len, head_dim,
                     first_sums, scales, lane);
  }
}

// ---- Launches ---------------------------------------------------------------------------------

// A block per tile of `rows`, for every head and row of the batch.
LaunchShape TileGrid(int64_t rows, int64_t heads, int64_t batch, size_t shared) {
  return {dim3(static_cast<unsigned>((rows + kTileRows - 1) / kTileRows),
               static_cast<unsigned>(heads), static_cast<unsigned>(batch)),
          kThreadsOfBlock, shared};
}

template <typename F>
void DispatchBool(bool value, F&& f) {
  if (value) {
    f(std::true_type());
  } else {
    f(std::false_type());
  }
}

// Calls f(T{}, features, kGeneral, kDrops) with the types of what the kernels are compiled for.
template <typename F>
void DispatchFlash(const FlashArgs& args, F&& f) {
  // The maximum of products is that of the scores where these are products times something
  // positive.
  const bool general = args.key_padding != nullptr || args.key_document != nullptr ||
                       args.bias != nullptr || !(static_cast<float>(args.scale) > 0);
  DispatchCudaHalf(args.dtype, "attention", [&](auto zero) {
    DispatchBool(general, [&](auto is_general) {
      DispatchBool(args.dropout.p > 0.0f, [&](auto drops) {
        if (args.head_dim <= 64) {
          f(zero, std::integral_constant<int, 64>(), is_general, drops);
        } else {
          f(zero, std::integral_constant<int, 128>(), is_general, drops);
        }
      });
    });
  });
}

}  // namespace

void RunFlashForward(const FlashArgs& args) {
  DispatchFlash(args, [&](auto zero, auto features, auto general, auto drops) {
    using T = decltype(zero);
    constexpr int kD = decltype(features)::value;
    Launch("attention", TileGrid(args.q_len, args.heads, args.batch, ForwardShared<T, kD>()),
           ForwardKernel<T, kD, decltype(general)::value, decltype(drops)::value>, args);
  });
}

void RunFlashBackward(const FlashBackwardArgs& args, const float* delta) {
  const FlashArgs& f = args.forward;
  DispatchFlash(f, [&](auto zero, auto features, auto general, auto drops) {
    using T = decltype(zero);
    constexpr int kD = decltype(features)::value;
    constexpr bool kGeneral = decltype(general)::value;
    constexpr bool kDrops = decltype(drops)::value;
    if (f.q_len > 0) {
      Launch("attention gradient", TileGrid(f.q_len, f.heads, f.batch, BackwardShared<T, kD>()),
             BackwardKernel<T, kD, false, kGeneral, kDrops>, args, delta);
    }
    if (f.k_len > 0) {
      Launch("attention gradient", TileGrid(f.k_len, f.kv_heads, f.batch, BackwardShared<T, kD>()),
             BackwardKernel<T, kD, true, kGeneral, kDrops>, args, delta);
    }
  });
}

}  // namespace tessera::cuda
