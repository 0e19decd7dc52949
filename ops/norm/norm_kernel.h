// SPDX-License-Identifier: Apache-2.0
// What the normalisation kernels are given: contiguous matrices [rows, n].
#ifndef TESSERA_OPS_NORM_NORM_KERNEL_H_
#define TESSERA_OPS_NORM_NORM_KERNEL_H_

#include <cstdint>

#include "core/dtype.h"
#include "core/kernel_table.h"

#ifdef __CUDACC__
#define TESSERA_NORM_FN __host__ __device__ __forceinline__
#else
#define TESSERA_NORM_FN inline
#endif

namespace tessera {

struct NormArgs {
  DType dtype;
  bool centered;  // LayerNorm; otherwise RmsNorm
  int64_t rows;
  int64_t n;
  double eps;
  const void* x;
  const void* residual;  // or nullptr
  const void* weight;    // [n] or nullptr
  double weight_offset;  // is added to each weight
  const void* bias;      // [n] or nullptr
  void* sum;             // "=", with residual only
  void* y;               // "="
  void* mean;            // [rows], AccumulateDType(dtype), "="
  void* rstd;            // [rows], likewise
};

// Rows whose contributions to dweight and dbias are summed into one partial result.
inline constexpr int64_t kNormGradRows = 64;

// How rows go into partial results of the gradients of weight and bias: those of a run of tokens of
// a sequence each, at most kNormGradRows. Chunks are numbered by run, then by sequence, then along
// the run.
struct NormChunks {
  static constexpr int kMostRuns = 8;
  int64_t sequences;
  int64_t length;                // rows of a sequence
  int runs;                      // of a sequence
  int64_t begin[kMostRuns + 1];  // of each run, and the end
  int64_t first[kMostRuns + 1];  // its first chunk; the last entry is the number of all

  TESSERA_NORM_FN int64_t count() const { return first[runs]; }

  struct Rows {
    int64_t begin, end;
  };
  TESSERA_NORM_FN Rows RowsOf(int64_t chunk) const {
    int run = 0;
    while (chunk >= first[run + 1]) ++run;
    const int64_t per_sequence = (first[run + 1] - first[run]) / sequences;
    const int64_t sequence = (chunk - first[run]) / per_sequence;
    const int64_t at = (chunk - first[run]) % per_sequence * kNormGradRows;
    const int64_t origin = sequence * length + begin[run];
    const int64_t end = origin + at + kNormGradRows;
    const int64_t last = sequence * length + begin[run + 1];
    return {origin + at, end < last ? end : last};
  }
};

// Of the gradients.
struct NormGradArgs {
  DType dtype;
  bool centered;
  int64_t rows;
  int64_t n;
  const void* x;
  const void* weight;
  double weight_offset;
  const void* dy;
  const void* dsum;  // or nullptr
  const void* mean;
  const void* rstd;
  void* dx;               // "=" or nullptr
  void* dweight_partial;  // [chunks, n], AccumulateDType, "=", or nullptr
  void* dbias_partial;    // likewise
  NormChunks chunks;
};

inline KernelWork WorkOf(const NormArgs& args) {
  return {.bytes =
              (args.residual == nullptr ? 2 : 4) * BytesOfElements(args.dtype, args.rows * args.n)};
}
inline KernelWork WorkOf(const NormGradArgs& args) {
  const int operands = 2 + (args.dsum != nullptr) + (args.dx != nullptr);
  return {.bytes = operands * BytesOfElements(args.dtype, args.rows * args.n)};
}

inline KernelTable<NormArgs> norm_forward{"norm"};
inline KernelTable<NormGradArgs> norm_backward{"norm gradient"};

}  // namespace tessera

#endif  // TESSERA_OPS_NORM_NORM_KERNEL_H_
