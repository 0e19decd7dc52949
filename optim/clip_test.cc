// SPDX-License-Identifier: Apache-2.0
#include "optim/clip.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "autograd/autograd.h"
#include "core/cpu_isa.h"
#include "core/random.h"
#include "core/thread_pool.h"
#include "ops/testing/op_check.h"
#include "ops/view/view.h"
#include "optim/adam/adam.h"
#include "optim/exact_sum.h"
#include "optim/grad_scaler.h"
#include "optim/sgd/sgd.h"
#include "optim/testdata/pytorch_golden.h"

namespace tessera::optim {
namespace {

Parameter WithGrad(const std::string& name, const Tensor& grad) {
  const DType dtype = grad.dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  Parameter p{name, RequireGrad(Zeros(grad.shape(), dtype), grad.dtype()), {}};
  SetGrad(p.tensor, grad);
  return p;
}

double NaiveNorm(const std::vector<Parameter>& parameters) {
  long double sum = 0;
  for (const Parameter& p : parameters) {
    for (double g : Grad(p.tensor).ToVector<double>()) sum += static_cast<long double>(g) * g;
  }
  return static_cast<double>(std::sqrt(sum));
}

std::vector<Parameter> RandomGrads(DType dtype) {
  std::vector<Parameter> parameters;
  uint64_t seed = 0;
  for (const int64_t n : {int64_t{1}, int64_t{0}, int64_t{35}, int64_t{32773}}) {
    ++seed;
    parameters.push_back(WithGrad(Concat("p", seed), CastCopy(RandomTensor({n}, seed), dtype)));
  }
  return parameters;
}

TEST(ClipTest, NormIsThatOfAllGradients) {
  const CpuIsa best = ActiveIsa();
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64}) {
    const std::vector<Parameter> parameters = RandomGrads(dtype);
    const double expected = NaiveNorm(parameters);
    double first = 0;
    for (const CpuIsa isa : kKernelIsas) {
      if (isa > best) continue;
      SetActiveIsa(isa);
      double exact = 0;
      const ClipResult result = ClipGradNorm(
          parameters, {.max_norm = 10,
                       .reduce = [&](const Tensor& words) { exact = RoundedSum(words).Item(); }});
      EXPECT_NEAR(std::sqrt(exact), expected, 1e-13 * expected) << dtype;
      EXPECT_EQ(result.norm.dtype(), DType::kFloat32);
      EXPECT_NEAR(result.norm.Item(), expected, 1e-7 * expected);
      EXPECT_NEAR(result.factor.Item(), 10 / (expected + 1e-6), 1e-7);
      if (isa == kKernelIsas[0]) first = exact;
      if (dtype != DType::kFloat64) {
        EXPECT_EQ(exact, first) << dtype << " on " << CpuIsaName(isa);
      }
    }
    SetActiveIsa(best);
  }
}

// Wherever a gradient begins: by 16 bytes or by elements.
TEST(ClipTest, GradientsThatBeginAnywhere) {
  constexpr int64_t kCount = 32773;
  for (const Device& device : TestDevices()) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat64}) {
      const Tensor numbers = CastCopy(RandomTensor({kCount}, 7), dtype);
      const std::vector<double> x = numbers.ToVector<double>();
      double exact = 0;
      for (const double value : x) exact += value * value;
      double first = 0;
      for (const int64_t begin : {0, 1}) {
        const Tensor grad = Slice(Empty({kCount + 1}, dtype, device), 0, begin, kCount);
        CopyInto(grad, CopyTo(numbers, device));
        const double sum = RoundedSum(SquareWords({grad}, device)).Item();
        EXPECT_NEAR(sum, exact, 1e-12 * exact) << dtype << " " << device;
        if (begin == 0) first = sum;
        EXPECT_EQ(sum, first) << dtype << " " << device;
        const DType wide = dtype == DType::kFloat64 ? dtype : DType::kFloat32;
        const Parameter p{"p", RequireGrad(Zeros({kCount}, wide, device), dtype), {}};
        SetGrad(p.tensor, grad);
        const double factor = ClipGradNormInPlace({p}, {.max_norm = 10}).factor.Item();
        const std::vector<double> scaled = Grad(p.tensor).ToVector<double>();
        for (size_t i = 0; i < x.size(); ++i) {
          ASSERT_NEAR(scaled[i], x[i] * factor,
                      2 * std::max(Epsilon(dtype), 0x1p-40) * std::abs(x[i] * factor))
              << dtype << " " << device << " element " << i;
        }
      }
    }
  }
}

