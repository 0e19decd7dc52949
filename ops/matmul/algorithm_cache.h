// SPDX-License-Identifier: Apache-2.0
// Which of several algorithms computes a product of some shape fastest: measured once, then
// remembered.
//
//   AlgorithmCache cache;
//   int best = cache.Choose(shape, candidates, [&](int i) { return MillisecondsOf(i); });
//
// Candidate 0 is what the library itself would take. Another one is taken only when it is faster by
// more than kMargin, so that noise seldom decides; where the bits of a sum must be the same in
// another process, its choices are read from a file (`Parse`) or measuring is left out.
// Thread-safe; free of CUDA.
#ifndef TESSERA_OPS_MATMUL_ALGORITHM_CACHE_H_
#define TESSERA_OPS_MATMUL_ALGORITHM_CACHE_H_

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace tessera {

// What an algorithm's time depends on.
struct ProductShape {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  int64_t batch = 1;
  int64_t a_stride = 0;  // between rows (or columns) that are adjacent
  int64_t b_stride = 0;
  int64_t c_stride = 0;
  int64_t a_batch_stride = 0;
  int64_t b_batch_stride = 0;
  int32_t dtype = 0;
  int32_t c_dtype = 0;
  int32_t transposed = 0;  // bit 0: a, bit 1: b
  int32_t epilogue = 0;
  int32_t alignment = 0;  // log2 of the bytes that all operands are aligned to
  int32_t device = 0;
  friend auto operator<=>(const ProductShape&, const ProductShape&) = default;
};

class AlgorithmCache {
 public:
  static constexpr double kMargin = 0.03;

  // The index of the candidate to use, in [0, candidates). `measure` gives a candidate's time, or
  // infinity where it fails; it is called without a lock, at most once per candidate and shape in a
  // thread. candidates >= 1.
  int Choose(const ProductShape& shape, int candidates, const std::function<double(int)>& measure);
  std::optional<int> Find(const ProductShape& shape) const;
  size_t size() const;

  // One line per shape: its fields, then the choice. The first line is `header`, which names what
  // the numbers of candidates mean (the library's version, the GPU); Parse refuses another one.
  std::string Format(std::string_view header) const;
  Status Parse(std::string_view text, std::string_view header);

 private:
  mutable std::mutex mutex_;
  std::map<ProductShape, int> chosen_;
};

}  // namespace tessera

#endif  // TESSERA_OPS_MATMUL_ALGORITHM_CACHE_H_
