// SPDX-License-Identifier: Apache-2.0
#include "tools/remote_generate.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "core/file.h"
#include "data/dataset/json_records.h"
#include "net/http/http_client.h"
#include "tools/command_line.h"

namespace tessera::tools {
namespace {

using nlohmann::ordered_json;

// A text that waits for its slot says nothing meanwhile.
constexpr std::chrono::minutes kPatience{15};

class Client {
 public:
  static StatusOr<Client> Open(const RemoteModel& remote) {
    TESSERA_ASSIGN_OR_RETURN(net::HttpClient http, net::HttpClient::Open(remote.server, kPatience));
    Client client(std::move(http), remote.server);
    if (remote.key_file.empty()) return client;
    TESSERA_ASSIGN_OR_RETURN(const std::string keys, ReadFile(remote.key_file));
    const std::string key = keys.substr(0, keys.find_first_of("\r\n"));
    client.headers_ = {{"Authorization", "Bearer " + key}};
    return client;
  }

  StatusOr<ordered_json> Get(const std::string& path) {
    TESSERA_ASSIGN_OR_RETURN(const net::HttpResponse response,
                             http_.Send({.path = path, .headers = headers_}));
    return Body(response);
  }
  StatusOr<ordered_json> Post(const std::string& path, const ordered_json& body) {
    TESSERA_ASSIGN_OR_RETURN(const net::HttpResponse response, http_.Send(Request(path, body)));
    return Body(response);
  }

  // Events of a stream, as they come.
  Status Stream(const std::string& path, ordered_json body,
                const std::function<Status(const ordered_json& event)>& on_event) {
    body["stream"] = true;
    std::string text;
    Status status;
    bool done = false;
    const auto take = [&](std::string_view piece) {
      text += piece;
      for (size_t end; status.ok() && (end = text.find("\n\n")) != std::string::npos;) {
        const std::string line = text.substr(0, end);
        text.erase(0, end + 2);
        constexpr std::string_view kData = "data: ";
        if (!line.starts_with(kData)) continue;
        const std::string data = line.substr(kData.size());
        done = done || data == "[DONE]";
        if (!done) status = Event(data, on_event);
      }
      return status.ok();
    };
    TESSERA_ASSIGN_OR_RETURN(const net::HttpResponse response,
                             http_.Stream(Request(path, body), take));
    TESSERA_RETURN_IF_ERROR(status);
    if (response.status != 200) return Body(response).status();
    return done ? OkStatus() : Internal(server_, ": the answer ended in its midst");
  }

 private:
  Client(net::HttpClient http, std::string server)
      : http_(std::move(http)), server_(std::move(server)) {}

  net::HttpRequest Request(const std::string& path, const ordered_json& body) const {
    return {.method = "POST", .path = path, .headers = headers_, .body = body.dump()};
  }
  Status Failure(const ordered_json& body, bool ours) const {
    const std::string message = body["error"].value("message", "it gives no reason");
    return ours ? InvalidArgument(server_, ": ", message) : Internal(server_, ": ", message);
  }
  StatusOr<ordered_json> Body(const net::HttpResponse& response) const {
    TESSERA_ASSIGN_OR_RETURN(ordered_json body, data::ParseOrderedJson(response.body, server_));
    if (response.status == 200) return body;
    if (body.is_object() && body.contains("error") && body["error"].is_object()) {
      return Failure(body, response.status < 500);
    }
    return Internal(server_, ": HTTP status ", response.status);
  }
  Status Event(const std::string& data,
               const std::function<Status(const ordered_json& event)>& on_event) const {
    TESSERA_ASSIGN_OR_RETURN(const ordered_json event, data::ParseOrderedJson(data, server_));
    if (event.contains("error")) return Failure(event, /*ours=*/false);
    return on_event(event);
  }

  net::HttpClient http_;
  std::string server_;
  std::vector<net::HttpHeader> headers_;
};

constexpr char kCompletions[] = "/v1/completions";

ordered_json With(ordered_json fields, const char* key, ordered_json value) {
  fields[key] = std::move(value);
  return fields;
}

}  // namespace

Status GenerateTextRemotely(const RemoteModel& remote, const std::string& prompt) {
  TESSERA_ASSIGN_OR_RETURN(Client client, Client::Open(remote));
  TESSERA_ASSIGN_OR_RETURN(const ordered_json models, client.Get("/v1/models"));
  // Shown with the first text, so that a refused one shows nothing.
  std::string pending = models["data"][0].value("continues_prompt", true) ? prompt : "";
  TESSERA_RETURN_IF_ERROR(client.Stream(
      kCompletions, With(remote.fields, "prompt", prompt), [&](const ordered_json& event) {
        const std::string text = event["choices"][0].value("text", "");
        if (text.empty()) return OkStatus();
        return WriteOut(std::exchange(pending, "") + text);
      }));
  return WriteOut(pending + "\n");
}

Status GenerateIdsRemotely(const RemoteModel& remote, const std::vector<int64_t>& prompt) {
  TESSERA_ASSIGN_OR_RETURN(Client client, Client::Open(remote));
  const ordered_json body = With(With(remote.fields, "prompt", prompt), "return_token_ids", true);
  TESSERA_ASSIGN_OR_RETURN(const ordered_json answer, client.Post(kCompletions, body));
  std::string line;
  for (const char* key : {"prompt_token_ids", "token_ids"}) {
    for (const ordered_json& id : answer["choices"][0][key]) {
      line += Concat(line.empty() ? "" : ",", id.get<int64_t>());
    }
  }
  return WriteOut(line + "\n");
}

Status GenerateLinesRemotely(const RemoteModel& remote, const std::vector<std::string>& prompts) {
  if (prompts.empty()) return OkStatus();
  TESSERA_ASSIGN_OR_RETURN(Client client, Client::Open(remote));
  TESSERA_ASSIGN_OR_RETURN(const ordered_json answer,
                           client.Post(kCompletions, With(remote.fields, "prompt", prompts)));
  for (const ordered_json& choice : answer["choices"]) {
    std::string text = choice.value("text", "");
    std::replace(text.begin(), text.end(), '\n', ' ');
    TESSERA_RETURN_IF_ERROR(WriteOut(text + "\n"));
  }
  return OkStatus();
}

Answer RemoteAnswerOf(RemoteModel remote) {
  return [remote = std::move(remote)](const data::Conversation& chat,
                                      uint64_t turn) -> StatusOr<std::string> {
    TESSERA_ASSIGN_OR_RETURN(Client client, Client::Open(remote));
    ordered_json body = remote.fields;
    body["messages"] = chat.messages;
    if (!chat.tools.is_null()) body["tools"] = chat.tools;
    body["seed"] = body.value("seed", uint64_t{0}) + turn;
    std::string text;
    TESSERA_RETURN_IF_ERROR(
        client.Stream("/v1/chat/completions", body, [&](const ordered_json& event) {
          const std::string piece = event["choices"][0]["delta"].value("content", "");
          text += piece;
          return WriteOut(piece);
        }));
    TESSERA_RETURN_IF_ERROR(WriteOut("\n"));
    return text;
  };
}

}  // namespace tessera::tools
