// SPDX-License-Identifier: Apache-2.0
// Checkpoints and weights of other systems that are not read, by their files' names: what to say
// of a folder in which there is nothing else.
//
//   const std::string found = CheckpointOfOthersIn("global_step10");
//   // "a checkpoint of DeepSpeed; DeepSpeed's zero_to_fp32.py makes weights of it"
#ifndef TESSERA_MODELS_HUB_OTHER_CHECKPOINTS_H_
#define TESSERA_MODELS_HUB_OTHER_CHECKPOINTS_H_

#include <string>

namespace tessera::models {

// A checkpoint that the folder, or a folder in it, is; "": none. Says what makes weights of it.
std::string CheckpointOfOthersIn(const std::string& folder);

// A file of weights beside a config.json, under a name that is not looked for; "": none. Says how
// it becomes one that is read.
std::string WeightsOfOthersIn(const std::string& folder);

}  // namespace tessera::models

#endif  // TESSERA_MODELS_HUB_OTHER_CHECKPOINTS_H_
