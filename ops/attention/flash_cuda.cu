// Attention on tensor cores for bfloat16 and float16: mma.sync m16n8k16 with float32 sums, tiles of
// keys and values (or queries) brought to shared memory by asynchronous copies.
//
// Method: T. Dao, "FlashAttention-2", arXiv:2307.08691. The backward pass is two kernels, one that
// owns queries (dq) and one that owns keys (dk, dv): each sums in one fixed order, with no atomic
// addition, at the price of computing the scores twice.
//
// Letters: Q queries of a tile, K keys of a tile, D features (head_dim, padded with zeros to kD).
// A block has 4 warps; each owns 16 rows of its block's 64. In fragments `g` = lane / 4 is a row
// and `t` = lane % 4 a pair of columns, as the PTX manual draws them for m16n8k16.
#include <algorithm>

#include "core/cuda/launch.h"
#include "core/cuda/tensor_core.cuh"
#include "ops/attention/attention_cuda.h"
#include "ops/attention/attention_mask.cuh"
#include "ops/attention/drop_bits.h"

namespace tessera::cuda {
namespace {

constexpr int kThreadsOfBlock = 128;
constexpr int kTileRows = 64;  // that a block owns
constexpr float kLog2E = 1.4426950408889634f;
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
__device__ __forceinline__ void CopyRows(T* shared, const T* base, int64_t begin, int64_t rows,
                                         int head_dim, OffsetOf offset_of) {
  constexpr int kChunks = kD / 8;
  for (int c = threadIdx.x; c < kRows * kChunks; c += kThreadsOfBlock) {
    const int r = c / kChunks;
    const int d = c % kChunks * 8;
    const bool inside = begin + r < rows && d < head_dim;
    const T* from = inside ? base + offset_of(begin + r) + d : base;
    BeginCopy16(shared + r * kRow<kD> + d, from, inside);
  }
}
template <typename T, int kD, int kRows>
__device__ __forceinline__ void CopyTile(T* shared, const T* base, int64_t row_stride,
                                         int64_t begin, int64_t rows, int head_dim) {
  CopyRows<T, kD, kRows>(shared, base, begin, rows, head_dim,
                         [&](int64_t row) { return row * row_stride; });
}

// Which probabilities of a tile [kRows queries, 64 keys] dropout keeps: bit j % 16 of
// kept[row * 4 + j / 16].
template <int kRows>
__device__ __forceinline__ void ComputeKept(uint16_t* kept, const FlashArgs& args, int64_t b,
                                            int64_t h, int64_t q_begin, int64_t k_begin) {
  const DeviceKey key = DropoutKey(args);
  for (int c = threadIdx.x; c < kRows * 4; c += kThreadsOfBlock) {
    const uint64_t first = FlashDropoutIndex(args, b, h, q_begin + c / 4) +
                           static_cast<uint64_t>(k_begin + c % 4 * 16);
    kept[c] =
        static_cast<uint16_t>(KeptBits16(key.hi, key.lo, first, args.dropout.p * 16777216.0f));
  }
}
__device__ __forceinline__ bool IsKept(const uint16_t* kept, int row, int key) {
  return (kept[row * 4 + key / 16] >> (key % 16) & 1) != 0;
}

// Score of one pair times log2(e); -inf where the query does not see the key.
__device__ __forceinline__ float Log2Score(const FlashArgs& args, float product, bool masks,
                                           int64_t b, int64_t h, int64_t i, int64_t j, int limit) {
  if (j >= limit || (masks && !MasksAllow(args, b, i, j))) return -INFINITY;
  float score = product * static_cast<float>(args.scale);
  if (args.bias != nullptr) score += BiasAt<float>(args, b, h, i, j);
  return score * kLog2E;
}

__device__ __forceinline__ float QuadMax(float v) {
  v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 1));
  return fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 2));
}
__device__ __forceinline__ float QuadSum(float v) {
  v += __shfl_xor_sync(0xffffffffu, v, 1);
  return v + __shfl_xor_sync(0xffffffffu, v, 2);
}

