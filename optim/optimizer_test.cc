// SPDX-License-Identifier: Apache-2.0
#include "optim/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "autograd/autograd.h"
#include "core/allocator.h"
#include "core/cpu_isa.h"
#include "core/random.h"
#include "core/thread_pool.h"
#include "ops/elementwise/elementwise.h"
#include "ops/testing/op_check.h"
#include "optim/adam/adam.h"
#include "optim/clip.h"
#include "optim/sgd/sgd.h"
#include "optim/testdata/pytorch_golden.h"

namespace tessera::optim {
namespace {

constexpr double kLr = 0.02;
constexpr double kDecay = 0.1;
constexpr int kSteps = 20;

using Maker = std::function<std::unique_ptr<Optimizer>(std::vector<ParameterGroup>)>;

// One update of a single number, in float64, as the papers write it.
struct Scalar {
  double p = 0;
  double m = 0;
  double v = 0;
};
using Rule = std::function<void(Scalar& x, double g, int step)>;

struct Kind {
  std::string name;
  double weight_decay;
  Maker make;
  Rule rule;
};

// With the golden file's eps, and for random gradients a larger one: where a gradient cancels
// against the decay, Adam's step is its rounding error divided by eps.
const AdamOptions kAdamOptions{.lr = kLr, .betas = {0.8, 0.95}, .eps = 1e-6};
constexpr double kEps = 1e-3;
const AdamOptions kLargeEps{.lr = kLr, .betas = {0.8, 0.95}, .eps = kEps};

void AdamRule(Scalar& x, double g, int step) {
  x.m = 0.8 * x.m + 0.2 * g;
  x.v = 0.95 * x.v + 0.05 * g * g;
  const double m_hat = x.m / (1 - std::pow(0.8, step));
  const double v_hat = x.v / (1 - std::pow(0.95, step));
  x.p -= kLr * m_hat / (std::sqrt(v_hat) + kEps);
}

std::vector<Kind> Kinds() {
  return {
      {"sgd", kDecay,
       [](auto groups) {
         return std::make_unique<Sgd>(groups, SgdOptions{.lr = kLr, .momentum = 0});
       },
       [](Scalar& x, double g, int) { x.p -= kLr * (g + kDecay * x.p); }},
      {"momentum", kDecay,
       [](auto groups) {
         return std::make_unique<Sgd>(groups, SgdOptions{.lr = kLr, .momentum = 0.9});
       },
       [](Scalar& x, double g, int) {
         x.m = 0.9 * x.m + g + kDecay * x.p;
         x.p -= kLr * x.m;
       }},
      {"nesterov", 0,
       [](auto groups) {
         return std::make_unique<Sgd>(groups,
                                      SgdOptions{.lr = kLr, .momentum = 0.9, .nesterov = true});
       },
       [](Scalar& x, double g, int) {
         x.m = 0.9 * x.m + g;
         x.p -= kLr * (g + 0.9 * x.m);
       }},
      {"adam", kDecay, [](auto groups) { return std::make_unique<Adam>(groups, kLargeEps); },
       [](Scalar& x, double g, int step) { AdamRule(x, g + kDecay * x.p, step); }},
      {"adamw", kDecay, [](auto groups) { return std::make_unique<AdamW>(groups, kLargeEps); },
       [](Scalar& x, double g, int step) {
         x.p *= 1 - kLr * kDecay;
         AdamRule(x, g, step);
       }},
  };
}

Parameter MakeParameter(const std::string& name, const Tensor& values, DType dtype,
                        DType grad_dtype) {
  return {name, RequireGrad(CastCopy(values, dtype), grad_dtype), {}};
}

std::unique_ptr<Optimizer> Make(const Kind& kind, const std::vector<Parameter>& parameters) {
  return kind.make({{.parameters = parameters, .weight_decay = kind.weight_decay}});
}

// The gradient of a parameter in a step: a row of random numbers, the same for every dtype.
Tensor GradOf(const Tensor& rows, int step, DType dtype) {
  const int64_t n = rows.size(1);
  return CastCopy(rows.AsStrided({n}, {1}, (step - 1) * n), dtype);
}

Tensor StateOf(const Optimizer& optimizer, const std::string& name) {
  const auto states = optimizer.StateDict();
  const auto found = states.find(name);
  return found == states.end() ? Tensor() : found->second;
}

const std::vector<int64_t> kSizes = {1, 7, 0, 33, 1003};

void CompareWithReference(const Kind& kind, DType dtype, DType grad_dtype,
                          const std::vector<Tensor>& values, const std::vector<Tensor>& rows) {
  std::vector<Parameter> parameters;
  std::vector<std::vector<Scalar>> expected;
  for (size_t i = 0; i < kSizes.size(); ++i) {
    parameters.push_back(MakeParameter(Concat("p", i), values[i], dtype, grad_dtype));
    expected.emplace_back();
    for (double p : parameters[i].tensor.ToVector<double>()) expected[i].push_back({.p = p});
  }
  const auto optimizer = Make(kind, parameters);
  for (int step = 1; step <= kSteps; ++step) {
    for (size_t i = 0; i < kSizes.size(); ++i) {
      const Tensor grad = GradOf(rows[i], step, grad_dtype);
      SetGrad(parameters[i].tensor, grad);
      const std::vector<double> g = grad.ToVector<double>();
      for (size_t j = 0; j < g.size(); ++j) kind.rule(expected[i][j], g[j], step);
    }
    optimizer->Step();
  }
  EXPECT_EQ(optimizer->step_count(), kSteps);
  const double tolerance = 8 * Epsilon(AccumulateDType(dtype)) * std::sqrt(kSteps);
  for (size_t i = 0; i < kSizes.size(); ++i) {
    const std::string where = Concat(kind.name, " ", dtype, " with ", grad_dtype, " gradients ",
                                     CpuIsaName(ActiveIsa()), " parameter ", i);
    const auto field = [&](double Scalar::*member) {
      std::vector<double> out;
      for (const Scalar& x : expected[i]) out.push_back(x.*member);
      return Tensor::FromVector<double>(out, {kSizes[i]});
    };
    const Tensor master = StateOf(*optimizer, Concat("p", i, ".master"));
    EXPECT_EQ(master.defined(), IsHalf(dtype)) << where;
    const Tensor weights = master.defined() ? master : parameters[i].tensor.Detach();
    ExpectClose(weights, field(&Scalar::p), tolerance, where, 1);
    if (master.defined()) {
      EXPECT_EQ(CastCopy(master, dtype).ToVector<float>(), parameters[i].tensor.ToVector<float>())
          << where;
    }
    const std::string first = kind.name[0] == 'a' ? "exp_avg" : "momentum";
    const Tensor m = StateOf(*optimizer, Concat("p", i, ".", first));
    if (m.defined()) ExpectClose(m, field(&Scalar::m), tolerance, where + " " + first, 1);
    const Tensor v = StateOf(*optimizer, Concat("p", i, ".exp_avg_sq"));
    if (v.defined()) ExpectClose(v, field(&Scalar::v), tolerance, where + " exp_avg_sq", 1);
  }
}

TEST(OptimizerTest, AgreesWithReference) {
  std::vector<Tensor> values;
  std::vector<Tensor> rows;
  for (size_t i = 0; i < kSizes.size(); ++i) {
    values.push_back(RandomTensor({kSizes[i]}, 100 + i));
    rows.push_back(RandomTensor({kSteps, kSizes[i]}, 200 + i));
  }
  const CpuIsa best = ActiveIsa();
  constexpr DType kAll[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64};
  for (const Kind& kind : Kinds()) {
    for (const CpuIsa isa : kKernelIsas) {
      if (isa > best) continue;
      SetActiveIsa(isa);
      for (const DType dtype : kAll) {
        for (const DType grad_dtype : kAll) {
          CompareWithReference(kind, dtype, grad_dtype, values, rows);
        }
      }
    }
    SetActiveIsa(best);
  }
}

// testdata/pytorch_golden.py says what is computed.
TEST(OptimizerTest, AgreesWithPyTorch) {
  struct Case {
    const char* name;
    double weight_decay;
    Maker make;
    const std::vector<double>& expected;
  };
  const std::vector<Case> cases = {
      {"sgd", 0.1,
       [](auto groups) {
         return std::make_unique<Sgd>(groups, SgdOptions{.lr = 0.05, .momentum = 0});
       },
       kSgdGolden},
      {"momentum", 0.1,
       [](auto groups) {
         return std::make_unique<Sgd>(groups, SgdOptions{.lr = 0.05, .momentum = 0.9});
       },
       kSgdMomentumGolden},
      {"nesterov", 0,
       [](auto groups) {
         return std::make_unique<Sgd>(groups,
                                      SgdOptions{.lr = 0.05, .momentum = 0.9, .nesterov = true});
       },
       kSgdNesterovGolden},
      {"adam", 0.1, [](auto groups) { return std::make_unique<Adam>(groups, kAdamOptions); },
       kAdamGolden},
      {"adamw", 0.1, [](auto groups) { return std::make_unique<AdamW>(groups, kAdamOptions); },
       kAdamWGolden},
  };
  for (const DType dtype : {DType::kFloat64, DType::kFloat32}) {
    for (const Case& c : cases) {
      Tensor start = Empty({5}, DType::kFloat64);
      for (int i = 0; i < 5; ++i) start.data<double>()[i] = std::cos(0.9 * i);
      const Tensor w = RequireGrad(CastCopy(start, dtype));
      const auto optimizer =
          c.make({{.parameters = {{"w", w, {}}}, .weight_decay = c.weight_decay}});
      for (int step = 1; step <= 20; ++step) {
        Tensor grad = Empty({5}, DType::kFloat64);
        for (int i = 0; i < 5; ++i) {
          grad.data<double>()[i] = 0.1 * (i + 1) * std::sin(1.3 * i + 0.7 * step);
        }
        SetGrad(w, CastCopy(grad, dtype));
        optimizer->Step();
      }
      ExpectClose(w.Detach(), Tensor::FromVector<double>(c.expected, {5}),
                  dtype == DType::kFloat64 ? 1e-13 : 1e-6, Concat(c.name, " ", dtype));
    }
  }
}

// All elements of all parameters after five steps, from one buffer of values cut at `cuts`.
std::vector<float> RunCut(const Kind& kind, DType dtype, const std::vector<int64_t>& cuts,
                          const Tensor& values, const Tensor& grads) {
  std::vector<Parameter> parameters;
  std::vector<Tensor> pieces;
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    const Shape shape{cuts[i + 1] - cuts[i]};
    parameters.push_back(MakeParameter(Concat("p", i), values.AsStrided(shape, {1}, cuts[i]), dtype,
                                       DType::kFloat32));
    pieces.push_back(CastCopy(grads.AsStrided(shape, {1}, cuts[i]), DType::kFloat32));
    SetGrad(parameters.back().tensor, pieces.back());
  }
  const auto optimizer = Make(kind, parameters);
  for (int step = 0; step < 5; ++step) optimizer->Step();
  std::vector<float> all;
  for (const Parameter& parameter : parameters) {
    for (float value : parameter.tensor.ToVector<float>()) all.push_back(value);
  }
  return all;
}

TEST(OptimizerTest, BitsDependOnNeitherThreadsNorCuts) {
  const int64_t n = 2 * kUpdateChunk + 37;
  const Tensor values = RandomTensor({n}, 1);
  const Tensor grads = RandomTensor({n}, 2);
  const CpuIsa best = ActiveIsa();
  for (const CpuIsa isa : kKernelIsas) {
    if (isa > best) continue;
    SetActiveIsa(isa);
    for (const Kind& kind : Kinds()) {
      for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
        SetNumThreads(1);
        const std::vector<float> whole = RunCut(kind, dtype, {0, n}, values, grads);
        SetNumThreads(3);
        EXPECT_EQ(RunCut(kind, dtype, {0, n}, values, grads), whole) << kind.name;
        EXPECT_EQ(RunCut(kind, dtype, {0, 1, 8, 27, 20001, n}, values, grads), whole)
            << kind.name << " " << dtype << " " << CpuIsaName(isa);
      }
    }
  }
  SetActiveIsa(best);
  SetNumThreads(AvailableCores());
}

