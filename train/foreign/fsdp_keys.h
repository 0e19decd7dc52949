// SPDX-License-Identifier: Apache-2.0
// PyTorch's FSDP, as Accelerate's files and Hugging Face's TrainingArguments spell its settings:
// with and without the prefix `fsdp_`.
#ifndef TESSERA_TRAIN_FOREIGN_FSDP_KEYS_H_
#define TESSERA_TRAIN_FOREIGN_FSDP_KEYS_H_

#include <string>

#include "base/status.h"
#include "train/foreign/foreign_keys.h"

namespace tessera::train {

// The settings as keys of `section` ("fsdp_config"), in both spellings.
ForeignTable FsdpKeys(const std::string& section);

// Puts the keys of a run for the settings of `section`. `strategy` is what is sharded where they do
// not say it: "FULL_SHARD".
void TranslateFsdp(const std::string& section, const std::string& strategy, ForeignKeys& keys);

// transformers' name of a layer class ("GPT2Block") as ours ("TransformerBlock").
StatusOr<std::string> WrapClass(const std::string& name);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_FOREIGN_FSDP_KEYS_H_
