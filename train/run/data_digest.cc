// SPDX-License-Identifier: Apache-2.0
#include "train/run/data_digest.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <system_error>

#include "base/checksum.h"
#include "base/file.h"
#include "data/dataset/data_folder.h"

namespace tessera::train {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kPieces = 64;
constexpr int64_t kPieceBytes = 1 << 16;
// A folder has content read of so many files, evenly spaced.
constexpr size_t kFilesOfFolder = 256;

// Adds what files hold to one checksum.
class Digest {
 public:
  void Add(const std::string& text) { crc_ = Crc32c(text.data(), text.size(), crc_); }

  bool AddFile(const std::string& path) {
    const auto file = MappedFile::Open(path);
    if (!file.ok()) return false;
    const int64_t size = file->size();
    Add(Concat(size, ';'));
    const int64_t pieces = std::min(kPieces, (size + kPieceBytes - 1) / kPieceBytes);
    for (int64_t i = 0; i < pieces; ++i) {
      const int64_t length = std::min(kPieceBytes, size);
      const int64_t begin = pieces == 1 ? 0 : (size - length) / (pieces - 1) * i;
      crc_ = Crc32c(file->data() + begin, static_cast<size_t>(length), crc_);
    }
    some_ = true;
    return true;
  }

  bool AddFolder(const std::string& path) {
    std::vector<std::string> files;
    std::error_code error;
    for (fs::recursive_directory_iterator at(path, error), end; !error && at != end;
         at.increment(error)) {
      if (at->is_regular_file(error)) files.push_back(at->path().string());
    }
    if (error) return false;
    std::sort(files.begin(), files.end());
    for (const std::string& file : files) {
      Add(Concat(file.substr(path.size()), ' ', fs::file_size(file, error), ';'));
    }
    const size_t stride = files.size() / kFilesOfFolder + 1;
    for (size_t i = 0; i < files.size(); i += stride) {
      if (!AddFile(files[i])) return false;
    }
    return !error;
  }

  std::string text() const { return some_ ? Concat("crc32c:", crc_) : std::string(); }

 private:
  uint32_t crc_ = 0;
  bool some_ = false;
};

}  // namespace

std::string DataDigest(const std::vector<DataSource>& sources) {
  Digest digest;
  for (const DataSource& source : sources) {
    digest.Add(Concat(source.weight.value_or(1), ':'));
    bool found = false;
    if (IsDirectory(source.path)) {
      found = digest.AddFolder(source.path);
    } else if (const auto files = data::FilesOfData(source.path);
               files.ok() && PathExists(files->front())) {
      found = std::all_of(files->begin(), files->end(),
                          [&](const std::string& file) { return digest.AddFile(file); });
    } else {  // an indexed dataset
      found = digest.AddFile(source.path + ".bin") && digest.AddFile(source.path + ".idx");
    }
    if (!found) return "";
  }
  return digest.text();
}

}  // namespace tessera::train
