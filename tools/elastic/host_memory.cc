// SPDX-License-Identifier: Apache-2.0
#include "tools/elastic/host_memory.h"

#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <set>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "base/checksum.h"
#include "base/file.h"
#include "dist/checkpoint/checkpoint.h"
#include "dist/checkpoint/index.h"
#include "dist/checkpoint/rank_writer.h"
#include "net/http/http_client.h"

namespace tessera::tools {
namespace {

constexpr char kOurs[] = "tessera-";

// Names of files of a checkpoint: nothing that leads out of its folder.
bool IsFileName(std::string_view name) {
  return !name.empty() && name[0] != '.' && std::all_of(name.begin(), name.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '-';
  });
}

Status FetchFile(const std::string& url, const std::string& path) {
  const size_t host_end = url.find('/', std::string_view("http://").size());
  if (host_end == std::string::npos) return InvalidArgument("'", url, "' names no file");
  TESSERA_ASSIGN_OR_RETURN(net::HttpClient client, net::HttpClient::Open(url.substr(0, host_end)));
  TESSERA_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  Status written;
  TESSERA_ASSIGN_OR_RETURN(
      const net::HttpResponse response,
      client.Stream({.path = url.substr(host_end)}, [&](std::string_view piece) {
        written = file.Append(piece);
        return written.ok();
      }));
  TESSERA_RETURN_IF_ERROR(written);
  if (response.status != 200) return NotFound(url, ": status ", response.status);
  return file.Commit();
}

// Several at a time, as one connection does not fill a fast network.
Status FetchFiles(const std::vector<std::pair<std::string, std::string>>& files,
                  const std::string& folder) {
  constexpr size_t kAtOnce = 8;
  std::atomic<size_t> next{0};
  std::vector<std::future<Status>> fetchers;
  for (size_t i = 0; i < std::min(kAtOnce, files.size()); ++i) {
    fetchers.push_back(std::async(std::launch::async, [&] {
      for (size_t at = next++; at < files.size(); at = next++) {
        const auto& [name, url] = files[at];
        TESSERA_RETURN_IF_ERROR(FetchFile(url, JoinPath(folder, name)));
      }
      return OkStatus();
    }));
  }
  Status all;
  for (std::future<Status>& fetcher : fetchers) {
    const Status one = fetcher.get();
    if (all.ok()) all = one;
  }
  return all;
}

}  // namespace

StatusOr<HostMemory> HostMemory::Open(const std::string& root, const std::string& job,
                                      const std::string& host) {
  const std::string name = Concat(kOurs, job, "-", host);
  TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> others, ListDirectory(root));
  for (const std::string& other : others) {
    if (!other.starts_with(kOurs) || other.starts_with(Concat(kOurs, job))) continue;
    std::optional<train::RunLock> lock;
    const std::string folder = JoinPath(root, other);
    // One that belongs to another user cannot be locked either.
    if (IsDirectory(folder) && train::RunLock::Take(folder, &lock).ok()) (void)RemoveAll(folder);
  }
  std::string folder = JoinPath(root, name);
  std::optional<train::RunLock> lock;
  TESSERA_RETURN_IF_ERROR(train::RunLock::Take(folder, &lock));
  TESSERA_RETURN_IF_ERROR(RemoveTemporaries(folder));
  return HostMemory(std::move(folder), std::move(lock));
}

StatusOr<HostMemory::Indexed> HostMemory::ReadIndex(const std::string& path, uint64_t inode) {
  TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  TESSERA_ASSIGN_OR_RETURN(const dist::CheckpointIndex index, dist::ParseIndex(text, path));
  std::set<std::string> files = {dist::kIndexFile};
  for (const auto& [name, entry] : index.entries) {
    for (const dist::SavedPiece& piece : entry.pieces) files.insert(piece.file);
  }
  return Indexed{inode, Concat(Crc32c(text.data(), text.size())), {files.begin(), files.end()}};
}

