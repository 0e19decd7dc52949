// Attention without tensor cores: float32, float64, and shapes that the flash kernels do not take.
// A block takes one query (or one key, for its gradients) and walks the other side in tiles of
// kTile, one element of the tile per thread; nothing of size Tq x Tk is ever held.
#include <algorithm>

#include "core/cuda/launch.h"
#include "core/cuda/math.cuh"
#include "core/cuda/reduce.cuh"
#include "ops/attention/attention_cuda.h"
#include "ops/attention/attention_mask.cuh"

namespace tessera::cuda {
namespace {

constexpr int kTile = 128;  // threads of a block

template <typename T>
__device__ __forceinline__ T* RowOf(void* data, const FlashStrides& stride, int64_t b, int64_t h,
                                    int64_t t) {
  return static_cast<T*>(data) + FlashOffset(stride, b, h, t);
}
template <typename T>
__device__ __forceinline__ const T* RowOf(const void* data, const FlashStrides& stride, int64_t b,
                                          int64_t h, int64_t t) {
  return static_cast<const T*>(data) + FlashOffset(stride, b, h, t);
}

// Of keys and values in the forward pass, which may lie in pages.
template <typename T>
__device__ __forceinline__ const T* KeyRow(const FlashArgs& args, const void* data,
                                           const FlashStrides& stride, int64_t b, int64_t g,
                                           int64_t j) {
  return static_cast<const T*>(data) + FlashKeyOffset(args, stride, b, g, j);
}

template <typename T>
__device__ __forceinline__ Wide<T> Dot(const Wide<T>* a, const T* b, int64_t n) {
  Wide<T> sum = 0;
  for (int64_t x = 0; x < n; ++x) sum += a[x] * ToWide(b[x]);
  return sum;
}

// A row in the dtype that is computed in, in shared memory.
template <typename T>
__device__ __forceinline__ void LoadRow(Wide<T>* shared, const T* row, int64_t n) {
  for (int64_t x = threadIdx.x; x < n; x += kTile) shared[x] = ToWide(row[x]);
}

// The score of query i and key j: scale q.k + bias; -inf where the query does not see the key.
template <typename T>
__device__ __forceinline__ Wide<T> Score(const FlashArgs& args, int64_t b, int64_t h, int64_t i,
                                         int64_t j, int64_t limit, const Wide<T>* one,
                                         const T* other) {
  using W = Wide<T>;
  if (j >= limit || !MasksAllow(args, b, i, j)) return static_cast<W>(-INFINITY);
  return static_cast<W>(args.scale) * Dot(one, other, args.head_dim) + BiasAt<W>(args, b, h, i, j);
}

// Shared: q [D], o [D], p [kTile].
template <typename T>
__global__ void ForwardKernel(FlashArgs args) {
  using W = Wide<T>;
  W* q = DynamicShared<W>();
  W* o = q + args.head_dim;
  W* p = o + args.head_dim;
  const W lowest = static_cast<W>(-INFINITY);
  const int64_t queries = args.batch * args.heads * args.q_len;
  for (int64_t task = blockIdx.x; task < queries; task += gridDim.x) {
    const int64_t i = task % args.q_len;
    const int64_t h = task / args.q_len % args.heads;
    const int64_t b = task / (args.q_len * args.heads);
    const int64_t g = FlashKeyHead(args, h);
    const int64_t limit = FlashKeyLimit(args, b, i);
    const uint64_t random_row = FlashDropoutIndex(args, b, h, i);
    LoadRow(q, RowOf<T>(args.q, args.q_stride, b, h, i), args.head_dim);
    for (int64_t x = threadIdx.x; x < args.head_dim; x += kTile) o[x] = 0;
    __syncthreads();
    W max = lowest;
    W sum = 0;
    for (int64_t begin = FlashFirstKey(args, b, i); begin < limit; begin += kTile) {
      const int64_t j = begin + threadIdx.x;
      const int64_t n = min(int64_t{kTile}, limit - begin);
      W score = lowest;
      if (threadIdx.x < n) {
        score = Score(args, b, h, i, j, limit, q, KeyRow<T>(args, args.k, args.k_stride, b, g, j));
      }
      const W new_max = MaxOp()(max, BlockReduce(score, MaxOp(), lowest));
      const W base = new_max == lowest ? W(0) : new_max;
      const W shrink = ExpOf(max - base);
      const W value = ExpOf(score - base);
      sum = sum * shrink + BlockReduce(value, SumOp(), W(0));
      max = new_max;
      p[threadIdx.x] =
          threadIdx.x < n && value != W(0) ? value * KeptScale<W>(args, random_row, j) : W(0);
      __syncthreads();
      for (int64_t x = threadIdx.x; x < args.head_dim; x += kTile) {
        W total = o[x] * shrink;
        for (int64_t k = 0; k < n; ++k) {
          total += p[k] * ToWide(KeyRow<T>(args, args.v, args.v_stride, b, g, begin + k)[x]);
        }
        o[x] = total;
      }
      __syncthreads();
    }
    const W inverse = sum == W(0) ? W(0) : W(1) / sum;
    T* out = RowOf<T>(args.o, args.o_stride, b, h, i);
    for (int64_t x = threadIdx.x; x < args.head_dim; x += kTile) {
      out[x] = FromWide<T>(o[x] * inverse);
    }
    if (threadIdx.x == 0) {
      static_cast<W*>(args.lse)[task] = sum == W(0) ? lowest : max + LogOf(sum);
    }
    __syncthreads();
  }
}

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
    const T* o = RowOf<T>(static_cast<const void*>(f.o), f.o_stride, b, h, i);
    const T* d_o = RowOf<T>(args.d_o, args.d_o_stride, b, h, i);
    W sum = 0;
    for (int64_t x = lane; x < f.head_dim; x += 32) sum += ToWide(o[x]) * ToWide(d_o[x]);
    sum = WarpReduce(sum, SumOp());
    if (lane == 0) delta[row] = sum;
  }
}

