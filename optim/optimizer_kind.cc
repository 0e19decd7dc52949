#include "optim/optimizer_kind.h"

#include <map>

#include "core/nearest_name.h"

namespace tessera::optim {
namespace {

std::map<std::string, OptimizerKind>& Registry() {
  static auto* registry = new std::map<std::string, OptimizerKind>();
  return *registry;
}

Shape WithoutDim(const Shape& shape, int dim) {
  Shape rest;
  for (int d = 0; d < shape.ndim(); ++d) {
    if (d != dim) rest.push_back(shape[d]);
  }
  return rest;
}

}  // namespace

Placement StatePlacement(StateShape shape, const Parameter& parameter) {
  const Placement placement = PlacementOf(parameter);
  const Shape& global = placement.global_shape();
  switch (shape) {
    case StateShape::kElementwise:
      return placement;
    case StateShape::kPerRow:
      return Placement::Whole(WithoutDim(global, global.ndim() - 1));
    case StateShape::kPerColumn:
      return Placement::Whole(WithoutDim(global, global.ndim() - 2));
    case StateShape::kScalar:
      break;
  }
  return Placement::Whole({});
}

OptimizerRegistration::OptimizerRegistration(OptimizerKind kind) {
  const std::string name = kind.name;
  TESSERA_CHECK(Registry().emplace(name, std::move(kind)).second, "optimizer", "two are named '",
                name, "'");
}

std::vector<std::string> OptimizerNames() {
  std::vector<std::string> names;
  for (const auto& entry : Registry()) names.push_back(entry.first);
  return names;
}

StatusOr<const OptimizerKind*> FindOptimizerKind(const std::string& name) {
  const auto found = Registry().find(name);
  if (found != Registry().end()) return &found->second;
  std::string known;
  for (const std::string& other : OptimizerNames()) known += (known.empty() ? "" : ", ") + other;
  return InvalidArgument("unknown optimizer '", name, "'; known: ", known,
                         DidYouMean(name, OptimizerNames()));
}

}  // namespace tessera::optim
