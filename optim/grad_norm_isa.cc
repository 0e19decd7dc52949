// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "core/cpu/simd.h"
#include "optim/grad_norm_chunks.h"
#include "optim/square_sum_simd.h"

namespace tessera::optim::TESSERA_ISA {
namespace {

// Terms are made one after the other: each takes the leading bits of all squares, as many as can be
// summed exactly, and leaves the rest to the next (Rump, Ogita and Oishi 2008, "Accurate
// Floating-Point Summation", algorithm 3.3).
constexpr int kTermBits = 42;  // of 53, those that kExactBlock numbers need less

// What added to a number below 2^exponent, and taken from it again, leaves its leading bits.
double GridBelow(int exponent) { return std::ldexp(1.5, exponent - kTermBits + 52); }

int TermsOf(double* squares, int64_t n, double most, double* terms) {
  int count = 0;
  while (most > 0) {
    int exponent;
    std::frexp(most, &exponent);
    double sums[kPartials] = {};
    double rest[kPartials] = {};
    const bool all = exponent - kTermBits <= -1074;  // they have no more bits
    const double grid = all ? 0 : GridBelow(exponent);
    for (int64_t i = 0; i < n; i += kPartials) {
      for (int64_t k = 0; k < kPartials; ++k) {
        const double x = squares[i + k];
        const double leading = all ? x : (x + grid) - grid;
        sums[k] += leading;
        squares[i + k] = x - leading;
        rest[k] = std::max(rest[k], std::abs(squares[i + k]));
      }
    }
    terms[count++] = JoinPartials(sums);
    most = *std::max_element(rest, rest + kPartials);
  }
  return count;
}

// Of float64, and of numbers whose squares have more bits than two terms take. `n` is a multiple of
// kPartials.
template <typename T>
int TermsOfAny(const T* x, int64_t n, double* terms) {
  constexpr double kLargest = 0x1p900;
  alignas(64) double squares[kExactBlock];
  double most = 0;
  bool finite = true;
  for (int64_t i = 0; i < n; ++i) {
    const double value = x[i];
    squares[i] = value * value;
    finite &= squares[i] <= kLargest;
    most = std::max(most, squares[i]);
  }
  return finite ? TermsOf(squares, n, most, terms) : -1;
}

// One pass for the exponent, and one for both terms.
int TermsOfFloats(const float* x, int64_t n, double* terms) {
  uint32_t most[kPartials] = {};
  for (int64_t i = 0; i < n; i += kPartials) {
    for (int64_t k = 0; k < kPartials; ++k) {
      most[k] = std::max(most[k], std::bit_cast<uint32_t>(x[i + k]) & 0x7fffffff);
    }
  }
  const uint32_t largest = *std::max_element(most, most + kPartials);
  if (largest == 0) return 0;
  if (largest >= 0x7f800000) return -1;
  const int exponent = 2 * (static_cast<int>(largest >> 23) - 126);  // of squares
  const double first_grid = GridBelow(exponent);
  const double second_grid = GridBelow(exponent - kTermBits);
  double first[kPartials] = {}, second[kPartials] = {};
  uint64_t rest[kPartials] = {};
  for (int64_t i = 0; i < n; i += kPartials) {
    for (int64_t k = 0; k < kPartials; ++k) {
      const double value = x[i + k];
      const double square = value * value;
      const double leading = (square + first_grid) - first_grid;
      const double next = square - leading;
      const double following = (next + second_grid) - second_grid;
      first[k] += leading;
      second[k] += following;
      rest[k] |= std::bit_cast<uint64_t>(next - following);
    }
  }
  uint64_t left = 0;
  for (const uint64_t bits : rest) left |= bits;
  if (left != 0) return TermsOfAny(x, n, terms);
  terms[0] = JoinPartials(first);
  terms[1] = JoinPartials(second);
  return 2;
}

// Zeros fill up the last numbers, of which there are kPartials at a time.
template <typename T>
int SquareTerms(const T* x, int64_t n, double* terms) {
  const int64_t padded = (n + kPartials - 1) / kPartials * kPartials;
  if constexpr (std::is_same_v<T, float>) {
    if (padded == n) return TermsOfFloats(x, n, terms);
  }
  using Number = std::conditional_t<std::is_same_v<T, double>, double, float>;
  alignas(64) Number values[kExactBlock] = {};
  if constexpr (std::is_same_v<T, Number>) {
    std::copy_n(x, n, values);
  } else {
    for (int64_t i = 0; i < n; i += kLanes) StoreN(values + i, LoadN(x + i, n - i), n - i);
  }
  if constexpr (std::is_same_v<T, double>) {
    return TermsOfAny(values, padded, terms);
  } else {
    return TermsOfFloats(values, padded, terms);
  }
}

int SquareTermsAny(GradType type, const void* x, int64_t n, double* terms) {
  switch (type) {
    case GradType::kFloat32:
      return SquareTerms(static_cast<const float*>(x), n, terms);
    case GradType::kBFloat16:
      return SquareTerms(static_cast<const Bf16*>(x), n, terms);
    case GradType::kFloat16:
      return SquareTerms(static_cast<const F16*>(x), n, terms);
    case GradType::kFloat64:
      return SquareTerms(static_cast<const double*>(x), n, terms);
  }
  return 0;
}

template <typename T>
void Scale(T* x, int64_t n, float factor) {
  ForEachVector(
      n, [&](int64_t i, int64_t lanes) __attribute__((always_inline)) {
        StoreN(x + i, LoadN(x + i, lanes) * Set(factor), lanes);
      });
}

void ScaleAny(GradType type, void* x, int64_t n, double factor) {
  switch (type) {
    case GradType::kFloat32:
      return Scale(static_cast<float*>(x), n, static_cast<float>(factor));
    case GradType::kBFloat16:
      return Scale(static_cast<Bf16*>(x), n, static_cast<float>(factor));
    case GradType::kFloat16:
      return Scale(static_cast<F16*>(x), n, static_cast<float>(factor));
    case GradType::kFloat64:
      for (int64_t i = 0; i < n; ++i) static_cast<double*>(x)[i] *= factor;
      return;
  }
}

}  // namespace

extern const GradChunks kGradChunks;
const GradChunks kGradChunks = {SquareTermsAny, ScaleAny};

}  // namespace tessera::optim::TESSERA_ISA
