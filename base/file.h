// SPDX-License-Identifier: Apache-2.0
// Files and directories of the outside world, read whole or mapped, and written whole or not at
// all.
//
//   TESSERA_ASSIGN_OR_RETURN(std::string text, ReadFile("run.json"));
//   TESSERA_RETURN_IF_ERROR(WriteFileAtomically("out/config.json", text));
//
//   TESSERA_ASSIGN_OR_RETURN(AtomicDirectory dir, AtomicDirectory::Create("out/checkpoint-10"));
//   ... write files below dir.temporary_path() ...
//   TESSERA_RETURN_IF_ERROR(dir.Commit());       // now, and not before, checkpoint-10 exists
//
// What is being written is beside its destination under the name `<path>.tmp-<pid>-<n>`; it is
// synced to the disk and renamed. A process that is killed leaves such a name behind, never half a
// destination; `RemoveTemporaries` clears them away.
//
// Reading also knows the folders of base/mounted_folder.h, which are on no disk.
//
// Every failure is a status whose message is "<path>: <what the system says>": NotFound for a
// missing path, PermissionDenied, ResourceExhausted for a full disk, and so on.
#ifndef TESSERA_BASE_FILE_H_
#define TESSERA_BASE_FILE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tessera {

// ---- Names -------------------------------------------------------------------------------------

// "a" and "b" give "a/b"; an empty directory gives the name alone.
std::string JoinPath(std::string_view directory, std::string_view name);
bool PathExists(const std::string& path);
bool IsDirectory(const std::string& path);
// The names (without the directory) of all entries, sorted.
StatusOr<std::vector<std::string>> ListDirectory(const std::string& path);
// Makes the directory and its missing parents; one that exists is fine.
Status MakeDirectories(const std::string& path);
// Removes a file, or a directory with all it holds; a missing path is fine.
Status RemoveAll(const std::string& path);
// Removes what killed processes left half-written in `directory`: every `*.tmp-<pid>-<n>`. To be
// called by the one who owns the directory, while nobody writes there.
Status RemoveTemporaries(const std::string& directory);

// ---- Reading -----------------------------------------------------------------------------------

// The whole content, of a pipe or device as well; a FIFO must have somebody who writes to it.
StatusOr<std::string> ReadFile(const std::string& path);

// A file's bytes, mapped read-only. Touching those that another process has cut off meanwhile is a
// SIGBUS (EndWhenMappedFilesShrink); files written by this library are replaced, never changed.
// Copies share the mapping.
class MappedFile {
 public:
  // Refuses what is not a regular file. An empty file gives size() == 0.
  static StatusOr<MappedFile> Open(const std::string& path);
  // `size` bytes (< 0: all there are) of a regular file that is open, from `offset` on, which need
  // not be a page's begin. The descriptor may be closed afterwards. `name` is for messages.
  static StatusOr<MappedFile> OfDescriptor(int descriptor, int64_t offset, int64_t size,
                                           const std::string& name);

  const std::byte* data() const { return data_.get(); }
  int64_t size() const { return size_; }
  const std::string& path() const { return path_; }
  // Whoever holds it keeps the bytes; nullptr where somebody else does (base/mounted_folder.h).
  const std::shared_ptr<const std::byte>& owner() const { return data_; }

 private:
  std::shared_ptr<const std::byte> data_;
  int64_t size_ = 0;
  std::string path_;
};

// For programs, at their start: one that touches bytes which a mapped file no longer has ends with
// status 1 and the line "error: <path>: was cut short while it was read", instead of a bare SIGBUS.
// Libraries leave signals to their hosts.
void EndWhenMappedFilesShrink();

// ---- Writing -----------------------------------------------------------------------------------

// Replaces the file by `content`: afterwards it holds the old bytes or the new ones, whatever
// fails in between.
Status WriteFileAtomically(const std::string& path, std::string_view content);

// The same for content that comes piece by piece. Destroyed before `Commit`, it leaves nothing. A
// destination that is no regular file (a pipe, /dev/stdout) is written to directly.
class AtomicFile {
 public:
  static StatusOr<AtomicFile> Create(const std::string& path);

  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();

  Status Append(const void* bytes, size_t size);
  Status Append(std::string_view text) { return Append(text.data(), text.size()); }
  // Syncs, renames and syncs the directory. Nothing may be appended afterwards.
  Status Commit();

 private:
  AtomicFile(std::string path, std::string temporary, int descriptor);
  Status Flush();

  std::string path_;
  std::string temporary_;
  int descriptor_ = -1;
  std::vector<char> buffer_;
};

// A directory that appears whole or not at all. Destroyed before `Commit`, it leaves nothing.
class AtomicDirectory {
 public:
  // Makes the temporary directory (and missing parents of `path`).
  static StatusOr<AtomicDirectory> Create(const std::string& path);

  AtomicDirectory(AtomicDirectory&& other) noexcept;
  AtomicDirectory& operator=(AtomicDirectory&&) = delete;
  ~AtomicDirectory();

  // Where the files are to be written.
  const std::string& temporary_path() const { return temporary_; }

  // Syncs every file and directory below, then renames. `Commit` fails when the destination
  // exists; `CommitReplacing` exchanges the two in one step and removes the old one.
  Status Commit();
  Status CommitReplacing();

 private:
  AtomicDirectory(std::string path, std::string temporary);

  std::string path_;
  std::string temporary_;
};

}  // namespace tessera

#endif  // TESSERA_BASE_FILE_H_
