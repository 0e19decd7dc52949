// SPDX-License-Identifier: Apache-2.0
#include "ops/sampling/sampling.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "autograd/autograd.h"
#include "ops/cast/cast.h"
#include "ops/elementwise/elementwise.h"
#include "ops/random/random.h"
#include "ops/reduction/reduction.h"
#include "ops/sort/sort.h"
#include "ops/view/view.h"

namespace tessera {
namespace {

// Uniform in [0, 1) with 48 random bits: those of Rand have 24.
Tensor FineRand(const Shape& shape, const RandomKey& key, const Device& device) {
  const RandomOptions options = {.dtype = DType::kFloat64, .device = device};
  const Tensor coarse = Rand(shape, key.With("coarse"), options);
  return Add(coarse, Mul(Rand(shape, key.With("fine"), options), 0x1p-24));
}

void CheckWeights(const Tensor& weights, int64_t samples, bool replacement) {
  TESSERA_CHECK(IsFloating(weights.dtype()) && weights.ndim() >= 1, "multinomial",
                "weights [..., V] of a floating dtype are needed, got ", weights);
  TESSERA_CHECK(samples >= 0, "multinomial", samples, " samples");
  const int64_t classes = weights.size(-1);
  TESSERA_CHECK(replacement || samples <= classes, "multinomial", samples, " samples of ", classes,
                " without replacement");
  if (!weights.device().is_cpu()) return;
  const std::vector<double> values = weights.ToVector<double>();
  const int64_t rows = classes == 0 ? 0 : weights.numel() / classes;
  for (int64_t row = 0; row < rows; ++row) {
    int64_t positive = 0;
    for (int64_t i = row * classes; i < (row + 1) * classes; ++i) {
      const double value = values[static_cast<size_t>(i)];
      TESSERA_CHECK(value >= 0 && value < HUGE_VAL, "multinomial", "weight ", value,
                    " at position ", i, " of ", weights, " is not finite and at least 0");
      positive += value > 0 ? 1 : 0;
    }
    const int64_t needed = replacement ? std::min<int64_t>(samples, 1) : samples;
    TESSERA_CHECK(positive >= needed, "multinomial", "row ", row, " of ", weights, " has ",
                  positive, " positive weights for ", samples, " samples");
  }
}

}  // namespace

Tensor RandInt(int64_t low, int64_t high, const Shape& shape, const RandomKey& key, Device device) {
  const auto range = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  TESSERA_CHECK(low < high && range <= uint64_t{1} << 48, "rand_int", "[", low, ", ", high,
                ") does not have 1 to 2^48 numbers");
  const Tensor place = Mul(FineRand(shape, key, device), static_cast<double>(range));
  // `low` in two parts: a double may not hold all of it.
  const auto high_part = static_cast<double>(low / (int64_t{1} << 32) * (int64_t{1} << 32));
  const auto low_part = static_cast<double>(low % (int64_t{1} << 32));
  return Add(Add(Cast(place, DType::kInt64), low_part), high_part);
}

Tensor Multinomial(const Tensor& weights, int64_t samples, const RandomKey& key,
                   const MultinomialOptions& options) {
  CheckWeights(weights, samples, options.replacement);
  const NoGrad no_grad;
  Tensor w = Cast(weights.Detach(), DType::kFloat64);
  Shape shape = w.shape();
  if (options.replacement) {
    shape.insert(shape.ndim() - 1, samples);
    w = Unsqueeze(w, -2);
  }
  const Tensor race = Div(w, Neg(Log(FineRand(shape, key, weights.device()))));
  return options.replacement ? ArgMax(race, -1) : TopK(race, samples, -1).indices;
}

}  // namespace tessera
