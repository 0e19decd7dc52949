// SPDX-License-Identifier: Apache-2.0
#include "dist/store/optimized_parameters.h"

#include <map>

namespace tessera::dist {
namespace {

const nn::Parameter& SourceOf(const nn::Parameter& p) {
  return p.tied_to == nullptr ? p : SourceOf(*p.tied_to);
}

}  // namespace

std::vector<optim::Parameter> OptimizedParameters(const std::vector<nn::Parameter*>& all) {
  std::vector<optim::Parameter> parameters;
  std::map<const nn::Parameter*, size_t> index;
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
    const auto source = index.find(&SourceOf(*p));
    if (p->tied_to == nullptr || source == index.end() || !RequiresGrad(p->tensor)) continue;
    parameters[source->second].tied.push_back(p->tensor);
  }
  return parameters;
}

std::vector<optim::Parameter> OptimizedParameters(nn::Module& model) {
  return OptimizedParameters(model.Parameters());
}

Device DeviceOf(const std::vector<nn::Parameter*>& parameters) {
  for (const nn::Parameter* p : parameters) {
    if (!p->tensor.device().is_meta()) return p->tensor.device();
  }
  return parameters.empty() ? Device::Cpu() : parameters.front()->tensor.device();
}

}  // namespace tessera::dist