TEST(OptimizerTest, GradientsAreScaled) {
  for (const Kind& kind : Kinds()) {
    const auto run = [&](double factor, const StepInputs& inputs) {
      const Parameter p =
          MakeParameter("w", RandomTensor({19}, 1), DType::kFloat32, DType::kFloat32);
      const auto optimizer = Make(kind, {p});
      for (uint64_t step = 0; step < 3; ++step) {
        SetGrad(p.tensor, CastCopy(RandomTensor({19}, 5 + step, factor), DType::kFloat32));
        optimizer->Step(inputs);
      }
      return p.tensor.ToVector<float>();
    };
    // Powers of two, so that the bits are the same.
    EXPECT_EQ(run(64, {.clip_factor = Tensor::Scalar(0.25), .loss_scale = Tensor::Scalar(16)}),
              run(1, {}))
        << kind.name;
    EXPECT_NE(run(64, {.clip_factor = Tensor::Scalar(0.25)}), run(1, {})) << kind.name;
  }
}

TEST(OptimizerTest, StepAfterAnOverflowChangesNothing) {
  for (const Kind& kind : Kinds()) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kFloat64}) {
      const Parameter p = MakeParameter("w", RandomTensor({21}, 1), dtype, dtype);
      const auto optimizer = Make(kind, {p});
      SetGrad(p.tensor, CastCopy(RandomTensor({21}, 2), dtype));
      optimizer->Step();
      const auto snapshot = [&] {
        std::vector<std::vector<double>> all = {p.tensor.ToVector<double>()};
        optimizer->VisitState([&](const std::string&, const std::string&, const Tensor& t,
                                  const Placement&) { all.push_back(t.ToVector<double>()); });
        return all;
      };
      const auto before = snapshot();
      Fill(Grad(p.tensor), INFINITY);
      optimizer->Step({.found_inf = Tensor::Scalar(1)});
      EXPECT_EQ(snapshot(), before) << kind.name << " " << dtype;
      EXPECT_EQ(optimizer->step_count(), 1);
      Fill(Grad(p.tensor), 1);
      optimizer->Step({.found_inf = Tensor::Scalar(0)});
      EXPECT_NE(snapshot(), before);
      EXPECT_EQ(optimizer->step_count(), 2);
    }
  }
}

