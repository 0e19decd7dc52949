// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/attention_agreement.h"

#include <cmath>

#include "base/error.h"

namespace tessera {
namespace {

// Of a row's length, and of the typical length of all rows: where a row's terms cancel, what is
// rounded is larger than what is left.
constexpr double kOfRow = 0.1;
constexpr double kOfTypical = 0.05;
// Of all rows together.
constexpr double kOfAll = 0.02;
constexpr double kLse = 4e-3;

struct Norms {
  double own = 0;  // squared
  double difference = 0;
};

template <typename T>
Norms RowNorms(const T* own, const T* other, int64_t n) {
  Norms norms;
  for (int64_t i = 0; i < n; ++i) {
    const double a = static_cast<float>(own[i]);
    const double d = a - static_cast<float>(other[i]);
    norms.own += a * a;
    norms.difference += d * d;
  }
  return norms;
}

template <typename T>
StatusOr<bool> Compare(std::string_view name, const T* own, const T* other, int64_t rows,
                       int64_t row) {
  Norms all;
  for (int64_t r = 0; r < rows; ++r) {
    const Norms norms = RowNorms(own + r * row, other + r * row, row);
    all.own += norms.own;
    all.difference += norms.difference;
  }
  if (!std::isfinite(all.own) || all.own == 0) return false;
  const double typical = std::sqrt(all.own / static_cast<double>(rows));
  double worst = 0;  // as a part of what is allowed
  int64_t worst_row = 0;
  for (int64_t r = 0; r < rows; ++r) {
    const Norms norms = RowNorms(own + r * row, other + r * row, row);
    const double part =
        std::sqrt(norms.difference) / (kOfRow * std::sqrt(norms.own) + kOfTypical * typical);
    if (!(part <= worst)) {
      worst = part;
      worst_row = r;
      if (std::isnan(part)) break;
    }
  }
  const double relative = std::sqrt(all.difference / all.own);
  if (worst <= 1 && relative <= kOfAll) return true;
  return Internal(name, " differs from our own kernel's by ", relative,
                  " of its length; the worst row is ", worst_row, " of ", rows, ", by ", worst,
                  " times what is allowed");
}

}  // namespace

StatusOr<bool> RowsAgree(std::string_view name, DType dtype, const void* own, const void* other,
                         int64_t rows, int64_t row) {
  if (dtype == DType::kBFloat16) {
    return Compare(name, static_cast<const BFloat16*>(own), static_cast<const BFloat16*>(other),
                   rows, row);
  }
  TESSERA_CHECK(dtype == DType::kFloat16, "attention", "rows of ", dtype);
  return Compare(name, static_cast<const Float16*>(own), static_cast<const Float16*>(other), rows,
                 row);
}

StatusOr<bool> LseAgree(const float* own, const float* other, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    if (std::isnan(own[i]) || own[i] == INFINITY) return false;
    if (own[i] == other[i]) continue;
    const double difference = std::fabs(static_cast<double>(own[i]) - other[i]);
    if (std::isinf(own[i]) || !(difference <= kLse * (1.0 + std::fabs(own[i]) / 16))) {
      return Internal("the log-sum-exp of row ", i, " of ", count, " is ", other[i],
                      ", our own kernel's is ", own[i]);
    }
  }
  return true;
}

}  // namespace tessera
