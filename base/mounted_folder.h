// SPDX-License-Identifier: Apache-2.0
// Folders that are not on the disk: read-only, seen by this process alone, and known to base/file.h
// by a path of their own, so that whatever reads files reads them.
//
//   const MountedFolder folder("memory", {{"config.json", MountedFile::OfBytes(json, size, owner)},
//                                         {"model.safetensors", MountedFile::OfReader(n, read)}});
//   auto model = models::LoadModel(folder.path());        // "<memory>"
//   // a failure: "<memory>/config.json: is not JSON: ..."
//
// PathExists, IsDirectory, ListDirectory, ReadFile and MappedFile answer for such paths; writing
// there is refused by the system's words for a read-only file system. Paths on the disk do not pay
// for it: only those that begin with '<' are looked up. What has been read or mapped stays valid
// after the folder is gone. Thread-safe. Archives as folders: base/tar_archive.h.
#ifndef TESSERA_BASE_MOUNTED_FOLDER_H_
#define TESSERA_BASE_MOUNTED_FOLDER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace tessera {

// The bytes of a file: there already, or read on demand.
class MountedFile {
 public:
  // Gives the bytes [offset, offset + size), all of which are there. It is called by one thread at
  // a time, whichever; a failure of its own goes to who asked for the file.
  using Reader = std::function<Status(int64_t offset, void* buffer, int64_t size)>;

  // Nothing is copied: mapping the file gives these very bytes. `owner` keeps them alive; without
  // one the caller does, as long as anything that was mapped is used.
  static MountedFile OfBytes(const void* data, int64_t size, std::shared_ptr<const void> owner);
  // A file that is mapped is read whole, into memory that is given back with the mapping.
  static MountedFile OfReader(int64_t size, Reader read);
  // `size` bytes (< 0: all there are) of a regular file that is open, from any `offset` on, mapped.
  // The descriptor may be closed afterwards. `name` is for messages.
  static StatusOr<MountedFile> OfDescriptor(int descriptor, int64_t offset, int64_t size,
                                            const std::string& name);

  int64_t size() const { return size_; }
  // nullptr where they are read on demand (or there are none).
  const std::byte* data() const { return data_; }
  const std::shared_ptr<const void>& owner() const { return owner_; }

  // The range must lie inside the file.
  Status Read(int64_t offset, void* buffer, int64_t size) const;
  // A file that is a range of this one.
  MountedFile Part(int64_t offset, int64_t size) const;

 private:
  struct SerialReader;

  int64_t size_ = 0;
  const std::byte* data_ = nullptr;
  std::shared_ptr<const void> owner_;
  int64_t begin_ = 0;  // of this file in what is read
  std::shared_ptr<SerialReader> reader_;
};

// Mounts files for as long as it lives.
class MountedFolder {
 public:
  // By their paths below the folder: "config.json", "parts/a.txt". Folders are where files are.
  using Files = std::map<std::string, MountedFile>;

  // Throws Error for a file's path that is empty, absolute, or has a part that is empty, "." or
  // "..", and for a file that is another one's folder.
  MountedFolder(const std::string& name, Files files);
  MountedFolder(MountedFolder&& other) noexcept;
  MountedFolder& operator=(MountedFolder&& other) noexcept;
  ~MountedFolder();

  // "<name>"; "<name 2>" and so on where others of this name are mounted.
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

namespace mounted_internal {  // for base/file.cc

// A path that is, or lies below, a mounted folder.
struct Place {
  std::shared_ptr<const MountedFolder::Files> files;
  std::string below;  // "" for the folder itself

  // nullptr: no file.
  const MountedFile* file() const;
  bool is_directory() const;
  // What is in the folder, sorted.
  std::vector<std::string> Names() const;
};
std::optional<Place> Find(const std::string& path);

}  // namespace mounted_internal
}  // namespace tessera

#endif  // TESSERA_BASE_MOUNTED_FOLDER_H_
