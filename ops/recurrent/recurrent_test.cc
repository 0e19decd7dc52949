// SPDX-License-Identifier: Apache-2.0
#include "ops/recurrent/recurrent.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/autocast.h"
#include "autograd/autograd.h"
#include "core/thread_pool.h"
#include "ops/testing/op_check.h"

namespace tessera {
namespace {

double SigmoidIs(double x) { return 1 / (1 + std::exp(-x)); }

struct Case {
  RecurrentCell cell;
  int64_t batch;
  int64_t steps;
  int64_t hidden;
  bool reverse = false;
  bool bias = true;
  bool states = true;
  std::vector<int64_t> lengths = {};
};

// Inputs in the order of RecurrentInputs.
RecurrentInputs InputsOf(const Tensors& in, bool reverse = false) {
  return {.projected = in[0],
          .weight = in[1],
          .bias = in[2],
          .hidden = in[3],
          .cell = in[4],
          .lengths = in[5],
          .reverse = reverse};
}

Tensors MakeInputs(const Case& c, uint64_t draw = 0) {
  const int64_t gates = GatesOf(c.cell);
  const uint64_t seed = 10 * draw;
  Tensors in(6);
  in[0] = RandomTensor({c.batch, c.steps, gates * c.hidden}, seed + 1);
  in[1] = RandomTensor({gates * c.hidden, c.hidden}, seed + 2, 0.5);
  if (c.bias) in[2] = RandomTensor({gates * c.hidden}, seed + 3);
  if (c.states) in[3] = RandomTensor({c.batch, c.hidden}, seed + 4);
  if (c.states && c.cell == RecurrentCell::kLstm) {
    in[4] = RandomTensor({c.batch, c.hidden}, seed + 5);
  }
  if (!c.lengths.empty()) in[5] = Tensor::FromVector<int64_t>(c.lengths, {c.batch});
  return in;
}

// The formulas, one sequence at a time; steps behind its length are not looked at.
class Reference {
 public:
  Reference(const Case& c, const Tensors& in) : c_(c), in_(in) {}

  Tensors Run() {
    Tensors out = {Zeros({c_.batch, c_.steps, c_.hidden}, DType::kFloat64),
                   Empty({c_.batch, c_.hidden}, DType::kFloat64)};
    if (c_.cell == RecurrentCell::kLstm) out.push_back(EmptyLike(out[1]));
    for (int64_t b = 0; b < c_.batch; ++b) {
      std::vector<double> h = Row(in_[3], b);
      std::vector<double> c = Row(in_[4], b);
      const int64_t length = c_.lengths.empty() ? c_.steps : c_.lengths[static_cast<size_t>(b)];
      for (int64_t i = 0; i < length; ++i) {
        const int64_t t = c_.reverse ? length - 1 - i : i;
        Step(b, t, h, c);
        for (int64_t j = 0; j < c_.hidden; ++j) {
          out[0].data<double>()[(b * c_.steps + t) * c_.hidden + j] = h[static_cast<size_t>(j)];
        }
      }
      for (int64_t j = 0; j < c_.hidden; ++j) {
        out[1].data<double>()[b * c_.hidden + j] = h[static_cast<size_t>(j)];
        if (out.size() > 2) {
          out[2].data<double>()[b * c_.hidden + j] = c[static_cast<size_t>(j)];
        }
      }
    }
    return out;
  }

  // Of what kRelu was given in Run, the number nearest to zero.
  double nearest() const { return nearest_; }

 private:
  std::vector<double> Row(const Tensor& states, int64_t b) const {
    std::vector<double> row(static_cast<size_t>(c_.hidden));
    for (size_t j = 0; states.defined() && j < row.size(); ++j) {
      row[j] = states.data<double>()[b * c_.hidden + static_cast<int64_t>(j)];
    }
    return row;
  }

