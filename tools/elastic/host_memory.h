// SPDX-License-Identifier: Apache-2.0
// The checkpoints in an agent's memory: which files it has, and files from and for other agents.
#ifndef TESSERA_TOOLS_ELASTIC_HOST_MEMORY_H_
#define TESSERA_TOOLS_ELASTIC_HOST_MEMORY_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "net/http/http_server.h"
#include "tools/elastic/messages.h"
#include "train/run/run_lock.h"

namespace tessera::tools {

class HostMemory {
 public:
  // Makes the folder of the job on this host below `root`, or finds it, and removes those that
  // nobody holds.
  static StatusOr<HostMemory> Open(const std::string& root, const std::string& job,
                                   const std::string& host);

  const std::string& folder() const { return folder_; }
  // What the folder holds now.
  std::map<int64_t, AgentReport::Files> List();
  // Brings files of a checkpoint: by name, the URL of each.
  Status Fetch(int64_t step, const std::map<std::string, std::string>& files) const;
  // Removes checkpoints of steps behind `newest`, one of `step` unless it is `id`, and what was
  // only half brought.
  Status RemoveOthers(int64_t newest, int64_t step, const std::string& id);
  // Removes the folder.
  void Remove();

 private:
  // What an index says.
  struct Indexed {
    uint64_t inode = 0;  // of its file: a checkpoint that replaces another has another one
    std::string id;
    std::vector<std::string> files;
  };
  static StatusOr<Indexed> ReadIndex(const std::string& path, uint64_t inode);
  HostMemory(std::string folder, std::optional<train::RunLock> lock)
      : folder_(std::move(folder)), lock_(std::move(lock)) {}

  std::string folder_;
  std::optional<train::RunLock> lock_;
  std::map<int64_t, Indexed> indexed_;  // by step
};

// Answers GET /<step>/<file> with a file of the folder, on any thread.
void ServeFile(const std::string& folder, net::HttpExchange exchange);

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_ELASTIC_HOST_MEMORY_H_