TEST(OptimizerTest, TiedGradientsAreJoined) {
  const Tensor w = RequireGrad(Full({3}, 1.0));
  const Tensor twin = RequireGrad(w.Detach());
  const Tensor third = RequireGrad(w.Detach());
  const Parameter p{"wte.weight", w, {twin, third}};
  Sgd optimizer({{.parameters = {p}}}, {.lr = 1, .momentum = 0});
  SetGrad(w, Full({3}, 1.0));
  SetGrad(twin, Full({3}, 0.25));
  JoinTiedGradients({p});
  JoinTiedGradients({p});
  EXPECT_EQ(Grad(w).ToVector<float>()[0], 1.25f);
  EXPECT_FALSE(Grad(twin).defined());
  SetGrad(third, Full({3}, 0.5));
  optimizer.Step();
  EXPECT_EQ(w.ToVector<float>(), std::vector<float>(3, -0.75f));
  EXPECT_EQ(third.ToVector<float>()[2], -0.75f);
  optimizer.ZeroGrad();
  // Only a tied leaf has a gradient.
  SetGrad(twin, Full({3}, 2.0));
  optimizer.Step();
  EXPECT_EQ(w.ToVector<float>()[1], -2.75f);
}

TEST(OptimizerTest, ATiedWeightThatIsFrozenLaterStays) {
  const Tensor w = RequireGrad(Full({3}, 1.0));
  const Tensor twin = RequireGrad(w.Detach());
  Sgd optimizer({{.parameters = {{"wte.weight", w, {twin}}}}}, {.lr = 1, .momentum = 0});
  DropGrad(w);
  SetGrad(twin, Full({3}, 2.0));
  EXPECT_EQ(ClipGradNorm(optimizer.parameters(), {.max_norm = 1}).norm.Item(), 0);
  EXPECT_FALSE(Grad(twin).defined());
  SetGrad(twin, Full({3}, 2.0));
  optimizer.Step();
  EXPECT_EQ(w.ToVector<float>(), std::vector<float>(3, 1.0f));
  // With one use frozen the other one trains it.
  RequireGrad(w);
  DropGrad(twin);
  SetGrad(w, Full({3}, 0.5));
  optimizer.Step();
  EXPECT_EQ(w.ToVector<float>(), std::vector<float>(3, 0.5f));
  DropGrad(w);
  optimizer.Step();
  EXPECT_EQ(w.ToVector<float>(), std::vector<float>(3, 0.5f));
}

