// SPDX-License-Identifier: Apache-2.0
// A `tessera serve` that meets faults, and one question to it.
#ifndef TESSERA_TESTS_FAULTS_ASKED_SERVER_H_
#define TESSERA_TESTS_FAULTS_ASKED_SERVER_H_

#include <chrono>
#include <string>
#include <vector>

#include "net/http/http_client.h"
#include "tests/process/process.h"

namespace tessera {

inline std::vector<std::string> ServeArguments(const std::string& model) {
  return {"serve", "--model", model, "--port", "0", "--name", "served"};
}

// Where it listens; "" where it has ended.
inline std::string UrlOf(Process& server) {
  const std::string begin = "listening on ";
  while (!server.EndsWithin(std::chrono::milliseconds(10))) {
    const std::string out = server.Output();
    const size_t end = out.find('\n');
    if (out.starts_with(begin) && end != std::string::npos) {
      return out.substr(begin.size(), end - begin.size());
    }
  }
  return std::string();
}

// The answer to one completion; "" where there is none.
inline std::string Ask(const std::string& url, int* status) {
  *status = 0;
  auto client = net::HttpClient::Open(url, {.timeout = std::chrono::seconds(20)});
  if (!client.ok()) return "";
  const auto answer = client->Send(
      {.method = "POST",
       .path = "/v1/completions",
       .headers = {{"Content-Type", "application/json"}},
       .body = R"({"model": "served", "prompt": "line 1", "max_tokens": 4, "temperature": 0})"});
  if (!answer.ok()) return "";
  *status = answer->status;
  const size_t text = answer->body.find("\"text\"");
  return text == std::string::npos ? "" : answer->body.substr(text, 40);
}

}  // namespace tessera

#endif  // TESSERA_TESTS_FAULTS_ASKED_SERVER_H_
