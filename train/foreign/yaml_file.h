// SPDX-License-Identifier: Apache-2.0
// YAML files as JSON.
//
//   TESSERA_ASSIGN_OR_RETURN(const nlohmann::json file, ReadYaml("default_config.yaml"));
//
// Plain scalars are null, true, false, integers and numbers where they look so, else text, as are
// quoted ones; `no`, `NO`, `yes` are text.
#ifndef TESSERA_TRAIN_FOREIGN_YAML_FILE_H_
#define TESSERA_TRAIN_FOREIGN_YAML_FILE_H_

#include <string>

#include "base/status.h"
#include "nlohmann/json_fwd.hpp"

namespace tessera::train {

// InvalidArgument names the file and the line.
StatusOr<nlohmann::json> ReadYaml(const std::string& path);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_FOREIGN_YAML_FILE_H_
