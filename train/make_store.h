// The parameter store that a configuration asks for.
#ifndef TESSERA_TRAIN_MAKE_STORE_H_
#define TESSERA_TRAIN_MAKE_STORE_H_

#include <memory>

#include "dist/mesh/mesh.h"
#include "dist/store/parameter_store.h"
#include "models/model.h"
#include "train/config/run_config.h"

namespace tessera::train {

// Over the mesh's groups and, of a pipeline's model, its stage. `model` outlives the store.
// Collective.
std::unique_ptr<dist::ParameterStore> MakeStore(const RunConfig& config, models::Model& model,
                                                const dist::Mesh& mesh,
                                                const dist::OptimizerFactory& make_optimizer);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_MAKE_STORE_H_
