// SPDX-License-Identifier: Apache-2.0
#include "nn/low_rank.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "nn/embedding.h"
#include "nn/linear.h"
#include "nn/sequence_share.h"
#include "nn/weight.h"
#include "ops/cast/cast.h"
#include "ops/elementwise/elementwise.h"
#include "ops/matmul/low_rank_linear.h"
#include "ops/matmul/product.h"
#include "ops/reduction/reduction.h"
#include "ops/view/view.h"

namespace tessera::nn {
namespace {

int OutDim(LinearLayout layout) { return layout == LinearLayout::kOutIn ? 0 : 1; }
int InDim(LinearLayout layout) { return 1 - OutDim(layout); }

// Else its outputs, where it is cut at all. A table's inputs are its rows.
bool SplitsInputs(const Module& layer, const Parameter& weight) {
  return weight.placement.is_split() && (layer.looks_up() || layer.kind() == "RowParallelLinear");
}

// Of a matrix [features, rank], or [rank, features] with `at` 1, whose features lie as those of the
// weight along `dim`.
Placement Beside(const Placement& weight, int dim, int64_t rank, int at, bool split) {
  const auto shape = [&](int64_t features, int64_t other) {
    return at == 0 ? Shape{features, other} : Shape{other, features};
  };
  if (!split) return Placement::Whole(shape(weight.global_shape()[dim], rank));
  std::vector<BoxMapping> boxes;
  for (const BoxMapping& box : weight.boxes()) {
    boxes.push_back({{shape(box.global.begin[dim], 0), shape(box.global.size[dim], rank)},
                     shape(box.local_begin[dim], 0)});
  }
  return {shape(weight.global_shape()[dim], rank), shape(weight.local_shape()[dim], rank),
          std::move(boxes)};
}

// The same of a vector of the outputs.
Placement OfOutputs(const Placement& weight, int dim, bool split) {
  if (!split) return Placement::Whole({weight.global_shape()[dim]});
  std::vector<BoxMapping> boxes;
  for (const BoxMapping& box : weight.boxes()) {
    boxes.push_back({{{box.global.begin[dim]}, {box.global.size[dim]}}, {box.local_begin[dim]}});
  }
  return {{weight.global_shape()[dim]}, {weight.local_shape()[dim]}, std::move(boxes)};
}

Init BeginOf(const LowRankConfig& config, const Module& layer, const Parameter& weight,
             LinearLayout layout) {
  if (layer.looks_up() || config.a_init.kind != Init::Kind::kZeros) return config.a_init;
  const auto inputs = static_cast<double>(weight.placement.global_shape()[InDim(layout)]);
  return Init::Uniform(1.0 / std::sqrt(inputs));
}

// The layer's own; but its numbers may have come from files.
std::shared_ptr<const BuildContext> BuildOf(const Module& layer) {
  BuildContext build = layer.build();
  build.initialise = true;
  build.storage_of = nullptr;
  build.form_of = nullptr;
  return std::make_shared<const BuildContext>(std::move(build));
}

Tensor Base(const Parameter& weight, const WeightForm* base, LinearLayout layout, const Tensor& x,
            const Tensor& bias, const ForwardContext& context) {
  return base == nullptr ? Linear(x, LeafOf(weight), bias, layout, weight.trees)
                         : base->Multiply(weight, layout, x, bias, context);
}

DType WideOf(const Tensor& t) {
  return t.dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
}

// W + scale B A, in the weight's shape and at least float32.
Tensor SumOf(const Tensor& weight, LinearLayout layout, const Tensor& a, const Tensor& b,
             double scale) {
  const DType wide = WideOf(weight);
  const Tensor a_RI = Cast(a, wide);
  const Tensor b_OR = Cast(b, wide);
  const Tensor product =
      layout == LinearLayout::kOutIn
          ? Linear(b_OR, a_RI, {}, LinearLayout::kInOut)
          : Linear(Contiguous(Transpose(a_RI, 0, 1)), b_OR, {}, LinearLayout::kOutIn);
  return Add(Cast(weight, wide), Mul(product, scale));
}

}  // namespace

Tensor MergedWeight(const Tensor& weight, LinearLayout layout, const Tensor& a, const Tensor& b,
                    double scale, const Tensor& magnitude) {
  const NoGrad no_grad;
  Tensor sum = SumOf(weight, layout, a, b, scale);
  if (magnitude.defined()) {
    const Tensor norms = Sqrt(Sum(Square(sum), {InDim(layout)}));
    sum = Mul(sum, Unsqueeze(Div(Cast(magnitude, norms.dtype()), norms), InDim(layout)));
  }
  return Cast(sum, weight.dtype());
}

LowRankNames::LowRankNames(bool table, int adapter) {
  const std::string number = adapter == 0 ? "" : Concat(".", adapter);
  a = table ? "lora_embedding_A" + number : "lora_A" + number + ".weight";
  b = table ? "lora_embedding_B" + number : "lora_B" + number + ".weight";
  magnitude = "lora_magnitude_vector" + number;
}

LowRankTerm::LowRankTerm(const LowRankConfig& config, Module& layer, const Parameter& weight,
                         int adapter)
    : LowRankTerm(config, layer, weight, LowRankNames(layer.looks_up(), adapter),
                  adapter == 0 ? "" : Concat(".", adapter)) {}

LowRankTerm::LowRankTerm(const LowRankConfig& config, Module& layer, const Parameter& weight,
                         const LowRankNames& names, const std::string& suffix)
    : Module({layer.path(), &layer, BuildOf(layer)}),
      config_(config),
      layout_(layer.term_layout().value()),
      noise_path_(layer.path() + ".lora_dropout" + suffix),
      splits_inputs_(SplitsInputs(layer, weight)),
      a_(AddParameter(names.a,
                      Beside(weight.placement, InDim(layout_), config.rank, 1, splits_inputs_),
                      BeginOf(config, layer, weight, layout_))),
      b_(AddParameter(names.b,
                      Beside(weight.placement, OutDim(layout_), config.rank, 0,
                             weight.placement.is_split() && !splits_inputs_),
                      config.b_init)) {
  const bool splits_outputs = weight.placement.is_split() && !splits_inputs_;
  if (config.magnitude) {
    magnitude_ =
        &AddParameter(names.magnitude, OfOutputs(weight.placement, OutDim(layout_), splits_outputs),
                      Init::Ones());
  }
  TESSERA_CHECK(!config.subtract_start || !config.magnitude, "low_rank", path(),
                ": DoRA's magnitudes and subtract_start do not go together");
  if (config.subtract_start) {
    a_start_ = &AddParameter("lora_A_start" + suffix + ".weight", a_.placement, Init::Zeros());
    b_start_ = &AddParameter("lora_B_start" + suffix + ".weight", b_.placement, Init::Zeros());
    for (Parameter* p : {a_start_, b_start_}) {
      p->can_train = false;
      DropGrad(p->tensor);
    }
  }
  // What every rank has whole, while it sees a share of the features or of the sequence.
  const Group& group = build().tensor_parallel;
  const bool in_trees = SumsInTrees(build()) && weight.form->sums_in_trees();
  if (weight.placement.is_split()) {
    if (in_trees) return;
    (splits_inputs_ ? b_ : a_).gradient_group = group;
    if (splits_inputs_ && magnitude_ != nullptr) magnitude_->gradient_group = group;
  } else {
    for (const auto& p : own_parameters()) p->gradient_group = weight.gradient_group;
  }
}

Tensor LowRankTerm::Dropped(const Tensor& x, const Parameter& weight,
                            const ForwardContext& context) const {
  if (!context.training || config_.dropout == 0) return x;
  DropoutOptions options = {
      .p = config_.dropout,
      .key = NoiseKey(context.seed, noise_path_, context.step, context.micro_batch)};
  if (splits_inputs_) {
    const int last = x.ndim() - 1;
    const int dim = InDim(layout_);
    const auto& boxes = weight.placement.boxes();
    options.global_shape = options.begin = x.shape();
    for (int d = 0; d < last; ++d) options.begin[d] = 0;
    options.begin[last] = boxes.empty() ? 0 : boxes[0].global.begin[dim];
    options.global_shape[last] = weight.placement.global_shape()[dim];
  }
  // Rows of experts are no sequence.
  const bool sequence = x.ndim() == 3;
  return DropShare(x, options, sequence ? GatheredTokens(build(), context) : SequenceShare());
}

// A call of its own: its parameters may be gathered for it (dist/store/gathered_units.h).
Tensor LowRankTerm::Forward(const Parameter& weight, const WeightForm* base, const Tensor& x,
                            const Tensor& bias, const ForwardContext& context) const {
  return Call(x, [&] { return Product(weight, base, x, bias, context); });
}

Tensor LowRankTerm::Product(const Parameter& weight, const WeightForm* base, const Tensor& x,
                            const Tensor& bias, const ForwardContext& context) const {
  const Tensor dropped = Dropped(x, weight, context);
  const bool drops = context.training && config_.dropout > 0;
  const LinearTrees trees = base == nullptr ? weight.trees : LinearTrees{};
  if (base == nullptr && magnitude_ == nullptr && a_start_ == nullptr) {
    return LowRankLinear(
        x, LeafOf(weight), bias, layout_,
        {drops ? dropped : Tensor(), LeafOf(a_), LeafOf(b_), config_.scale, trees});
  }
  const auto product = [&](const Tensor& in, const Parameter& a, const Parameter& b) {
    const Tensor low = Mul(
        Linear(in, LeafOf(a), {}, LinearLayout::kOutIn, {.inputs = trees.inputs}), config_.scale);
    return Linear(low, LeafOf(b), {}, LinearLayout::kOutIn, {.outputs = trees.outputs});
  };
  Tensor term = product(dropped, a_, b_);
  if (a_start_ != nullptr) term = Sub(term, product(x, *a_start_, *b_start_));
  if (magnitude_ == nullptr) return Add(Base(weight, base, layout_, x, bias, context), term);
  TESSERA_CHECK(base == nullptr, "low_rank", path(), ": DoRA needs the weight's own numbers");
  const Tensor gain = Gain(weight);
  // What is dropped is dropped on its way to all that training changes, as PEFT has it.
  const Tensor plain = Linear(dropped, LeafOf(weight), {}, layout_, trees);
  const Tensor y = drops ? Add(Add(Linear(x, LeafOf(weight), {}, layout_, trees),
                                   Mul(plain, Affine(gain, 1.0, -1.0))),
                               Mul(term, gain))
                         : Mul(Add(plain, term), gain);
  return bias.defined() ? Add(y, bias) : y;
}

Tensor LowRankTerm::LookUp(const Parameter& table, const WeightForm* base, const Tensor& ids,
                           const EmbeddingOptions& options, const ForwardContext& context) const {
  return Call(ids, [&] {
    const bool in_trees = SumsInTrees(build()) && base == nullptr;
    const auto whole = [&](const Tensor& own) {
      return in_trees ? ReduceFromGroup(own, table.part_group) : own;
    };
    const Tensor rows = whole(base == nullptr ? Embedding(table.tensor, ids, options)
                                              : base->LookUp(table, ids, options, context));
    const Tensor a_VR = Contiguous(Transpose(a_.tensor, 0, 1));
    const Tensor low = Mul(whole(Embedding(a_VR, ids, options)), config_.scale);
    const Tensor y = Add(rows, Linear(low, b_.tensor, {}, LinearLayout::kOutIn));
    if (magnitude_ == nullptr) return y;
    TESSERA_CHECK(base == nullptr, "low_rank", path(), ": DoRA needs the weight's own numbers");
    return Mul(y, Gain(table));
  });
}

Tensor LowRankTerm::Gain(const Parameter& weight) const {
  return Div(LeafOf(*magnitude_), Cast(RowNorms(weight), magnitude_->tensor.dtype()));
}

Tensor LowRankTerm::RowNorms(const Parameter& weight) const {
  const NoGrad no_grad;
  const Tensor sum =
      SumOf(weight.tensor.Detach(), layout_, a_.tensor.Detach(), b_.tensor.Detach(), config_.scale);
  Tensor squares = Square(sum);
  if (weight.trees.inputs != nullptr) {  // a sum over features is a product with ones
    if (layout_ == LinearLayout::kInOut) squares = Transpose(squares, 0, 1);
    const Tensor ones = Full({squares.size(1), 1}, 1.0, squares.dtype(), squares.device());
    return Sqrt(Select(TreeProduct(squares, ones, *weight.trees.inputs), 1, 0));
  }
  squares = Sum(squares, {InDim(layout_)});
  if (splits_inputs_) squares = ReduceFromGroup(squares, build().tensor_parallel);
  return Sqrt(squares);
}

void LowRankTerm::Begin(const Parameter& weight) {
  if (magnitude_ == nullptr || weight.elsewhere || weight.tensor.device().is_meta()) return;
  const NoGrad no_grad;
  const Tensor norms = Cast(RowNorms(weight), magnitude_->tensor.dtype());
  Write(*magnitude_, [&] { CopyInto(magnitude_->tensor.Detach(), norms); });
}

void LowRankTerm::StartWith(const Tensor& a, const Tensor& b) {
  TESSERA_CHECK(a_start_ != nullptr, "low_rank", path(), ": has no first values of its own");
  const NoGrad no_grad;
  const auto set = [&](Parameter& p, const Tensor& whole) {
    Write(p, [&] {
      const Tensor there = CopyTo(CastCopy(whole, p.tensor.dtype()), p.tensor.device());
      CopyGlobalToLocal(p.placement, there, p.tensor.Detach());
    });
  };
  set(a_, a);
  set(b_, b);
  set(*a_start_, a);
  set(*b_start_, b);
}

Parameter* LowRankTerm::StartOf(const Parameter& own) const {
  if (&own == &a_) return a_start_;
  return &own == &b_ ? b_start_ : nullptr;
}

// Of a parameter that may be cut over ranks.
void LowRankTerm::Write(Parameter& p, const std::function<void()>& write) const {
  if (build().around_loading) {
    build().around_loading(p, write);
  } else {
    write();
  }
}

AdaptedWeight& AdaptedWeight::Of(Module& layer) {
  TESSERA_CHECK(layer.term_layout().has_value(), "low_rank", "'", layer.path(),
                "' is neither a linear layer nor an embedding");
  const auto& own = layer.own_parameters();
  const auto weight = std::find_if(
      own.begin(), own.end(), [&](const auto& p) { return p->name == layer.path() + ".weight"; });
  TESSERA_CHECK(weight != own.end(), "low_rank", "'", layer.path(), "' has no weight");
  // Forms are const for those who multiply by them; this one was made below.
  const WeightForm* const form = (*weight)->form.get();
  const AdaptedWeight* const now = form == nullptr ? nullptr : form->adapted();
  if (now != nullptr) return const_cast<AdaptedWeight&>(*now);
  auto made = std::shared_ptr<AdaptedWeight>(new AdaptedWeight(layer, **weight));
  AdaptedWeight& adapted = *made;
  (*weight)->form = std::move(made);
  return adapted;
}

LowRankTerm& AdaptedWeight::AddTerm(int adapter, const LowRankConfig& config) {
  TESSERA_CHECK(adapter >= 0 && term(adapter) == nullptr, "low_rank", "'", weight_.name,
                "' has a term of adapter ", adapter, " already");
  auto made = std::make_unique<LowRankTerm>(config, layer_, weight_, adapter);
  if (terms_.size() <= static_cast<size_t>(adapter)) {
    terms_.resize(static_cast<size_t>(adapter) + 1);
  }
  return *(terms_[static_cast<size_t>(adapter)] = std::move(made));
}

LowRankTerm* AdaptedWeight::term(int adapter) {
  return const_cast<LowRankTerm*>(std::as_const(*this).term(adapter));
}

const LowRankTerm* AdaptedWeight::term(int adapter) const {
  const bool known = adapter >= 0 && static_cast<size_t>(adapter) < terms_.size();
  return known ? terms_[static_cast<size_t>(adapter)].get() : nullptr;
}

Tensor AdaptedWeight::Multiply(const Parameter& weight, LinearLayout layout, const Tensor& x,
                               const Tensor& bias, const ForwardContext& context) const {
  const LowRankTerm* const own = term(context.adapter);
  return own == nullptr ? Base(weight, base_.get(), layout, x, bias, context)
                        : own->Forward(weight, base_.get(), x, bias, context);
}

Tensor AdaptedWeight::LookUp(const Parameter& table, const Tensor& ids,
                             const EmbeddingOptions& options, const ForwardContext& context) const {
  const LowRankTerm* const own = term(context.adapter);
  if (own != nullptr) return own->LookUp(table, base_.get(), ids, options, context);
  if (base_ != nullptr) return base_->LookUp(table, ids, options, context);
  const Tensor rows = Embedding(table.tensor, ids, options);
  return SumsInTrees(layer_.build()) ? ReduceFromGroup(rows, table.part_group) : rows;
}

}  // namespace tessera::nn
