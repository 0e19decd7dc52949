// SPDX-License-Identifier: Apache-2.0
// What a run's files of data hold, in a few characters: a run that continues on other files
// notices.
//
//   const std::string digest = DataDigest(config.Sources());
#ifndef TESSERA_TRAIN_RUN_DATA_DIGEST_H_
#define TESSERA_TRAIN_RUN_DATA_DIGEST_H_

#include <string>
#include <vector>

#include "train/config/data_config.h"

namespace tessera::train {

// Of the sizes of all files, of the names within folders, and of 64 pieces of each file's content:
// a change of a few bytes in a large file may pass unseen. Paths do not matter, so that data may be
// moved. Empty where there is no file, or one cannot be read.
std::string DataDigest(const std::vector<DataSource>& sources);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_RUN_DATA_DIGEST_H_
