// SPDX-License-Identifier: Apache-2.0
#include "optim/testing/optimizer_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <utility>

#include "autograd/autograd.h"
#include "core/cpu_isa.h"
#include "core/thread_communicator.h"
#include "core/thread_pool.h"
#include "ops/testing/op_check.h"

namespace tessera::optim {
namespace {

constexpr int kSteps = 20;
constexpr double kLr = 0.01;

struct Sample {
  std::string name;
  Shape shape;
  size_t group;
  bool table = false;
};

// Of optim/testdata/golden_problem.py.
const std::vector<Sample>& Samples() {
  static const auto* samples = new std::vector<Sample>{
      {"tall", {7, 5}, 0},     {"vector", {6}, 0}, {"fused", {5, 9}, 1},
      {"stack", {2, 3, 4}, 1}, {"one", {1}, 1},    {"table", {6, 4}, 0, true}};
  return *samples;
}

std::vector<ParameterGroup> EmptyGroups() {
  return {{.parameters = {}, .weight_decay = 0.1, .name = "decay"},
          {.parameters = {}, .lr_scale = 0.5, .name = "no_decay"}};
}

Tensor StartOf(size_t k) {
  const Tensor t = Empty(Samples()[k].shape, DType::kFloat64);
  for (int64_t i = 0; i < t.numel(); ++i) {
    t.data<double>()[i] = std::cos(0.9 * static_cast<double>(i) + static_cast<double>(k));
  }
  return t;
}

Tensor GradOf(size_t k, int step) {
  const Tensor t = Empty(Samples()[k].shape, DType::kFloat64);
  for (int64_t i = 0; i < t.numel(); ++i) {
    const auto x = static_cast<double>(i);
    t.data<double>()[i] = 0.1 * std::sin(0.3 * (x * x) + 0.7 * step + static_cast<double>(k));
  }
  return t;
}

struct Setting {
  DType dtype = DType::kFloat32;
  DType grad_dtype = DType::kFloat32;
  DType rounded_to = DType::kFloat64;  // starting values and gradients, first
  Device device = Device::Cpu();
  bool strided = false;
};

// The golden problem with an optimizer at work.
class Run {
 public:
  Run(const UpdateRule& rule, const Setting& setting, double lr = kLr) : setting_(setting) {
    std::vector<ParameterGroup> groups = EmptyGroups();
    for (size_t k = 0; k < Samples().size(); ++k) {
      Tensor start = Rounded(StartOf(k), setting.dtype);
      if (setting.strided) start = WithGaps(start);
      const Tensor leaf = RequireGrad(start, setting.grad_dtype);
      leaves_.push_back(leaf);
      groups[Samples()[k].group].parameters.push_back(
          {.name = Samples()[k].name, .tensor = leaf, .table = Samples()[k].table});
    }
    optimizer_ = rule.Make(std::move(groups), lr);
  }

  void Step(int step, const StepInputs& inputs = {}, double scale = 1) {
    for (size_t k = 0; k < leaves_.size(); ++k) {
      Tensor grad = GradOf(k, step);
      for (int64_t i = 0; i < grad.numel(); ++i) grad.data<double>()[i] *= scale;
      SetGrad(leaves_[k], Rounded(grad, setting_.grad_dtype));
    }
    optimizer_->Step(inputs);
  }
  void Steps(int first, int last) {
    for (int step = first; step <= last; ++step) Step(step);
  }

  Optimizer& optimizer() { return *optimizer_; }
  const std::vector<Tensor>& leaves() const { return leaves_; }
  // Every element of every parameter, of masters where there are some.
  std::vector<double> Weights() const {
    const std::map<std::string, Tensor> states = optimizer_->StateDict();
    std::vector<double> all;
    for (size_t k = 0; k < leaves_.size(); ++k) {
      const auto master = states.find(Samples()[k].name + ".master");
      const Tensor t = master == states.end() ? leaves_[k].Detach() : master->second;
      for (const double x : t.ToVector<double>()) all.push_back(x);
    }
    return all;
  }
  // The parameters and all states.
  std::vector<std::vector<double>> Everything() const {
    std::vector<std::vector<double>> all;
    for (const Tensor& leaf : leaves_) all.push_back(leaf.ToVector<double>());
    for (const auto& entry : optimizer_->StateDict()) {
      all.push_back(entry.second.ToVector<double>());
    }
    return all;
  }

 private:
  Tensor Rounded(const Tensor& t, DType dtype) const {
    return CopyTo(CastCopy(CastCopy(t, setting_.rounded_to), dtype), setting_.device);
  }

