// SPDX-License-Identifier: Apache-2.0
// The engine that a run's configuration asks for.
#ifndef TESSERA_TRAIN_ENGINE_ENGINE_OPTIONS_H_
#define TESSERA_TRAIN_ENGINE_ENGINE_OPTIONS_H_

#include "base/status.h"
#include "dist/mesh/mesh.h"
#include "train/config/run_config.h"
#include "train/engine/engine.h"

namespace tessera::train {

StatusOr<EngineOptions> EngineOptionsOf(const RunConfig& config, const dist::Mesh& mesh);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_ENGINE_ENGINE_OPTIONS_H_