TEST(OptimizerTest, ZeroGradReleasesOrFills) {
  const Tensor w = RequireGrad(Full({3}, 1.0));
  Sgd optimizer({{.parameters = {{"w", w, {}}}}}, {.momentum = 0});
  const Tensor bucket = Full({3}, 5.0);
  SetGrad(w, bucket);
  optimizer.ZeroGrad(ZeroGradMode::kFillZeros);
  EXPECT_EQ(bucket.ToVector<float>()[1], 0.0f);
  EXPECT_TRUE(Grad(w).is_same(bucket));
  optimizer.ZeroGrad();
  EXPECT_FALSE(Grad(w).defined());
}

TEST(OptimizerTest, GroupsHaveTheirOwnRateAndDecay) {
  const Tensor a = RequireGrad(Full({2}, 1.0));
  const Tensor b = RequireGrad(Full({2}, 1.0));
  const Tensor c = RequireGrad(Full({2}, 1.0));
  Sgd optimizer({{.parameters = {{"a", a, {}}}, .weight_decay = 0.5},
                 {.parameters = {{"b", b, {}}, {"c", c, {}}}, .lr_scale = 0.25}},
                {.lr = 1});
  EXPECT_EQ(optimizer.parameters().size(), 3u);
  SetGrad(a, Full({2}, 0.125));
  SetGrad(b, Full({2}, 0.5));
  optimizer.set_learning_rate(0.5);
  EXPECT_EQ(optimizer.learning_rate().Item(), 0.5);
  optimizer.Step();
  EXPECT_EQ(a.ToVector<float>()[0], 1.0f - 0.5f * (0.125f + 0.5f));
  EXPECT_EQ(b.ToVector<float>()[0], 1.0f - 0.125f * 0.5f);
  EXPECT_EQ(c.ToVector<float>()[0], 1.0f) << "a parameter without gradient is left alone";
}

