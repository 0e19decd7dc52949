// SPDX-License-Identifier: Apache-2.0
#include "nn/linear.h"

#include "autograd/autograd.h"
#include "nn/weight.h"
#include "ops/elementwise/elementwise.h"

namespace tessera::nn {
namespace {

int RankOf(const Group& group) { return group == nullptr ? 0 : group->rank(); }
int SizeOf(const Group& group) { return group == nullptr ? 1 : group->size(); }

// Those of the dim that is cut, which has so many features.
std::vector<FeatureBlock> BlocksOf(const LinearConfig& config, int64_t features) {
  return config.blocks.empty() ? std::vector<FeatureBlock>{{features}} : config.blocks;
}

Share ShareOf(const FeatureBlock& block, const Group& group) {
  TESSERA_CHECK(block.features % block.unit == 0, "linear", block.features,
                " features do not consist of units of ", block.unit);
  const Share units = EvenShare(block.features / block.unit, SizeOf(group), RankOf(group));
  return {units.begin * block.unit, units.count * block.unit};
}

// The pieces of each block that this rank holds.
std::vector<Placement::Piece> Pieces(const LinearConfig& config, int64_t features,
                                     const Group& group) {
  std::vector<Placement::Piece> pieces;
  for (const FeatureBlock& block : BlocksOf(config, features)) {
    const Share share = ShareOf(block, group);
    pieces.push_back({block.features, share.begin, share.count});
  }
  return pieces;
}

enum class SplitBy { kNone, kOutputs, kInputs };

Placement WeightPlacement(const LinearConfig& config, SplitBy split, const Group& group) {
  const bool out_in = config.layout == LinearLayout::kOutIn;
  const Shape shape = out_in ? Shape{config.out_features, config.in_features}
                             : Shape{config.in_features, config.out_features};
  if (split == SplitBy::kNone) return Placement::Whole(shape);
  const bool outputs = split == SplitBy::kOutputs;
  return Placement::Split(
      shape, outputs == out_in ? 0 : 1,
      Pieces(config, outputs ? config.out_features : config.in_features, group));
}

Tensor OrUndefined(const Parameter* p) { return p == nullptr ? Tensor() : p->tensor; }

// x, as a tensor of its own in the graph. The gradients of this one's uses are summed first, and
// their sum is added to the gradients of x's other uses. Gathered shares of x are summed in the
// same order.
Tensor SeparateUse(const Tensor& x) {
  if (!AnyRequiresGrad({x})) return x;
  Tensor y = x.Detach();
  Record("separate_use", {x}, {y}, [](GradContext& ctx) { ctx.set(0, ctx.grad()); });
  return y;
}

}  // namespace

std::shared_ptr<const SumTree> TreeOver(const std::vector<FeatureBlock>& blocks,
                                        const BuildContext& build) {
  if (!SumsInTrees(build)) return nullptr;
  std::vector<SumBlock> own;
  for (const FeatureBlock& block : blocks) {
    const int64_t leaf = block.leaf > 0 ? block.leaf : block.unit;
    own.push_back({ShareOf(block, build.tensor_parallel).count / leaf, leaf});
  }
  return MakeSumTree(own, build.tensor_parallel);
}

Tensor GatherForColumns(const Tensor& x, const ForwardContext& context, const BuildContext& build) {
  const Group& group = build.tensor_parallel;
  if (SumsInTrees(build)) {
    return build.sequence_parallel ? GatherFromGroup(x, 1, context.sequence_length, group)
                                   : SeparateUse(x);
  }
  return build.sequence_parallel ? AllGatherToGroup(x, 1, context.sequence_length, group)
                                 : CopyToGroup(x, group);
}

Tensor InputOf(const Parameter& weight, const Tensor& whole, const BuildContext& build) {
  return SumsRanks(weight) || !SumsInTrees(build) ? whole : CopyToGroup(whole, weight.part_group);
}

Tensor JoinRows(const Tensor& y, const BuildContext& build) {
  const Group& group = build.tensor_parallel;
  if (SumsInTrees(build)) return build.sequence_parallel ? ScatterToGroup(y, 1, group) : y;
  return build.sequence_parallel ? ReduceScatterToGroup(y, 1, group) : ReduceFromGroup(y, group);
}

ColumnParallelLinear::ColumnParallelLinear(const LinearConfig& config, const Scope& scope)
    : Module(scope),
      config_(config),
      weight_(AddParameter("weight",
                           WeightPlacement(config, SplitBy::kOutputs, build().tensor_parallel),
                           config.weight_init)) {
  weight_.trees.outputs = TreeOver(BlocksOf(config, config.out_features), build());
  if (!config.bias) return;
  bias_ =
      &AddParameter("bias",
                    Placement::Split({config.out_features}, 0,
                                     Pieces(config, config.out_features, build().tensor_parallel)),
                    config.bias_init);
}

Tensor ColumnParallelLinear::Forward(const Tensor& x, const ForwardContext& context) const {
  return Call(x, [&] { return Product(Gather(x, context), context); });
}

Gelued ColumnParallelLinear::ForwardGelu(const Tensor& x, const ForwardContext& context) const {
  return Call(x, [&] {
    return LinearGelu(Gather(x, context), weight_.tensor, OrUndefined(bias_), config_.layout);
  });
}

Tensor ColumnParallelLinear::Gather(const Tensor& x, const ForwardContext& context) const {
  return GatherForColumns(x, context, build());
}

Tensor ColumnParallelLinear::ForwardGathered(const Tensor& whole,
                                             const ForwardContext& context) const {
  return Call(whole, [&] { return Product(whole, context); });
}

Tensor ColumnParallelLinear::Product(const Tensor& whole, const ForwardContext& context) const {
  return Multiply(weight_, config_.layout, InputOf(weight_, whole, build()), OrUndefined(bias_),
                  context);
}

RowParallelLinear::RowParallelLinear(const LinearConfig& config, const Scope& scope)
    : Module(scope),
      config_(config),
      weight_(AddParameter("weight",
                           WeightPlacement(config, SplitBy::kInputs, build().tensor_parallel),
                           config.weight_init)) {
  weight_.trees.inputs = TreeOver(BlocksOf(config, config.in_features), build());
  if (!config.bias) return;
  bias_ = &AddParameter("bias", Placement::Whole({config.out_features}), config.bias_init);
  const bool sees_share = build().sequence_parallel && !SumsInTrees(build());
  if (sees_share) bias_->gradient_group = build().tensor_parallel;
}

Tensor RowParallelLinear::Forward(const Tensor& x, const ForwardContext& context) const {
  return Call(x, [&] { return Joined(Product(x, OwnBias(), context)); });
}

Tensor RowParallelLinear::ForwardPartial(const Tensor& x, const ForwardContext& context) const {
  return Call(x, [&] { return Product(x, Tensor(), context); });
}

Tensor RowParallelLinear::Product(const Tensor& x, const Tensor& bias,
                                  const ForwardContext& context) const {
  const Tensor y = Multiply(weight_, config_.layout, x, bias, context);
  return SumsRanks(weight_) || !SumsInTrees(build()) ? y : ReduceFromGroup(y, weight_.part_group);
}

Tensor RowParallelLinear::ForwardGelu(const Gelued& x) const {
  return Call(x.input(),
              [&] { return Joined(LinearOfGelu(x, weight_.tensor, OwnBias(), config_.layout)); });
}

Tensor RowParallelLinear::OwnBias() const {
  const bool whole =
      SizeOf(build().tensor_parallel) == 1 || (SumsInTrees(build()) && SumsRanks(weight_));
  return whole ? OrUndefined(bias_) : Tensor();
}

Tensor RowParallelLinear::Joined(const Tensor& y) const {
  const bool adds = bias_ != nullptr && !OwnBias().defined();
  if (SumsInTrees(build())) return JoinRows(adds ? Add(y, bias_->tensor) : y, build());
  const Tensor sum = JoinRows(y, build());
  return adds ? Add(sum, bias_->tensor) : sum;
}

ReplicatedLinear::ReplicatedLinear(const LinearConfig& config, const Scope& scope)
    : Module(scope),
      config_(config),
      weight_(AddParameter("weight", WeightPlacement(config, SplitBy::kNone, nullptr),
                           config.weight_init)) {
  if (config.bias) {
    bias_ = &AddParameter("bias", Placement::Whole({config.out_features}), config.bias_init);
  }
  if (!config.on_sequence_share || !build().sequence_parallel || SumsInTrees(build())) return;
  for (const auto& p : own_parameters()) p->gradient_group = build().tensor_parallel;
}

Tensor ReplicatedLinear::Forward(const Tensor& x, const ForwardContext& context) const {
  return Call(x, [&] {
    const auto product = [&](const Tensor& in) {
      return Multiply(weight_, config_.layout, in, OrUndefined(bias_), context);
    };
    const bool on_share = config_.on_sequence_share && build().sequence_parallel;
    if (!on_share || !SumsInTrees(build())) return product(x);
    // Sums over tokens are those of all of them, on every rank.
    const Group& group = build().tensor_parallel;
    return ScatterToGroup(product(GatherFromGroup(x, 1, context.sequence_length, group)), 1, group);
  });
}

}  // namespace tessera::nn
