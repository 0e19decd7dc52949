#include "train/make_store.h"

#include <utility>
#include <vector>

#include "dist/pipeline/pipelined_model.h"
#include "dist/store/optimized_parameters.h"
#include "train/optimizer_groups.h"

namespace tessera::train {

absl::StatusOr<dist::ZeroOptions> StorePolicyOf(const RunConfig& config) {
  TESSERA_ASSIGN_OR_RETURN(dist::ZeroOptions options, config.zero_options());
  options.static_graph = config.static_graph;
  options.check_reduction = config.check_reduction;
  options.gradient_as_bucket_view = config.gradient_as_bucket_view;
  TESSERA_RETURN_IF_ERROR(options.Validate());
  return options;
}

std::unique_ptr<dist::ParameterStore> MakeStore(const RunConfig& config, models::Model& model,
                                                const dist::Mesh& mesh,
                                                const dist::OptimizerFactory& make_optimizer) {
  const absl::StatusOr<dist::ZeroOptions> options = StorePolicyOf(config);
  TESSERA_CHECK(options.ok(), "store", Message(options.status()));
  const dist::StoreGroups ranks = {.data = mesh.dp(), .tensor = mesh.tp()};
  if (const dist::Stage* stage = dist::StageOf(model)) {
    return std::make_unique<dist::ParameterStore>(
        *stage, OptimizerGroups(config, stage->OptimizedParameters()), make_optimizer, ranks,
        *options);
  }
  return std::make_unique<dist::ParameterStore>(
      model, OptimizerGroups(config, dist::OptimizedParameters(model)), make_optimizer, ranks,
      *options);
}

}  // namespace tessera::train
