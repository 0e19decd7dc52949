// Every data-parallel rank holds all parameters of its part of the model and all states of the
// optimizer (ZeRO stage 0).
#ifndef TESSERA_TRAIN_UPDATE_REPLICATED_UPDATER_H_
#define TESSERA_TRAIN_UPDATE_REPLICATED_UPDATER_H_

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "dist/ddp/gradient_reducer.h"
#include "dist/pipeline/pipelined_model.h"
#include "train/update/updater.h"

namespace tessera::train {

class ReplicatedUpdater : public Updater {
 public:
  ReplicatedUpdater(const RunConfig& config, models::Model& model, const dist::Mesh& mesh,
                    const OptimizerMaker& make_optimizer);

  optim::Optimizer& optimizer() override { return *optimizer_; }
  void Start() override;
  void BeginStep(int64_t micro_batches) override;
  void BeginMicroBatch(int chunk, int64_t m) override;
  void FinishGradients() override;
  optim::ClipResult Clip(optim::ClipOptions options) override;
  void Step(const optim::StepInputs& inputs) override;
  std::vector<dist::CheckpointTensor> Tensors() override;

 private:
  const RunConfig config_;
  models::Model& model_;
  const dist::Mesh mesh_;
  const dist::Stage* const stage_;  // of a pipeline, if the model is one's
  std::vector<optim::Parameter> parameters_;
  std::set<std::string> replicated_;  // over tp: counted once in norms
  std::unique_ptr<optim::Optimizer> optimizer_;
  // Of each chunk; none where one process accumulates in order.
  std::vector<std::unique_ptr<dist::GradientReducer>> reducers_;
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_UPDATE_REPLICATED_UPDATER_H_
