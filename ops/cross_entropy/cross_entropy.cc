// SPDX-License-Identifier: Apache-2.0
#include "ops/cross_entropy/cross_entropy.h"

#include "autograd/autograd.h"
#include "ops/cross_entropy/cross_entropy_kernel.h"
#include "ops/elementwise/elementwise.h"
#include "ops/index/index.h"
#include "ops/reduction/sum.h"
#include "ops/view/view.h"

namespace tessera {
namespace {

struct Plan {
  int64_t rows;
  int64_t vocab;         // local columns in use
  int64_t columns;       // local columns
  int64_t global_vocab;  // V
  bool sharded;
};

Plan Check(const Tensor& logits, const Tensor& targets, const CrossEntropyOptions& options) {
  TESSERA_CHECK(logits.ndim() >= 1 && IsFloating(logits.dtype()) &&
                    targets.dtype() == DType::kInt64 && targets.device() == logits.device() &&
                    targets.shape() == Shape(logits.shape().begin(), logits.shape().end() - 1),
                "cross_entropy", "logits ", logits, " and targets ", targets,
                ": targets must be int64, with the shape of logits but for their last dim");
  TESSERA_CHECK(options.label_smoothing >= 0 && options.label_smoothing <= 1, "cross_entropy",
                "label_smoothing ", options.label_smoothing, " is not between 0 and 1");
  Plan plan;
  plan.columns = logits.size(-1);
  plan.rows = targets.numel();
  plan.vocab = options.local_vocab >= 0 ? options.local_vocab : plan.columns;
  plan.sharded = options.group != nullptr && options.group->size() > 1;
  plan.global_vocab = options.global_vocab >= 0 ? options.global_vocab : plan.vocab;
  int64_t of_leaves = 0;
  if (options.tree != nullptr) {
    for (const std::vector<Share>& leaf : options.tree->leaves) {
      if (!leaf.empty()) of_leaves += leaf[0].count;
    }
  }
  TESSERA_CHECK(options.tree == nullptr || of_leaves == plan.vocab, "cross_entropy", of_leaves,
                " columns in the tree of ", plan.vocab);
  TESSERA_CHECK(plan.vocab <= plan.columns, "cross_entropy", plan.vocab, " columns in use of ",
                logits);
  TESSERA_CHECK(!options.class_weights.defined() ||
                    (!plan.sharded && options.class_weights.shape() == Shape{plan.vocab} &&
                     options.class_weights.dtype() == DType::kFloat32 &&
                     options.class_weights.is_contiguous()),
                "cross_entropy", "class weights ", options.class_weights, " for ",
                plan.sharded ? "a sharded vocabulary" : "logits ", logits);
  if (targets.device().is_cpu()) {
    const Tensor t = targets.ContiguousCopy();
    const int64_t* ids = t.data<int64_t>();
    for (int64_t i = 0; i < plan.rows; ++i) {
      TESSERA_CHECK(ids[i] == options.ignore_index || (ids[i] >= 0 && ids[i] < plan.global_vocab),
                    "cross_entropy", "target ", ids[i], " at row ", i, " is outside of the ",
                    plan.global_vocab, " classes");
    }
  }
  return plan;
}

// Off the tape, all leading dims as one: as they lie where rows lie close to each other, as a
// product leaves them.
Tensor AsRows(const Tensor& logits, const Plan& plan) {
  const NoGrad no_grad;
  const Tensor rows = Reshape(logits, {plan.rows, plan.columns});
  const int64_t stride = rows.stride(0);
  const bool close = rows.stride(1) == 1 && stride >= plan.columns && stride < 2 * plan.columns;
  return close ? rows : rows.ContiguousCopy();
}

Tensor AsDType(const Tensor& t, DType dtype) { return t.dtype() == dtype ? t : CastCopy(t, dtype); }

// What each row needs in both passes; all [rows] in the accumulation dtype.
struct RowWeights {
  Tensor on_target;   // (1 - s) w_target, 0 where ignored
  Tensor on_all;      // s / V, 0 where ignored
  Tensor on_softmax;  // sum of q over all classes
  Tensor counted;     // w_target (1 without weights), 0 where ignored: what kMean divides by
  Tensor counts;      // bool: not ignored
};

RowWeights Weigh(const Tensor& targets, const Plan& plan, const CrossEntropyOptions& options,
                 DType wide) {
  const Device device = targets.device();
  const Tensor counts =
      Compare(targets, static_cast<double>(options.ignore_index), Comparison::kNotEqual);
  const Tensor zero = Zeros({1}, wide, device);
  const Tensor one = Full({1}, 1.0, wide, device);
  RowWeights w;
  w.counts = counts;
  double class_total = static_cast<double>(plan.global_vocab);
  Tensor target_weight = one;
  if (options.class_weights.defined()) {
    const Tensor ids = Where(counts, targets, Zeros({1}, DType::kInt64, device));
    target_weight = AsDType(IndexSelect(CopyTo(options.class_weights, device), 0, ids), wide);
    const Tensor total = Sum(AsDType(options.class_weights, wide));
    if (!device.is_meta()) class_total = total.Item();
  }
  w.counted = Where(counts, target_weight, zero);
  const double s = options.label_smoothing;
  const double v = static_cast<double>(plan.global_vocab);
  w.on_target = Mul(w.counted, 1.0 - s);
  w.on_all = Where(counts, Full({1}, s / v, wide, device), zero);
  w.on_softmax = Add(w.on_target, Mul(w.on_all, class_total));
  return w;
}

// Of the sum over all classes, which only smoothing asks for.
const float* WeightsOfAll(const CrossEntropyOptions& options) {
  return options.label_smoothing != 0 && options.class_weights.defined()
             ? static_cast<const float*>(options.class_weights.raw_data())
             : nullptr;
}

// Statistics of the whole vocabulary from those of the shards.
struct Statistics {
  Tensor lse;
  Tensor target_logit;
  Tensor logit_sum;  // undefined without smoothing
};

// What is known of some of the columns. Every statistic is [rows]; the sums are rows of one tensor.
struct Measured {
  Tensor max;
  Tensor sums;  // of exp(x - max), the target's logit, and, where it smooths, the logits
};

Measured MeasureColumns(const Tensor& logits, const Tensor& targets, const Plan& plan,
                        const CrossEntropyOptions& options, const Share& columns, DType wide) {
  const Device device = logits.device();
  const bool smooths = options.label_smoothing != 0;
  const Measured measured = {Empty({plan.rows}, wide, device),
                             Empty({smooths ? 3 : 2, plan.rows}, wide, device)};
  if (plan.rows == 0) return measured;
  const Tensor own = Slice(logits, 1, columns.begin, columns.count);
  const float* weights = WeightsOfAll(options);
  if (weights != nullptr) weights += columns.begin;
  cross_entropy_stats.Launch(
      device, {.dtype = logits.dtype(),
               .rows = plan.rows,
               .vocab = columns.count,
               .stride = logits.stride(0),
               .vocab_begin = options.vocab_begin + columns.begin,
               .logits = own.raw_data(),
               .targets = static_cast<const int64_t*>(targets.raw_data()),
               .class_weights = weights,
               .max = measured.max.raw_data(),
               .sum_exp = Select(measured.sums, 0, 0).raw_data(),
               .logit_sum = smooths ? Select(measured.sums, 0, 2).raw_data() : nullptr,
               .target_logit = Select(measured.sums, 0, 1).raw_data()});
  return measured;
}

Statistics Measure(const Tensor& logits, const Tensor& targets, const Plan& plan,
                   const CrossEntropyOptions& options, DType wide) {
  const bool smooths = options.label_smoothing != 0;
  std::vector<Measured> parts;
  if (options.tree == nullptr) {
    parts.push_back(MeasureColumns(logits, targets, plan, options, {0, plan.vocab}, wide));
  } else {
    for (const std::vector<Share>& leaf : options.tree->leaves) {
      const Share columns = leaf.empty() ? Share{0, 0} : leaf[0];
      parts.push_back(MeasureColumns(logits, targets, plan, options, columns, wide));
    }
  }
  const bool joins = plan.sharded || parts.size() > 1;
  Tensor max = parts[0].max;
  if (joins) {
    max = EmptyLike(max);
    CopyInto(max, parts[0].max);
    for (size_t i = 1; i < parts.size(); ++i) max = Maximum(max, parts[i].max);
    if (plan.sharded) options.group->AllReduce(max, ReduceOp::kMax)->Wait();
    for (const Measured& part : parts) {
      const Tensor sum_exp = Select(part.sums, 0, 0);
      CopyInto(sum_exp, Mul(sum_exp, Exp(Sub(part.max, max))));
    }
  }
  std::vector<Tensor> terms;
  for (const Measured& part : parts) terms.push_back(part.sums);
  const Tensor sums = SumOfLeaves(terms);
  if (options.tree != nullptr) {
    SumInTree(sums, options.tree->group);
  } else if (plan.sharded) {
    options.group->AllReduce(sums, ReduceOp::kSum)->Wait();
  }
  return {Add(Log(Select(sums, 0, 0)), max), Select(sums, 0, 1),
          smooths ? Select(sums, 0, 2) : Tensor()};
}

}  // namespace

Tensor CrossEntropy(const Tensor& logits, const Tensor& targets,
                    const CrossEntropyOptions& requested) {
  CrossEntropyOptions options = requested;
  if (options.class_weights.defined()) {
    options.class_weights = CopyTo(options.class_weights, logits.device());
  }
  const Plan plan = Check(logits, targets, options);
  const DType wide = AccumulateDType(logits.dtype());
  const Tensor x = AsRows(logits, plan);
  const Tensor ids = Reshape(targets.ContiguousCopy(), {plan.rows});
  const bool wants_grad = AnyRequiresGrad({logits});

  RowWeights weights;
  Tensor lse;
  Tensor losses;
  {
    const NoGrad no_grad;
    weights = Weigh(ids, plan, options, wide);
    const Statistics stats = Measure(x, ids, plan, options, wide);
    lse = stats.lse;
    // -sum_c q_c (x_c - lse). Without smoothing a class of logit -inf counts nothing.
    Tensor expected = Mul(weights.on_target, stats.target_logit);
    if (stats.logit_sum.defined()) {
      expected = Add(expected, Mul(weights.on_all, stats.logit_sum));
    }
    losses = Sub(Mul(weights.on_softmax, lse), expected);
    // An ignored row counts nothing even where its logits are infinite.
    losses = Where(weights.counts, losses, Zeros({1}, wide, x.device()));
  }

  Tensor loss;
  Tensor divisor;  // of kMean
  {
    const NoGrad no_grad;
    switch (options.reduction) {
      case LossReduction::kNone:
        loss = Reshape(losses, targets.shape());
        break;
      case LossReduction::kSum:
        loss = Sum(losses);
        break;
      case LossReduction::kMean:
        divisor = Sum(weights.counted);
        loss = Div(Sum(losses), divisor);
        break;
    }
  }
  if (!wants_grad) return loss;
  Record("cross_entropy", {logits}, {loss},
         [options, plan, weights, lse, divisor, ids, x = SavedTensor(x),
          shape = logits.shape()](GradContext& ctx) {
           const Tensor saved = x.Unpack();
           Tensor upstream = ctx.grad();
           // Where no row counts the mean is NaN and, as in PyTorch, its gradient is 0.
           if (divisor.defined()) {
             const Tensor none = Compare(divisor, 0.0, Comparison::kEqual);
             upstream = Div(upstream, Where(none, 1.0, divisor));
           }
           upstream = Reshape(upstream, {upstream.numel()});  // [1] or [rows]
           const int64_t stride = saved.stride(0);
           const Tensor dx = options.overwrite_logits
                                 ? saved
                                 : Empty({plan.rows, stride}, saved.dtype(), saved.device())
                                       .AsStrided(saved.shape(), saved.strides(), 0);
           if (plan.rows > 0) {
             const Tensor on_target = Mul(weights.on_target, upstream);
             const Tensor on_all = Mul(weights.on_all, upstream);
             const Tensor on_softmax = Mul(weights.on_softmax, upstream);
             cross_entropy_grad.Launch(saved.device(),
                                       {.dtype = saved.dtype(),
                                        .rows = plan.rows,
                                        .vocab = plan.vocab,
                                        .columns = plan.columns,
                                        .stride = stride,
                                        .vocab_begin = options.vocab_begin,
                                        .logits = saved.raw_data(),
                                        .targets = static_cast<const int64_t*>(ids.raw_data()),
                                        .class_weights = WeightsOfAll(options),
                                        .lse = lse.raw_data(),
                                        .on_target = on_target.raw_data(),
                                        .on_all = on_all.raw_data(),
                                        .on_softmax = on_softmax.raw_data(),
                                        .dx = dx.raw_data()});
           }
           dx.storage()->BumpVersion();
           const NoGrad no_grad;
           ctx.set(0, Reshape(dx, shape));
         });
  return loss;
}

}  // namespace tessera
