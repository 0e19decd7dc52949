// SPDX-License-Identifier: Apache-2.0
// Every data-parallel rank holds all parameters of its part of the model and all states of the
// optimizer; gradients are summed in flat buckets, whose views they are.
#ifndef TESSERA_DIST_STORE_REPLICATED_PARAMETERS_H_
#define TESSERA_DIST_STORE_REPLICATED_PARAMETERS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dist/store/gradient_lanes.h"
#include "dist/store/store_policy.h"

namespace tessera::dist {

class ReplicatedParameters final : public StorePolicy {
 public:
  ReplicatedParameters(const StoreContents& contents, const OptimizerFactory& make_optimizer,
                       const ZeroOptions& options);

  optim::Optimizer& optimizer() override { return *optimizer_; }
  void BeginStep(int64_t micro_batches, const std::optional<optim::StepInputs>& inputs) override;
  void BeginMicroBatch(int64_t m, int model) override;
  void FinishGradients() override;
  void Step(const optim::StepInputs& inputs) override;
  void AbandonStep() override;
  void AppendTensors(std::vector<CheckpointTensor>* entries) override;
  void Loaded(bool with_states) override;
  bool cuts_gradients() const override { return false; }
  std::vector<Tensor> Gradients() override;
  std::vector<std::vector<std::string>> BucketNames() const override;

 private:
  // A leaf, in the order of the models.
  struct Leaf {
    std::string name;
    Tensor leaf;
    std::shared_ptr<Communicator> ranks;  // that hold it
    int model;
  };
  void FindLeaves();
  std::vector<LaneLayout> LayOut() const;
  void MakeLanes();
  void HandOver();
  void CompareOverRanks() const;
  void FollowFirstStep();

  const StoreContents& contents_;
  const ZeroOptions options_;
  std::vector<Leaf> leaves_;
  std::vector<size_t> order_;  // in which leaves are put into lanes
  std::unique_ptr<optim::Optimizer> optimizer_;
  // nullptr: one process accumulates in order, where the gradients are.
  std::unique_ptr<GradientLanes> lanes_;
  bool follows_first_step_;
};

}  // namespace tessera::dist

#endif  // TESSERA_DIST_STORE_REPLICATED_PARAMETERS_H_
