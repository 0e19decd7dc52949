// SPDX-License-Identifier: Apache-2.0
#ifndef TESSERA_MODELS_HUB_REPLACEABLE_FOLDER_H_
#define TESSERA_MODELS_HUB_REPLACEABLE_FOLDER_H_

#include <string>

#include "base/output_files.h"
#include "models/hub/adapter_config.h"

namespace tessera::models {

// That a model's or an adapter's folder may be written here, as a whole: CheckReplaceable
// (base/output_files.h).
inline Status CheckReplaceableModel(const std::string& folder) {
  return CheckReplaceable(folder, {"config.json", std::string(kAdapterConfigName)},
                          "a model's folder");
}

}  // namespace tessera::models

#endif  // TESSERA_MODELS_HUB_REPLACEABLE_FOLDER_H_
