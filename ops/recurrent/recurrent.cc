// SPDX-License-Identifier: Apache-2.0
#include "ops/recurrent/recurrent.h"

#include "autograd/autocast.h"
#include "autograd/autograd.h"
#include "ops/cast/cast.h"
#include "ops/matmul/product.h"
#include "ops/recurrent/recurrent_kernel.h"
#include "ops/reduction/sum.h"
#include "ops/view/view.h"

namespace tessera {
namespace {

constexpr const char* kName = "recurrent";

struct Plan {
  RecurrentCell cell;
  bool reverse;
  int64_t batch;
  int64_t steps;
  int64_t hidden;
  int64_t gates;
  DType dtype;
  DType wide;
  Device device;

  bool has_cell() const { return cell == RecurrentCell::kLstm; }
  // The time of step `i` in the order in which they are taken.
  int64_t TimeOf(int64_t i) const { return reverse ? steps - 1 - i : i; }
};

void CheckLengths(const Tensor& lengths, const Plan& plan) {
  TESSERA_CHECK(lengths.dtype() == DType::kInt64 && lengths.shape() == Shape{plan.batch} &&
                    lengths.device() == plan.device,
                kName, "lengths ", lengths, " for ", plan.batch, " sequences");
  if (!plan.device.is_cpu()) return;
  for (const int64_t length : lengths.ToVector<int64_t>()) {
    TESSERA_CHECK(length >= 0 && length <= plan.steps, kName, "length ", length,
                  " of a sequence of ", plan.steps, " steps");
  }
}

Plan Check(RecurrentCell cell, const RecurrentInputs& in) {
  const Tensor& p = in.projected;
  const Tensor& w = in.weight;
  const int64_t gates = GatesOf(cell);
  TESSERA_CHECK(p.ndim() == 3 && w.ndim() == 2 && IsFloating(p.dtype()) &&
                    w.size(0) == gates * w.size(1) && p.size(2) == w.size(0) &&
                    p.device() == w.device(),
                kName, "projected inputs ", p, " and weight ", w, " of ", gates, " gates");
  TESSERA_CHECK(
      w.dtype() == p.dtype() || (w.dtype() == DType::kFloat32 && p.dtype() == AutocastDType()),
      kName, "projected inputs ", p, " and weight ", w);
  const Plan plan{cell,      in.reverse, p.size(0), p.size(1),
                  w.size(1), gates,      p.dtype(), AccumulateDType(p.dtype()),
                  p.device()};
  TESSERA_CHECK(
      !in.bias.defined() || (in.bias.shape() == Shape{w.size(0)} && in.bias.dtype() == w.dtype()),
      kName, "bias ", in.bias, " beside weight ", w);
  for (const Tensor& state : {in.hidden, in.cell}) {
    TESSERA_CHECK(!state.defined() || (state.shape() == Shape{plan.batch, plan.hidden} &&
                                       IsFloating(state.dtype()) && state.device() == plan.device),
                  kName, "a first state ", state, ", needed is [", plan.batch, ", ", plan.hidden,
                  "]");
  }
  TESSERA_CHECK(plan.has_cell() || !in.cell.defined(), kName, "only an LSTM has a cell state");
  if (in.lengths.defined()) CheckLengths(in.lengths, plan);
  return plan;
}

// The states over all times, and what else a step's gradient is made of.
struct Steps {
  Tensor h;     // [B, T, H]
  Tensor c;     // likewise, of kLstm
  Tensor kept;  // [B, T, 4 H]; undefined: is not needed
};

const int64_t* LengthsOf(const Tensor& lengths) {
  return lengths.defined() ? static_cast<const int64_t*>(lengths.raw_data()) : nullptr;
}

// Of [B, H] as of the view of one time of a sequence.
StateRows RowsOf(const Tensor& state) {
  if (!state.defined()) return {};
  return {state.raw_data(), state.stride(0)};
}

// One time of a sequence; nullptr where there is none.
void* AtTime(const Tensor& sequence, int64_t time) {
  return sequence.defined() ? Select(sequence, 1, time).raw_data() : nullptr;
}

// The state before step `i`.
Tensor Before(const Plan& plan, const Tensor& first, const Tensor& sequence, int64_t i) {
  if (!first.defined()) return first;
  return i == 0 ? first : Select(sequence, 1, plan.TimeOf(i - 1));
}

// The state after the last step.
Tensor Last(const Plan& plan, const Tensor& first, const Tensor& sequence) {
  const Tensor last = Before(plan, first, sequence, plan.steps);
  if (!last.defined()) return last;
  Tensor copy = EmptyLike(last);
  CopyInto(copy, last);
  return copy;
}

// Writes `steps` and `output` (undefined: the same as steps.h).
void Run(const Plan& plan, const RecurrentInputs& in, const Steps& steps, const Tensor& output) {
  const Tensor projected = in.projected.ContiguousCopy();
  const ProductFactor weight(Transposed(Cast(in.weight.Detach(), plan.dtype)));
  const Tensor bias = in.bias.defined() ? Cast(in.bias.Detach(), plan.dtype) : in.bias;
  for (int64_t i = 0; i < plan.steps; ++i) {
    const int64_t time = plan.TimeOf(i);
    const Tensor h_before = Before(plan, in.hidden, steps.h, i);
    const Tensor c_before = Before(plan, in.cell, steps.c, i);
    const Tensor recurrent = Product(h_before, weight, bias, plan.dtype);
    recurrent_kernel.Launch(plan.device, {.cell = plan.cell,
                                          .dtype = plan.dtype,
                                          .batch = plan.batch,
                                          .steps = plan.steps,
                                          .hidden = plan.hidden,
                                          .gates = plan.gates,
                                          .time = time,
                                          .lengths = LengthsOf(in.lengths),
                                          .projected = AtTime(projected, time),
                                          .recurrent = recurrent.raw_data(),
                                          .h_before = RowsOf(h_before),
                                          .c_before = RowsOf(c_before),
                                          .h = AtTime(steps.h, time),
                                          .c = AtTime(steps.c, time),
                                          .output = AtTime(output, time),
                                          .kept = AtTime(steps.kept, time)});
  }
}

// The hidden states before each step, [B, T, H].
Tensor AllBefore(const Plan& plan, const Tensor& first, const Tensor& h) {
  const Tensor before = EmptyLike(h);
  if (plan.steps == 0) return before;
  const int64_t rest = plan.steps - 1;
  CopyInto(Slice(before, 1, plan.reverse ? 0 : 1, rest), Slice(h, 1, plan.reverse ? 1 : 0, rest));
  CopyInto(Select(before, 1, plan.TimeOf(0)), first);
  return before;
}

// A copy to add to, of zeros where there is no gradient.
Tensor CarriedGrad(const Plan& plan, const Tensor& grad) {
  const Tensor carried = Zeros({plan.batch, plan.hidden}, plan.wide, plan.device);
  if (grad.defined()) CopyInto(carried, grad);
  return carried;
}

struct Gradients {
  Tensor projected;
  Tensor recurrent;  // of h W_hh^T + b_hh; the same but for kGru
  Tensor hidden;     // of the first states
  Tensor cell;
};

Gradients RunBackward(const Plan& plan, const RecurrentInputs& in, const Steps& steps,
                      const GradContext& ctx) {
  const Tensor d_output = ctx.grad(0).defined() ? ctx.grad(0).ContiguousCopy() : Tensor();
  const Shape shape{plan.batch, plan.steps, plan.gates * plan.hidden};
  Gradients d;
  d.projected = Empty(shape, plan.dtype, plan.device);
  const bool apart = plan.cell == RecurrentCell::kGru;
  const Tensor own = apart ? EmptyLike(d.projected) : Tensor();
  d.recurrent = apart ? own : d.projected;
  d.hidden = CarriedGrad(plan, ctx.grad(1));
  if (plan.has_cell()) d.cell = CarriedGrad(plan, ctx.grad(2));
  const ProductFactor weight(Cast(in.weight.Detach(), plan.dtype));
  for (int64_t i = plan.steps - 1; i >= 0; --i) {
    const int64_t time = plan.TimeOf(i);
    recurrent_grad_kernel.Launch(plan.device,
                                 {.cell = plan.cell,
                                  .dtype = plan.dtype,
                                  .batch = plan.batch,
                                  .steps = plan.steps,
                                  .hidden = plan.hidden,
                                  .gates = plan.gates,
                                  .time = time,
                                  .lengths = LengthsOf(in.lengths),
                                  .kept = AtTime(steps.kept, time),
                                  .h = AtTime(steps.h, time),
                                  .c = AtTime(steps.c, time),
                                  .h_before = RowsOf(Before(plan, in.hidden, steps.h, i)),
                                  .c_before = RowsOf(Before(plan, in.cell, steps.c, i)),
                                  .d_output = AtTime(d_output, time),
                                  .dh = d.hidden.raw_data(),
                                  .dc = d.cell.defined() ? d.cell.raw_data() : nullptr,
                                  .d_projected = AtTime(d.projected, time),
                                  .d_recurrent = AtTime(own, time)});
    AddInto(d.hidden, Product(Select(d.recurrent, 1, time), weight, Tensor(), plan.wide));
  }
  return d;
}

Tensor AsMatrix(const Tensor& sequence) {
  return Reshape(sequence, {sequence.size(0) * sequence.size(1), sequence.size(2)});
}

// Inputs of the node: projected, weight, bias, hidden, cell.
GradFn BackwardOf(const Plan& plan, const RecurrentInputs& in, const Steps& steps) {
  const DType grad_dtype = IsLeaf(in.weight) ? GradDType(in.weight) : in.weight.dtype();
  return [plan, grad_dtype, lengths = SavedTensor(in.lengths), weight = SavedTensor(in.weight),
          hidden = SavedTensor(in.hidden), cell = SavedTensor(in.cell), h = SavedTensor(steps.h),
          c = SavedTensor(steps.c), kept = SavedTensor(steps.kept)](GradContext& ctx) {
    const RecurrentInputs saved{.projected = {},
                                .weight = weight.Unpack(),
                                .hidden = hidden.Unpack(),
                                .cell = cell.Unpack(),
                                .lengths = lengths.Unpack()};
    const Steps at{h.Unpack(), c.Unpack(), kept.Unpack()};
    const Gradients d = RunBackward(plan, saved, at, ctx);
    const Tensor dy = AsMatrix(d.recurrent);
    if (ctx.needs(0)) ctx.set(0, d.projected);
    if (ctx.needs(1)) {
      const Tensor before = AsMatrix(AllBefore(plan, saved.hidden, at.h));
      const WeightGradient gradient = LinearWeightGradient(
          dy, before, LinearLayout::kOutIn, grad_dtype, ctx.accumulator(1), ctx.needs(2));
      if (gradient.weight.defined()) ctx.set(1, gradient.weight);
      if (ctx.needs(2)) ctx.set(2, gradient.bias);
    } else if (ctx.needs(2)) {
      ctx.set(2, SumTo(dy, {dy.size(1)}));
    }
    if (ctx.needs(3)) ctx.set(3, Cast(d.hidden, plan.dtype));
    if (ctx.needs(4)) ctx.set(4, d.cell);
  };
}

// Contiguous, with first states in the dtypes that they are kept in, zeros where there are none.
RecurrentInputs Completed(const Plan& plan, RecurrentInputs in) {
  const Shape shape{plan.batch, plan.hidden};
  in.hidden = in.hidden.defined() ? Contiguous(Cast(in.hidden, plan.dtype))
                                  : Zeros(shape, plan.dtype, plan.device);
  if (plan.has_cell()) {
    in.cell = in.cell.defined() ? Contiguous(Cast(in.cell, plan.wide))
                                : Zeros(shape, plan.wide, plan.device);
  }
  if (in.bias.defined()) in.bias = Contiguous(in.bias);
  if (in.lengths.defined()) in.lengths = in.lengths.ContiguousCopy();
  return in;
}

}  // namespace

RecurrentStates Recurrent(RecurrentCell cell, const RecurrentInputs& inputs) {
  const Plan plan = Check(cell, inputs);
  const RecurrentInputs in = Completed(plan, inputs);
  const bool takes_part = AnyRequiresGrad({in.projected, in.weight, in.bias, in.hidden, in.cell});
  Steps steps;
  RecurrentStates result;
  {
    const NoGrad no_grad;
    const Shape shape{plan.batch, plan.steps, plan.hidden};
    steps.h = Empty(shape, plan.dtype, plan.device);
    if (plan.has_cell()) steps.c = Empty(shape, plan.wide, plan.device);
    if (takes_part && KeptOf(cell) > 0) {
      steps.kept =
          Empty({plan.batch, plan.steps, KeptOf(cell) * plan.hidden}, plan.dtype, plan.device);
    }
    const Tensor output = in.lengths.defined() ? EmptyLike(steps.h) : Tensor();
    Run(plan, in, steps, output);
    result.output = output.defined() ? output : steps.h;
    result.hidden = Last(plan, in.hidden, steps.h);
    result.cell = Last(plan, in.cell, steps.c);
  }
  if (!takes_part) return result;
  std::vector<Tensor> outputs = {result.output, result.hidden};
  if (result.cell.defined()) outputs.push_back(result.cell);
  GradFn backward = BackwardOf(plan, in, steps);
  Record(kName, {in.projected, in.weight, in.bias, in.hidden, in.cell}, outputs,
         std::move(backward));
  return result;
}

}  // namespace tessera