// Neither threads, nor where a gradient is cut, nor who measures which part, nor the order.
TEST(ClipTest, BitsDependOnNeitherThreadsNorShards) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat64}) {
    // Of very different sizes, so that float64 does not hold the sum.
    const Tensor numbers = RandomTensor({40000}, 5);
    for (int64_t i = 0; i < 40000; ++i) {
      numbers.data<double>()[i] *= std::ldexp(1.0, static_cast<int>(i * 7919 % 90) - 60);
    }
    const Tensor whole = CastCopy(numbers, dtype);
    std::vector<double> sorted;
    for (const double x : whole.ToVector<double>()) sorted.push_back(x * x);
    std::sort(sorted.begin(), sorted.end());
    long double exact = 0;
    for (const double square : sorted) exact += square;
    for (const Device& device : TestDevices()) {
      const Tensor there = CopyTo(whole, device);
      const Tensor words = SquareWords({there}, device);
      const double sum = RoundedSum(words).Item();
      EXPECT_NEAR(sum, static_cast<double>(exact), 2e-16 * static_cast<double>(exact)) << dtype;
      SetNumThreads(3);
      const Tensor parts = SquareWords({there.AsStrided({13}, {1}, 39987)}, device);
      for (const auto& [begin, count] : {std::pair(20001, 19986), {0, 1}, {1, 20000}}) {
        AddInto(parts, SquareWords({there.AsStrided({count}, {1}, begin)}, device));
      }
      SetNumThreads(AvailableCores());
      EXPECT_EQ(RoundedSum(parts).Item(), sum) << dtype << " " << device;
      SetNumThreads(1);
      EXPECT_EQ(RoundedSum(SquareWords({there}, device)).Item(), sum) << dtype << " " << device;
      SetNumThreads(AvailableCores());
    }
  }
}

// At the ends of what numbers can be.
TEST(ClipTest, SumsHoldTheSmallestAndTheLargest) {
  const double least = std::numeric_limits<double>::denorm_min();
  const auto sum = [](const std::vector<double>& numbers) {
    const Tensor t = Tensor::FromVector(numbers, {std::ssize(numbers)});
    return RoundedSum(SquareWords({t})).Item();
  };
  EXPECT_EQ(sum({}), 0.0);
  EXPECT_EQ(sum({0.0, -0.0}), 0.0);
  EXPECT_EQ(sum({std::sqrt(least) * 1.5, 0}), 2 * least);
  EXPECT_EQ(sum(std::vector<double>(1 << 12, 0x1p-537)), 0x1p-1062);
  EXPECT_EQ(sum({0x1p511, 0x1p-537}), 0x1p1022);
  EXPECT_EQ(sum({0x1p511, 0x1p511, 0x1p511}), 3 * 0x1p1022);
  EXPECT_EQ(sum(std::vector<double>(4, 0x1p511)), HUGE_VAL);
  EXPECT_EQ(sum({1.0, 0x1p-27}), 1.0 + 0x1p-52 / 4);
  EXPECT_EQ(sum({1.0, HUGE_VAL, 0x1p600}), HUGE_VAL);
  EXPECT_TRUE(std::isnan(sum({1.0, std::nan(""), HUGE_VAL})));
}