// The probability and the gradient of the score of one pair.
template <typename W>
struct PairGrad {
  W kept;  // the probability after dropout
  W ds;
};
template <typename T>
__device__ __forceinline__ PairGrad<Wide<T>> GradOf(const FlashArgs& f, Wide<T> score, Wide<T> lse,
                                                    Wide<T> delta, uint64_t random_row, int64_t j,
                                                    const Wide<T>* one, const T* other) {
  using W = Wide<T>;
  const W p = ExpOf(score - lse);
  if (lse == static_cast<W>(-INFINITY) || p == W(0)) return {W(0), W(0)};
  const W scale = KeptScale<W>(f, random_row, j);
  const W dp = scale == W(0) ? W(0) : scale * Dot(one, other, f.head_dim);
  return {p * scale, p * (dp - delta)};
}

// Shared: q, d_o, dq [D], ds [kTile].
template <typename T>
__global__ void QueryGradKernel(FlashBackwardArgs args, const Wide<T>* deltas) {
  using W = Wide<T>;
  const FlashArgs& f = args.forward;
  W* q = DynamicShared<W>();
  W* d_o = q + f.head_dim;
  W* dq = d_o + f.head_dim;
  W* ds = dq + f.head_dim;
  const int64_t queries = f.batch * f.heads * f.q_len;
  for (int64_t task = blockIdx.x; task < queries; task += gridDim.x) {
    const int64_t i = task % f.q_len;
    const int64_t h = task / f.q_len % f.heads;
    const int64_t b = task / (f.q_len * f.heads);
    const int64_t g = FlashKeyHead(f, h);
    const int64_t limit = FlashKeyLimit(f, b, i);
    const uint64_t random_row = FlashDropoutIndex(f, b, h, i);
    const W lse = static_cast<const W*>(f.lse)[task];
    LoadRow(q, RowOf<T>(f.q, f.q_stride, b, h, i), f.head_dim);
    LoadRow(d_o, RowOf<T>(args.d_o, args.d_o_stride, b, h, i), f.head_dim);
    for (int64_t x = threadIdx.x; x < f.head_dim; x += kTile) dq[x] = 0;
    __syncthreads();
    for (int64_t begin = FlashFirstKey(f, b, i); begin < limit; begin += kTile) {
      const int64_t j = begin + threadIdx.x;
      const int64_t n = min(int64_t{kTile}, limit - begin);
      if (threadIdx.x < n) {
        const W score = Score(f, b, h, i, j, limit, q, RowOf<T>(f.k, f.k_stride, b, g, j));
        ds[threadIdx.x] = GradOf(f, score, lse, deltas[task], random_row, j, d_o,
                                 RowOf<T>(f.v, f.v_stride, b, g, j))
                              .ds;
      }
      __syncthreads();
      for (int64_t x = threadIdx.x; x < f.head_dim; x += kTile) {
        W total = dq[x];
        for (int64_t k = 0; k < n; ++k) {
          total += ds[k] * ToWide(RowOf<T>(f.k, f.k_stride, b, g, begin + k)[x]);
        }
        dq[x] = total;
      }
      __syncthreads();
    }
    T* out = RowOf<T>(args.dq, args.dq_stride, b, h, i);
    for (int64_t x = threadIdx.x; x < f.head_dim; x += kTile) {
      out[x] = FromWide<T>(static_cast<W>(f.scale) * dq[x]);
    }
    __syncthreads();
  }
}

