// SPDX-License-Identifier: Apache-2.0
// YAML files as JSON.
//
//   TESSERA_ASSIGN_OR_RETURN(const nlohmann::json file, ReadYaml("default_config.yaml"));
//
// Plain scalars are null, true, false (also yes and no, on and off, as Python's reader has them),
// integers and numbers where they look so, else text, as are quoted ones.
#ifndef TESSERA_TRAIN_FOREIGN_YAML_FILE_H_
#define TESSERA_TRAIN_FOREIGN_YAML_FILE_H_

#include <string>

#include "base/status.h"
#include "nlohmann/json_fwd.hpp"

namespace tessera::train {

// InvalidArgument names the file and the line.
StatusOr<nlohmann::json> ReadYaml(const std::string& path);

// A file of keys that a person writes: YAML where its name ends in .yaml or .yml, else JSON with
// comments. A key that is given twice is refused.
StatusOr<nlohmann::json> ReadSettings(const std::string& path);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_FOREIGN_YAML_FILE_H_