// Writes 16 rows of sums times `scale` of their row to global memory: rows from `begin`, of which
// those from `rows` on are left out.
template <typename T, int kD>
__device__ __forceinline__ void StoreRows(T* base, int64_t row_stride, int64_t begin, int64_t rows,
                                          int head_dim, const float (&c)[kD / 8][4],
                                          const float (&scale)[2], int lane) {
  const int g = lane / 4;
  const int t = lane % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t row = begin + g + half * 8;
    if (row >= rows) continue;
#pragma unroll
    for (int tile = 0; tile < kD / 8; ++tile) {
      const int d = tile * 8 + 2 * t;
      if (d >= head_dim) continue;
      *reinterpret_cast<uint32_t*>(base + row * row_stride + d) =
          Pack<T>(c[tile][2 * half] * scale[half], c[tile][2 * half + 1] * scale[half]);
    }
  }
}

// How many keys each query of a tile may see, and the most of them.
struct Limits {
  int of_row[kTileRows];
  int most;
};
// Ends with a barrier.
__device__ __forceinline__ void ComputeLimits(Limits* limits, const FlashArgs& args, int64_t b,
                                              int64_t q_begin) {
  if (threadIdx.x == 0) limits->most = 0;
  __syncthreads();
  if (threadIdx.x < kTileRows) {
    const int64_t i = q_begin + threadIdx.x;
    const int limit = i < args.q_len ? static_cast<int>(FlashKeyLimit(args, b, i)) : 0;
    limits->of_row[threadIdx.x] = limit;
    atomicMax(&limits->most, limit);
  }
  __syncthreads();
}

// ---- Forward ----------------------------------------------------------------------------------

template <typename T, int kD>
constexpr size_t ForwardShared() {
  return sizeof(T) * kTileRows * kRow<kD> * 5;  // Q, and two stages of K and V
}

template <typename T, int kD>
__global__ void __launch_bounds__(kThreadsOfBlock)
    ForwardKernel(const __grid_constant__ FlashArgs args) {
  auto& limits = BlockShared<Limits>();
  auto& kept = BlockShared<uint16_t[kTileRows * 4]>();
  constexpr int kTileSize = kTileRows * kRow<kD>;
  T* q_QD = DynamicShared<T>();
  T* k_KD = q_QD + kTileSize;      // two stages
  T* v_KD = k_KD + 2 * kTileSize;  // two stages

  const int lane = threadIdx.x % 32;
  const int warp_row = threadIdx.x / 32 * 16;
  const int g = lane / 4;
  const int t = lane % 4;
  // The last queries see most keys under a causal mask: they go first.
  const int64_t q_begin = int64_t{gridDim.x - 1 - blockIdx.x} * kTileRows;
  const int64_t h = blockIdx.y;
  const int64_t b = blockIdx.z;
  const int64_t key_head = FlashKeyHead(args, h);
  const int head_dim = static_cast<int>(args.head_dim);
  const T* q = static_cast<const T*>(args.q) + FlashOffset(args.q_stride, b, h, 0);
  const bool masks = HasKeyMasks(args);
  const bool drops = args.dropout.p > 0.0f;

  ComputeLimits(&limits, args, b, q_begin);
  const int tiles = (limits.most + kTileRows - 1) / kTileRows;
  // Later queries begin at later keys.
  const int first_tile = static_cast<int>(FlashFirstKey(args, b, q_begin) / kTileRows);
  const int row_limit[2] = {limits.of_row[warp_row + g], limits.of_row[warp_row + g + 8]};

  float o[kD / 8][4] = {};
  float max[2] = {-INFINITY, -INFINITY};
  float sum[2] = {0.0f, 0.0f};  // this lane's share

  const auto begin_copies = [&](int tile) {
    const int stage = tile % 2;
    const int64_t begin = int64_t{tile} * kTileRows;
    // What lies behind the last key that is seen may be no number at all, which even a probability
    // of zero does not make one.
    CopyRows<T, kD, kTileRows>(
        k_KD + stage * kTileSize, static_cast<const T*>(args.k), begin, limits.most, head_dim,
        [&](int64_t j) { return FlashKeyOffset(args, args.k_stride, b, key_head, j); });
    CopyRows<T, kD, kTileRows>(
        v_KD + stage * kTileSize, static_cast<const T*>(args.v), begin, limits.most, head_dim,
        [&](int64_t j) { return FlashKeyOffset(args, args.v_stride, b, key_head, j); });
    CommitCopies();
  };
  if (first_tile < tiles) {
    CopyTile<T, kD, kTileRows>(q_QD, q, args.q_stride.time, q_begin, args.q_len, head_dim);
    begin_copies(first_tile);
  }

  for (int tile = first_tile; tile < tiles; ++tile) {
    const int64_t k_begin = int64_t{tile} * kTileRows;
    if (tile + 1 < tiles) {
      begin_copies(tile + 1);
      WaitForCopies<1>();
    } else {
      WaitForCopies<0>();
    }
    if (drops) ComputeKept<kTileRows>(kept, args, b, h, q_begin, k_begin);
    __syncthreads();
    const T* keys = k_KD + tile % 2 * kTileSize;
    const T* values = v_KD + tile % 2 * kTileSize;

    float s[8][4] = {};
    AddRowsByRows<T, kD, 8>(s, q_QD + warp_row * kRow<kD>, keys, lane);

    float tile_max[2] = {-INFINITY, -INFINITY};
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int half = e / 2;
        const int64_t i = q_begin + warp_row + g + half * 8;
        const int64_t j = k_begin + n * 8 + 2 * t + e % 2;
        s[n][e] = Log2Score(args, s[n][e], masks, b, h, i, j, row_limit[half]);
        tile_max[half] = fmaxf(tile_max[half], s[n][e]);
      }
    }
    float shrink[2];
    float base[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float new_max = fmaxf(max[half], QuadMax(tile_max[half]));
      base[half] = new_max == -INFINITY ? 0.0f : new_max;
      shrink[half] = exp2f(max[half] - base[half]);
      max[half] = new_max;
      sum[half] *= shrink[half];
    }
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int half = e / 2;
        const float p = exp2f(s[n][e] - base[half]);
        sum[half] += p;
        const bool keep = !drops || IsKept(kept, warp_row + g + half * 8, n * 8 + 2 * t + e % 2);
        s[n][e] = keep ? p : 0.0f;
      }
    }