// Shared: k, v, dk, dv [D], p, ds [kTile].
template <typename T>
__global__ void KeyGradKernel(FlashBackwardArgs args, const Wide<T>* deltas) {
  using W = Wide<T>;
  const FlashArgs& f = args.forward;
  W* k = DynamicShared<W>();
  W* v = k + f.head_dim;
  W* dk = v + f.head_dim;
  W* dv = dk + f.head_dim;
  W* p = dv + f.head_dim;
  W* ds = p + kTile;
  const int64_t keys = f.batch * f.kv_heads * f.k_len;
  const int64_t shared_by = f.heads / f.kv_heads;
  for (int64_t task = blockIdx.x; task < keys; task += gridDim.x) {
    const int64_t j = task % f.k_len;
    const int64_t g = task / f.k_len % f.kv_heads;
    const int64_t b = task / (f.k_len * f.kv_heads);
    LoadRow(k, RowOf<T>(f.k, f.k_stride, b, g, j), f.head_dim);
    LoadRow(v, RowOf<T>(f.v, f.v_stride, b, g, j), f.head_dim);
    for (int64_t x = threadIdx.x; x < f.head_dim; x += kTile) dk[x] = dv[x] = 0;
    __syncthreads();
    for (int64_t h = g * shared_by; h < (g + 1) * shared_by; ++h) {
      for (int64_t begin = 0; begin < f.q_len; begin += kTile) {
        const int64_t i = begin + threadIdx.x;
        const int64_t n = min(int64_t{kTile}, f.q_len - begin);
        if (threadIdx.x < n) {
          const int64_t row = (b * f.heads + h) * f.q_len + i;
          const int64_t limit = FlashKeyLimit(f, b, i);
          const W score = Score(f, b, h, i, j, limit, k, RowOf<T>(f.q, f.q_stride, b, h, i));
          const PairGrad<W> grad = GradOf(f, score, static_cast<const W*>(f.lse)[row], deltas[row],
                                          FlashDropoutIndex(f, b, h, i), j, v,
                                          RowOf<T>(args.d_o, args.d_o_stride, b, h, i));
          p[threadIdx.x] = grad.kept;
          ds[threadIdx.x] = grad.ds;
        }
        __syncthreads();
        for (int64_t x = threadIdx.x; x < f.head_dim; x += kTile) {
          W key_total = dk[x];
          W value_total = dv[x];
          for (int64_t t = 0; t < n; ++t) {
            key_total += ds[t] * ToWide(RowOf<T>(f.q, f.q_stride, b, h, begin + t)[x]);
            value_total += p[t] * ToWide(RowOf<T>(args.d_o, args.d_o_stride, b, h, begin + t)[x]);
          }
          dk[x] = key_total;
          dv[x] = value_total;
        }
        __syncthreads();
      }
    }
    T* key_out = RowOf<T>(args.dk, args.dk_stride, b, g, j);
    T* value_out = RowOf<T>(args.dv, args.dv_stride, b, g, j);
    for (int64_t x = threadIdx.x; x < f.head_dim; x += kTile) {
      key_out[x] = FromWide<T>(static_cast<W>(f.scale) * dk[x]);
      value_out[x] = FromWide<T>(dv[x]);
    }
    __syncthreads();
  }
}

// The product of a row of q (as `one` needs it) without shared memory.
template <typename T>
__device__ __forceinline__ Wide<T> DotRows(const T* a, const T* b, int64_t n) {
  Wide<T> sum = 0;
  for (int64_t x = 0; x < n; ++x) sum += ToWide(a[x]) * ToWide(b[x]);
  return sum;
}

// Sizes of dbias: 1 along dims where it is the same.
struct BiasSizes {
  int64_t batch, heads, queries, keys;
};

