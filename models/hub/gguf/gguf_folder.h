// SPDX-License-Identifier: Apache-2.0
// A GGUF file as the Hugging Face folder of its model: read where it lies, without being converted.
//
//   TESSERA_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Open("model-Q8_0.gguf"));
//   TESSERA_ASSIGN_OR_RETURN(const MountedFolder folder, MountGguf(file));
//   auto model = LoadModel(folder.path());                          // "<model-Q8_0.gguf>"
//
// Of a file in several parts the folder has a list of tensors for each, and their index.
//
// The folder has config.json, the tokenizer's files with the chat template, and the weights as a
// list of tensors (models/hub/tensor_list.h) in the file itself. Quantised ones are entries
// `<parameter>.<type>` ("model.layers.0.mlp.up_proj.weight.q8_0"), U8 [outputs, bytes of a row].
// A tensor of all experts of a layer is an entry for each, in the same bytes. Tensors whose
// elements have the same order in both stay the file's bytes; others (rows of Llama's queries and
// keys, GPT-2's dense matrices) are rearranged one at a time, when they are read.
#ifndef TESSERA_MODELS_HUB_GGUF_GGUF_FOLDER_H_
#define TESSERA_MODELS_HUB_GGUF_GGUF_FOLDER_H_

#include <memory>
#include <string>
#include <vector>

#include "base/mounted_folder.h"
#include "base/status.h"
#include "models/hub/gguf/gguf_file.h"
#include "models/hub/gguf/gguf_names.h"
#include "models/model.h"
#include "nlohmann/json_fwd.hpp"
#include "nn/module.h"

namespace tessera::models {

// Refuses, by name, tensors of types that are not read, tensors that are missing or that the model
// has no place for, tokenizers that Tessera does not read. What is read or mapped of the folder
// outlives `file`.
StatusOr<MountedFolder> MountGguf(const GgufFile& file);

// A model without numbers, for its parameters; `where` begins messages.
StatusOr<std::unique_ptr<Model>> ShapesOf(const nlohmann::json& config, const std::string& where);
// InvalidArgument for a parameter without a place.
StatusOr<GgufPlace> PlaceOf(const GgufNames& names, const nn::Parameter& p);
// A weight's or bias's rows in the order of GgufPlace::interleaved_heads, from the model's.
Tensor Interleaved(const Tensor& t, int64_t heads);
// Says that a file was written here.
inline constexpr std::string_view kGgufWrittenByKey = "tessera.written_by";
// A parameter's shape with its outputs first, as in GGUF files.
std::vector<int64_t> OutputsFirst(const nn::Parameter& p, const GgufPlace& place);
// That of the tensor that holds it, alone or among GgufPlace::slices. Leading sizes of 1 are left
// out, as GGML has it.
std::vector<int64_t> TensorShape(const nn::Parameter& p, const GgufPlace& place);

}  // namespace tessera::models

#endif  // TESSERA_MODELS_HUB_GGUF_GGUF_FOLDER_H_