#pragma unroll
    for (int n = 0; n < kD / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) o[n][e] *= shrink[e / 2];
    }
    AddSumsByColumns<T, kD, 4>(o, s, values, lane);
    __syncthreads();  // this stage and `kept` are written again
  }

  float inverse[2];
  const float kept_scale = drops ? 1.0f / (1.0f - args.dropout.p) : 1.0f;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float total = QuadSum(sum[half]);
    inverse[half] = total == 0.0f ? 0.0f : kept_scale / total;
    const int64_t i = q_begin + warp_row + g + half * 8;
    if (t == 0 && i < args.q_len) {
      static_cast<float*>(args.lse)[(b * args.heads + h) * args.q_len + i] =
          total == 0.0f ? -INFINITY : max[half] * kLn2 + logf(total);
    }
  }
  T* out = static_cast<T*>(args.o) + FlashOffset(args.o_stride, b, h, 0);
  StoreRows<T, kD>(out, args.o_stride.time, q_begin + warp_row, args.q_len, head_dim, o, inverse,
                   lane);
}

// ---- Backward: the gradient of queries --------------------------------------------------------

template <typename T, int kD>
constexpr size_t QueryGradShared() {
  return sizeof(T) * kTileRows * kRow<kD> * 4;  // Q, dO, K, V
}

