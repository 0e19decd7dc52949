// SPDX-License-Identifier: Apache-2.0
#include "optim/update_rule.h"

namespace tessera::optim {
namespace {

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

}  // namespace tessera::optim
