#include "train/make_store.h"

#include <utility>
#include <vector>

#include "dist/pipeline/pipelined_model.h"
#include "dist/store/optimized_parameters.h"
#include "optim/parameter_groups.h"

namespace tessera::train {

std::unique_ptr<dist::ParameterStore> MakeStore(const RunConfig& config, models::Model& model,
                                                const dist::Mesh& mesh,
                                                const dist::OptimizerFactory& make_optimizer) {
  const absl::StatusOr<dist::ZeroOptions> options = config.zero_options();
  TESSERA_CHECK(options.ok(), "store", Message(options.status()));
  // Matrices decay, vectors do not.
  const optim::DecayOptions decay = {.weight_decay = config.weight_decay};
  const dist::StoreGroups ranks = {.data = mesh.dp(), .tensor = mesh.tp()};
  if (const dist::Stage* stage = dist::StageOf(model)) {
    return std::make_unique<dist::ParameterStore>(
        *stage, optim::SplitByDecay(stage->OptimizedParameters(), decay), make_optimizer, ranks,
        *options);
  }
  return std::make_unique<dist::ParameterStore>(
      model, optim::SplitByDecay(dist::OptimizedParameters(model), decay), make_optimizer, ranks,
      *options);
}

}  // namespace tessera::train