std::map<int64_t, AgentReport::Files> HostMemory::List() {
  std::map<int64_t, AgentReport::Files> steps;
  std::map<int64_t, Indexed> indexed;
  for (const int64_t step : dist::ListCheckpoints(folder_)) {
    const std::string path = dist::CheckpointPath(folder_, step);
    const StatusOr<std::vector<std::string>> here = ListDirectory(path);
    if (!here.ok()) continue;
    struct stat written = {};
    const std::string index = JoinPath(path, dist::kIndexFile);
    if (stat(index.c_str(), &written) != 0) continue;
    const auto known = indexed_.find(step);
    if (known != indexed_.end() && known->second.inode == written.st_ino) {
      indexed[step] = known->second;
    } else {
      const StatusOr<Indexed> read = ReadIndex(index, written.st_ino);
      if (!read.ok()) continue;
      indexed[step] = *read;
    }
    AgentReport::Files& files = steps[step];
    files.id = indexed[step].id;
    files.all = indexed[step].files;
    for (const std::string& name : *here) {
      if (IsFileName(name)) files.here.push_back(name);
    }
  }
  indexed_ = std::move(indexed);
  return steps;
}

Status HostMemory::RemoveOthers(int64_t newest, int64_t step, const std::string& id) {
  const std::map<int64_t, AgentReport::Files> whole = List();
  for (const int64_t saved : dist::ListCheckpoints(folder_)) {
    const auto files = whole.find(saved);  // it has an index
    const bool is_other = saved == step && files != whole.end() && files->second.id != id;
    if (saved <= newest && files != whole.end() && !is_other) continue;
    TESSERA_RETURN_IF_ERROR(RemoveAll(dist::CheckpointPath(folder_, saved)));
  }
  return OkStatus();
}

// The index comes last: a folder without one is not a checkpoint.
Status HostMemory::Fetch(int64_t step, const std::map<std::string, std::string>& files) const {
  const std::string path = dist::CheckpointPath(folder_, step);
  TESSERA_RETURN_IF_ERROR(MakeDirectories(path));
  std::vector<std::pair<std::string, std::string>> wanted;
  for (const auto& [name, url] : files) {
    if (!IsFileName(name)) return InvalidArgument("'", name, "' is not a file of a checkpoint");
    if (name != dist::kIndexFile) wanted.emplace_back(name, url);
  }
  TESSERA_RETURN_IF_ERROR(FetchFiles(wanted, path));
  const auto index = files.find(dist::kIndexFile);
  return index == files.end() ? OkStatus() : FetchFile(index->second, JoinPath(path, index->first));
}

void HostMemory::Remove() {
  lock_.reset();
  (void)RemoveAll(folder_);
}

namespace {

// In pieces, no faster than they are sent.
void SendFile(const MappedFile& file, net::HttpExchange exchange) {
  constexpr size_t kPiece = 1 << 20;
  exchange.Begin(200, "application/octet-stream");
  const std::string_view bytes(reinterpret_cast<const char*>(file.data()),
                               static_cast<size_t>(file.size()));
  for (size_t at = 0; at < bytes.size() && !exchange.gone(); at += kPiece) {
    while (exchange.unsent() > kPiece && !exchange.gone()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    exchange.Write(bytes.substr(at, kPiece));
  }
  exchange.End();
}

}  // namespace

void ServeFile(const std::string& folder, net::HttpExchange exchange) {
  const std::string_view path = exchange.request().path;
  const size_t slash = path.find('/', 1);
  int64_t step = -1;
  const bool is_file = slash != std::string_view::npos &&
                       absl::SimpleAtoi(std::string(path.substr(1, slash - 1)), &step) &&
                       step >= 0 && IsFileName(path.substr(slash + 1));
  if (!is_file || folder.empty()) {
    exchange.Respond(net::ErrorResponse(404, "this is not a file of a checkpoint"));
    return;
  }
  StatusOr<MappedFile> file =
      MappedFile::Open(JoinPath(dist::CheckpointPath(folder, step), path.substr(slash + 1)));
  if (!file.ok()) {
    exchange.Respond(net::ErrorResponse(404, Message(file.status())));
    return;
  }
  SendFile(*file, std::move(exchange));
}

}  // namespace tessera::tools
