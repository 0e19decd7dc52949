// SPDX-License-Identifier: Apache-2.0
#include "nn/relative_position.h"

#include <algorithm>
#include <cmath>

#include "ops/index/index.h"
#include "ops/view/view.h"

namespace tessera::nn {
namespace {

Placement HeadPlacement(const RelativePositionBiasConfig& config, const Group& group) {
  const Shape shape = {config.num_buckets, config.num_heads};
  if (group == nullptr) return Placement::Whole(shape);
  const Share heads = EvenShare(config.num_heads, group->size(), group->rank());
  return Placement::Split(shape, 1, {{config.num_heads, heads.begin, heads.count}});
}

}  // namespace

int64_t RelativePositionBucket(int64_t relative_position,
                               const RelativePositionBiasConfig& config) {
  int64_t buckets = config.num_buckets;
  int64_t bucket = 0;
  int64_t distance = -relative_position;
  if (config.bidirectional) {
    buckets /= 2;
    if (relative_position > 0) bucket = buckets;
    distance = std::abs(relative_position);
  }
  distance = std::max<int64_t>(distance, 0);
  const int64_t exact = buckets / 2;
  if (distance < exact) return bucket + distance;
  // In float32, as the original computes it: a distance on a border stays in its bucket.
  const float ratio = std::log(static_cast<float>(distance) / static_cast<float>(exact)) /
                      static_cast<float>(std::log(static_cast<double>(config.max_distance) /
                                                  static_cast<double>(exact)));
  const auto grown = exact + static_cast<int64_t>(ratio * static_cast<float>(buckets - exact));
  return bucket + std::min(grown, buckets - 1);
}

RelativePositionBias::RelativePositionBias(const RelativePositionBiasConfig& config,
                                           const Scope& scope)
    : Module(scope),
      config_(config),
      weight_(AddParameter("weight", HeadPlacement(config, build().tensor_parallel), config.init)) {
  weight_.table = true;
}

Tensor RelativePositionBias::Forward(int64_t queries, int64_t keys) const {
  return Forward({SequenceRun{0, queries}}, keys);
}

Tensor RelativePositionBias::Forward(const std::vector<SequenceRun>& queries, int64_t keys) const {
  return Call(weight_.tensor, [&] { return LookUp(weight_.tensor, {queries}, keys); });
}

Tensor RelativePositionBias::Forward(const std::vector<int64_t>& begins, int64_t queries,
                                     int64_t keys) const {
  Rows rows;
  for (const int64_t begin : begins) rows.push_back({{begin, queries}});
  return Call(weight_.tensor, [&] { return LookUp(weight_.tensor, rows, keys); });
}

Tensor RelativePositionBias::LookUp(const Tensor& table, const Rows& rows, int64_t keys) const {
  int64_t farthest = 0;
  for (const auto& runs : rows) {
    for (const SequenceRun& run : runs) farthest = std::max(farthest, run.begin + run.count);
  }
  const Tensor buckets_BTS =
      Empty({std::ssize(rows), RunTokens(rows.front()), keys}, DType::kInt64);
  // By distance: of[farthest + s - t].
  std::vector<int64_t> of;
  for (int64_t d = -farthest; d < keys; ++d) of.push_back(RelativePositionBucket(d, config_));
  int64_t* bucket = buckets_BTS.data<int64_t>();
  for (const auto& runs : rows) {
    for (const SequenceRun& run : runs) {
      for (int64_t t = run.begin; t < run.begin + run.count; ++t, bucket += keys) {
        std::copy_n(of.begin() + (farthest - t), keys, bucket);
      }
    }
  }
  const Tensor bias_BTSH = Embedding(table, CopyTo(buckets_BTS, build().device));
  return Permute(bias_BTSH, {0, 3, 1, 2});
}

Tensor RelativePositionBias::ForLayer(const Parameter& use, const Tensor& values,
                                      const std::vector<SequenceRun>& queries, int64_t keys) const {
  Tensor bias = values.Detach();
  if (!AnyRequiresGrad({use.tensor})) return bias;
  Record("relative_position_bias", {use.tensor}, {bias},
         [this, table = use.tensor.Detach(), queries, keys](GradContext& ctx) {
           // The look-up once more: its own gradient function sums over the distances. It asks for
           // no weights, which may not be gathered now.
           const NoGrad record(/*enabled=*/true);
           const Tensor leaf = RequireGrad(ZerosLike(table));
           Backward({LookUp(leaf, {queries}, keys)}, {ctx.grad()});
           ctx.set(0, Grad(leaf));
         });
  return bias;
}

}  // namespace tessera::nn
