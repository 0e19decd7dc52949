// SPDX-License-Identifier: Apache-2.0
// What one source of a run's settings gave: a file, the flags.
//
//   RunLayer flags = {"flags", TranslateRunFlags(json)};
//   flags.ApplyTo(&config);   // sets its keys
//   flags.Judge({"autocast"}, KeyFate::kNoEffect, "DeepSpeed's file has the precision");
#ifndef TESSERA_TRAIN_FOREIGN_RUN_LAYER_H_
#define TESSERA_TRAIN_FOREIGN_RUN_LAYER_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "train/config/run_config.h"
#include "train/foreign/foreign_keys.h"

namespace tessera::train {

struct RunLayer {
  std::string source;
  Translation given;

  // Every key of the run is set; one that is out of range is refused.
  void ApplyTo(RunConfig* config);
  // Keys that became only some of `keys` get another fate.
  void Judge(const std::set<std::string>& keys, KeyFate fate, const std::string& reason);
  // The same of one key, by the name that it was given by.
  void JudgeName(const std::string& name, KeyFate fate, const std::string& reason);
  // Whether it was given by this name, and counts.
  bool Says(const std::string& name) const;
  bool Has(const std::string& key) const;  // a key of the run, or of a reader's own
  std::optional<int64_t> Integer(const std::string& key) const;
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_FOREIGN_RUN_LAYER_H_
