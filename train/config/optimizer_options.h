// What single optimizers ask of a run's configuration.
#ifndef TESSERA_TRAIN_CONFIG_OPTIMIZER_OPTIONS_H_
#define TESSERA_TRAIN_CONFIG_OPTIMIZER_OPTIONS_H_

#include <vector>

#include "core/options.h"

namespace tessera::train {

struct ScaledOptions {
  bool scale_parameter = false;

  static const OptionTable& Table() {
    static const auto* table = new OptionTable(
        OptionTable::Of<ScaledOptions>("Optimizers")
            .Add("scale_parameter", &ScaledOptions::scale_parameter,
                 "`lr` is times the root mean square of each parameter's values at the start, as "
                 "Adafactor's: what T5, whose parameters begin at very different scales, is "
                 "trained with"));
    return *table;
  }
};

struct AdamKeys : ScaledOptions {
  std::vector<double> betas = {0.9, 0.95};
  double eps = 1e-8;

  static const OptionTable& Table() {
    static const auto* table =
        new OptionTable(OptionTable::Of<AdamKeys>("Adam and AdamW")
                            .Include<AdamKeys, ScaledOptions>()
                            .Add("betas", &AdamKeys::betas, "decay rates of the moments",
                                 {.least = 0, .below = 1, .count = 2})
                            .Add("eps", &AdamKeys::eps, "added to the root of the second moment",
                                 {.least = 0, .aliases = {{"adam_epsilon", "Hugging Face"}}}));
    return *table;
  }
};

struct SgdKeys : ScaledOptions {
  double momentum = 0.9;

  static const OptionTable& Table() {
    static const auto* table =
        new OptionTable(OptionTable::Of<SgdKeys>("SGD").Include<SgdKeys, ScaledOptions>().Add(
            "momentum", &SgdKeys::momentum, "0: none", {.least = 0, .neutral = 0}));
    return *table;
  }
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_CONFIG_OPTIMIZER_OPTIONS_H_