  void Step(int64_t b, int64_t t, std::vector<double>& h, std::vector<double>& c) {
    const int64_t n = c_.hidden;
    const int64_t gates = GatesOf(c_.cell) * n;
    std::vector<double> p(static_cast<size_t>(gates));
    std::vector<double> q(static_cast<size_t>(gates));
    for (int64_t k = 0; k < gates; ++k) {
      const auto at = static_cast<size_t>(k);
      p[at] = in_[0].data<double>()[(b * c_.steps + t) * gates + k];
      q[at] = in_[2].defined() ? in_[2].data<double>()[k] : 0;
      for (int64_t j = 0; j < n; ++j) {
        q[at] += in_[1].data<double>()[k * n + j] * h[static_cast<size_t>(j)];
      }
    }
    const auto N = static_cast<size_t>(n);
    for (size_t j = 0; j < N; ++j) {
      switch (c_.cell) {
        case RecurrentCell::kTanh:
          h[j] = std::tanh(p[j] + q[j]);
          break;
        case RecurrentCell::kRelu:
          h[j] = std::max(0.0, p[j] + q[j]);
          nearest_ = std::min(nearest_, std::abs(p[j] + q[j]));
          break;
        case RecurrentCell::kLstm:
          c[j] = SigmoidIs(p[N + j] + q[N + j]) * c[j] +
                 SigmoidIs(p[j] + q[j]) * std::tanh(p[2 * N + j] + q[2 * N + j]);
          h[j] = SigmoidIs(p[3 * N + j] + q[3 * N + j]) * std::tanh(c[j]);
          break;
        case RecurrentCell::kGru: {
          const double r = SigmoidIs(p[j] + q[j]);
          const double z = SigmoidIs(p[N + j] + q[N + j]);
          const double candidate = std::tanh(p[2 * N + j] + r * q[2 * N + j]);
          h[j] = (1 - z) * candidate + z * h[j];
          break;
        }
      }
    }
  }

