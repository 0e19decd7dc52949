// SPDX-License-Identifier: Apache-2.0
#include "data/classification/picture_table.h"

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "data/columns/class_names.h"
#include "data/columns/column_json.h"
#include "data/columns/open_table.h"
#include "data/dataset/data_folder.h"
#include "data/image/decode.h"
#include "nlohmann/json.hpp"

namespace tessera::data {
namespace {

bool HoldsIntegers(const ColumnType& type) {
  return type.kind >= TypeKind::kInt8 && type.kind <= TypeKind::kUInt64;
}
bool CanBeLabel(const ColumnType& type) {
  return HoldsIntegers(type) || type.kind == TypeKind::kString;
}

// Of a struct, the number of a member.
int MemberOf(const ColumnType& type, std::string_view name, TypeKind kind) {
  for (size_t i = 0; i < type.children.size(); ++i) {
    const Field& member = type.children[i];
    if (member.name == name && member.type->kind == kind) return static_cast<int>(i);
  }
  return -1;
}
bool HoldsPictures(const ColumnType& type) {
  return type.kind == TypeKind::kBinary ||
         (type.kind == TypeKind::kStruct && MemberOf(type, "bytes", TypeKind::kBinary) >= 0);
}

// The column that is asked for, else the first of `names`, else the only one that `suggests`
// itself.
template <typename Fits, typename Suggests>
StatusOr<std::string> ChooseColumn(const TableReader& table, const std::string& asked,
                                   std::initializer_list<const char*> names, const char* what,
                                   const char* key, const Fits& fits, const Suggests& suggests) {
  const auto find = [&](const std::string& name) {
    return std::ranges::find(table.fields(), name, &Field::name);
  };
  const auto none = [&](const std::string& problem) {
    return InvalidArgument(table.path(), ": ", problem, " (columns: ", FieldsText(table.fields()),
                           ")");
  };
  if (!asked.empty()) {
    const auto at = find(asked);
    if (at == table.fields().end()) return none(Concat("no column '", asked, "'"));
    if (!fits(*at->type)) return none(Concat("column '", asked, "' holds no ", what));
    return asked;
  }
  for (const char* name : names) {
    const auto at = find(name);
    if (at != table.fields().end() && fits(*at->type)) return std::string(name);
  }
  std::vector<std::string> fitting;
  for (const Field& field : table.fields()) {
    if (suggests(*field.type)) fitting.push_back(field.name);
  }
  if (fitting.size() == 1) return fitting[0];
  return none(Concat(fitting.empty() ? "no column of " : "several columns may hold ", what, "; ",
                     key, " names one"));
}

class PictureTable : public ImageSource {
 public:
  // The rows of one more file.
  Status Add(const std::string& file, const ImageColumns& columns, Labels wanted) {
    TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<TableReader> table, OpenTable(file));
    TESSERA_ASSIGN_OR_RETURN(
        const std::string pictures,
        ChooseColumn(*table, columns.image_column, {"image", "img"}, "pictures", "image_column",
                     HoldsPictures, HoldsPictures));
    const auto labels = ChooseColumn(*table, columns.label_column, {"label", "labels"}, "labels",
                                     "label_columns", CanBeLabel, HoldsIntegers);
    const bool needed = wanted == Labels::kNeeded || !columns.label_column.empty();
    if (needed && !labels.ok()) return labels.status();
    std::vector<std::string> selected = {pictures};
    if (labels.ok()) selected.push_back(*labels);
    TESSERA_RETURN_IF_ERROR(table->Select(selected));
    if (labels.ok() && parts_.empty()) names_ = ClassNames(*table, *labels);
    labelled_ = labelled_ && labels.ok();
    RecordBatch batch;
    while (true) {
      TESSERA_ASSIGN_OR_RETURN(const bool more, table->Next(&batch));
      if (!more) return OkStatus();
      TESSERA_RETURN_IF_ERROR(AddRows(file, batch, labels.ok(), wanted));
    }
  }

  // Gives labels their ids, when all files are there.
  Status Finish(const std::string& path, Labels wanted) {
    if (size_ == 0) return InvalidArgument(path, ": no pictures there");
    if (wanted == Labels::kOptional && !labelled_) {
      labels_.clear();
      names_.clear();
      return OkStatus();
    }
    if (names_.empty() && !texts_.empty()) {
      const std::set<std::string> distinct(texts_.begin(), texts_.end());
      names_.assign(distinct.begin(), distinct.end());
    }
    if (!texts_.empty()) {
      for (const std::string& text : texts_) {
        const auto at = std::ranges::find(names_, text);
        if (at == names_.end()) {
          return InvalidArgument(path, ": label '", text, "' is none of the file's classes");
        }
        labels_.push_back(at - names_.begin());
      }
      texts_.clear();
    }
    const int64_t largest = *std::ranges::max_element(labels_);
    if (names_.empty()) {
      for (int64_t c = 0; c <= largest; ++c) names_.push_back(std::to_string(c));
    }
    if (largest < std::ssize(names_)) return OkStatus();
    return InvalidArgument(path, ": label ", largest, ", but the file names ", names_.size(),
                           " classes");
  }

