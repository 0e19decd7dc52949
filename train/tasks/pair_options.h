// SPDX-License-Identifier: Apache-2.0
// What tasks of sources and targets, prompts and responses, or conversations share.
#ifndef TESSERA_TRAIN_TASKS_PAIR_OPTIONS_H_
#define TESSERA_TRAIN_TASKS_PAIR_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "base/options.h"

namespace tessera::train {

// How evaluations write.
struct WritingOptions {
  bool predict_with_generate = false;
  std::optional<int64_t> num_beams = {};

  static const OptionTable& Table() {
    static const auto* table = new OptionTable(
        OptionTable::Of<WritingOptions>("Written texts")
            .Add("predict_with_generate", &WritingOptions::predict_with_generate,
                 "evaluations generate, and compare with the targets", {.evaluation = true})
            .Add("num_beams", &WritingOptions::num_beams, "beams of that generation",
                 {.least = 1, .unset = "the folder's, else 1", .evaluation = true}));
    return *table;
  }
};

// How long texts in pairs may be, and how those that the model writes are.
struct PairOptions : WritingOptions {
  int64_t max_source_length = 128;
  int64_t max_target_length = 128;
  std::string source_prefix;

  static const OptionTable& Table() {
    static const auto* table = new OptionTable(
        OptionTable::Of<PairOptions>("Sources and targets")
            .Add("max_source_length", &PairOptions::max_source_length,
                 "tokens of a source or prompt", {.least = 2, .evaluation = true})
            .Add("max_target_length", &PairOptions::max_target_length,
                 "tokens of a target or response", {.least = 2, .evaluation = true})
            .Add("source_prefix", &PairOptions::source_prefix,
                 "put before every source (`translate English to German: `)", {.evaluation = true})
            .Include<PairOptions, WritingOptions>());
    return *table;
  }
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_TASKS_PAIR_OPTIONS_H_
