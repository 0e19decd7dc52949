// SPDX-License-Identifier: Apache-2.0
// What a preference run holds on to: log-probabilities of its pairs under a model that does not
// train, found once before it does.
//
//   TESSERA_RETURN_IF_ERROR(JudgePreferences(config, data, model, mesh));
//   // batches of data.train and data.validation now have keys::kReferenceLogProbabilities
//
// That model is the run's own as it begins, without its adapter (nn::ForwardContext::kNoAdapter),
// so that no second one takes memory; or that of the folder `data.reference_model`, which is laid
// out over the ranks as the run's and is gone afterwards. The numbers are kept beside the pairs'
// tokens, with what they depend on: `<out>/data/train.reference.safetensors`. A run that continues
// finds them there. They do not depend on the layout but for the last bits, which stay those of the
// layout that the run began with.
#ifndef TESSERA_TRAIN_PREFERENCES_REFERENCE_PASS_H_
#define TESSERA_TRAIN_PREFERENCES_REFERENCE_PASS_H_

#include <functional>

#include "base/status.h"
#include "dist/mesh/mesh.h"
#include "models/model.h"
#include "train/config/run_config.h"
#include "train/task.h"

namespace tessera::train {

// Of all `data.preferences`. `model` has the weights that the run begins with, in memory or cut
// over ranks. `stops` says between batches whether this rank is asked to stop, which is a failure
// of kCancelled. Collective over the mesh's world; a failure of any rank is every rank's.
Status JudgePreferences(const RunConfig& config, const TaskData& data, models::Model& model,
                        const dist::Mesh& mesh, const std::function<bool()>& stops = nullptr);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_PREFERENCES_REFERENCE_PASS_H_
