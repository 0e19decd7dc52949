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
    {"torch._utils._rebuild_parameter_with_state", PickleCall::kParameter},
    {"torch._tensor._rebuild_from_type_v2", PickleCall::kFromType},
    {"torch.Tensor", PickleCall::kObject},
    {"torch.nn.parameter.Parameter", PickleCall::kObject},
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
    {"torch.torch_version.TorchVersion", PickleCall::kObject},
    {"datetime.datetime", PickleCall::kObject},
    {"datetime.timedelta", PickleCall::kObject},
    {"pathlib.PosixPath", PickleCall::kObject},
    {"pathlib._local.PosixPath", PickleCall::kObject},
    {"signal.Signals", PickleCall::kObject},
};

// dtypes: they are named, not called.
constexpr std::string_view kDTypes[] = {
    "torch.float16", "torch.bfloat16", "torch.float32", "torch.float64", "torch.int64",
    "torch.int32",   "torch.int16",    "torch.int8",    "torch.uint8",   "torch.bool",
};

// Kinds of tensors that are not read, by the functions and classes that make them.
struct RefusedKind {
  std::string_view begin;  // of the name
  std::string_view advice;
};
constexpr RefusedKind kRefusedKinds[] = {
    {"torch.distributed.",
     "it is of a rank's share of a tensor; gather the state_dict first "
     "(torch.distributed.checkpoint.state_dict.get_model_state_dict with "
     "full_state_dict=True)"},
    {"torch._utils._rebuild_wrapper",
     "it makes a tensor of a class of its own (DTensor, torchao's); save tensor.full_tensor() or "
     "tensor.dequantize()"},
    {"torch._utils._rebuild_sparse", "it makes a sparse tensor; save tensor.to_dense()"},
    {"torch._utils._rebuild_nested", "it makes a nested tensor, which is no weight here"},
    {"torch._utils._rebuild_q", "it makes a quantized tensor; save tensor.dequantize()"},
    {"torch.Q", "it holds a quantized tensor; save tensor.dequantize()"},
    {"torch._utils._rebuild_meta", "it makes a tensor of device meta, which has no numbers"},
    {"torch.Complex", "weights are real numbers here"},
    {"torch._utils._rebuild_tensor_v3",
     "it makes a tensor of a dtype (float8, uint16, ...) that is "
     "not read; save it as float32, bfloat16 or float16"},
    {"torch.storage.UntypedStorage",
     "it holds a tensor of a dtype (float8, uint16, ...) that is "
     "not read; save it as float32, bfloat16 or float16"},
    {"__torch__.", "the file is a program of TorchScript; save its state_dict()"},
};

// What they keep beside weights (enumerations of arguments, loss scalers, callbacks) is under
// modules that move from version to version.
constexpr std::string_view kTrainers[] = {"megatron.", "deepspeed.", "pytorch_lightning.",
                                          "lightning.", "lightning_fabric."};

}  // namespace

std::optional<PickleCall> FindPickleGlobal(std::string_view name) {
  for (const Global& global : kGlobals) {
    if (global.name == name) return global.call;
  }
  for (const std::string_view dtype : kDTypes) {
    if (dtype == name) return PickleCall::kObject;
  }
  if (FindStorageType(name) != nullptr) return PickleCall::kObject;
  for (const std::string_view trainer : kTrainers) {
    if (name.starts_with(trainer)) return PickleCall::kObject;
  }
  return std::nullopt;
}

std::string_view AdviceOnPickleGlobal(std::string_view name) {
  for (const RefusedKind& kind : kRefusedKinds) {
    if (name.starts_with(kind.begin)) return kind.advice;
  }
  return "torch.save(model.state_dict(), FILE) writes the weights alone";
}

}  // namespace tessera::models