  Setting setting_;
  std::vector<Tensor> leaves_;
  std::unique_ptr<Optimizer> optimizer_;
};

Tensor Listed(const std::vector<double>& values) {
  return Tensor::FromVector<double>(values, {std::ssize(values)});
}

void CompareWithGolden(const std::string& name, const UpdateRule& rule, const GoldenCase& golden,
                       const Device& device) {
  struct Variant {
    Setting setting;
    double tolerance;
  };
  const DType f32 = DType::kFloat32, f64 = DType::kFloat64, b16 = DType::kBFloat16;
  for (const Variant& v : {Variant{{f64, f64, f64, device}, 1e-11},
                           {{f32, f32, f64, device}, 1e-6},
                           {{b16, f32, b16, device}, 1e-6},
                           {{b16, b16, b16, device}, 1e-6}}) {
    Run run(rule, v.setting, golden.lr);
    run.Steps(1, kSteps);
    const bool rounded = v.setting.rounded_to == b16;
    ExpectClose(
        Listed(run.Weights()), Listed(rounded ? golden.rounded : golden.exact), v.tolerance,
        Concat(name, " ", golden.options.dump(), " ", v.setting.dtype, " with ",
               v.setting.grad_dtype, " gradients on ", device, " ", CpuIsaName(ActiveIsa())),
        1);
    EXPECT_EQ(run.optimizer().step_count(), kSteps);
    for (size_t k = 0; k < Samples().size() && rounded; ++k) {
      const auto states = run.optimizer().StateDict();
      EXPECT_EQ(CastCopy(states.at(Samples()[k].name + ".master"), b16).ToVector<float>(),
                run.leaves()[k].ToVector<float>())
          << name;
    }
  }
}

// --- Conduct -------------------------------------------------------------------------------------

void CheckStates(const UpdateRule& rule, const Device& device) {
  for (const Device& where : {device, Device::Meta(device.type)}) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat64}) {
      Run run(rule, {.dtype = dtype, .device = where});
      std::map<std::string, const Parameter*> by_name;
      std::vector<std::string> expected = {"step"};
      const std::vector<Parameter> parameters = run.optimizer().parameters();
      for (const Parameter& p : parameters) {
        by_name[p.name] = &p;
        if (IsHalf(dtype)) expected.push_back(p.name + ".master");
        for (const StateKind& kind : rule.States(p)) expected.push_back(p.name + "." + kind.name);
      }
      run.Steps(1, 2);
      std::vector<std::string> seen;
      run.optimizer().VisitState([&](const std::string& parameter, const std::string& state,
                                     const Tensor& t, const Placement& placement) {
        seen.push_back(StateName(parameter, state));
        EXPECT_EQ(t.device(), where);
        EXPECT_EQ(placement.local_shape(), t.shape()) << seen.back();
        EXPECT_TRUE(placement.is_whole()) << seen.back();
        if (parameter.empty()) return;
        EXPECT_EQ(t.dtype(), AccumulateDType(dtype));
        for (const StateKind& kind : rule.States(*by_name[parameter])) {
          if (kind.name == state) {
            EXPECT_EQ(t.shape(), StatePlacement(kind.shape, *by_name[parameter]).global_shape());
          }
        }
      });
      EXPECT_EQ(seen, expected);
    }
  }
}

void CheckContinuation(const UpdateRule& rule, const Device& device) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat64}) {
    const Setting setting{.dtype = dtype, .device = device};
    SetNumThreads(1);
    Run whole(rule, setting);
    whole.Steps(1, 6);
    SetNumThreads(3);
    Run first(rule, setting);
    first.Steps(1, 3);
    std::map<std::string, Tensor> saved;
    for (const auto& [name, t] : first.optimizer().StateDict()) {
      saved[name] = CastCopy(t, t.dtype());
    }
    Run second(rule, setting);
    for (size_t k = 0; k < first.leaves().size(); ++k) {
      CopyInto(second.leaves()[k].Detach(), first.leaves()[k]);
    }
    ASSERT_TRUE(second.optimizer().LoadStateDict(saved).ok());
    second.Steps(4, 6);
    EXPECT_EQ(second.Everything(), whole.Everything()) << dtype;
  }
  SetNumThreads(AvailableCores());
}

