// SPDX-License-Identifier: Apache-2.0
#include "data/dataset/token_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/checksum.h"
#include "base/file.h"
#include "base/json_text.h"
#include "base/open_file.h"
#include "base/output_files.h"
#include "base/utf8.h"
#include "data/dataset/data_folder.h"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Holds <prefix>.lock from its making to its destruction, which removes the file.
class PrefixLock {
 public:
  static StatusOr<std::unique_ptr<PrefixLock>> Take(const std::string& prefix) {
    const std::string path = prefix + ".lock";
    for (;;) {
      const int fd = OpenFile(path, O_RDWR | O_CREAT, 0666);
      if (fd < 0) return SystemFailure(errno, path, ": cannot write");
      while (flock(fd, LOCK_EX) != 0) {
        if (errno == EINTR) continue;
        const int error = errno;
        close(fd);
        return SystemFailure(error, path, ": cannot lock");
      }
      // The one before has removed the file; another process may have made a new one.
      struct stat mine = {}, now = {};
      if (fstat(fd, &mine) == 0 && stat(path.c_str(), &now) == 0 && mine.st_dev == now.st_dev &&
          mine.st_ino == now.st_ino) {
        return std::unique_ptr<PrefixLock>(new PrefixLock(path, fd));
      }
      close(fd);
    }
  }
  ~PrefixLock() {
    unlink(path_.c_str());
    close(fd_);
  }

 private:
  PrefixLock(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  std::string path_;
  int fd_;
};

// Of what the tokens lie in: a cache that is damaged is made again.
StatusOr<json> Checksums(const std::string& prefix) {
  json sums = json::object();
  for (const char* part : {".bin", ".idx"}) {
    TESSERA_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(prefix + part));
    sums[part] = Crc32c(file.data(), static_cast<size_t>(file.size()));
  }
  return sums;
}

// What is on the disk, if it was made from the same.
std::optional<CachedTokens> FindReusable(const std::string& prefix, const json& made_from) {
  StatusOr<json> made = ReadJsonFile(prefix + ".json");
  if (!made.ok() || !made->is_object() || made->value("made_from", json()) != made_from) {
    return std::nullopt;
  }
  const auto tokens = IndexedDataset::Open(prefix);
  if (!tokens.ok() || made->value("tokens", json()) != (*tokens)->num_tokens()) {
    return std::nullopt;
  }
  const StatusOr<json> sums = Checksums(prefix);
  if (!sums.ok() || made->value("crc32c", json()) != *sums) return std::nullopt;
  return CachedTokens{*tokens, made->value("facts", json()), true};
}

}  // namespace

StatusOr<json> DescribeFiles(const std::vector<std::string>& given) {
  std::vector<std::string> files;
  for (const std::string& path : given) {
    TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> named, FilesOfData(path));
    files.insert(files.end(), named.begin(), named.end());
  }
  json described = json::array();
  for (const std::string& file : files) {
    std::error_code error;
    if (fs::exists(file, error) && !fs::is_regular_file(file, error)) {
      return InvalidArgument(file, IsDirectory(file) ? ": is a directory; give one of its files"
                                                     : ": not a regular file");
    }
    const uintmax_t size = fs::file_size(file, error);
    if (error) return NotFound(file, ": ", error.message());
    const fs::file_time_type time = fs::last_write_time(file, error);
    if (error) return NotFound(file, ": ", error.message());
    described.push_back({{"path", ReplaceInvalidUtf8(fs::absolute(file, error).string())},
                         {"size", size},
                         {"time", time.time_since_epoch().count()}});
  }
  return json{{"inputs", std::move(described)}};
}

StatusOr<CachedTokens> TokensMadeOnce(
    const std::string& prefix, const json& made_from, const TokenCacheOptions& options,
    const std::function<StatusOr<json>(IndexedDatasetWriter*)>& make) {
  const fs::path directory = fs::path(prefix).parent_path();
  if (!directory.empty()) TESSERA_RETURN_IF_ERROR(MakeDirectories(directory.string()));
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<PrefixLock> lock, PrefixLock::Take(prefix));
  if (options.reuse) {
    if (auto found = FindReusable(prefix, made_from)) return *std::move(found);
  }
  for (const char* part : {".bin", ".idx", ".json"}) {
    TESSERA_RETURN_IF_ERROR(RemoveHalfWritten(prefix + part));
  }
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<IndexedDatasetWriter> writer,
                           IndexedDatasetWriter::Create(prefix, options.vocab_size));
  TESSERA_ASSIGN_OR_RETURN(json facts, make(writer.get()));
  // Until the new description is there, nothing on the disk claims to be up to date.
  TESSERA_RETURN_IF_ERROR(RemoveAll(prefix + ".json"));
  const int64_t count = writer->num_tokens();
  TESSERA_RETURN_IF_ERROR(writer->Finish());
  TESSERA_ASSIGN_OR_RETURN(json sums, Checksums(prefix));
  const json made = {{"made_from", made_from},
                     {"tokens", count},
                     {"crc32c", std::move(sums)},
                     {"facts", std::move(facts)}};
  TESSERA_RETURN_IF_ERROR(WriteFileAtomically(prefix + ".json", made.dump() + "\n"));
  TESSERA_ASSIGN_OR_RETURN(const auto tokens, IndexedDataset::Open(prefix));
  return CachedTokens{tokens, made.at("facts"), false};
}

}  // namespace tessera::data
