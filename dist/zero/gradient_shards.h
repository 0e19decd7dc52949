// The gradients of flat buckets, summed over ranks while backward still runs, of which each rank
// keeps its share.
//
// What is cut alike travels as a lane: the leaves of a bucket, or one leaf of a tied parameter. A
// lane's whole gradients exist while they are collected: from the first contribution of a
// micro-batch until they have been reduced, or, where sums or the stage want it, from the first to
// the last micro-batch.
#ifndef TESSERA_DIST_ZERO_GRADIENT_SHARDS_H_
#define TESSERA_DIST_ZERO_GRADIENT_SHARDS_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/communicator.h"
#include "dist/zero/flat_bucket.h"
#include "dist/zero/zero_options.h"

namespace tessera::dist {

class GradientShards {
 public:
  // `offloaded[b]`: whether bucket b's share lies in host memory. Buckets that do not train are
  // passed over. `landed(b)` is called when the share of bucket b is whole, in Finish at the
  // latest.
  GradientShards(const std::vector<FlatBucket>& buckets, const std::vector<bool>& offloaded,
                 std::shared_ptr<Communicator> group, const ZeroOptions& options,
                 std::function<void(size_t bucket)> landed);
  ~GradientShards();
  GradientShards(const GradientShards&) = delete;
  GradientShards& operator=(const GradientShards&) = delete;

  void BeginStep(int64_t micro_batches);
  void BeginMicroBatch(int64_t m, int model);
  void Finish();

  // [share]: the sum over ranks and, where `slot` has tied leaves, uses; undefined before Finish.
  const Tensor& share(size_t bucket) const;
  // Whether a parameter has a gradient in this step, over all ranks.
  bool used(size_t bucket, size_t slot) const;
  // SharedGradients::join (dist/zero/zero_engine.h), called in Finish.
  using GetShare = std::function<Tensor(const nn::Parameter& use)>;
  using SetShare = std::function<void(const nn::Parameter& weight, const Tensor& sum)>;
  using JoinShared = std::function<void(const GetShare& get, const SetShare& set)>;
  void set_join_shared(JoinShared join) { join_shared_ = std::move(join); }

  // Gives the shares' memory back.
  void Drop();

 private:
  struct Lane;
  struct Leaf;

  bool KeepsWhole(const Lane& lane) const;
  void Arm(Lane& lane);
  void OnComplete(size_t lane, size_t leaf);
  void FillMissing(Lane& lane);
  void AddToTree(Lane& lane);
  void LaunchReady();
  void Launch(size_t lane);
  void LandOldest();
  void Land(size_t lane);
  void Keep(Lane& lane, const Tensor& chunk);
  void EndMicroBatch(int model);
  void Settle();
  void Join(size_t bucket);
  void SumPartial();
  void JoinOverStages();
  Lane& LaneOf(const nn::Parameter& use);

  const std::vector<FlatBucket>& buckets_;
  const std::shared_ptr<Communicator> group_;
  const ZeroOptions options_;
  const std::function<void(size_t)> landed_;
  JoinShared join_shared_;
  std::vector<Lane> lanes_;                    // in the order in which gradients come
  std::vector<std::vector<size_t>> lanes_of_;  // by bucket: its leaves', then the tied ones'
  std::vector<std::vector<size_t>> lanes_by_model_;
  std::vector<int64_t> micro_batch_;  // by model
  std::vector<size_t> launched_;      // by model: of lanes_by_model_
  std::deque<size_t> under_way_;
  int64_t micro_batches_ = 0;
  bool in_step_ = false;
};

}  // namespace tessera::dist

#endif  // TESSERA_DIST_ZERO_GRADIENT_SHARDS_H_