template <typename T, int kD>
__global__ void __launch_bounds__(kThreadsOfBlock)
    QueryGradKernel(const __grid_constant__ FlashBackwardArgs args, const float* delta) {
  auto& limits = BlockShared<Limits>();
  auto& kept = BlockShared<uint16_t[kTileRows * 4]>();
  constexpr int kTileSize = kTileRows * kRow<kD>;
  T* q_QD = DynamicShared<T>();
  T* do_QD = q_QD + kTileSize;
  T* k_KD = do_QD + kTileSize;
  T* v_KD = k_KD + kTileSize;

  const FlashArgs& f = args.forward;
  const int lane = threadIdx.x % 32;
  const int warp_row = threadIdx.x / 32 * 16;
  const int g = lane / 4;
  const int t = lane % 4;
  const int64_t q_begin = int64_t{gridDim.x - 1 - blockIdx.x} * kTileRows;
  const int64_t h = blockIdx.y;
  const int64_t b = blockIdx.z;
  const int64_t key_head = FlashKeyHead(f, h);
  const int head_dim = static_cast<int>(f.head_dim);
  const T* k = static_cast<const T*>(f.k) + FlashOffset(f.k_stride, b, key_head, 0);
  const T* v = static_cast<const T*>(f.v) + FlashOffset(f.v_stride, b, key_head, 0);
  const bool masks = HasKeyMasks(f);
  const bool drops = f.dropout.p > 0.0f;
  const float kept_scale = drops ? 1.0f / (1.0f - f.dropout.p) : 1.0f;

  ComputeLimits(&limits, f, b, q_begin);
  const int tiles = (limits.most + kTileRows - 1) / kTileRows;
  const int first_tile = static_cast<int>(FlashFirstKey(f, b, q_begin) / kTileRows);
  CopyTile<T, kD, kTileRows>(q_QD, static_cast<const T*>(f.q) + FlashOffset(f.q_stride, b, h, 0),
                             f.q_stride.time, q_begin, f.q_len, head_dim);
  CopyTile<T, kD, kTileRows>(
      do_QD, static_cast<const T*>(args.d_o) + FlashOffset(args.d_o_stride, b, h, 0),
      args.d_o_stride.time, q_begin, f.q_len, head_dim);
  CommitCopies();

  int row_limit[2];
  float row_lse[2];  // times log2(e); +inf gives a row of zeros
  float row_delta[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int r = warp_row + g + half * 8;
    const int64_t i = q_begin + r;
    row_limit[half] = limits.of_row[r];
    row_lse[half] = INFINITY;
    row_delta[half] = 0.0f;
    if (i < f.q_len) {
      const int64_t row = (b * f.heads + h) * f.q_len + i;
      const float lse = static_cast<const float*>(f.lse)[row];
      if (lse != -INFINITY) row_lse[half] = lse * kLog2E;
      row_delta[half] = delta[row];
    }
  }

  float dq[kD / 8][4] = {};
  for (int tile = first_tile; tile < tiles; ++tile) {
    const int64_t k_begin = int64_t{tile} * kTileRows;
    CopyTile<T, kD, kTileRows>(k_KD, k, f.k_stride.time, k_begin, f.k_len, head_dim);
    CopyTile<T, kD, kTileRows>(v_KD, v, f.v_stride.time, k_begin, f.k_len, head_dim);
    CommitCopies();
    if (drops) ComputeKept<kTileRows>(kept, f, b, h, q_begin, k_begin);
    WaitForCopies<0>();
    __syncthreads();

    float s[8][4] = {};
    AddRowsByRows<T, kD, 8>(s, q_QD + warp_row * kRow<kD>, k_KD, lane);
    float dp[8][4] = {};
    AddRowsByRows<T, kD, 8>(dp, do_QD + warp_row * kRow<kD>, v_KD, lane);
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int half = e / 2;
        const int key = n * 8 + 2 * t + e % 2;
        const int64_t i = q_begin + warp_row + g + half * 8;
        const float score = Log2Score(f, s[n][e], masks, b, h, i, k_begin + key, row_limit[half]);
        const float p = exp2f(score - row_lse[half]);
        const bool keep = !drops || IsKept(kept, warp_row + g + half * 8, key);
        const float through = keep ? dp[n][e] * kept_scale : 0.0f;
        s[n][e] = p * (through - row_delta[half]);
      }
    }
    AddSumsByColumns<T, kD, 4>(dq, s, k_KD, lane);
    __syncthreads();
  }
  WaitForCopies<0>();
  const auto scale = static_cast<float>(f.scale);
  const float scales[2] = {scale, scale};
  T* out = static_cast<T*>(args.dq) + FlashOffset(args.dq_stride, b, h, 0);
  StoreRows<T, kD>(out, args.dq_stride.time, q_begin + warp_row, f.q_len, head_dim, dq, scales,
                   lane);
}

// ---- Backward: the gradients of keys and values -----------------------------------------------

