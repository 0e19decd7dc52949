// SPDX-License-Identifier: Apache-2.0
// Weights of any format that can be read, as a folder that SaveModel writes.
//
//   TESSERA_RETURN_IF_ERROR(ConvertModel("chatglm-6b", "out", {.dtype = DType::kBFloat16}));
//
// One tensor is in memory at a time, so models larger than it can be converted, and merged with an
// adapter.
#ifndef TESSERA_MODELS_HUB_CONVERT_MODEL_H_
#define TESSERA_MODELS_HUB_CONVERT_MODEL_H_

#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"
#include "core/dtype.h"
#include "models/hub/save_model.h"
#include "ops/quantized/quant_type.h"

namespace tessera::models {

struct ConvertOptions {
  std::optional<DType> dtype = std::nullopt;  // unset: the widest that the weights have
  // What weights that can be held so become (models/hub/quantized_entries.h); unset: they are
  // dense.
  std::optional<QuantType> quantize = std::nullopt;
  int64_t max_shard_bytes = 5'000'000'000;
  // Folder of an adapter (models/hub/adapter.h) that becomes a part of the weights. A weight that
  // it changes and that another one is tied to gets numbers of its own.
  std::string adapter = {};
  bool overwrite = false;  // a folder that exists is replaced
  WriteWatch watch = nullptr;
};

// `from` is a folder that LoadModel reads, whose tokenizer, preprocessor_config.json and
// generation_config.json are copied as they are, or a checkpoint of Megatron-LM's GPT-2
// (models/hub/megatron_gpt2.h). `folder` must not exist, unless it may be
// overwritten. Failures are those of LoadModel and SaveModel, numbers that are finite and beyond
// the new dtype, and numbers that an adapter makes infinite or NaN, by the tensor's name.
Status ConvertModel(const std::string& from, const std::string& folder,
                    const ConvertOptions& options = {});

}  // namespace tessera::models

#endif  // TESSERA_MODELS_HUB_CONVERT_MODEL_H_
