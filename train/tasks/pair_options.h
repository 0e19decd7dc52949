// What tasks of sources and targets, or prompts and responses, share.
#ifndef TESSERA_TRAIN_TASKS_PAIR_OPTIONS_H_
#define TESSERA_TRAIN_TASKS_PAIR_OPTIONS_H_

#include <cstdint>
#include <string>

#include "core/options.h"

namespace tessera::train {

struct PairOptions {
  int64_t max_source_length = 128;
  int64_t max_target_length = 128;
  std::string source_prefix;
  bool predict_with_generate = false;
  int64_t num_beams = 1;

  static const OptionTable& Table() {
    static const auto* table = new OptionTable(
        OptionTable::Of<PairOptions>("Sources and targets")
            .Add("max_source_length", &PairOptions::max_source_length,
                 "tokens of a source or prompt", {.least = 2, .evaluation = true})
            .Add("max_target_length", &PairOptions::max_target_length,
                 "tokens of a target or response", {.least = 2, .evaluation = true})
            .Add("source_prefix", &PairOptions::source_prefix,
                 "put before every source (`translate English to German: `)", {.evaluation = true})
            .Add("predict_with_generate", &PairOptions::predict_with_generate,
                 "evaluations generate, and compare with the targets", {.evaluation = true})
            .Add("num_beams", &PairOptions::num_beams, "beams of that generation",
                 {.least = 1, .evaluation = true}));
    return *table;
  }
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_TASKS_PAIR_OPTIONS_H_