// Queries per step: fewer where the sums of two gradients fill the registers.
template <int kD>
inline constexpr int kStepQueries = kD <= 64 ? 64 : 32;

template <typename T, int kD>
constexpr size_t KeyGradShared() {
  return sizeof(T) * kRow<kD> * (2 * kTileRows + 2 * kStepQueries<kD>);
}

// Sums are transposed here: rows are keys, columns are queries.
template <typename T, int kD>
__global__ void __launch_bounds__(kThreadsOfBlock)
    KeyGradKernel(const __grid_constant__ FlashBackwardArgs args, const float* delta) {
  constexpr int kQueries = kStepQueries<kD>;
  constexpr int kColumnTiles = kQueries / 8;
  auto& limits = BlockShared<int[kQueries]>();
  auto& lses = BlockShared<float[kQueries], 0>();  // times log2(e); +inf gives zeros
  auto& deltas = BlockShared<float[kQueries], 1>();
  auto& kept = BlockShared<uint16_t[kQueries * 4]>();
  T* k_KD = DynamicShared<T>();
  T* v_KD = k_KD + kTileRows * kRow<kD>;
  T* q_QD = v_KD + kTileRows * kRow<kD>;
  T* do_QD = q_QD + kQueries * kRow<kD>;

  const FlashArgs& f = args.forward;
  const int lane = threadIdx.x % 32;
  const int warp_row = threadIdx.x / 32 * 16;
  const int g = lane / 4;
  const int t = lane % 4;
  const int64_t k_begin = int64_t{blockIdx.x} * kTileRows;
  const int64_t key_head = blockIdx.y;
  const int64_t b = blockIdx.z;
  const int64_t shared_by = f.heads / f.kv_heads;
  const int head_dim = static_cast<int>(f.head_dim);
  const bool masks = HasKeyMasks(f);
  const bool drops = f.dropout.p > 0.0f;
  const float kept_scale = drops ? 1.0f / (1.0f - f.dropout.p) : 1.0f;

  CopyTile<T, kD, kTileRows>(k_KD,
                             static_cast<const T*>(f.k) + FlashOffset(f.k_stride, b, key_head, 0),
                             f.k_stride.time, k_begin, f.k_len, head_dim);
  CopyTile<T, kD, kTileRows>(v_KD,
                             static_cast<const T*>(f.v) + FlashOffset(f.v_stride, b, key_head, 0),
                             f.v_stride.time, k_begin, f.k_len, head_dim);
  CommitCopies();

  float dk[kD / 8][4] = {};
  float dv[kD / 8][4] = {};
  for (int64_t h = key_head * shared_by; h < (key_head + 1) * shared_by; ++h) {
    const T* q = static_cast<const T*>(f.q) + FlashOffset(f.q_stride, b, h, 0);
    const T* d_o = static_cast<const T*>(args.d_o) + FlashOffset(args.d_o_stride, b, h, 0);
    for (int64_t q_begin = 0; q_begin < f.q_len; q_begin += kQueries) {
      int sees = 0;
      if (threadIdx.x < kQueries) {
        const int64_t i = q_begin + threadIdx.x;
        int limit = 0;
        float lse = INFINITY;
        float row_delta = 0.0f;
        if (i < f.q_len) {
          limit = static_cast<int>(FlashKeyLimit(f, b, i));
          const int64_t row = (b * f.heads + h) * f.q_len + i;
          const float value = static_cast<const float*>(f.lse)[row];
          if (value != -INFINITY) lse = value * kLog2E;
          row_delta = delta[row];
        }
        limits[threadIdx.x] = limit;
        lses[threadIdx.x] = lse;
        deltas[threadIdx.x] = row_delta;
        sees = limit > k_begin && FlashFirstKey(f, b, i) < k_begin + kTileRows ? 1 : 0;
      }
      // Also the barrier behind the last step's reads of q_QD and do_QD, and before those of
      // limits.
      if (__syncthreads_or(sees) == 0) continue;
      CopyTile<T, kD, kQueries>(q_QD, q, f.q_stride.time, q_begin, f.q_len, head_dim);
      CopyTile<T, kD, kQueries>(do_QD, d_o, args.d_o_stride.time, q_begin, f.q_len, head_dim);
      CommitCopies();
      if (drops) ComputeKept<kQueries>(kept, f, b, h, q_begin, k_begin);
      WaitForCopies<0>();
      __syncthreads();

      float p[kColumnTiles][4] = {};
      AddRowsByRows<T, kD, kColumnTiles>(p, k_KD + warp_row * kRow<kD>, q_QD, lane);
      float ds[kColumnTiles][4] = {};
      AddRowsByRows<T, kD, kColumnTiles>(ds, v_KD + warp_row * kRow<kD>, do_QD, lane);
#pragma unroll
      for (int n = 0; n < kColumnTiles; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int key = warp_row + g + e / 2 * 8;
          const int query = n * 8 + 2 * t + e % 2;
          const float score =
              Log2Score(f, p[n][e], masks, b, h, q_begin + query, k_begin + key, limits[query]);
          const float value = exp2f(score - lses[query]);
          const bool keep = !drops || IsKept(kept, query, key);
          const float through = keep ? ds[n][e] * kept_scale : 0.0f;
          ds[n][e] = value * (through - deltas[query]);
          p[n][e] = keep ? value * kept_scale : 0.0f;
        }
      }
      AddSumsByColumns<T, kD, kQueries / 16>(dv, p, do_QD, lane);
      AddSumsByColumns<T, kD, kQueries / 16>(dk, ds, q_QD, lane);
      __syncthreads();  // limits, kept and the tiles are written again
    }
  }
  WaitForCopies<0>();
  const auto scale = static_cast<float>(f.scale);
  const float scales[2] = {scale, scale};
  const float ones[2] = {1.0f, 1.0f};
  StoreRows<T, kD>(static_cast<T*>(args.dk) + FlashOffset(args.dk_stride, b, key_head, 0),
                   args.dk_stride.time, k_begin + warp_row, f.k_len, head_dim, dk, scales, lane);
  StoreRows<T, kD>(static_cast<T*>(args.dv) + FlashOffset(args.dv_stride, b, key_head, 0),
                   args.dv_stride.time, k_begin + warp_row, f.k_len, head_dim, dv, ones, lane);
}

