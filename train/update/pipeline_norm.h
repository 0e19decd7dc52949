// The norm of gradients that lie on several stages, with the bits of one process.
#ifndef TESSERA_TRAIN_UPDATE_PIPELINE_NORM_H_
#define TESSERA_TRAIN_UPDATE_PIPELINE_NORM_H_

#include <functional>
#include <vector>

#include "core/tensor.h"
#include "dist/pipeline/stage.h"
#include "models/model.h"
#include "optim/parameter.h"

namespace tessera::train {

// The stage that a pipeline's model is; nullptr for any other.
const dist::Stage* StageOf(models::Model& model);

// 0-d float64: the sum of squares of the gradients that `counted` accepts, over all stages, each
// weight once. Chunks of optim::kNormChunk elements are measured where they lie and added in the
// order of the whole model. Tied gradients have been joined. Collective over the pipeline.
Tensor SquaredNormOverStages(const dist::Stage& stage,
                             const std::vector<optim::Parameter>& parameters,
                             const std::function<bool(const optim::Parameter&)>& counted);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_UPDATE_PIPELINE_NORM_H_
