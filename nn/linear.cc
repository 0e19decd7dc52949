// SPDX-License-Identifier: Apache-2.0
#include "nn/linear.h"

#include "nn/weight.h"
#include "ops/elementwise/elementwise.h"

namespace tessera::nn {
namespace {

int RankOf(const Group& group) { return group == nullptr ? 0 : group->rank(); }
int SizeOf(const Group& group) { return group == nullptr ? 1 : group->size(); }

// The pieces of each block that this rank holds.
std::vector<Placement::Piece> Pieces(const LinearConfig& config, int64_t features,
                                     const Group& group) {
  std::vector<FeatureBlock> blocks = config.blocks;
  if (blocks.empty()) blocks.push_back({features});
  std::vector<Placement::Piece> pieces;
  for (const FeatureBlock& block : blocks) {
    TESSERA_CHECK(block.features % block.unit == 0, "linear", block.features,
                  " features do not consist of units of ", block.unit);
    const Share share = EvenShare(block.features / block.unit, SizeOf(group), RankOf(group));
    pieces.push_back({block.features, share.begin * block.unit, share.count * block.unit});
  }
  return pieces;
}

enum class Split { kNone, kOutputs, kInputs };

Placement WeightPlacement(const LinearConfig& config, Split split, const Group& group) {
  const bool out_in = config.layout == LinearLayout::kOutIn;
  const Shape shape = out_in ? Shape{config.out_features, config.in_features}
                             : Shape{config.in_features, config.out_features};
  if (split == Split::kNone) return Placement::Whole(shape);
  const bool outputs = split == Split::kOutputs;
  return Placement::Split(
      shape, outputs == out_in ? 0 : 1,
      Pieces(config, outputs ? config.out_features : config.in_features, group));
}

Tensor OrUndefined(const Parameter* p) { return p == nullptr ? Tensor() : p->tensor; }

}  // namespace

ColumnParallelLinear::ColumnParallelLinear(const LinearConfig& config, const Scope& scope)
    : Module(scope),
      config_(config),
      weight_(AddParameter("weight",
                           WeightPlacement(config, Split::kOutputs, build().tensor_parallel),
                           config.weight_init)) {
  if (!config.bias) return;
  bias_ =
      &AddParameter("bias",
                    Placement::Split({config.out_features}, 0,
                                     Pieces(config, config.out_features, build().tensor_parallel)),
                    config.bias_init);
}

Tensor ColumnParallelLinear::Forward(const Tensor& x, const ForwardContext& context) const {
  return Call(x, [&] {
    return Multiply(weight_, config_.layout, Gather(x, context), OrUndefined(bias_), context);
  });
}

Gelued ColumnParallelLinear::ForwardGelu(const Tensor& x, const ForwardContext& context) const {
  return Call(x, [&] {
    return LinearGelu(Gather(x, context), weight_.tensor, OrUndefined(bias_), config_.layout);
  });
}

Tensor ColumnParallelLinear::Gather(const Tensor& x, const ForwardContext& context) const {
  const Group& group = build().tensor_parallel;
  return build().sequence_parallel ? AllGatherToGroup(x, 1, context.sequence_length, group)
                                   : CopyToGroup(x, group);
}

Tensor ColumnParallelLinear::ForwardGathered(const Tensor& whole,
                                             const ForwardContext& context) const {
  return Call(
      whole, [&] { return Multiply(weight_, config_.layout, whole, OrUndefined(bias_), context); });
}

RowParallelLinear::RowParallelLinear(const LinearConfig& config, const Scope& scope)
    : Module(scope),
      config_(config),
      weight_(AddParameter("weight",
                           WeightPlacement(config, Split::kInputs, build().tensor_parallel),
                           config.weight_init)) {
  if (!config.bias) return;
  bias_ = &AddParameter("bias", Placement::Whole({config.out_features}), config.bias_init);
  if (build().sequence_parallel) bias_->gradient_group = build().tensor_parallel;
}

Tensor RowParallelLinear::Forward(const Tensor& x, const ForwardContext& context) const {
  return Call(x, [&] { return Joined(Multiply(weight_, config_.layout, x, OwnBias(), context)); });
}

Tensor RowParallelLinear::ForwardPartial(const Tensor& x, const ForwardContext& context) const {
  return Call(x, [&] { return Multiply(weight_, config_.layout, x, Tensor(), context); });
}

Tensor RowParallelLinear::ForwardGelu(const Gelued& x) const {
  return Call(x.input(),
              [&] { return Joined(LinearOfGelu(x, weight_.tensor, OwnBias(), config_.layout)); });
}

Tensor RowParallelLinear::OwnBias() const {
  return SizeOf(build().tensor_parallel) == 1 ? OrUndefined(bias_) : Tensor();
}

Tensor RowParallelLinear::Joined(const Tensor& partial) const {
  const Group& group = build().tensor_parallel;
  if (SizeOf(group) == 1) return partial;
  const Tensor sum = build().sequence_parallel ? ReduceScatterToGroup(partial, 1, group)
                                               : ReduceFromGroup(partial, group);
  return bias_ == nullptr ? sum : Add(sum, bias_->tensor);
}

ReplicatedLinear::ReplicatedLinear(const LinearConfig& config, const Scope& scope)
    : Module(scope),
      config_(config),
      weight_(AddParameter("weight", WeightPlacement(config, Split::kNone, nullptr),
                           config.weight_init)) {
  if (config.bias) {
    bias_ = &AddParameter("bias", Placement::Whole({config.out_features}), config.bias_init);
  }
  if (!config.on_sequence_share || !build().sequence_parallel) return;
  for (const auto& p : own_parameters()) p->gradient_group = build().tensor_parallel;
}

Tensor ReplicatedLinear::Forward(const Tensor& x, const ForwardContext& context) const {
  return Call(x, [&] { return Multiply(weight_, config_.layout, x, OrUndefined(bias_), context); });
}

}  // namespace tessera::nn
