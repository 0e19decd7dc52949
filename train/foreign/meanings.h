// SPDX-License-Identifier: Apache-2.0
// What keys mean in view of all that a run was given: beside another source's, or in the words of a
// system that means something else by them than others do.
//
//   RunLayers layers = {&file, &accelerate, &deepspeed, &flags};
//   TESSERA_RETURN_IF_ERROR(FindMeanings(dialect, layers, &config, &verdicts));   // before
//   ApplyDialect ApplyDialect(*dialect, &config, &verdicts);
//   TESSERA_RETURN_IF_ERROR(CheckMeanings(dialect, layers, &config, &verdicts));  // behind it
#ifndef TESSERA_TRAIN_FOREIGN_MEANINGS_H_
#define TESSERA_TRAIN_FOREIGN_MEANINGS_H_

#include <vector>

#include "base/status.h"
#include "nlohmann/json_fwd.hpp"
#include "train/foreign/dialect.h"
#include "train/foreign/run_layer.h"

namespace tessera::train {

// The sources of a run, later ones win.
struct RunLayers {
  RunLayer* file;
  RunLayer* accelerate;
  RunLayer* deepspeed;
  RunLayer* flags;
  std::vector<RunLayer*> all() const { return {file, accelerate, deepspeed, flags}; }
};

// A flag that asks for what holds anyway (`--bf16 False`) takes back what a file says by the same
// name. Removes these from `file_keys`, and returns a verdict on each.
std::vector<KeyVerdict> TakeBack(const Translation& flags, nlohmann::json* file_keys);

// Hugging Face has a key for each of Adam's betas: flags with one of them leave the other as the
// file has it.
void JoinBetas(const RunLayer& file, RunLayer* flags);

// What keys of one name turn out to be, before anybody's defaults are set. `dialect` may be
// nullptr: nobody's.
void FindMeanings(const Dialect* dialect, const RunLayers& layers, bool has_deepspeed_file,
                  RunConfig* config);

// What depends on defaults; refuses what the words of a system mean and is not here.
Status CheckMeanings(const Dialect* dialect, const RunLayers& layers, RunConfig* config,
                     std::vector<KeyVerdict>* verdicts);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_FOREIGN_MEANINGS_H_
