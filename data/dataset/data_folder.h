// SPDX-License-Identifier: Apache-2.0
// Data-set folders as they are downloaded from the Hugging Face Hub, or written by `datasets`, and
// the files of one of their splits.
//
//   const std::string path = SplitPath("squad", "train");            // "squad[train]"
//   TESSERA_ASSIGN_OR_RETURN(const auto files, FilesOfData(path));   // squad/data/train-00000-....
//
// A path of this kind stands for the records of all these files, one file behind the other, in the
// order of their names, wherever a file of records is read (record_input.h, json_records.h,
// text_input.h).
//
// What a split is, the first of these says that is there:
//   dataset_dict.json or state.json, which `save_to_disk` writes;
//   `configs` in the first part of README.md (YAML): the files of each split, of the configuration
//     that is asked for, else of the only one, the one with `default: true` or the one that is
//     called "default";
//   names of files: "train.jsonl", "data/train-00000-of-00002.parquet", "train/0000.parquet". A
//     configuration is a folder then.
// Other words for a split are "dev", "valid" and "val" for "validation", and "eval" for "test".
#ifndef TESSERA_DATA_DATASET_DATA_FOLDER_H_
#define TESSERA_DATA_DATASET_DATA_FOLDER_H_

#include <string>
#include <vector>

#include "base/status.h"

namespace tessera::data {

// The text that names a split of a folder. Without a split it is the folder itself.
std::string SplitPath(const std::string& folder, const std::string& split,
                      const std::string& config = "");

// Whether it names a split of a folder that is there.
bool NamesSplit(const std::string& path);

// A path itself, or the files of the split that it names; never empty. InvalidArgument, with those
// that there are, for a split or a configuration that is not there.
StatusOr<std::vector<std::string>> FilesOfData(const std::string& path);

// The first of those files; the others are of its kind. Where there is none, the path itself.
std::string FirstFileOfData(const std::string& path);

// The regular files below a folder, hidden ones left out, sorted. InvalidArgument where data would
// be left out: for a link to nothing (a file that was moved, a disk that is not mounted), and for
// one to a folder elsewhere. A link to the folder itself, or to one below it, adds nothing.
StatusOr<std::vector<std::string>> FilesBelow(const std::string& folder);

}  // namespace tessera::data

#endif  // TESSERA_DATA_DATASET_DATA_FOLDER_H_