TEST(OptimizerTest, StridedParametersAndGradients) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    const Tensor values = CastCopy(RandomTensor({5, 3}, 1), dtype);
    const Tensor plain = RequireGrad(CastCopy(values, dtype));
    const Tensor strided = RequireGrad(WithGaps(values));
    const Tensor grad = CastCopy(RandomTensor({5, 3}, 2), DType::kFloat32);
    SetGrad(plain, grad);
    SetGrad(strided, WithGaps(grad));
    // A rate that bfloat16 shows, whatever the random values are.
    AdamW optimizer({{.parameters = {{"plain", plain, {}}, {"strided", strided, {}}}}},
                    {.lr = 0.1});
    optimizer.Step();
    EXPECT_EQ(strided.ToVector<float>(), plain.ToVector<float>());
    EXPECT_NE(strided.ToVector<float>(), values.ToVector<float>());
  }
}

TEST(OptimizerTest, StepCountsAsAChange) {
  const Tensor w = RequireGrad(Full({2}, 3.0));
  const Tensor y = Mul(w, w);
  Sgd optimizer({{.parameters = {{"w", w, {}}}}}, {.momentum = 0});
  SetGrad(w, Full({2}, 1.0));
  optimizer.Step();
  EXPECT_THROW(Backward({y}, {Full({2}, 1.0)}), Error);
}

TEST(OptimizerTest, StateContinuesBitForBit) {
  for (const Kind& kind : Kinds()) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat64}) {
      const auto parameters = [&] {
        return std::vector<Parameter>{
            MakeParameter("a", RandomTensor({3, 5}, 1), dtype, DType::kFloat32),
            MakeParameter("b", RandomTensor({7}, 2), dtype, DType::kFloat32)};
      };
      const auto step = [](Optimizer& optimizer, uint64_t index) {
        for (const Parameter& p : optimizer.parameters()) {
          SetGrad(p.tensor, CastCopy(RandomTensor(p.tensor.shape(), 10 + index), DType::kFloat32));
        }
        optimizer.Step();
      };
      const auto whole = Make(kind, parameters());
      for (uint64_t i = 0; i < 6; ++i) step(*whole, i);

      const auto first = Make(kind, parameters());
      for (uint64_t i = 0; i < 3; ++i) step(*first, i);
      std::map<std::string, Tensor> saved;
      for (const auto& [name, t] : first->StateDict()) saved[name] = CastCopy(t, t.dtype());
      const auto second = Make(kind, parameters());
      for (size_t i = 0; i < 2; ++i) {
        CopyInto(second->parameters()[i].tensor.Detach(), first->parameters()[i].tensor);
      }
      ASSERT_TRUE(second->LoadStateDict(saved).ok());
      for (uint64_t i = 3; i < 6; ++i) step(*second, i);
      for (size_t i = 0; i < 2; ++i) {
        EXPECT_EQ(second->parameters()[i].tensor.ToVector<double>(),
                  whole->parameters()[i].tensor.ToVector<double>())
            << kind.name << " " << dtype;
      }
      EXPECT_EQ(second->step_count(), 6);
    }
  }
}

