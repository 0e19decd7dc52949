// SPDX-License-Identifier: Apache-2.0
#include "data/classification/image_source.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "data/classification/picture_table.h"
#include "data/dataset/data_folder.h"
#include "data/dataset/record_input.h"
#include "data/image/decode.h"
#include "data/image/idx.h"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;

// Entries of a directory without hidden ones, sorted by name.
StatusOr<std::vector<std::string>> VisibleEntries(const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(std::vector<std::string> names, ListDirectory(path));
  std::erase_if(names, [](const std::string& name) { return name.starts_with('.'); });
  std::sort(names.begin(), names.end());
  return names;
}

Status AddPictures(const std::string& directory, std::vector<std::string>* files) {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> names, VisibleEntries(directory));
  for (const std::string& name : names) {
    const std::string path = JoinPath(directory, name);
    if (IsDirectory(path)) {
      TESSERA_RETURN_IF_ERROR(AddPictures(path, files));
    } else if (IsImageName(name)) {
      files->push_back(path);
    }
  }
  return OkStatus();
}

class ClassFolders : public ImageSource {
 public:
  static StatusOr<std::shared_ptr<const ImageSource>> Open(const std::string& path, Labels labels) {
    auto source = std::make_shared<ClassFolders>();
    TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> names, VisibleEntries(path));
    for (const std::string& name : names) {
      const std::string folder = JoinPath(path, name);
      if (!IsDirectory(folder)) continue;
      const size_t before = source->files_.size();
      TESSERA_RETURN_IF_ERROR(AddPictures(folder, &source->files_));
      if (source->files_.size() == before) {
        return InvalidArgument(folder, ": no picture (.jpg, .jpeg, .png) of this class");
      }
      source->labels_.resize(source->files_.size(), std::ssize(source->names_));
      source->names_.push_back(name);
    }
    if (source->names_.empty() && labels == Labels::kNeeded) {
      return InvalidArgument(path, ": no class folders (<class>/*.jpg, *.jpeg, *.png) there");
    }
    if (source->names_.empty()) TESSERA_RETURN_IF_ERROR(AddPictures(path, &source->files_));
    if (source->files_.empty()) {
      return InvalidArgument(path, ": no picture (.jpg, .jpeg, .png) there");
    }
    return std::shared_ptr<const ImageSource>(std::move(source));
  }

  int64_t size() const override { return std::ssize(files_); }
  StatusOr<Image> Read(int64_t index) const override {
    return ReadImage(files_.at(static_cast<size_t>(index)));
  }
  std::string NameOf(int64_t index) const override { return files_.at(static_cast<size_t>(index)); }

  static std::shared_ptr<const ImageSource> OfOne(const std::string& path) {
    auto source = std::make_shared<ClassFolders>();
    source->files_.push_back(path);
    return source;
  }

 private:
  std::vector<std::string> files_;
};

// "train-images-idx3-ubyte.gz" as "train-labels-idx1-ubyte.gz".
std::string LabelsBeside(const std::string& images) {
  std::string name = fs::path(images).filename().string();
  for (const auto& [from, to] :
       {std::pair<std::string, std::string>("images", "labels"), {"idx3", "idx1"}}) {
    const size_t at = name.find(from);
    if (at != std::string::npos) name.replace(at, from.size(), to);
  }
  return JoinPath(fs::path(images).parent_path().string(), name);
}

bool IsIdxImages(const std::string& path) {
  const std::string name = fs::path(path).filename().string();
  return name.find("images") != std::string::npos && name.find("idx") != std::string::npos;
}

