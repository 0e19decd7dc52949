// What a run's data are: which task reads which files. What single tasks ask of their data stands
// with them (train/tasks/).
#ifndef TESSERA_TRAIN_CONFIG_DATA_CONFIG_H_
#define TESSERA_TRAIN_CONFIG_DATA_CONFIG_H_

#include <optional>
#include <string>
#include <vector>

#include "core/options.h"

namespace tessera::train {

// A path of `data`, and its weight in a blend.
struct DataSource {
  std::string path;
  std::optional<double> weight;
};

struct DataConfig {
  std::vector<std::string> data;  // files, directories or indexed datasets, each perhaps ":weight"
  std::string task;
  std::string tokenizer;
  std::string val_data;
  double val_fraction = 0.05;
  bool overwrite_cache = false;

  // What `data` lists: "a.txt:0.3" is a.txt with the weight 0.3, unless there is a file (or an
  // indexed dataset) of the whole name.
  std::vector<DataSource> Sources() const;

  static const OptionTable& Table() {
    static const auto* table = new OptionTable(
        OptionTable::Of<DataConfig>("Data")
            .Add("data", &DataConfig::data,
                 "what the table of tasks says; given several times, each with a weight "
                 "(`a.txt:0.3`), a blend of them (a path that exists as it stands has no weight)",
                 {.changes_results = false,
                  .evaluation = true,
                  .aliases = {{"train_file", "Hugging Face"}}})
            .Add("task", &DataConfig::task, "what is learnt: one of the table of tasks",
                 {.unset = "as the model and the data say", .evaluation = true})
            .Add("tokenizer", &DataConfig::tokenizer,
                 "a folder, `byte` or `char`; the small presets take bytes",
                 {.unset = "the model's", .changes_results = false, .evaluation = true})
            .Add("val_data", &DataConfig::val_data, "validation data; wins over `val_fraction`",
                 {.changes_results = false, .aliases = {{"validation_file", "Hugging Face"}}})
            .Add("val_fraction", &DataConfig::val_fraction,
                 "share of the data, from its end, that is held out; 0: no evaluation",
                 {.least = 0, .below = 1})
            .Add("overwrite_cache", &DataConfig::overwrite_cache,
                 "make the data's cache afresh, even if it is up to date",
                 {.changes_results = false}));
    return *table;
  }
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_CONFIG_DATA_CONFIG_H_
