// SPDX-License-Identifier: Apache-2.0
// Pictures in a column of Parquet or Arrow files, as `datasets` writes them.
//
//   TESSERA_ASSIGN_OR_RETURN(auto source, OpenPictureTable("beans[train]", {}, Labels::kNeeded));
//
// The column of pictures holds their files' bytes, or structs of `bytes` and `path`; of a row
// without bytes, the file at `path` is read, beside the table. Labels are numbers or texts. Their
// names are those that the file gives (data/columns/class_names.h), else the texts in their order,
// or "0", "1", ... . Pages that are not compressed stay where they lie in the file; of others the
// pictures' bytes, as encoded, are in memory.
#ifndef TESSERA_DATA_CLASSIFICATION_PICTURE_TABLE_H_
#define TESSERA_DATA_CLASSIFICATION_PICTURE_TABLE_H_

#include <memory>
#include <string>

#include "data/classification/image_source.h"

namespace tessera::data {

// `path` is a file, or names a split of a folder. Without `image_column` it is "image", "img", or
// the only column that can be one; without `label_column`, "label", "labels" or the only one of
// integers (a column of texts may be captions).
StatusOr<std::shared_ptr<const ImageSource>> OpenPictureTable(const std::string& path,
                                                              const ImageColumns& columns,
                                                              ImageSource::Labels labels);

}  // namespace tessera::data

#endif  // TESSERA_DATA_CLASSIFICATION_PICTURE_TABLE_H_
