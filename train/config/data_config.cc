// SPDX-License-Identifier: Apache-2.0
#include "train/config/data_config.h"

#include "base/options.h"

namespace tessera::train {

const OptionTable& DataConfig::Table() {
  static const auto* table = new OptionTable(
      OptionTable::Of<DataConfig>("Data")
          .Add("data", &DataConfig::data,
               "a file or a directory in a format of the task (docs/cli.md); given several times, "
               "each "
               "with a weight (`a.txt:0.3`), a blend of them (a path that exists with such an end "
               "has "
               "no weight)",
               {.type = "FILE",
                .changes_results = false,
                .evaluation = true,
                .aliases = {{"train_file", "Hugging Face"}}})
          .Add("task", &DataConfig::task, "the kind of loss and of data (docs/cli.md lists them)",
               {.unset = "as the model and the data say", .evaluation = true})
          .Add(
              "tokenizer", &DataConfig::tokenizer,
              "a folder, `byte` or `char`; the small presets take bytes",
              {.type = "DIR", .unset = "the model's", .changes_results = false, .evaluation = true})
          .Add("split", &DataConfig::split,
               "reads this split (`train`) of `data`, which must be a data-set folder",
               {.unset = "none", .changes_results = false, .evaluation = true})
          .Add("dataset_config_name", &DataConfig::dataset_config_name,
               "the configuration of a data-set folder, of those that its README.md lists",
               {.unset = "the default one",
                .needs = {{{"split"}, {"val_split"}}},
                .changes_results = false,
                .evaluation = true})
          .Add("val_data", &DataConfig::val_data, "validation data; wins over `val_fraction`",
               {.type = "FILE",
                .changes_results = false,
                .aliases = {{"validation_file", "Hugging Face"}}})
          .Add("val_split", &DataConfig::val_split,
               "the split of `val_data`, else of `data`, that is the validation data",
               {.unset = "none", .changes_results = false})
          .Add("val_fraction", &DataConfig::val_fraction,
               "share that is held out: the data's end, or random pictures; 0: no evaluation",
               {.least = 0, .below = 1})
          .Add("overwrite_cache", &DataConfig::overwrite_cache,
               "make the data's cache afresh, even if it is up to date",
               {.changes_results = false}));
  return *table;
}

}  // namespace tessera::train