TEST(ClipTest, ASumIsOfTheWordsOfSquareWords) {
  const Tensor words = SquareWords({Full({4}, 3.0)}, Device());
  EXPECT_EQ(RoundedSum(words).ToVector<double>(), std::vector<double>{36});
  EXPECT_THROW(RoundedSum(Zeros({3}, DType::kInt64)), Error);
  EXPECT_THROW(RoundedSum(Zeros({kSumWords}, DType::kFloat64)), Error);
}

TEST(ClipTest, SmallNormsAreLeftAlone) {
  const std::vector<Parameter> parameters = {WithGrad("w", Full({4}, 0.25))};
  const ClipResult result = ClipGradNormInPlace(parameters, {.max_norm = 1});
  EXPECT_EQ(result.norm.Item(), 0.5);
  EXPECT_EQ(result.factor.Item(), 1.0);
  EXPECT_EQ(Grad(parameters[0].tensor).ToVector<float>()[3], 0.25f);
  EXPECT_EQ(ClipGradNorm({}, {.max_norm = 1}).norm.Item(), 0.0);
  EXPECT_EQ(ClipGradNorm({}, {}).factor.Item(), 1.0);
  EXPECT_THROW(ClipGradNorm(parameters, {.max_norm = 0}), Error);
}

TEST(ClipTest, InPlaceEqualsTheFactorInTheStep) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat64}) {
    const Tensor grad = CastCopy(RandomTensor({3, 11}, 3), dtype);
    const Parameter p = WithGrad("w", WithGaps(grad));
    const ClipResult result = ClipGradNormInPlace({p}, {.max_norm = 0.5});
    const Tensor expected = CastCopy(grad, DType::kFloat64);
    for (int64_t i = 0; i < 33; ++i) expected.data<double>()[i] *= result.factor.Item();
    ExpectClose(Grad(p.tensor), expected, 2 * Epsilon(dtype) + 1e-12, Concat(dtype));
    EXPECT_LE(NaiveNorm({p}), 0.5 * (1 + 4 * Epsilon(dtype)));
  }
}

TEST(ClipTest, TiedGradientsJoinFirst) {
  Parameter p = WithGrad("w", Full({1}, 3.0));
  p.tied = {RequireGrad(p.tensor.Detach())};
  SetGrad(p.tied[0], Full({1}, 4.0));
  EXPECT_EQ(ClipGradNorm({p}, {}).norm.Item(), 7.0);
  EXPECT_EQ(ClipGradNorm({p}, {}).norm.Item(), 7.0);
}

TEST(ClipTest, OtherRanksAreAdded) {
  const std::vector<Parameter> parameters = {WithGrad("mine", Full({1}, 3.0)),
                                             WithGrad("replicated", Full({1}, 100.0))};
  const ClipResult result = ClipGradNorm(
      parameters,
      {.max_norm = 1,
       .reduce = [](const Tensor& words) { AddInto(words, SquareWords({Full({1}, 4.0)})); },
       .counted = [](const Parameter& p) { return p.name == "mine"; }});
  EXPECT_EQ(result.norm.Item(), 5.0);
  EXPECT_NEAR(result.factor.Item(), 0.2, 1e-6);
}

TEST(ClipTest, InfinityIsFound) {
  for (const double bad : {static_cast<double>(INFINITY), static_cast<double>(NAN)}) {
    const std::vector<Parameter> parameters = {WithGrad("w", Full({40}, 1.0))};
    const Tensor found = Tensor::Scalar(0);
    ClipGradNorm(parameters, {.found_inf = found});
    EXPECT_EQ(found.Item(), 0);
    Grad(parameters[0].tensor).data<float>()[37] = static_cast<float>(bad);
    ClipGradNorm(parameters, {.found_inf = found});
    EXPECT_EQ(found.Item(), 1);
  }
  // The largest float32 is no infinity: squares are summed in float64.
  const Tensor found = Tensor::Scalar(0);
  ClipGradNorm({WithGrad("w", Full({40}, 3e38))}, {.found_inf = found});
  EXPECT_EQ(found.Item(), 0);
}

