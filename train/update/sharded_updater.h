// Optimizer states, gradients and parameters shared out over the data-parallel ranks: ZeRO stages
// 1, 2 and 3 (dist/zero/zero_engine.h).
#ifndef TESSERA_TRAIN_UPDATE_SHARDED_UPDATER_H_
#define TESSERA_TRAIN_UPDATE_SHARDED_UPDATER_H_

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "dist/pipeline/stage.h"
#include "dist/zero/zero_engine.h"
#include "train/update/updater.h"

namespace tessera::train {

class ShardedUpdater : public Updater {
 public:
  ShardedUpdater(const RunConfig& config, models::Model& model, const dist::Mesh& mesh,
                 const OptimizerMaker& make_optimizer);

  optim::Optimizer& optimizer() override { return engine_->optimizer(); }
  void Start() override { engine_->Start(); }
  void BeginStep(int64_t micro_batches) override;
  void BeginMicroBatch(int chunk, int64_t m) override { engine_->BeginMicroBatch(m, chunk); }
  void FinishGradients() override { engine_->Finish(); }
  optim::ClipResult Clip(optim::ClipOptions options) override;
  void Step(const optim::StepInputs& inputs) override;
  std::vector<dist::CheckpointTensor> Tensors() override { return engine_->CheckpointTensors(); }
  void Loaded() override { engine_->Loaded(); }
  Tensor Whole(nn::Parameter& parameter) override { return engine_->Whole(parameter); }

 private:
  const dist::Mesh mesh_;
  const dist::Stage* const stage_;  // of a pipeline, if the model is one's
  // Off-loaded states are updated while the backward pass still runs, where no factor that comes
  // after it (clipping, loss scaling) has a say.
  const bool early_;
  std::set<std::string> replicated_;  // over tp: counted once in norms
  std::unique_ptr<dist::ZeroEngine> engine_;
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_UPDATE_SHARDED_UPDATER_H_