  const Case& c_;
  const Tensors& in_;
  double nearest_ = std::numeric_limits<double>::infinity();
};

// At zero the slope of kRelu jumps: a rounding of half precision could be on the other side.
Tensors InputsAwayFromZero(const Case& c) {
  constexpr double kMargin = 0.06;
  for (uint64_t draw = 0;; ++draw) {
    Tensors in = MakeInputs(c, draw);
    Reference reference(c, in);
    reference.Run();
    if (reference.nearest() > kMargin) return in;
  }
}

void CheckCase(const Case& c) {
  CheckOp({.name = Concat("recurrent ", static_cast<int>(c.cell), c.reverse ? " reversed" : "",
                          c.lengths.empty() ? "" : " with lengths"),
           .op =
               [&](const Tensors& in) {
                 const RecurrentStates y = Recurrent(c.cell, InputsOf(in, c.reverse));
                 Tensors out = {y.output, y.hidden};
                 if (y.cell.defined()) out.push_back(y.cell);
                 return out;
               },
           .reference = [&](const Tensors& in) { return Reference(c, in).Run(); },
           .inputs = InputsAwayFromZero(c),
           .sum_length = static_cast<double>(c.hidden * c.steps),
           .scale_floor = 2});
}

constexpr RecurrentCell kCells[] = {RecurrentCell::kTanh, RecurrentCell::kRelu,
                                    RecurrentCell::kLstm, RecurrentCell::kGru};

TEST(RecurrentTest, CellsInBothDirections) {
  for (const RecurrentCell cell : kCells) {
    for (const bool reverse : {false, true}) {
      CheckCase({.cell = cell, .batch = 3, .steps = 4, .hidden = 5, .reverse = reverse});
      CheckCase({.cell = cell,
                 .batch = 3,
                 .steps = 5,
                 .hidden = 3,
                 .reverse = reverse,
                 .lengths = {2, 5, 0}});
    }
  }
}

TEST(RecurrentTest, ShapesAndWhatIsLeftOut) {
  for (const RecurrentCell cell : kCells) {
    CheckCase({.cell = cell, .batch = 2, .steps = 3, .hidden = 4, .bias = false});
    CheckCase({.cell = cell, .batch = 2, .steps = 3, .hidden = 4, .states = false});
    CheckCase({.cell = cell, .batch = 1, .steps = 1, .hidden = 1});
    CheckCase({.cell = cell, .batch = 2, .steps = 2, .hidden = 19});
  }
}

// Of states alone, with no gradient of the outputs.
TEST(RecurrentTest, GradientOfTheLastState) {
  for (const RecurrentCell cell : kCells) {
    const Case c{.cell = cell, .batch = 2, .steps = 3, .hidden = 4, .lengths = {3, 1}};
    CheckOp(
        {.name = "last state",
         .op = [&](const Tensors& in) { return Tensors{Recurrent(c.cell, InputsOf(in)).hidden}; },
         .reference = [&](const Tensors& in) { return Tensors{Reference(c, in).Run()[1]}; },
         .inputs = InputsAwayFromZero(c),
         .sum_length = 12,
         .scale_floor = 2});
  }
}

// What is behind a sequence's length reaches neither its results nor gradients, NaN included.
TEST(RecurrentTest, PaddingIsNotLookedAt) {
  for (const RecurrentCell cell : kCells) {
    for (const bool reverse : {false, true}) {
      const Case c{.cell = cell, .batch = 2, .steps = 3, .hidden = 4, .lengths = {3, 1}};
      Tensors in = MakeInputs(c);
      const int64_t gates = GatesOf(cell) * 4;
      for (int64_t k = 0; k < 2 * gates; ++k) in[0].data<double>()[4 * gates + k] = std::nan("");
      const Tensor leaf = RequireGrad(in[0]);
      const RecurrentStates y = Recurrent(cell, InputsOf(in, reverse));
      Backward({y.output, y.hidden},
               {Full({2, 3, 4}, 1.0, DType::kFloat64), Full({2, 4}, 1.0, DType::kFloat64)});
      for (const double v : y.output.ToVector<double>()) EXPECT_TRUE(std::isfinite(v));
      const std::vector<double> grad = Grad(leaf).ToVector<double>();
      for (size_t i = 0; i < grad.size(); ++i) {
        EXPECT_TRUE(std::isfinite(grad[i]));
        if (i >= 4 * static_cast<size_t>(gates)) {
          EXPECT_EQ(grad[i], 0);
        }
      }
    }
  }
}

// A row of the batch has the bits that it has alone.
TEST(RecurrentTest, BitsDependOnNeitherBatchNorThreads) {
  for (const RecurrentCell cell : kCells) {
    Tensors in = MakeInputs({.cell = cell, .batch = 300, .steps = 3, .hidden = 37});
    for (Tensor& t : in) {
      if (t.defined()) t = CastCopy(t, DType::kFloat32);
    }
    SetNumThreads(1);
    const std::vector<float> one = Recurrent(cell, InputsOf(in)).output.ToVector<float>();
    SetNumThreads(3);
    EXPECT_EQ(Recurrent(cell, InputsOf(in)).output.ToVector<float>(), one);
    SetNumThreads(AvailableCores());
    Tensors first = in;
    for (const size_t i : {0, 3, 4}) {
      if (!in[i].defined()) continue;
      Shape shape = in[i].shape();
      shape[0] = 1;
      first[i] = in[i].AsStrided(shape, ContiguousStrides(shape), 0);
    }
    const std::vector<float> alone = Recurrent(cell, InputsOf(first)).output.ToVector<float>();
    EXPECT_EQ(alone, std::vector<float>(one.begin(), one.begin() + 3 * 37));
  }
}

TEST(RecurrentTest, AutocastAndEmptySequences) {
  const Case c{.cell = RecurrentCell::kLstm, .batch = 2, .steps = 3, .hidden = 4};
  Tensors in = MakeInputs(c);
  for (Tensor& t : in) {
    if (t.defined()) t = CastCopy(t, DType::kFloat32);
  }
  const Tensor weight = RequireGrad(in[1]);
  in[0] = CastCopy(in[0], DType::kBFloat16);
  {
    const AutocastScope autocast(DType::kBFloat16);
    const RecurrentStates y = Recurrent(c.cell, InputsOf(in));
    EXPECT_EQ(y.output.dtype(), DType::kBFloat16);
    EXPECT_EQ(y.cell.dtype(), DType::kFloat32);
    Backward({y.cell}, {Full({2, 4}, 1.0)});
  }
  EXPECT_EQ(Grad(weight).dtype(), DType::kFloat32);
  const Tensors none = MakeInputs({.cell = c.cell, .batch = 2, .steps = 0, .hidden = 4});
  const RecurrentStates y = Recurrent(c.cell, InputsOf(none));
  EXPECT_EQ(y.output.numel(), 0);
  EXPECT_EQ(y.hidden.ToVector<double>(), none[3].ToVector<double>());
}

TEST(RecurrentTest, Refusals) {
  const auto refused = [](size_t input, const Tensor& given) {
    Tensors in = MakeInputs({.cell = RecurrentCell::kGru, .batch = 2, .steps = 3, .hidden = 4});
    in[input] = given;
    EXPECT_THROW(Recurrent(RecurrentCell::kGru, InputsOf(in)), Error) << input;
  };
  refused(0, Zeros({2, 3, 8}, DType::kFloat64));
  refused(0, Zeros({2, 3, 12}));
  refused(1, Zeros({12, 3}, DType::kFloat64));
  refused(2, Zeros({4}, DType::kFloat64));
  refused(3, Zeros({1, 4}, DType::kFloat64));
  refused(4, Zeros({2, 4}, DType::kFloat64));
  refused(5, Tensor::FromVector<int64_t>({4, 1}, {2}));
  refused(5, Tensor::FromVector<int64_t>({-1, 1}, {2}));
  refused(5, Tensor::FromVector<int64_t>({1}, {1}));
}

}  // namespace
}  // namespace tessera
