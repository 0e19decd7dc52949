#include "train/optimizer_groups.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/tensor.h"
#include "dist/store/parameter_shard.h"
#include "optim/parameter_groups.h"

namespace tessera::train {
namespace {

double RootMeanSquare(const Tensor& t) {
  const dist::GatheredScope gathered({t});
  double squares = 0;
  const std::vector<double> values = CastCopy(t.Detach(), DType::kFloat64).ToVector<double>();
  for (const double value : values) squares += value * value;
  return std::sqrt(squares / static_cast<double>(std::max<size_t>(values.size(), 1)));
}

}  // namespace

std::vector<optim::ParameterGroup> OptimizerGroups(
    const RunConfig& config, const std::vector<optim::Parameter>& parameters) {
  std::vector<optim::ParameterGroup> groups =
      optim::SplitByDecay(parameters, {.weight_decay = config.weight_decay});
  if (!config.scale_parameter) return groups;
  std::vector<optim::ParameterGroup> scaled;
  for (const optim::ParameterGroup& group : groups) {
    for (const optim::Parameter& parameter : group.parameters) {
      optim::ParameterGroup one = group;
      one.parameters = {parameter};
      one.lr_scale *= std::max(1e-3, RootMeanSquare(parameter.tensor));
      scaled.push_back(std::move(one));
    }
  }
  return scaled;
}

}  // namespace tessera::train