// ---- Launches ---------------------------------------------------------------------------------

// A block per tile of `rows`, for every head and row of the batch.
LaunchShape TileGrid(int64_t rows, int64_t heads, int64_t batch, size_t shared) {
  return {dim3(static_cast<unsigned>((rows + kTileRows - 1) / kTileRows),
               static_cast<unsigned>(heads), static_cast<unsigned>(batch)),
          kThreadsOfBlock, shared};
}

template <typename T, int kD>
void Backward(const FlashBackwardArgs& args, const float* delta) {
  const FlashArgs& f = args.forward;
  if (f.q_len > 0) {
    Launch("attention", TileGrid(f.q_len, f.heads, f.batch, QueryGradShared<T, kD>()),
           QueryGradKernel<T, kD>, args, delta);
  }
  if (f.k_len > 0) {
    Launch("attention", TileGrid(f.k_len, f.kv_heads, f.batch, KeyGradShared<T, kD>()),
           KeyGradKernel<T, kD>, args, delta);
  }
}

}  // namespace

void RunFlashForward(const FlashArgs& args) {
  DispatchCudaHalf(args.dtype, "attention", [&](auto zero) {
    using T = decltype(zero);
    const auto run = [&](auto features) {
      constexpr int kD = decltype(features)::value;
      Launch("attention", TileGrid(args.q_len, args.heads, args.batch, ForwardShared<T, kD>()),
             ForwardKernel<T, kD>, args);
    };
    if (args.head_dim <= 64) {
      run(std::integral_constant<int, 64>());
    } else {
      run(std::integral_constant<int, 128>());
    }
  });
}

void RunFlashBackward(const FlashBackwardArgs& args, const float* delta) {
  DispatchCudaHalf(args.forward.dtype, "attention gradient", [&](auto zero) {
    using T = decltype(zero);
    if (args.forward.head_dim <= 64) {
      Backward<T, 64>(args, delta);
    } else {
      Backward<T, 128>(args, delta);
    }
  });
}

}  // namespace tessera::cuda