template <typename T>
__global__ void BiasGradKernel(FlashBackwardArgs args, const Wide<T>* deltas, BiasSizes sizes) {
  using W = Wide<T>;
  const FlashArgs& f = args.forward;
  const int64_t total = sizes.batch * sizes.heads * sizes.queries * sizes.keys;
  for (int64_t e = GridThread(); e < total; e += GridThreads()) {
    const int64_t j0 = e % sizes.keys;
    const int64_t i0 = e / sizes.keys % sizes.queries;
    const int64_t h0 = e / (sizes.keys * sizes.queries) % sizes.heads;
    const int64_t b0 = e / (sizes.keys * sizes.queries * sizes.heads);
    W sum = 0;
    // A dim of size 1 is walked whole, any other has this thread's element.
    for (int64_t b = b0; b < f.batch; b += sizes.batch) {
      for (int64_t h = h0; h < f.heads; h += sizes.heads) {
        const int64_t g = FlashKeyHead(f, h);
        for (int64_t i = i0; i < f.q_len; i += sizes.queries) {
          const int64_t row = (b * f.heads + h) * f.q_len + i;
          const W lse = static_cast<const W*>(f.lse)[row];
          const int64_t limit = FlashKeyLimit(f, b, i);
          const uint64_t random_row = FlashDropoutIndex(f, b, h, i);
          for (int64_t j = j0; j < limit; j += sizes.keys) {
            if (lse == static_cast<W>(-INFINITY) || !MasksAllow(f, b, i, j)) continue;
            const W score =
                static_cast<W>(f.scale) * DotRows(RowOf<T>(f.q, f.q_stride, b, h, i),
                                                  RowOf<T>(f.k, f.k_stride, b, g, j), f.head_dim) +
                BiasAt<W>(f, b, h, i, j);
            const W p = ExpOf(score - lse);
            if (p == W(0)) continue;
            const W scale = KeptScale<W>(f, random_row, j);
            const W dp = scale * DotRows(RowOf<T>(args.d_o, args.d_o_stride, b, h, i),
                                         RowOf<T>(f.v, f.v_stride, b, g, j), f.head_dim);
            sum += p * (dp - deltas[row]);
          }
        }
      }
    }
    const FlashBiasStrides& s = args.dbias_stride;
    static_cast<W*>(args.dbias)[b0 * s.batch + h0 * s.head + i0 * s.query + j0 * s.key] = sum;
  }
}

unsigned Grid(int64_t tasks) { return GridForRows(tasks, 64); }

}  // namespace

void RunPlainForward(const FlashArgs& args) {
  DispatchCudaFloat(args.dtype, "attention", [&](auto zero) {
    using T = decltype(zero);
    const size_t bytes = static_cast<size_t>(2 * args.head_dim + kTile) * sizeof(Wide<T>);
    Launch("attention", {Grid(args.batch * args.heads * args.q_len), kTile, bytes},
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
    const auto* deltas = static_cast<const Wide<T>*>(delta);
    if (f.q_len > 0) {
      const size_t bytes = static_cast<size_t>(3 * f.head_dim + kTile) * sizeof(Wide<T>);
      Launch("attention gradient", {Grid(f.batch * f.heads * f.q_len), kTile, bytes},
             QueryGradKernel<T>, args, deltas);
    }
    if (f.kv_heads * f.k_len > 0) {
      const size_t bytes = static_cast<size_t>(4 * f.head_dim + 2 * kTile) * sizeof(Wide<T>);
      Launch("attention gradient", {Grid(f.batch * f.kv_heads * f.k_len), kTile, bytes},
             KeyGradKernel<T>, args, deltas);
    }
  });
}

void RunBiasGradient(const FlashBackwardArgs& args, const void* delta) {
  const FlashArgs& f = args.forward;
  const FlashBiasStrides& s = args.dbias_stride;
  const auto size = [](int64_t n, int64_t stride) {
    return stride == 0 ? std::min<int64_t>(n, 1) : n;
  };
  const BiasSizes sizes{size(f.batch, s.batch), size(f.heads, s.head), size(f.q_len, s.query),
                        size(f.k_len, s.key)};
  const int64_t elements = sizes.batch * sizes.heads * sizes.queries * sizes.keys;
  if (elements == 0) return;
  DispatchCudaFloat(f.dtype, "attention gradient", [&](auto zero) {
    using T = decltype(zero);
    Launch("attention gradient", {GridFor(elements), kThreads}, BiasGradKernel<T>, args,
           static_cast<const Wide<T>*>(delta), sizes);
  });
}

}  // namespace tessera::cuda
