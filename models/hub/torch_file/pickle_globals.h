// SPDX-License-Identifier: Apache-2.0
// The functions and classes that may be in a checkpoint.
#ifndef TESSERA_MODELS_HUB_TORCH_FILE_PICKLE_GLOBALS_H_
#define TESSERA_MODELS_HUB_TORCH_FILE_PICKLE_GLOBALS_H_

#include <optional>
#include <string_view>

namespace tessera::models {

// What calling one gives.
enum class PickleCall {
  kTensor,     // torch._utils._rebuild_tensor(_v2): a tensor
  kParameter,  // torch._utils._rebuild_parameter(_with_state): its first argument
  kFromType,   // torch._tensor._rebuild_from_type_v2: what its function gives of its arguments
  kDict,       // a dictionary, of pairs where they are given
  kList,       // its argument, a list
  kObject,     // an inert object
};

// nullopt: no part of a checkpoint. `name` is "module.name".
std::optional<PickleCall> FindPickleGlobal(std::string_view name);

// Of a name that is no part of a checkpoint: what makes a file of the weights that is read. Ends a
// message.
std::string_view AdviceOnPickleGlobal(std::string_view name);

}  // namespace tessera::models

#endif  // TESSERA_MODELS_HUB_TORCH_FILE_PICKLE_GLOBALS_H_
