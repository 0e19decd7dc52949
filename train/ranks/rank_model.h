// SPDX-License-Identifier: Apache-2.0
// This rank's part of a model, as a configuration lays it out over ranks: its share of the layers,
// its stage of a pipeline, its shards of parameters.
//
//   TESSERA_ASSIGN_OR_RETURN(const nn::BuildContext build, BuildContextOf(config, mesh, device));
//   TESSERA_ASSIGN_OR_RETURN(auto model, BuildRankModel(config, mesh, build,
//                                                       dist::BlocksOf(json, build),
//                                                       [&](const nn::BuildContext& part) {
//                                                         return models::BuildModel(json, part);
//                                                       }));
#ifndef TESSERA_TRAIN_RANKS_RANK_MODEL_H_
#define TESSERA_TRAIN_RANKS_RANK_MODEL_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "dist/mesh/mesh.h"
#include "dist/pipeline/partition.h"
#include "models/model.h"
#include "nlohmann/json_fwd.hpp"
#include "nn/module.h"
#include "train/config/run_config.h"

namespace tessera::train {

// Builds what a context asks for: all blocks or some, in its dtype, on its device, with its groups.
using ModelBuilder =
    std::function<StatusOr<std::unique_ptr<models::Model>>(const nn::BuildContext& build)>;

// The members of config_overrides. Fails for one that the model's configuration does not have;
// `source` is what the message calls that.
StatusOr<nlohmann::json> OverridesOf(const RunConfig& config, const nlohmann::json& model,
                                     const std::string& source);

// What layers are to be built with; on what `config.device` names where no device is given.
StatusOr<nn::BuildContext> BuildContextOf(const RunConfig& config, const dist::Mesh& mesh,
                                          const std::optional<Device>& device);

// With dropout and recomputation as the configuration says; under a pipeline a
// dist::PipelinedModel, cut by the costs of `blocks`. Collective over the mesh's world; a failure
// of any rank is every rank's (train/ranks/agreement.h).
StatusOr<std::unique_ptr<models::Model>> BuildRankModel(const RunConfig& config,
                                                        const dist::Mesh& mesh,
                                                        const nn::BuildContext& build,
                                                        const dist::BlockBuilder& blocks,
                                                        const ModelBuilder& build_part);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_RANKS_RANK_MODEL_H_
