// SPDX-License-Identifier: Apache-2.0
// An optimizer with its options, before it is made: the states that it keeps of a parameter, and
// whether it needs to see whole parameters. optim/optimizer_kind.h makes one from a name and
// options.
//
//   if (rule->NeedsWhole(parameter)) ...           // where a store may cut it
//   std::unique_ptr<Optimizer> optimizer = rule->Make(groups, /*lr=*/1e-4);
#ifndef TESSERA_OPTIM_UPDATE_RULE_H_
#define TESSERA_OPTIM_UPDATE_RULE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/placement.h"
#include "optim/optimizer.h"
#include "optim/parameter.h"

namespace tessera::optim {

// The shape of a state, of a parameter [..., R, C].
enum class StateShape : uint8_t {
  kElementwise,  // the parameter's own
  kPerRow,       // [..., R]
  kPerColumn,    // [..., C]
  kScalar,       // []
};

// A state in AccumulateDType(parameter), zero at first. The float32 "master" of a half-precision
// parameter, which every optimizer keeps, is not declared.
struct StateKind {
  std::string name;
  StateShape shape = StateShape::kElementwise;
  friend bool operator==(const StateKind&, const StateKind&) = default;
};

// Elementwise states lie as their parameter does; every rank of its group has the others whole, of
// the global parameter.
Placement StatePlacement(StateShape shape, const Parameter& parameter);

// An optimizer whose options are chosen.
class UpdateRule {
 public:
  virtual ~UpdateRule() = default;
  // In the order in which the optimizer visits them.
  virtual std::vector<StateKind> States(const Parameter& parameter) const = 0;
  // Whether the update of an element depends on the rest of the parameter, so that one optimizer
  // must be given all of it (over `Parameter::group`, the parts that tensor parallelism made). Any
  // others may be cut anywhere into one-dimensional pieces, for which the answer is no.
  virtual bool NeedsWhole(const Parameter& parameter) const = 0;
  // Throws Error as the optimizer's constructor does.
  virtual std::unique_ptr<Optimizer> Make(std::vector<ParameterGroup> groups, double lr) const = 0;
};

}  // namespace tessera::optim

#endif  // TESSERA_OPTIM_UPDATE_RULE_H_
