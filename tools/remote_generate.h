// SPDX-License-Identifier: Apache-2.0
// `tessera generate --server URL`: texts that a server writes (`tessera serve`), printed as if they
// were written here.
#ifndef TESSERA_TOOLS_REMOTE_GENERATE_H_
#define TESSERA_TOOLS_REMOTE_GENERATE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "nlohmann/json.hpp"
#include "tools/chat.h"

namespace tessera::tools {

struct RemoteModel {
  std::string server;    // http://127.0.0.1:8000
  std::string key_file;  // its first line is the key; empty: none is given
  nlohmann::ordered_json fields = nlohmann::ordered_json::object();  // how texts are chosen
};

Status GenerateTextRemotely(const RemoteModel& remote, const std::string& prompt);
Status GenerateIdsRemotely(const RemoteModel& remote, const std::vector<int64_t>& prompt);
Status GenerateLinesRemotely(const RemoteModel& remote, const std::vector<std::string>& prompts);
Answer RemoteAnswerOf(RemoteModel remote);

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_REMOTE_GENERATE_H_
