// SPDX-License-Identifier: Apache-2.0
#include "optim/modules/module_parameters.h"

#include <map>

namespace tessera::optim {
namespace {

const nn::Parameter& SourceOf(const nn::Parameter& p) {
  return p.tied_to == nullptr ? p : SourceOf(*p.tied_to);
}

}  // namespace

std::vector<Parameter> ParametersOf(const std::vector<nn::Parameter*>& all) {
  std::vector<Parameter> parameters;
  std::map<const nn::Parameter*, size_t> index;
  for (const nn::Parameter* p : all) {
    if (p->tied_to != nullptr || p->elsewhere || !RequiresGrad(p->tensor)) continue;
    index[p] = parameters.size();
    parameters.push_back({.name = p->name,
                          .tensor = p->tensor,
                          .tied = p->by_source,
                          .adds_in_tree = !p->by_source.empty(),
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

std::vector<Parameter> ParametersOf(nn::Module& module) {
  return ParametersOf(module.Parameters());
}

Device DeviceOf(const std::vector<nn::Parameter*>& parameters) {
  for (const nn::Parameter* p : parameters) {
    if (!p->tensor.device().is_meta()) return p->tensor.device();
  }
  return parameters.empty() ? Device::Cpu() : parameters.front()->tensor.device();
}

}  // namespace tessera::optim
