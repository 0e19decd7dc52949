#include "train/make_store.h"

#include <memory>
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
  const absl::StatusOr<std::shared_ptr<const optim::UpdateRule>> rule = config.update_rule();
  TESSERA_CHECK(rule.ok(), "store", Message(rule.status()));
  const dist::Stage* const stage = dist::StageOf(model);
  const std::vector<optim::Parameter> parameters =
      stage != nullptr ? stage->OptimizedParameters() : dist::OptimizedParameters(model);
  // Only where some do: what is cut anywhere can be updated while the backward pass goes on.
  dist::NeedsWhole needs_whole;
  for (const optim::Parameter& parameter : parameters) {
    if (!(*rule)->NeedsWhole(parameter)) continue;
    needs_whole = [rule = *rule](const optim::Parameter& p) { return rule->NeedsWhole(p); };
    break;
  }
  std::vector<optim::ParameterGroup> groups = optim::SplitByDecay(parameters, decay);
  if (stage != nullptr) {
    return std::make_unique<dist::ParameterStore>(*stage, std::move(groups), make_optimizer, ranks,
                                                  *options, needs_whole);
  }
  return std::make_unique<dist::ParameterStore>(model, std::move(groups), make_optimizer, ranks,
                                                *options, needs_whole);
}

}  // namespace tessera::train
