// SPDX-License-Identifier: Apache-2.0
// Arguments of a program's own, beside the keys of a run.
//
//   struct FocalOptions {
//     double focal_gamma = 0;
//     static const OptionTable& Table() {
//       static const auto* table = new OptionTable(
//           OptionTable::Of<FocalOptions>("Focal loss")
//               .Add("focal_gamma", &FocalOptions::focal_gamma, "how much easy targets count less",
//                    {.least = 0, .evaluation = true}));
//       return *table;
//     }
//   };
//   int main(int argc, char** argv) {
//     train::AddArguments<FocalOptions>();          // before anything reads a configuration
//     return tessera::Main(argc, argv, {.parts_of_run = ...});           // tools/program.h
//   }
//   ...
//   TESSERA_ASSIGN_OR_RETURN(const auto focal, config.Part<FocalOptions>());
//
// They are keys like the others (base/options.h): a flag `--focal-gamma` and a line of the help, a
// key of files, a line of `explain`, a value in the run's config.json, and a warning where a
// resumed run has another one (unless its notes say that it changes no results). FlagAI's
// `env_args.add_arg("focal_gamma", default=0.0, type=float)` is the same.
#ifndef TESSERA_TRAIN_CONFIG_ARGUMENTS_H_
#define TESSERA_TRAIN_CONFIG_ARGUMENTS_H_

#include "base/options.h"

namespace tessera::train {

// Throws Error for a name that a key of a run has, naming both. The table must stay.
void AddArgumentTable(const OptionTable& table);

template <typename S>
void AddArguments() {
  AddArgumentTable(S::Table());
}

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_CONFIG_ARGUMENTS_H_
