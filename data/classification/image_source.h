// SPDX-License-Identifier: Apache-2.0
// Pictures on the disk, labelled as a rule: a folder of class folders, a pair of IDX files, or a
// column of a table (data/classification/picture_table.h).
//
//   TESSERA_ASSIGN_OR_RETURN(ImageParts parts, FindImageParts("hymenoptera"));
//   TESSERA_ASSIGN_OR_RETURN(auto source, ImageSource::Open(parts.train));
//   source->names();                                        // {"ants", "bees"}
//   TESSERA_ASSIGN_OR_RETURN(Image image, source->Read(0));
//
// Class folders: <folder>/<class>/**/*.{jpg,jpeg,png}, classes in the order of their names. IDX
// (MNIST's format, gzipped or not): <x>images<y> with <x>labels<y> beside it; classes are called
// "0", "1", ... . Where labels may be missing, a folder of pictures, one picture, and IDX images
// alone will do. Pictures of folders are decoded when they are read, IDX files are kept in memory.
#ifndef TESSERA_DATA_CLASSIFICATION_IMAGE_SOURCE_H_
#define TESSERA_DATA_CLASSIFICATION_IMAGE_SOURCE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "data/image/image.h"

namespace tessera::data {

// A path for each part that there is, as ImageSource::Open takes it; empty: none.
struct ImageParts {
  std::string train;
  std::string validation;
};

// What a folder of pictures holds: `train` and `val`, `validation` or `test` below it; train- and
// t10k- files of IDX; or class folders, which are training data then. A path that is no such folder
// (an IDX file of images, a table, a split of a data-set folder, a picture) is the training part
// itself. NotFound and InvalidArgument say what was looked for.
StatusOr<ImageParts> FindImageParts(const std::string& path);

// Where a table has pictures and labels; empty: by their usual names.
struct ImageColumns {
  std::string image_column = {};
  std::string label_column = {};
};

class ImageSource {
 public:
  virtual ~ImageSource() = default;
  enum class Labels { kNeeded, kOptional };
  // InvalidArgument for a class without a picture, no class at all where labels are needed, files
  // whose numbers of images and labels differ, columns of what is no table.
  static StatusOr<std::shared_ptr<const ImageSource>> Open(const std::string& path,
                                                           Labels labels = Labels::kNeeded,
                                                           const ImageColumns& columns = {});

  virtual int64_t size() const = 0;
  // Safe from several threads. A failure names the file.
  virtual StatusOr<Image> Read(int64_t index) const = 0;
  // The file of a picture that has one of its own, or its row of a table, else empty.
  virtual std::string NameOf(int64_t /*index*/) const { return ""; }
  bool has_labels() const { return !names_.empty(); }
  int64_t label(int64_t index) const { return labels_[static_cast<size_t>(index)]; }
  const std::vector<int64_t>& labels() const { return labels_; }
  const std::vector<std::string>& names() const { return names_; }

 protected:
  // Empty without labels.
  std::vector<int64_t> labels_;  // of each picture, an index of names_
  std::vector<std::string> names_;
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_CLASSIFICATION_IMAGE_SOURCE_H_
