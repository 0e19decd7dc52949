// SPDX-License-Identifier: Apache-2.0
// Attention in float64, one query at a time.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/philox.h"
#include "ops/attention/flash_kernel.h"

namespace tessera {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

const double* At(const void* data, const FlashStrides& stride, int64_t b, int64_t h, int64_t t) {
  return static_cast<const double*>(data) + FlashOffset(stride, b, h, t);
}
// Of keys and values.
const double* KeyAt(const FlashArgs& args, const void* data, const FlashStrides& stride, int64_t b,
                    int64_t g, int64_t j) {
  return static_cast<const double*>(data) + FlashKeyOffset(args, stride, b, g, j);
}
double* At(void* data, const FlashStrides& stride, int64_t b, int64_t h, int64_t t) {
  return static_cast<double*>(data) + FlashOffset(stride, b, h, t);
}

double Dot(const double* a, const double* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

// 0 for a dropped probability, otherwise 1 / (1 - p).
double KeptScale(const FlashArgs& args, uint64_t index) {
  const FlashDropout& d = args.dropout;
  if (d.p == 0.0f) return 1.0;
  const uint64_t block = index / 4;
  const PhiloxWords words =
      Philox4x32({{static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                   static_cast<uint32_t>(d.key_hi), static_cast<uint32_t>(d.key_hi >> 32)}},
                 static_cast<uint32_t>(d.key_lo), static_cast<uint32_t>(d.key_lo >> 32));
  return UnitFloat(words.v[index % 4]) < d.p ? 0.0 : 1.0 / (1.0 - static_cast<double>(d.p));
}

bool Sees(const FlashArgs& args, int64_t b, int64_t i, int64_t j) {
  if (j < FlashFirstKey(args, b, i)) return false;
  if (args.key_padding != nullptr && args.key_padding[b * args.k_len + j] == 0) return false;
  return args.key_document == nullptr || FlashSharesDocument(args, b, i, j);
}

// Scores of query i; -inf for keys that it does not see. Returns how many may be seen.
int64_t ScoreRow(const FlashArgs& args, int64_t b, int64_t h, int64_t i,
                 std::vector<double>* scores) {
  const int64_t limit = FlashKeyLimit(args, b, i), g = FlashKeyHead(args, h);
  const double* q = At(args.q, args.q_stride, b, h, i);
  const FlashBiasStrides& s = args.bias_stride;
  const double* bias = static_cast<const double*>(args.bias);
  for (int64_t j = 0; j < limit; ++j) {
    double score = -kInfinity;
    if (Sees(args, b, i, j)) {
      score = args.scale * Dot(q, KeyAt(args, args.k, args.k_stride, b, g, j), args.head_dim);
      if (args.softcap > 0) score = args.softcap * std::tanh(score / args.softcap);
      if (bias != nullptr) score += bias[b * s.batch + h * s.head + i * s.query + j * s.key];
    }
    (*scores)[static_cast<size_t>(j)] = score;
  }
  return limit;
}

}  // namespace

void FlashForwardFloat64(const FlashArgs& args, int64_t b, int64_t h) {
  const int64_t d = args.head_dim, g = FlashKeyHead(args, h);
  std::vector<double> scores(static_cast<size_t>(args.k_len));
  double* lse = static_cast<double*>(args.lse) + (b * args.heads + h) * args.q_len;
  for (int64_t i = 0; i < args.q_len; ++i) {
    const int64_t n = ScoreRow(args, b, h, i, &scores);
    double maximum = -kInfinity;
    for (int64_t j = 0; j < n; ++j) maximum = std::max(maximum, scores[j]);
    double* o = At(args.o, args.o_stride, b, h, i);
    std::fill_n(o, d, 0.0);
    lse[i] = -kInfinity;
    if (maximum == -kInfinity &&
        std::none_of(scores.begin(), scores.begin() + n, [](double s) { return std::isnan(s); })) {
      continue;
    }
    double sum = 0;
    const uint64_t index = FlashDropoutIndex(args, b, h, i);
    for (int64_t j = 0; j < n; ++j) {
      const double p = std::exp(scores[j] - maximum);
      sum += p;
      const double kept = p * KeptScale(args, index + static_cast<uint64_t>(j));
      const double* v = KeyAt(args, args.v, args.v_stride, b, g, j);
      for (int64_t x = 0; x < d; ++x) o[x] += kept * v[x];
    }
    for (int64_t x = 0; x < d; ++x) o[x] /= sum;
    lse[i] = maximum + std::log(sum);
  }
}

void FlashBackwardFloat64(const FlashBackwardArgs& args, int64_t b, int64_t g) {
  const FlashArgs& f = args.forward;
  const int64_t d = f.head_dim;
  for (int64_t j = 0; j < f.k_len; ++j) {
    std::fill_n(At(args.dk, args.dk_stride, b, g, j), d, 0.0);
    std::fill_n(At(args.dv, args.dv_stride, b, g, j), d, 0.0);
  }
  std::vector<double> scores(static_cast<size_t>(f.k_len));
  for (int64_t h = 0; h < f.heads; ++h) {
    if (FlashKeyHead(f, h) != g) continue;
    for (int64_t i = 0; i < f.q_len; ++i) {
      double* dq = At(args.dq, args.dq_stride, b, h, i);
      std::fill_n(dq, d, 0.0);
      const double lse = static_cast<const double*>(f.lse)[(b * f.heads + h) * f.q_len + i];
      if (lse == -kInfinity) continue;
      const int64_t n = ScoreRow(f, b, h, i, &scores);
      const double* q = At(f.q, f.q_stride, b, h, i);
      const double* d_o = At(args.d_o, args.d_o_stride, b, h, i);
      const double delta = Dot(d_o, At(static_cast<const void*>(f.o), f.o_stride, b, h, i), d);
      const uint64_t index = FlashDropoutIndex(f, b, h, i);
      for (int64_t j = 0; j < n; ++j) {
        const double p = std::exp(scores[j] - lse);
        if (p == 0.0) continue;
        const double kept = KeptScale(f, index + static_cast<uint64_t>(j));
        const double dp = kept * Dot(d_o, At(f.v, f.v_stride, b, g, j), d);
        double ds = p * (dp - delta);
        if (f.softcap > 0) {
          const double tanh = scores[static_cast<size_t>(j)] / f.softcap;
          ds *= 1 - tanh * tanh;
        }
        const double* k = At(f.k, f.k_stride, b, g, j);
        double* dk = At(args.dk, args.dk_stride, b, g, j);
        double* dv = At(args.dv, args.dv_stride, b, g, j);
        for (int64_t x = 0; x < d; ++x) {
          dq[x] += f.scale * ds * k[x];
          dk[x] += f.scale * ds * q[x];
          dv[x] += p * kept * d_o[x];
        }
        if (args.dbias != nullptr) {
          const FlashBiasStrides& s = args.dbias_stride;
          static_cast<double*>(args.dbias)[b * s.batch + h * s.head + i * s.query + j * s.key] +=
              ds;
        }
      }
    }
  }
}

}  // namespace tessera
