// SPDX-License-Identifier: Apache-2.0
// Hugging Face folders of the models that GGUF files hold (gguf_architectures.h) out of such files,
// and back.
//
//   TESSERA_RETURN_IF_ERROR(ConvertFromGguf("model-Q8_0.gguf", "folder"));
//   TESSERA_RETURN_IF_ERROR(ConvertToGguf("folder", "model.gguf"));
//   TESSERA_RETURN_IF_ERROR(ConvertAdapterToGguf("lora", "folder", "lora.gguf"));
//
// The folder is the one that the file is mounted as (models/hub/gguf/gguf_folder.h). Quantised
// tensors keep their bytes. Dense ones are what they are in the folder; in the file matrices are
// F16, or what is asked for, positions, norms and biases F32, as llama.cpp has it. One tensor is in
// memory at a time.
#ifndef TESSERA_MODELS_HUB_GGUF_CONVERT_GGUF_H_
#define TESSERA_MODELS_HUB_GGUF_CONVERT_GGUF_H_

#include <string>

#include "base/status.h"
#include "core/dtype.h"
#include "models/hub/save_model.h"

namespace tessera::models {

// `folder` must not exist, unless it may be overwritten; it appears whole. Refuses what MountGguf
// refuses.
Status ConvertFromGguf(const std::string& file, const std::string& folder, bool overwrite = false,
                       const WriteWatch& watch = nullptr);

// `file` appears whole, in place of an older one. Refuses what llama.cpp would compute otherwise
// (models/hub/gguf/gguf_names.h), weights of type int8, which GGUF does not have, numbers beyond
// `dtype`, by the tensor's name, and a dtype other than float32, float16 and bfloat16. What is
// written of a folder that ConvertFromGguf made is the tensors of that file, where its matrices
// were of `dtype` or quantised.
Status ConvertToGguf(const std::string& folder, const std::string& file,
                     DType dtype = DType::kFloat16, const WriteWatch& watch = nullptr);

// PEFT's folder of a LoRA of the model in the folder `base`, as llama.cpp's (`llama-cli --lora`):
// F32 matrices `<tensor>.lora_a` [rank, inputs] and `<tensor>.lora_b` [outputs, rank], the latter's
// rows in the order of the base's. Refuses what has no place there: DoRA, biases, whole modules.
Status ConvertAdapterToGguf(const std::string& folder, const std::string& base,
                            const std::string& file, const WriteWatch& watch = nullptr);

// Whether one of the two wrote the file, which says so.
bool IsConvertedGguf(const std::string& file);

}  // namespace tessera::models

#endif  // TESSERA_MODELS_HUB_GGUF_CONVERT_GGUF_H_
