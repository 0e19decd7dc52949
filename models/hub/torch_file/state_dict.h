// SPDX-License-Identifier: Apache-2.0
// What a checkpoint's pickle holds: the tensors of its state dictionary, and its plain values.
#ifndef TESSERA_MODELS_HUB_TORCH_FILE_STATE_DICT_H_
#define TESSERA_MODELS_HUB_TORCH_FILE_STATE_DICT_H_

#include <string>
#include <vector>

#include "base/status.h"
#include "models/hub/torch_file/pickle.h"
#include "nlohmann/json_fwd.hpp"

namespace tessera::models {

struct NamedTensor {
  std::string name;
  Pickle::Index tensor = 0;
};

// As torch_file.h says. InvalidArgument, beginning with `where`, for a pickle without tensors, or
// with more dictionaries within dictionaries than a checkpoint has.
StatusOr<std::vector<NamedTensor>> TensorsOfStateDict(const Pickle& pickle,
                                                      const std::string& where);

// The numbers and texts that are among the tensors.
nlohmann::json ScalarsOf(const Pickle& pickle);

}  // namespace tessera::models

#endif  // TESSERA_MODELS_HUB_TORCH_FILE_STATE_DICT_H_
