// SPDX-License-Identifier: Apache-2.0
// What a run's data are: which task reads which files. What single tasks ask of their data stands
// with them (train/tasks/).
#ifndef TESSERA_TRAIN_CONFIG_DATA_CONFIG_H_
#define TESSERA_TRAIN_CONFIG_DATA_CONFIG_H_

#include <optional>
#include <string>
#include <vector>

#include "base/options_fwd.h"

namespace tessera::train {

// A path of `data`, and its weight in a blend.
struct DataSource {
  std::string path;
  std::optional<double> weight;
};

// Keys of a run's data.
struct DataConfig {
  std::vector<std::string> data;  // files, directories or indexed datasets, each perhaps ":weight"
  std::string task;
  std::string tokenizer;
  std::string split;
  std::string dataset_config_name;
  std::string val_data;
  std::string val_split;
  double val_fraction = 0.05;
  bool overwrite_cache = false;

  // What `data` lists: "a.txt:0.3" is a.txt with the weight 0.3, unless there is a file (or an
  // indexed dataset) of the whole name.
  // With `split`, a path is that of the split (data/dataset/data_folder.h).
  std::vector<DataSource> Sources() const;
  // The path of the validation data: `val_data`, or a split of it or of `data`; empty: none.
  std::string Validation() const;

  static const OptionTable& Table();
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_CONFIG_DATA_CONFIG_H_
