// SPDX-License-Identifier: Apache-2.0
#include "models/hub/torch_file/pickle_globals.h"

#include "models/hub/torch_file/storage_type.h"

namespace tessera::models {
namespace {

struct Global {
  std::string_view name;
  PickleCall call;
};

constexpr Global kGlobals[] = {
    {"collections.OrderedDict", PickleCall::kDict},
    {"collections.defaultdict", PickleCall::kDict},
    {"torch._utils._rebuild_tensor", PickleCall::kTensor},
    {"torch._utils._rebuild_tensor_v2", PickleCall::kTensor},
    {"torch._utils._rebuild_parameter", PickleCall::kParameter},
    {"torch.Size", PickleCall::kList},
    {"__builtin__.set", PickleCall::kList},
    {"builtins.set", PickleCall::kList},
    // What is beside weights in checkpoints of a training.
    {"__builtin__.dict", PickleCall::kDict},
    {"builtins.dict", PickleCall::kDict},
    {"_codecs.encode", PickleCall::kObject},
    {"argparse.Namespace", PickleCall::kObject},
    {"numpy.core.multiarray._reconstruct", PickleCall::kObject},
    {"numpy.core.multiarray.scalar", PickleCall::kObject},
    {"numpy._core.multiarray._reconstruct", PickleCall::kObject},
    {"numpy._core.multiarray.scalar", PickleCall::kObject},
    {"numpy.dtype", PickleCall::kObject},
    {"numpy.ndarray", PickleCall::kObject},
    {"torch.device", PickleCall::kObject},
};

// dtypes: they are named, not called.
constexpr std::string_view kDTypes[] = {
    "torch.float16", "torch.bfloat16", "torch.float32", "torch.float64", "torch.int64",
    "torch.int32",   "torch.int16",    "torch.int8",    "torch.uint8",   "torch.bool",
};

// Its arguments hold enumerations, under modules that moved from version to version.
constexpr std::string_view kMegatron = "megatron.";

}  // namespace

std::optional<PickleCall> FindPickleGlobal(std::string_view name) {
  for (const Global& global : kGlobals) {
    if (global.name == name) return global.call;
  }
  for (const std::string_view dtype : kDTypes) {
    if (dtype == name) return PickleCall::kObject;
  }
  if (FindStorageType(name) != nullptr || name.substr(0, kMegatron.size()) == kMegatron) {
    return PickleCall::kObject;
  }
  return std::nullopt;
}

}  // namespace tessera::models
