#include "train/update/updater.h"

#include <map>

#include "autograd/autograd.h"
#include "train/update/pipeline_norm.h"
#include "train/update/replicated_updater.h"
#include "train/update/sharded_updater.h"

namespace tessera::train {

std::vector<optim::Parameter> OptimizedParameters(models::Model& model) {
  if (const dist::Stage* stage = StageOf(model)) return stage->OptimizedParameters();
  std::vector<optim::Parameter> parameters;
  std::map<const nn::Parameter*, size_t> index;
  const std::vector<nn::Parameter*> all = model.Parameters();
  for (const nn::Parameter* p : all) {
    if (p->tied_to != nullptr || !RequiresGrad(p->tensor)) continue;
    index[p] = parameters.size();
    parameters.push_back({.name = p->name,
                          .tensor = p->tensor,
                          .placement = p->placement,
                          .group = p->part_group,
                          .table = p->table});
  }
  for (const nn::Parameter* p : all) {
    const auto source = index.find(p->tied_to);
    if (p->tied_to != nullptr && source != index.end()) {
      parameters[source->second].tied.push_back(p->tensor);
    }
  }
  return parameters;
}

std::unique_ptr<Updater> MakeUpdater(const RunConfig& config, models::Model& model,
                                     const dist::Mesh& mesh, const OptimizerMaker& make_optimizer) {
  if (config.zero > 0) {
    return std::make_unique<ShardedUpdater>(config, model, mesh, make_optimizer);
  }
  return std::make_unique<ReplicatedUpdater>(config, model, mesh, make_optimizer);
}

}  // namespace tessera::train
