// SPDX-License-Identifier: Apache-2.0
// From a configuration to what the trainer needs: tokenizer, data and model.
//
//   TESSERA_ASSIGN_OR_RETURN(const dist::Mesh mesh, MakeMesh(config, world));
//   TESSERA_ASSIGN_OR_RETURN(RunSetup setup, PrepareRun(config, mesh));
//
// `model` is a preset (random weights) or a folder (its weights are loaded when it has any). What
// `data` is depends on the task (train/task.h); what is made of it goes to `<out>/data/` and is
// reused on the next start. A preset takes the tokenizer's vocabulary and the data's labels; a
// folder's model that is trained whole gets rows for words of the tokenizer that it lacks. In a
// parallel run one rank of each host makes the data, and the others map the same files.
#ifndef TESSERA_TRAIN_RUN_RUN_SETUP_H_
#define TESSERA_TRAIN_RUN_RUN_SETUP_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json_member.h"
#include "base/status.h"
#include "data/dataset/dataset.h"
#include "data/tokenizer/tokenizer.h"
#include "dist/mesh/mesh.h"
#include "models/model.h"
#include "ops/quantized/quant_type.h"
#include "train/config/run_config.h"
#include "train/run/run_lock.h"
#include "train/task.h"

namespace tessera::train {

struct RunSetup {
  std::unique_ptr<models::Model> model;  // this rank's part; of a pipeline a dist::PipelinedModel
  std::unique_ptr<data::Tokenizer> tokenizer;  // null where the task needs none
  const TaskKind* task = nullptr;
  TaskData data;
  // The configuration with what was left to the model and the data filled in (task, seq_len).
  RunConfig config;
  int64_t parameter_count = 0;        // of the whole model, whoever holds it
  std::vector<std::string> warnings;  // one line each
  // Rank 0's on `config.out`: while this lives, no other process works there.
  std::optional<RunLock> lock;
};

// The ranks as the configuration lays them out. Fails, on all ranks alike, where the sizes do not
// fit the world, or where a rank was started with another configuration: that rank and the key are
// named. Collective over `world`.
StatusOr<dist::Mesh> MakeMesh(const RunConfig& config, const dist::Group& world);

// A run whose data are open and whose model is described, for any number of ranks in one process
// (train/plan/plan.h).
struct OpenedRun {
  std::shared_ptr<const RunSetup> setup;  // without a model
  JsonMember model;                       // its configuration
  // A rank's part of the model. Collective over the mesh's world; one rank at a time.
  std::function<StatusOr<std::unique_ptr<models::Model>>(const dist::Mesh& mesh,
                                                         const Device& device)>
      build;
};

// Asked on rank 0 before the model's memory is taken (train/plan/memory_check.h).
using BeforeModel = std::function<Status(const OpenedRun& run)>;

// The files and folders that a run reads: its data, and what it begins with. No output may be one
// of them (base/output_files.h). A name that is no path is there, too.
std::vector<std::string> PathsRead(const RunConfig& config);

// On this rank's `device` (dist::World has it); without one, on what `config.device` names.
// Collective over the mesh's world; a failure of any rank is every rank's
// (train/ranks/agreement.h).
StatusOr<RunSetup> PrepareRun(const RunConfig& config, const dist::Mesh& mesh = {},
                              const std::optional<Device>& device = std::nullopt,
                              const BeforeModel& before = nullptr);

// `cache` is where what is made of the data goes. Neither the run's directory nor this process's
// threads are touched.
StatusOr<OpenedRun> OpenRun(const RunConfig& config, const std::string& cache);

// What PrepareEvaluation is told beside the configuration.
struct EvaluationSetup {
  std::string cache;        // where the tokenised data go
  bool prediction = false;  // the data need no labels, and the task predicts
  std::optional<QuantType> quantize = std::nullopt;  // models::LoadOptions::quantize
};
// The same in one process for a look at `config.data` (`tessera eval`, `tessera predict`):
// data.validation is all of it, and the model must have weights.
StatusOr<RunSetup> PrepareEvaluation(const RunConfig& config, const nn::BuildContext& build,
                                     const EvaluationSetup& evaluation);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_RUN_RUN_SETUP_H_
