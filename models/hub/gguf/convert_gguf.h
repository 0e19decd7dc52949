// SPDX-License-Identifier: Apache-2.0
// Hugging Face folders of GPT-2, Llama, Mistral and Qwen2 out of GGUF files, and back.
//
//   TESSERA_RETURN_IF_ERROR(ConvertFromGguf("model-Q8_0.gguf", "folder"));
//   TESSERA_RETURN_IF_ERROR(ConvertToGguf("folder", "model.gguf"));
//
// Quantised tensors (Q8_0, Q4_0) keep their bytes: in the folder they are entries
// `<parameter>.<type>` ("model.layers.0.mlp.up_proj.weight.q8_0"), U8 [outputs, bytes of a row].
// Dense ones are what they are in the folder; in the file matrices are F16, positions, norms and
// biases F32, as llama.cpp has it. One tensor is in memory at a time.
#ifndef TESSERA_MODELS_HUB_GGUF_CONVERT_GGUF_H_
#define TESSERA_MODELS_HUB_GGUF_CONVERT_GGUF_H_

#include <string>

#include "base/status.h"
#include "models/hub/save_model.h"

namespace tessera::models {

// `folder` must not exist, unless it may be overwritten; it appears whole. Refuses, by name,
// tensors of other types (a Q4_0 file has a Q6_K embedding or head unless it was made with --pure),
// tensors that are missing or that the model has no place for, tokenizers that Tessera does not
// read.
Status ConvertFromGguf(const std::string& file, const std::string& folder, bool overwrite = false,
                       const WriteWatch& watch = nullptr);

// `file` appears whole, in place of an older one. Refuses what llama.cpp would compute otherwise
// (models/hub/gguf/gguf_names.h), weights of type int8, which GGUF does not have, and numbers
// beyond float16, by the tensor's name. What is written of a folder that ConvertFromGguf made is
// the tensors of that file, where its matrices were F16 or quantised.
Status ConvertToGguf(const std::string& folder, const std::string& file,
                     const WriteWatch& watch = nullptr);

// Whether ConvertToGguf wrote the file, which says so.
bool IsConvertedGguf(const std::string& file);

}  // namespace tessera::models

#endif  // TESSERA_MODELS_HUB_GGUF_CONVERT_GGUF_H_