TEST(ClipTest, AgreesWithPyTorch) {
  Tensor w = Empty({5}, DType::kFloat64);
  for (int i = 0; i < 5; ++i) w.data<double>()[i] = std::cos(0.9 * i);
  RequireGrad(w);
  AdamW optimizer({{.parameters = {{"w", w, {}}}, .weight_decay = 0.1}},
                  {.lr = 0.02, .betas = {0.8, 0.95}, .eps = 1e-6});
  for (int step = 1; step <= 20; ++step) {
    Tensor grad = Empty({5}, DType::kFloat64);
    for (int i = 0; i < 5; ++i) {
      grad.data<double>()[i] = 0.1 * (i + 1) * std::sin(1.3 * i + 0.7 * step);
    }
    SetGrad(w, grad);
    const ClipResult clip = ClipGradNorm(optimizer.parameters(), {.max_norm = 0.25 + 0.02 * step});
    optimizer.Step({.clip_factor = clip.factor});
  }
  ExpectClose(w.Detach(), Tensor::FromVector<double>(kAdamWClippedGolden, {5}), 1e-7, "clipped");
}

// --- Loss scaling ------------------------------------------------------------------------------

struct ScaledRun {
  Parameter p = WithGrad("w", Full({9}, 1.0));
  GradScaler scaler;
  Sgd optimizer{{{.parameters = {p}}}, {.lr = 1, .momentum = 0}};

  explicit ScaledRun(const GradScalerOptions& options) : scaler(options) {}

  // One step of a loss whose gradient is `gradient`; returns the scale afterwards.
  double Step(double gradient) {
    Fill(Grad(p.tensor), gradient * scaler.scale().Item());
    scaler.CheckFinite({p});
    optimizer.Step(scaler.Inputs());
    scaler.Update();
    return scaler.scale().Item();
  }
};

TEST(GradScalerTest, GrowsAndBacksOff) {
  ScaledRun run({.initial_scale = 8, .growth_interval = 3, .hysteresis = 2, .max_scale = 16});
  EXPECT_EQ(run.Step(0.25), 8);
  EXPECT_EQ(run.p.tensor.ToVector<float>()[8], -0.25f) << "the scale is divided out";
  EXPECT_EQ(run.Step(0), 8);
  EXPECT_EQ(run.Step(0), 16);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(run.Step(0), 16) << "max_scale";
  EXPECT_EQ(run.optimizer.step_count(), 6);
  EXPECT_EQ(run.Step(INFINITY), 16) << "the first overflow is tolerated";
  EXPECT_EQ(run.Step(NAN), 8);
  EXPECT_EQ(run.Step(INFINITY), 4) << "no tolerance left";
  EXPECT_EQ(run.p.tensor.ToVector<float>()[0], -0.25f) << "overflowed steps are left out";
  EXPECT_EQ(run.optimizer.step_count(), 6);
  EXPECT_EQ(run.Step(0), 4);
  EXPECT_EQ(run.Step(0), 4);
  EXPECT_EQ(run.Step(INFINITY), 2) << "a row of good steps begins anew";
  EXPECT_EQ(run.Step(INFINITY), 1);
  EXPECT_EQ(run.Step(INFINITY), 1) << "min_scale";
  EXPECT_EQ(run.Step(0), 1);
  EXPECT_EQ(run.Step(0), 1);
  EXPECT_EQ(run.Step(0), 2);
  EXPECT_EQ(run.Step(INFINITY), 2) << "growth renews the tolerance";
}

TEST(GradScalerTest, Static) {
  ScaledRun run({.dynamic = false, .initial_scale = 128, .growth_interval = 1});
  EXPECT_EQ(run.Step(1), 128);
  EXPECT_EQ(run.Step(INFINITY), 128);
  EXPECT_EQ(run.Step(1), 128);
  EXPECT_EQ(run.p.tensor.ToVector<float>()[0], -2.0f);
  EXPECT_EQ(run.optimizer.step_count(), 2);
}