void CheckInputs(const UpdateRule& rule, const Device& device) {
  const auto scalar = [&](double x) { return CopyTo(Tensor::Scalar(x), device); };
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kFloat64}) {
    const Setting setting{.dtype = dtype, .grad_dtype = dtype, .device = device};
    // Powers of two, so that the bits are the same.
    Run plain(rule, setting), scaled(rule, setting), clipped(rule, setting);
    for (int step = 1; step <= 3; ++step) {
      plain.Step(step);
      scaled.Step(step, {.clip_factor = scalar(0.25), .loss_scale = scalar(16)}, 64);
      clipped.Step(step, {.clip_factor = scalar(step == 3 ? 0.0 : 1.0)});
    }
    EXPECT_EQ(scaled.Everything(), plain.Everything()) << dtype;
    EXPECT_NE(clipped.Everything(), plain.Everything()) << dtype;

    // A skipped step, also the very first one.
    Run skipping(rule, setting), straight(rule, setting);
    skipping.Step(1, {.found_inf = scalar(1)}, INFINITY);
    EXPECT_EQ(skipping.Everything(), straight.Everything()) << dtype;
    for (int step = 1; step <= 2; ++step) {
      skipping.Step(step, {.found_inf = scalar(0)});
      skipping.Step(step, {.found_inf = scalar(1)}, INFINITY);
      straight.Step(step);
      EXPECT_EQ(skipping.Everything(), straight.Everything()) << dtype;
    }
    EXPECT_EQ(skipping.optimizer().step_count(), 2);
  }
}

void CheckMissingGradientsAndStrides(const UpdateRule& rule, const Device& device) {
  Run run(rule, {.device = device});
  run.Step(1);
  const std::vector<float> before = run.leaves()[0].ToVector<float>();
  SetGrad(run.leaves()[0], Tensor());
  run.optimizer().Step();
  EXPECT_EQ(run.leaves()[0].ToVector<float>(), before);
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    Run plain(rule, {.dtype = dtype, .device = device});
    Run strided(rule, {.dtype = dtype, .device = device, .strided = true});
    plain.Steps(1, 2);
    strided.Steps(1, 2);
    EXPECT_EQ(strided.Everything(), plain.Everything()) << dtype;
  }
}

// All samples that need no whole, cut after `cut` elements (0: not at all), after three steps.
std::vector<float> RunPieces(const UpdateRule& rule, int64_t cut, const Device& device) {
  std::vector<ParameterGroup> groups = EmptyGroups();
  struct Piece {
    size_t k;
    int64_t begin;
    Tensor leaf;
  };
  std::vector<Piece> pieces;
  const auto add = [&](size_t k, const std::string& name, const Tensor& flat, int64_t begin,
                       int64_t end) {
    const Tensor part = CastCopy(flat.AsStrided({end - begin}, {1}, begin), DType::kFloat32);
    pieces.push_back({k, begin, RequireGrad(CopyTo(part, device))});
    groups[Samples()[k].group].parameters.push_back(
        {.name = name, .tensor = pieces.back().leaf, .table = Samples()[k].table});
  };
  for (size_t k = 0; k < Samples().size(); ++k) {
    const Sample& sample = Samples()[k];
    const Tensor start = StartOf(k);
    const int64_t middle = std::min(cut, start.numel());
    if (rule.NeedsWhole({.name = sample.name, .tensor = start, .table = sample.table})) continue;
    EXPECT_FALSE(rule.NeedsWhole(
        {.name = sample.name, .tensor = Zeros({start.numel()}), .table = sample.table}))
        << "a piece of " << sample.name;
    if (middle > 0) add(k, sample.name + ".0", start, 0, middle);
    add(k, sample.name + ".1", start, middle, start.numel());
  }
  const auto optimizer = rule.Make(std::move(groups), kLr);
  for (int step = 1; step <= 3; ++step) {
    for (const Piece& piece : pieces) {
      const Tensor grad = GradOf(piece.k, step);
      const Tensor part = grad.AsStrided(piece.leaf.shape(), {1}, piece.begin);
      SetGrad(piece.leaf, CopyTo(CastCopy(part, DType::kFloat32), device));
    }
    optimizer->Step();
  }
  std::vector<float> all;
  for (const Piece& piece : pieces) {
    for (const float x : piece.leaf.ToVector<float>()) all.push_back(x);
  }
  return all;
}

// The part of sample k that a rank holds: halves of rows or columns, three boxes of the fused one.
Placement PartOf(size_t k, int rank, int size) {
  const Shape& shape = Samples()[k].shape;
  if (Samples()[k].name == "stack" || Samples()[k].name == "one") return Placement::Whole(shape);
  if (Samples()[k].name == "fused") {
    const Share share = EvenShare(3, size, rank);
    const Placement::Piece piece{3, share.begin, share.count};
    return Placement::Split(shape, 1, {piece, piece, piece});
  }
  // The last of three ranks has no part of the tall one.
  const int holders = Samples()[k].name == "tall" ? 2 : size;
  const Share share = rank < holders ? EvenShare(shape[0], holders, rank) : Share{shape[0], 0};
  return Placement::Split(shape, 0, {{shape[0], share.begin, share.count}});
}

