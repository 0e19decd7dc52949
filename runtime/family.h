// SPDX-License-Identifier: Apache-2.0
// Families of a host's own (tsr_register_family): to all else they are families like the library's.
#ifndef TESSERA_RUNTIME_FAMILY_H_
#define TESSERA_RUNTIME_FAMILY_H_

#include "base/status.h"
#include "nlohmann/json_fwd.hpp"

namespace tessera::runtime {

// InvalidArgument where a config.json is of such a family: `caller` asks for what its models do not
// do, and `rule` says what they do ("give no vectors of texts").
Status RefuseRegistered(const nlohmann::json& config, const char* caller, const char* rule);

}  // namespace tessera::runtime

#endif  // TESSERA_RUNTIME_FAMILY_H_