class IdxFiles : public ImageSource {
 public:
  static StatusOr<std::shared_ptr<const ImageSource>> Open(const std::string& path, Labels wanted) {
    auto source = std::make_shared<IdxFiles>();
    TESSERA_ASSIGN_OR_RETURN(source->images_, ReadIdx(path));
    if (source->images_.shape.size() != 3) {
      return InvalidArgument(path, ": not an array of pictures [count, height, width]");
    }
    const std::string beside = LabelsBeside(path);
    if (wanted == Labels::kOptional && !PathExists(beside)) {
      return std::shared_ptr<const ImageSource>(std::move(source));
    }
    TESSERA_ASSIGN_OR_RETURN(const IdxArray labels, ReadIdx(beside));
    if (labels.shape.size() != 1 || labels.shape[0] != source->images_.shape[0]) {
      return InvalidArgument(beside, ": not one label for each of the ", source->images_.shape[0],
                             " pictures of ", path);
    }
    if (labels.values.empty()) return InvalidArgument(path, ": no pictures there");
    source->labels_.assign(labels.values.begin(), labels.values.end());
    const int classes = 1 + *std::max_element(labels.values.begin(), labels.values.end());
    for (int c = 0; c < classes; ++c) source->names_.push_back(std::to_string(c));
    return std::shared_ptr<const ImageSource>(std::move(source));
  }

  int64_t size() const override { return images_.shape[0]; }
  StatusOr<Image> Read(int64_t index) const override {
    TESSERA_CHECK(index >= 0 && index < size(), "IdxFiles", "there is no picture ", index);
    return images_.ImageAt(index);
  }

 private:
  IdxArray images_;
};

// The file of IDX images in `directory` whose name begins with one of these.
std::optional<std::string> FindIdx(const std::string& directory,
                                   const std::vector<std::string>& names,
                                   std::initializer_list<const char*> beginnings) {
  for (const char* beginning : beginnings) {
    for (const std::string& name : names) {
      if (name.starts_with(beginning) && IsIdxImages(name)) return JoinPath(directory, name);
    }
  }
  return std::nullopt;
}

}  // namespace

StatusOr<ImageParts> FindImageParts(const std::string& path) {
  if (NamesSplit(path)) return ImageParts{.train = path, .validation = ""};
  if (!PathExists(path)) return NotFound(path, ": no such file or directory");
  if (!IsDirectory(path)) {
    TESSERA_ASSIGN_OR_RETURN(const bool is_table, HoldsColumns(path));
    if (is_table || IsIdxImages(path) || IsImageName(path)) {
      return ImageParts{.train = path, .validation = ""};
    }
    return InvalidArgument(path,
                           ": pictures are a folder of class folders, IDX files, or a column of a "
                           "Parquet or Arrow file");
  }
  TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> names, VisibleEntries(path));
  ImageParts parts;
  if (const auto train = FindIdx(path, names, {"train"})) {
    parts.train = *train;
    parts.validation = FindIdx(path, names, {"val", "t10k", "test"}).value_or("");
    return parts;
  }
  if (!IsDirectory(JoinPath(path, "train"))) return ImageParts{.train = path, .validation = ""};
  parts.train = JoinPath(path, "train");
  for (const char* name : {"val", "validation", "valid", "test"}) {
    if (parts.validation.empty() && IsDirectory(JoinPath(path, name))) {
      parts.validation = JoinPath(path, name);
    }
  }
  return parts;
}

StatusOr<std::shared_ptr<const ImageSource>> ImageSource::Open(const std::string& path,
                                                               Labels labels,
                                                               const ImageColumns& columns) {
  bool is_table = NamesSplit(path);
  if (!is_table && PathExists(path) && !IsDirectory(path)) {
    TESSERA_ASSIGN_OR_RETURN(is_table, HoldsColumns(path));
  }
  if (is_table) return OpenPictureTable(path, columns, labels);
  for (const auto& [key, column] : {std::pair("image_column", &columns.image_column),
                                    std::pair("label_columns", &columns.label_column)}) {
    if (column->empty()) continue;
    return InvalidArgument(path, ": ", key, " is '", *column, "', but this is no table");
  }
  if (IsDirectory(path)) return ClassFolders::Open(path, labels);
  if (!IsImageName(path)) return IdxFiles::Open(path, labels);
  if (labels == Labels::kOptional) return ClassFolders::OfOne(path);
  return InvalidArgument(path, ": one picture; labels come from a folder of class folders");
}

}  // namespace tessera::data