TEST(GradScalerTest, ScaledBackwardWithClipping) {
  const Tensor w = RequireGrad(Full({}, 2.0));
  GradScaler scaler({.initial_scale = 1024});
  const Tensor loss = scaler.ScaleLoss(w);
  EXPECT_EQ(loss.Item(), 2048);
  Backward(loss);
  EXPECT_EQ(Grad(w).Item(), 1024);
  Sgd optimizer({{.parameters = {{"w", w, {}}}}}, {.lr = 1, .momentum = 0});
  const ClipResult clip = ClipGradNorm(
      optimizer.parameters(),
      {.max_norm = 0.5, .loss_scale = scaler.scale(), .found_inf = scaler.found_inf()});
  EXPECT_EQ(clip.norm.Item(), 1.0);
  optimizer.Step(scaler.Inputs(clip.factor));
  EXPECT_NEAR(w.Item(), 1.5, 1e-6);
  EXPECT_THROW(scaler.ScaleLoss(Zeros({}, DType::kFloat16)), Error);
}

TEST(GradScalerTest, UnscaleInPlace) {
  const Parameter p = WithGrad("w", Full({5}, 96.0));
  GradScaler scaler({.initial_scale = 32});
  scaler.Unscale({p});
  EXPECT_EQ(Grad(p.tensor).ToVector<float>(), std::vector<float>(5, 3.0f));
  EXPECT_EQ(scaler.found_inf().Item(), 0);
  // Another rank found an infinity.
  scaler.CheckFinite({p}, [](const Tensor& words) { words.data<int64_t>()[kSumInfinite] = 1; });
  EXPECT_EQ(scaler.found_inf().Item(), 1);
  scaler.CheckFinite({p});
  EXPECT_EQ(scaler.found_inf().Item(), 1) << "stays until Update";
}

TEST(GradScalerTest, StateContinues) {
  const GradScalerOptions options{.initial_scale = 8, .growth_interval = 4, .hysteresis = 2};
  const std::vector<double> gradients = {0, 0, INFINITY, 0, 0, 0, 0, INFINITY, 0, INFINITY};
  ScaledRun whole(options);
  std::vector<double> scales;
  for (double g : gradients) scales.push_back(whole.Step(g));
  for (size_t cut = 0; cut < gradients.size(); ++cut) {
    ScaledRun first(options);
    ScaledRun second(options);
    for (size_t i = 0; i < cut; ++i) first.Step(gradients[i]);
    std::vector<Tensor> saved;
    first.scaler.VisitState(
        [&](const std::string&, const Tensor& t) { saved.push_back(CastCopy(t, t.dtype())); });
    size_t next = 0;
    second.scaler.VisitState(
        [&](const std::string&, const Tensor& t) { CopyInto(t, saved[next++]); });
    for (size_t i = cut; i < gradients.size(); ++i) EXPECT_EQ(second.Step(gradients[i]), scales[i]);
  }
}

TEST(GradScalerTest, RefusesOptionsByName) {
  const auto refused = [](const GradScalerOptions& options, const std::string& name) {
    const Status status = CheckGradScalerOptions(options);
    EXPECT_EQ(Message(status).rfind(name + " is ", 0), 0u) << status;
    EXPECT_THROW(GradScaler{options}, Error);
  };
  EXPECT_TRUE(CheckGradScalerOptions({}).ok());
  refused({.initial_scale = 0.5}, "initial_scale");
  refused({.initial_scale = NAN}, "initial_scale");
  refused({.min_scale = 0}, "min_scale");
  refused({.growth_factor = 0.5}, "growth_factor");
  refused({.backoff_factor = 0}, "backoff_factor");
  refused({.growth_interval = 0}, "growth_interval");
  refused({.hysteresis = 0}, "hysteresis");
  refused({.max_scale = INFINITY}, "max_scale");
}

}  // namespace
}  // namespace tessera::optim
