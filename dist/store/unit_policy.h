// SPDX-License-Identifier: Apache-2.0
// Which parameters are gathered together where they are cut over ranks.
#ifndef TESSERA_DIST_STORE_UNIT_POLICY_H_
#define TESSERA_DIST_STORE_UNIT_POLICY_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "dist/store/zero_options.h"
#include "nn/module.h"

namespace tessera::dist {

struct Unit {
  std::string name;                // a module's path, or a parameter's name
  std::vector<nn::Module*> users;  // whose passes need it
};

// Units, and which of them a parameter belongs to.
struct UnitPlan {
  std::vector<Unit> units;
  std::map<const nn::Parameter*, int64_t>
      unit_of;  // of every parameter that is not tied to another
};

// Throws Error for a name of `auto_wrap_classes` that is no module's kind; it lists those there
// are.
UnitPlan PlanUnits(nn::Module& model, const ZeroOptions& options);

}  // namespace tessera::dist

#endif  // TESSERA_DIST_STORE_UNIT_POLICY_H_