TEST(OptimizerTest, StateNamesAndShapes) {
  AdamW optimizer({{.parameters = {MakeParameter("h.0.weight", Zeros({2, 3}, DType::kFloat64),
                                                 DType::kBFloat16, DType::kFloat32)}}});
  std::vector<std::string> seen;
  optimizer.VisitState([&](const std::string& parameter, const std::string& state, const Tensor& t,
                           const Placement&) {
    seen.push_back(StateName(parameter, state));
    if (!parameter.empty()) {
      EXPECT_EQ(t.shape(), (Shape{2, 3}));
      EXPECT_EQ(t.dtype(), DType::kFloat32);
    }
  });
  EXPECT_EQ(seen, (std::vector<std::string>{"step", "h.0.weight.master", "h.0.weight.exp_avg",
                                            "h.0.weight.exp_avg_sq"}));
}

TEST(OptimizerTest, RefusesForeignState) {
  AdamW optimizer({{.parameters = {{"w", RequireGrad(Zeros({2})), {}}}}});
  std::map<std::string, Tensor> state = optimizer.StateDict();
  EXPECT_TRUE(optimizer.LoadStateDict(state).ok());
  const Tensor good = state["w.exp_avg"];
  state["w.exp_avg"] = Full({3}, 1.0);
  EXPECT_NE(Message(optimizer.LoadStateDict(state)).find("'w.exp_avg' is float32[3]"),
            std::string::npos);
  state["w.exp_avg"] = Full({2}, 1.0, DType::kFloat64);
  EXPECT_FALSE(optimizer.LoadStateDict(state).ok());
  state.erase("w.exp_avg");
  EXPECT_NE(Message(optimizer.LoadStateDict(state)).find("'w.exp_avg' is missing"),
            std::string::npos);
  state["w.exp_avg"] = good;
  state["v.exp_avg"] = good;
  EXPECT_NE(Message(optimizer.LoadStateDict(state)).find("'v.exp_avg' is unknown"),
            std::string::npos);
}

TEST(OptimizerTest, MasterWeightsAreRefreshedFromParameters) {
  const Tensor w = RequireGrad(Full({4}, 1.0, DType::kBFloat16));
  Sgd optimizer({{.parameters = {{"w", w, {}}}}}, {.lr = 1, .momentum = 0});
  CopyInto(w.Detach(), Full({4}, 3.0));
  optimizer.RefreshMasterWeights();
  SetGrad(w, Full({4}, 0.5));
  optimizer.Step();
  EXPECT_EQ(w.ToVector<float>()[0], 2.5f);
}

// Small steps are not lost in half precision.
TEST(OptimizerTest, MasterWeightsCollectSmallSteps) {
  const Tensor w = RequireGrad(Full({1}, 1.0, DType::kBFloat16));
  Sgd optimizer({{.parameters = {{"w", w, {}}}}}, {.lr = 1, .momentum = 0});
  SetGrad(w, Full({1}, 0x1p-12));
  for (int i = 0; i < 256; ++i) optimizer.Step();
  EXPECT_EQ(w.ToVector<float>()[0], 1.0f - 0x1p-4f);
}

struct Bytes {
  int64_t held;
  int64_t peak_of_step;
};

