// SPDX-License-Identifier: Apache-2.0
// Optimizer states, gradients and parameters shared out over the data-parallel ranks: ZeRO
// (Rajbhandari et al. 2020; Zhao et al. 2023, "PyTorch FSDP").
//
// Parameters lie in flat buckets, of which each rank updates its share. Gradients of a bucket
// travel as a lane; a parameter with tied leaves has a bucket to itself and a lane for each use,
// whose shares are joined in the order of optim::JoinTiedGradients. Of weights that other stages of
// a pipeline hold too, all holders cut the gradients alike, so that shares are joined there as
// well.
#ifndef TESSERA_DIST_STORE_SHARDED_PARAMETERS_H_
#define TESSERA_DIST_STORE_SHARDED_PARAMETERS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dist/store/gathered_units.h"
#include "dist/store/gradient_lanes.h"
#include "dist/store/host_worker.h"
#include "dist/store/parameter_shard.h"
#include "dist/store/sharded_optimizer.h"
#include "dist/store/store_policy.h"

namespace tessera::dist {

class ShardedParameters final : public StorePolicy {
 public:
  // `step`: the store's, which the optimizer's Step is.
  ShardedParameters(const StoreContents& contents, const OptimizerFactory& make_optimizer,
                    const ZeroOptions& options, std::function<void(const optim::StepInputs&)> step);

  optim::Optimizer& optimizer() override { return *optimizer_; }
  void BeginStep(int64_t micro_batches, const std::optional<optim::StepInputs>& inputs) override;
  void BeginMicroBatch(int64_t m, int model) override;
  void FinishGradients() override;
  void Step(const optim::StepInputs& inputs) override;
  void AbandonStep() override;
  void AppendTensors(std::vector<CheckpointTensor>* entries) override;
  void Loaded(bool with_states) override;
  bool cuts_gradients() const override { return true; }
  std::vector<Tensor> Gradients() override;
  std::vector<std::vector<std::string>> BucketNames() const override;

  // Where parameters are cut; nullptr elsewhere.
  const GatheredUnits* units() const { return units_.get(); }

 private:
  struct Place {
    size_t bucket;
    size_t slot;
  };
  // The gradients of a bucket's leaves, or of one use of a tied parameter.
  struct Lane {
    size_t bucket;
    Tensor share;  // of the sum; with this rank's memory alone, or of the lane's
  };
  // --- Making it
  std::vector<Unit> MakeBuckets();
  void FindPlaces();
  std::vector<Tensor> Flatten();
  std::vector<Tensor> Shard(std::vector<Unit> units);
  std::vector<bool> ChooseOffloaded() const;
  void MakeLanes();
  // --- Gradients
  void Keep(size_t l, const Tensor& sum);
  bool HasLanded(size_t bucket) const;
  void SumPartial();
  void JoinOverStages();
  size_t LaneOf(const nn::Parameter& use) const;
  void Join(size_t bucket);
  void DropShare(size_t l);
  void Landed(size_t bucket);
  std::vector<Tensor> PiecesOf(size_t bucket) const;
  Tensor GradientOf(const Place& place) const;

  const StoreContents& contents_;
  const ZeroOptions options_;
  std::vector<FlatBucket> buckets_;
  std::vector<Place> places_;                            // of the parameters that train
  std::vector<bool> offloaded_;                          // by bucket
  std::vector<Tensor> flats_;                            // whole parameters, where they are not cut
  std::vector<std::shared_ptr<ParameterShard>> shards_;  // where they are
  std::unique_ptr<GatheredUnits> units_;
  std::vector<GatheredScope> persistent_;  // of parameters that stay gathered
  std::unique_ptr<ShardedOptimizer> optimizer_;

  std::unique_ptr<GradientLanes> lanes_;
  std::vector<Lane> kept_;                     // by lane
  std::vector<std::vector<size_t>> lanes_of_;  // by bucket: its leaves', then the tied ones'
  std::optional<optim::StepInputs> early_;     // of updates before the step
  std::vector<bool> updated_;                  // by bucket, early
  // Ends before what it works on.
  std::unique_ptr<HostWorker> worker_;
};

}  // namespace tessera::dist

#endif  // TESSERA_DIST_STORE_SHARDED_PARAMETERS_H_
