// SPDX-License-Identifier: Apache-2.0
// Models from Hugging Face folders and presets.
//
//   TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<Model> model,
//                            LoadModel("gpt2-folder", {.build = {.dtype = DType::kBFloat16}}));
//
// A folder holds config.json and, if it has weights, the files of models/hub/weight_files.h
// (safetensors or pytorch_model.bin), in float16, bfloat16, float32 or float64; they are cast to
// the dtype that is asked for. Tensors are found under the parameter's own name or under what else
// the family knows it by (without the `transformer.` prefix, say); buffers are passed over, and so
// are the entries of heads that the model does not have. Each rank of a tensor-parallel group takes
// its part, by the parameter's placement.
//
// Parameters that config.json ties (`tie_word_embeddings`) are tied if one of the pair is absent or
// both are equal. If both are there and differ, they are not: the model is built untied, as its
// config() then says. (T5 is tied also where config.json does not tie and both are equal.) Where
// the family has no such model, the pair is refused by name.
#ifndef TESSERA_MODELS_HUB_LOAD_MODEL_H_
#define TESSERA_MODELS_HUB_LOAD_MODEL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json_member.h"
#include "base/status.h"
#include "models/model.h"
#include "nlohmann/json_fwd.hpp"
#include "nn/module.h"
#include "ops/quantized/quant_type.h"

namespace tessera::models {

// Told how many bytes of the weights are loaded, of how many: at the begin, after every few MiB and
// at the end, on the thread that loads. False cancels: the status is then of kCancelled.
using LoadProgress = std::function<bool(int64_t done, int64_t all)>;

struct LoadOptions {
  // dtype, device, groups, blocks. `initialise` is set to whether there are no weights.
  nn::BuildContext build = {};
  // A preset, or a folder without weights, is an error instead of a freshly initialised model.
  bool require_weights = false;
  // Keys that replace those of config.json before the model is built ({"architectures": [...]});
  // null removes one. With "tie_word_embeddings" among them, they decide what is tied, and weights
  // that do not go with that are refused. For labels see SetLabels in models/classification.h.
  JsonMember config_changes = nullptr;
  // Parameters of a head (Family::is_head) that the files lack, or have in another shape, are
  // initialised (with build.seed) instead of being an error.
  bool ignore_mismatched_sizes = false;
  // For models that are run, not trained: parameters on the CPU that the files hold in the model's
  // dtype, whole and aligned to it, and quantised weights are the files' bytes, mapped: nothing is
  // read before it is used, and processes share the memory. They cannot be written to, and take no
  // part in differentiation. The files must stay as they are as long as the model lives: a process
  // that touches what another one has cut off dies of SIGBUS (EndWhenMappedFilesShrink,
  // base/file.h). Replacing or removing a file does no harm. False: all is copied.
  bool map_weights = false;
  // Weights of linear layers and tables of the vocabulary are held so (nn/quantized_weight.h), what
  // is dense in the files being made into it; what rows do not fit, and the rest, is `build.dtype`,
  // as are activations. Unset: they are as the files have them. On the CPU, and of a folder with
  // weights.
  std::optional<QuantType> quantize = std::nullopt;
  // Folders of adapters (models/hub/adapter.h) that the model carries, number 0, 1, ...; passes
  // take number 0 unless they name another.
  std::vector<std::string> adapters = {};
  LoadProgress progress = nullptr;
  // Given the one line that names them.
  std::function<void(const std::string&)> warn = nullptr;
};

// `folder`/config.json as it is written: an object, of weights in a form that is read.
StatusOr<nlohmann::json> ReadConfigFile(const std::string& folder);

// Reads `folder`/config.json, tied or not as the weights are, or takes the configuration of a
// preset. NotFound (naming what could have been meant) for what is neither.
StatusOr<nlohmann::json> ReadModelConfig(const std::string& folder_or_preset);

// Failures name the file and the tensor: unknown and missing tensors, a shape that differs from
// what config.json implies, a dtype that is no floating one, damage. Nothing is allocated for the
// parameters before names and shapes are known to fit.
StatusOr<std::unique_ptr<Model>> LoadModel(const std::string& folder_or_preset,
                                           const LoadOptions& options = {});

// Under an ExecutionContext that is cancelled, loading ends with a CancelledError.

// Copies the folder's weights into a model built from its configuration; on the meta device it
// checks that they fit. Nothing is written if they do not.
Status LoadWeights(Model& model, const std::string& folder);

// The same, but parameters of a head that the files lack or have in another shape are initialised.
// Returns their names.
StatusOr<std::vector<std::string>> LoadWeightsBesidesHead(Model& model, const std::string& folder);

}  // namespace tessera::models

#endif  // TESSERA_MODELS_HUB_LOAD_MODEL_H_
