// SPDX-License-Identifier: Apache-2.0
#include "base/mounted_folder.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/file.h"

namespace tessera {
namespace {

using Files = MountedFolder::Files;

// All that is mounted, by path. Never destroyed: folders may be static objects.
class Mounts {
 public:
  static Mounts& OfProcess() {
    static auto* const mounts = new Mounts;
    return *mounts;
  }

  std::string Add(const std::string& name, std::shared_ptr<const Files> files) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::string path = Concat("<", name, ">");
    for (int n = 2; by_path_.contains(path); ++n) path = Concat("<", name, " ", n, ">");
    by_path_.emplace(path, std::move(files));
    return path;
  }
  void Remove(const std::string& path) {
    std::shared_ptr<const Files> files;  // goes without the lock: owners may do anything
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = by_path_.find(path);
    if (found == by_path_.end()) return;
    files = std::move(found->second);
    by_path_.erase(found);
  }
  std::shared_ptr<const Files> Find(std::string_view path) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = by_path_.find(path);
    return found == by_path_.end() ? nullptr : found->second;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const Files>, std::less<>> by_path_;
};

// Calls visit(part) for what is between slashes until it says false.
template <typename Visit>
bool ForEachPart(std::string_view path, Visit visit) {
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    if (!visit(path.substr(begin, end - begin))) return false;
    begin = end + 1;
  }
  return true;
}

bool IsPlainPath(std::string_view path) {
  return ForEachPart(
      path, [](std::string_view part) { return !part.empty() && part != "." && part != ".."; });
}

// "/./a//b/" is "a/b".
std::string Normal(std::string_view path) {
  std::string normal;
  ForEachPart(path, [&](std::string_view part) {
    if (!part.empty() && part != ".") normal.append(normal.empty() ? "" : "/").append(part);
    return true;
  });
  return normal;
}

bool HasFilesBelow(const Files& files, const std::string& folder) {
  const std::string prefix = folder + "/";
  const auto next = files.lower_bound(prefix);
  return next != files.end() && next->first.starts_with(prefix);
}

}  // namespace

// Hosts read by seeking: one call at a time, whoever asks.
struct MountedFile::SerialReader {
  std::mutex mutex;
  Reader read;
};

MountedFile MountedFile::OfBytes(const void* data, int64_t size,
                                 std::shared_ptr<const void> owner) {
  TESSERA_CHECK(size >= 0 && (data != nullptr || size == 0), "mounted file", size, " bytes");
  MountedFile file;
  file.size_ = size;
  file.data_ = static_cast<const std::byte*>(data);
  file.owner_ = std::move(owner);
  return file;
}

MountedFile MountedFile::OfReader(int64_t size, Reader read) {
  TESSERA_CHECK(size >= 0 && read != nullptr, "mounted file", size, " bytes, or no reader");
  MountedFile file;
  file.size_ = size;
  file.reader_ = std::make_shared<SerialReader>();
  file.reader_->read = std::move(read);
  return file;
}

StatusOr<MountedFile> MountedFile::OfDescriptor(int descriptor, int64_t offset, int64_t size,
                                                const std::string& name) {
  TESSERA_ASSIGN_OR_RETURN(MappedFile mapped,
                           MappedFile::OfDescriptor(descriptor, offset, size, name));
  const auto owner = std::make_shared<const MappedFile>(std::move(mapped));
  return OfBytes(owner->data(), owner->size(), owner);
}

Status MountedFile::Read(int64_t offset, void* buffer, int64_t size) const {
  TESSERA_CHECK(offset >= 0 && size >= 0 && offset <= size_ - size, "mounted file", size,
                " bytes from ", offset, " on of ", size_);
  if (size == 0) return OkStatus();
  if (reader_ != nullptr) {
    const std::lock_guard<std::mutex> lock(reader_->mutex);
    return reader_->read(begin_ + offset, buffer, size);
  }
  std::memcpy(buffer, data_ + offset, static_cast<size_t>(size));
  return OkStatus();
}

MountedFile MountedFile::Part(int64_t offset, int64_t size) const {
  TESSERA_CHECK(offset >= 0 && size >= 0 && offset <= size_ - size, "mounted file", size,
                " bytes from ", offset, " on of ", size_);
  MountedFile part = *this;
  part.size_ = size;
  part.begin_ += offset;
  if (data_ != nullptr) part.data_ += offset;
  return part;
}

MountedFolder::MountedFolder(const std::string& name, Files files) {
  for (const auto& [path, file] : files) {
    TESSERA_CHECK(IsPlainPath(path), "mounted folder", "'", path, "' is no path below it");
    TESSERA_CHECK(!HasFilesBelow(files, path), "mounted folder", "'", path,
                  "' is a file and a folder");
  }
  path_ = Mounts::OfProcess().Add(name, std::make_shared<const Files>(std::move(files)));
}

MountedFolder::MountedFolder(MountedFolder&& other) noexcept
    : path_(std::exchange(other.path_, std::string())) {}

MountedFolder& MountedFolder::operator=(MountedFolder&& other) noexcept {
  std::swap(path_, other.path_);
  return *this;
}

MountedFolder::~MountedFolder() {
  if (!path_.empty()) Mounts::OfProcess().Remove(path_);
}

namespace mounted_internal {

const MountedFile* Place::file() const {
  const auto found = files->find(below);
  return found == files->end() ? nullptr : &found->second;
}

bool Place::is_directory() const { return below.empty() || HasFilesBelow(*files, below); }

std::vector<std::string> Place::Names() const {
  const std::string prefix = below.empty() ? "" : below + "/";
  std::set<std::string> names;
  for (auto at = files->lower_bound(prefix); at != files->end(); ++at) {
    if (!at->first.starts_with(prefix)) break;
    names.insert(
        at->first.substr(prefix.size(), at->first.find('/', prefix.size()) - prefix.size()));
  }
  return {names.begin(), names.end()};
}

std::optional<Place> Find(const std::string& path) {
  if (!path.starts_with('<')) return std::nullopt;
  // A name may have any character in it, so that every '>' before a slash or the end may be the
  // folder's last.
  for (size_t at = path.find('>'); at != std::string::npos; at = path.find('>', at + 1)) {
    if (at + 1 < path.size() && path[at + 1] != '/') continue;
    auto files = Mounts::OfProcess().Find(std::string_view(path).substr(0, at + 1));
    if (files != nullptr) return Place{std::move(files), Normal(path.substr(at + 1))};
  }
  return std::nullopt;
}

}  // namespace mounted_internal
}  // namespace tessera