std::vector<double> RunInParts(const UpdateRule& rule, int size, DType dtype) {
  std::vector<Tensor> results;
  for (const Sample& sample : Samples()) results.push_back(Zeros(sample.shape, dtype));
  std::mutex mutex;
  RunRanks(size, [&](const std::shared_ptr<Communicator>& world) {
    std::vector<ParameterGroup> groups = EmptyGroups();
    std::vector<Placement> placements;
    std::vector<Tensor> leaves;
    const auto part_of = [&](size_t k, const Tensor& global) {
      const Tensor local = Empty(placements[k].local_shape(), dtype);
      CopyGlobalToLocal(placements[k], CastCopy(global, dtype), local);
      return local;
    };
    for (size_t k = 0; k < Samples().size(); ++k) {
      placements.push_back(PartOf(k, world->rank(), size));
      leaves.push_back(RequireGrad(part_of(k, StartOf(k))));
      groups[Samples()[k].group].parameters.push_back(
          {.name = Samples()[k].name,
           .tensor = leaves[k],
           .placement = placements[k],
           .group = placements[k].is_split() ? world : nullptr,
           .table = Samples()[k].table});
    }
    const auto optimizer = rule.Make(std::move(groups), kLr);
    for (int step = 1; step <= kSteps; ++step) {
      for (size_t k = 0; k < leaves.size(); ++k) SetGrad(leaves[k], part_of(k, GradOf(k, step)));
      optimizer->Step();
    }
    optimizer->VisitState([&](const std::string& parameter, const std::string& state,
                              const Tensor& t, const Placement& placement) {
      EXPECT_EQ(placement.local_shape(), t.shape()) << StateName(parameter, state);
    });
    const std::lock_guard<std::mutex> lock(mutex);
    for (size_t k = 0; k < leaves.size(); ++k) {
      CopyLocalToGlobal(placements[k], leaves[k].Detach(), results[k]);
    }
  });
  std::vector<double> all;
  for (const Tensor& t : results) {
    for (const double x : t.ToVector<double>()) all.push_back(x);
  }
  return all;
}

}  // namespace

std::shared_ptr<const UpdateRule> RuleOf(const std::string& name, const nlohmann::json& options) {
  const auto kind = FindOptimizerKind(name);
  TESSERA_CHECK(kind.ok(), "optimizer_check", Message(kind.status()));
  auto rule = (*kind)->Configure(options, "options");
  TESSERA_CHECK(rule.ok(), "optimizer_check", Message(rule.status()));
  return *rule;
}

void CheckGolden(const std::string& name, const GoldenCase& golden) {
  const auto rule = RuleOf(name, golden.options);
  const CpuIsa best = ActiveIsa();
  for (const Device& device : TestDevices()) {
    for (const CpuIsa isa : kKernelIsas) {
      if (isa > best || (!device.is_cpu() && isa != best)) continue;
      SetActiveIsa(isa);
      CompareWithGolden(name, *rule, golden, device);
    }
  }
  SetActiveIsa(best);
}

void CheckConduct(const std::string& name, const nlohmann::json& options,
                  double tolerance_of_parts) {
  SCOPED_TRACE(Concat(name, " ", options.dump()));
  const auto rule = RuleOf(name, options);
  for (const Device& device : TestDevices()) {
    SCOPED_TRACE(device.ToString());
    CheckStates(*rule, device);
    CheckContinuation(*rule, device);
    CheckInputs(*rule, device);
    CheckMissingGradientsAndStrides(*rule, device);
    EXPECT_EQ(RunPieces(*rule, 5, device), RunPieces(*rule, 0, device));
  }
  for (const DType dtype : {DType::kFloat64, DType::kFloat32}) {
    Run whole(*rule, {.dtype = dtype, .grad_dtype = dtype});
    whole.Steps(1, kSteps);
    for (const int size : {2, 3}) {
      ExpectClose(Listed(RunInParts(*rule, size, dtype)), Listed(whole.Weights()),
                  dtype == DType::kFloat64 ? 1e-12 : tolerance_of_parts,
                  Concat(name, " ", dtype, " in ", size, " parts"), 1);
    }
  }
}

}  // namespace tessera::optim