  int64_t size() const override { return size_; }
  StatusOr<Image> Read(int64_t index) const override {
    const auto [part, row] = Find(index);
    const Column* bytes = &part->pictures;
    if (bytes->type->kind == TypeKind::kStruct) {
      const Column& files = *bytes;
      bytes =
          &files.children[static_cast<size_t>(MemberOf(*files.type, "bytes", TypeKind::kBinary))];
      const std::string path = PathOf(files, row);
      if (bytes->IsNull(row) && !path.empty()) {
        return ReadImage(JoinPath(std::filesystem::path(part->file).parent_path().string(), path));
      }
    }
    const std::string where = Concat(part->file, "[", part->first_row + row, "]");
    if (bytes->IsNull(row)) return InvalidArgument(where, ": there is no picture");
    return DecodeImage(bytes->strings[row], where);
  }
  std::string NameOf(int64_t index) const override {
    const auto [part, row] = Find(index);
    const std::string path =
        part->pictures.type->kind == TypeKind::kStruct ? PathOf(part->pictures, row) : "";
    return path.empty() ? Concat(part->file, "[", part->first_row + row, "]") : path;
  }

 private:
  struct Part {
    std::string file;
    int64_t first_row;  // within the file
    int64_t first;      // within the source
    Column pictures;
  };

  static std::string PathOf(const Column& pictures, int64_t row) {
    const int path = MemberOf(*pictures.type, "path", TypeKind::kString);
    if (path < 0 || pictures.IsNull(row)) return "";
    const Column& paths = pictures.children[static_cast<size_t>(path)];
    return paths.IsNull(row) ? "" : std::string(paths.strings[row]);
  }

  std::pair<const Part*, int64_t> Find(int64_t index) const {
    TESSERA_CHECK(index >= 0 && index < size_, "PictureTable", "there is no picture ", index);
    const auto behind = std::ranges::upper_bound(parts_, index, {}, &Part::first);
    const Part* const part = &*std::prev(behind);
    return {part, index - part->first};
  }

  Status AddRows(const std::string& file, const RecordBatch& batch, bool labels, Labels wanted) {
    const Column& rows = batch.rows;
    parts_.push_back({file, batch.first_row, size_, rows.children[0]});
    size_ += rows.length;
    if (!labels) return OkStatus();
    const Column& column = rows.children[1];
    const bool text = column.type->kind == TypeKind::kString;
    if (text ? !labels_.empty() : !texts_.empty()) {
      return InvalidArgument(file, ": labels are texts in one file and numbers in another");
    }
    for (int64_t row = 0; row < rows.length; ++row) {
      const auto where = [&] { return Concat(file, "[", batch.first_row + row, "]"); };
      if (column.IsNull(row)) {
        if (wanted != Labels::kOptional) {
          return InvalidArgument(where(), ": there is no label");
        }
        labelled_ = false;
        continue;
      }
      if (text) {
        texts_.emplace_back(column.strings[row]);
        continue;
      }
      const auto label = JsonOf(column, row).get<int64_t>();
      if (label == -1 && wanted == Labels::kOptional) labelled_ = false;
      if (label < 0 && labelled_) {
        return InvalidArgument(where(), ": label ", label,
                               label == -1 ? ", which means none" : " is below 0");
      }
      if (label >= kMostClasses) return InvalidArgument(where(), ": label ", label);
      labels_.push_back(label);
    }
    return OkStatus();
  }

  static constexpr int64_t kMostClasses = 1 << 24;
  std::vector<Part> parts_;
  std::vector<std::string> texts_;  // the labels, where they are no numbers
  int64_t size_ = 0;
  bool labelled_ = true;
};

}  // namespace

StatusOr<std::shared_ptr<const ImageSource>> OpenPictureTable(const std::string& path,
                                                              const ImageColumns& columns,
                                                              ImageSource::Labels labels) {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> files, FilesOfData(path));
  auto source = std::make_shared<PictureTable>();
  for (const std::string& file : files) {
    TESSERA_RETURN_IF_ERROR(source->Add(file, columns, labels));
  }
  TESSERA_RETURN_IF_ERROR(source->Finish(path, labels));
  return std::shared_ptr<const ImageSource>(std::move(source));
}

}  // namespace tessera::data