// Held by one parameter of n elements, its gradient and the optimizer.
Bytes Measure(const Kind& kind, DType dtype, DType grad_dtype, int64_t n, Device device) {
  Allocator& allocator = Allocator::For(device);
  const int64_t before = allocator.stats().current_bytes;
  const Tensor w = RequireGrad(Zeros({n}, dtype, device), grad_dtype);
  const auto optimizer = Make(kind, {{"w", w, {}}});
  SetGrad(w, Zeros({n}, grad_dtype, device));
  const int64_t held = allocator.stats().current_bytes - before;
  allocator.ResetPeak();
  optimizer->Step();
  optimizer->Step();
  return {held, allocator.stats().peak_bytes - before};
}

TEST(OptimizerTest, MemoryLaw) {
  const std::vector<Kind> kinds = Kinds();
  const Kind& adamw = kinds.back();
  constexpr int64_t kElements = int64_t{1} << 20;
  struct Case {
    DType dtype;
    DType grad_dtype;
    double bytes;
  };
  for (const Case& c :
       {Case{DType::kFloat32, DType::kFloat32, 16}, Case{DType::kBFloat16, DType::kFloat32, 18},
        Case{DType::kFloat16, DType::kFloat32, 18}, Case{DType::kBFloat16, DType::kBFloat16, 16}}) {
    for (const Device device : {Device::Cpu(), Device::Meta()}) {
      const Bytes bytes = Measure(adamw, c.dtype, c.grad_dtype, kElements, device);
      EXPECT_NEAR(static_cast<double>(bytes.held) / kElements, c.bytes, 0.001)
          << c.dtype << " " << c.grad_dtype << " " << device;
      EXPECT_EQ(bytes.peak_of_step, bytes.held) << "a step allocates nothing";
    }
  }
  EXPECT_NEAR(
      static_cast<double>(
          Measure(kinds.front(), DType::kFloat32, DType::kFloat32, kElements, Device::Cpu()).held) /
          kElements,
      8, 0.001);
}

TEST(OptimizerTest, RefusesMisuse) {
  const Tensor w = RequireGrad(Zeros({2}));
  const Tensor u = RequireGrad(Zeros({2}));
  const auto make = [](std::vector<ParameterGroup> groups) { return AdamW(std::move(groups)); };
  EXPECT_THROW(make({{.parameters = {{"w", Zeros({2}), {}}}}}), Error);
  EXPECT_THROW(make({{.parameters = {{"w", w, {}}, {"w", u, {}}}}}), Error);
  EXPECT_THROW(make({{.parameters = {{"w", w, {}}, {"u", w, {}}}}}), Error);
  EXPECT_THROW(make({{.parameters = {{"w", w, {u}}}}}), Error);
  EXPECT_THROW(make({{.parameters = {{"w", w, {}}}, .weight_decay = -1}}), Error);
  EXPECT_THROW(make({{.parameters = {{"w", w, {}}}, .lr_scale = NAN}}), Error);
  const std::vector<ParameterGroup> good = {{.parameters = {{"w", w, {}}}}};
  EXPECT_THROW(AdamW(good, {.lr = -1}), Error);
  EXPECT_THROW(AdamW(good, {.betas = {1, 0.9}}), Error);
  EXPECT_THROW(AdamW(good, {.betas = {0.9, -0.1}}), Error);
  EXPECT_THROW(AdamW(good, {.eps = -1}), Error);
  EXPECT_THROW(Sgd(good, {.momentum = 0, .nesterov = true}), Error);
  EXPECT_THROW(Sgd(good, {.momentum = 1}), Error);
  AdamW optimizer(good);
  EXPECT_THROW(optimizer.Step({.clip_factor = Tensor::Scalar(1, DType::kFloat64)}), Error);
  EXPECT_THROW(optimizer.Step({.found_inf = Zeros({1})}), Error);
  EXPECT_EQ(optimizer.step_count(), 0);
  AdamW nothing({});
  nothing.Step();
  EXPECT_EQ(nothing.step_count(), 1);
}

TEST(OptimizerTest, FrozenParametersStay) {
  const Tensor w = RequireGrad(Full({2}, 1.0));
  AdamW optimizer({{.parameters = {{"w", w, {}}}, .weight_decay = 0.5}});
  DropGrad(w);
  optimizer.Step();
  optimizer.ZeroGrad();
  EXPECT_EQ(w.ToVector<float>()[0], 1.0f);
}

}  // namespace
}  // namespace tessera::optim
