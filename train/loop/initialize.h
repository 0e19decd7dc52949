// SPDX-License-Identifier: Apache-2.0
// An engine from a model and a configuration that users have (DeepSpeed's `initialize`).
//
//   TESSERA_ASSIGN_OR_RETURN(auto engine,
//                            Initialize("gpt2", RunSources{.deepspeed = "ds_config.json"}));
//
// The model is a preset, a folder, a function that builds one, or one that is built already. What
// the configuration says of ranks decides how layers are built and whether parameters are cut while
// they are made, so that the first three serve everywhere; one that is built must have been built
// so. Ranks are those that the process was started with, of mpirun or one alone, or the caller's.
//
// The configuration is files of ours and of other systems with flags (train/foreign/resolve_run.h),
// or a RunConfig. An engine has neither data nor reports: a key of ours that means nothing to it is
// refused by name, and one of another system's is told in `engine->warnings()`.
#ifndef TESSERA_TRAIN_LOOP_INITIALIZE_H_
#define TESSERA_TRAIN_LOOP_INITIALIZE_H_

#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/status.h"
#include "core/device.h"
#include "dist/mesh/mesh.h"
#include "models/model.h"
#include "train/config/run_config.h"
#include "train/foreign/resolve_run.h"
#include "train/loop/configured_engine.h"
#include "train/ranks/rank_model.h"

namespace tessera::train {

// Where a model comes from; each of these converts.
class ModelSource {
 public:
  ModelSource(std::string preset_or_folder) : name_(std::move(preset_or_folder)) {}
  ModelSource(const char* preset_or_folder) : name_(preset_or_folder) {}
  // Builds what the context asks for: under a pipeline, some of the blocks. Called on every rank,
  // perhaps several times, also on the meta device.
  template <std::invocable<const nn::BuildContext&> F>
  ModelSource(F build) : builder_(std::move(build)) {}
  // Stays the caller's, and outlives the engine.
  ModelSource(models::Model& built) : built_(&built) {}

  // One of the three is there, the others are nullptr.
  const std::string* name() const {
    return builder_ == nullptr && built_ == nullptr ? &name_ : nullptr;
  }
  const ModelBuilder* builder() const { return builder_ == nullptr ? nullptr : &builder_; }
  models::Model* built() const { return built_; }

 private:
  std::string name_;
  ModelBuilder builder_ = nullptr;
  models::Model* built_ = nullptr;
};

// What an engine is made with beside model and configuration.
struct InitializeOptions {
  // The ranks; nullptr: the world is opened as the process was started (dist/comm/world.h), which
  // several ranks do once: for a second engine give the first one's `mesh().world()`.
  dist::Group world = nullptr;
  // Or the ranks laid out already, as the configuration says, for a model that was built with them.
  std::optional<dist::Mesh> mesh = std::nullopt;
  std::optional<Device> device = std::nullopt;  // this rank's; nullopt: the configuration's
  Criterion criterion = nullptr;                // ConfiguredEngineSetup's
  // In place of the configuration's schedule: of step 1, 2, ...
  std::function<double(int64_t step)> learning_rate = nullptr;
};

// Collective over the world; a failure that all ranks know of is returned by all of them and marked
// (train/ranks/agreement.h).
StatusOr<std::unique_ptr<ConfiguredEngine>> Initialize(const ModelSource& model,
                                                       const RunSources& config,
                                                       const InitializeOptions& options = {});
StatusOr<std::unique_ptr<ConfiguredEngine>> Initialize(const ModelSource& model,
                                                       const RunConfig& config,
                                                       const InitializeOptions& options = {});

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_LOOP_INITIALIZE_H_
