// SPDX-License-Identifier: Apache-2.0
// What another program gave of a model: a safetensors file whose tensors are `inputs/<name>` (as of
// `tessera forward`), `outputs/<module>` (the output of the module of that path) and
// `gradients/<parameter>` (of the loss; then `inputs/labels` is there). docs/debugging.md has the
// lines of Python that write one of a transformers model.
//
//   if (IsModelDump(tensors)) {
//     TESSERA_ASSIGN_OR_RETURN(const DumpTensors ours, TensorsLike(tensors, "gpt2-folder"));
//     ...
//   }
#ifndef TESSERA_TOOLS_MODEL_DUMP_H_
#define TESSERA_TOOLS_MODEL_DUMP_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "core/tensor.h"
#include "tools/named_tensors.h"

namespace tessera::tools {

bool IsModelDump(const NamedTensors& tensors);

struct DumpTensors {
  // What this program's model gives for the dump's inputs, under the dump's names and in the order
  // of the computation; float32, on the CPU.
  std::vector<std::pair<std::string, Tensor>> tensors;
  std::vector<std::string> missing;  // names of the dump that the model has nothing for
};

// `model` is a folder of a model, or of a run that has ended.
StatusOr<DumpTensors> TensorsLike(const NamedTensors& dump, const std::string& model);

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_MODEL_DUMP_H_
