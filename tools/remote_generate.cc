// SPDX-License-Identifier: Apache-2.0
#include "tools/remote_generate.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json_ordered.h"
#include "base/utf8.h"
#include "data/chat/template_value.h"
#include "net/http/http_client.h"
#include "tools/api_keys.h"
#include "tools/command_line.h"

namespace tessera::tools {
namespace {

using nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

// What a server answers at once.
constexpr std::chrono::seconds kAtOnce{10};
// A text that waits for its slot says nothing meanwhile.
constexpr std::chrono::minutes kPatience{15};
// Of an event of a stream, and of a text that is one turn of a conversation.
constexpr size_t kMostEventBytes = 16 << 20;
constexpr size_t kMostTurnBytes = 64 << 20;

// A member of what may be no object; null: there is none.
const ordered_json& MemberOf(const ordered_json& json, const char* key) {
  static const ordered_json* const kNull = new ordered_json();
  const auto found = json.is_object() ? json.find(key) : json.end();
  return found == json.end() ? *kNull : *found;
}

class Client {
 public:
  static StatusOr<Client> Open(const RemoteModel& remote) {
    TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> keys, ReadKeys(remote.key_file));
    TESSERA_ASSIGN_OR_RETURN(net::HttpClient http,
                             net::HttpClient::Open(remote.server, {.timeout = kAtOnce}));
    Client client(std::move(http), remote.server);
    if (!keys.empty()) client.headers_ = {{"Authorization", "Bearer " + keys[0]}};
    return client;
  }

  StatusOr<ordered_json> Get(const std::string& path) {
    http_.set_timeout(kAtOnce);
    TESSERA_ASSIGN_OR_RETURN(const net::HttpResponse response,
                             http_.Send({.path = path, .headers = headers_}));
    return Body(response);
  }
  StatusOr<ordered_json> Post(const std::string& path, const ordered_json& body) {
    TESSERA_ASSIGN_OR_RETURN(const net::HttpRequest request, Request(path, body));
    http_.set_timeout(kPatience);
    TESSERA_ASSIGN_OR_RETURN(const net::HttpResponse response, http_.Send(request));
    return Body(response);
  }

  // Events of a stream, as they come.
  Status Stream(const std::string& path, ordered_json body,
                const std::function<Status(const ordered_json& event)>& on_event) {
    body["stream"] = true;
    TESSERA_ASSIGN_OR_RETURN(const net::HttpRequest request, Request(path, body));
    std::string text;
    Status status;
    bool done = false;
    auto told = Clock::now();  // the last time that the server said something
    const auto take = [&](std::string_view piece) {
      text += piece;
      for (size_t end; status.ok() && (end = text.find("\n\n")) != std::string::npos;) {
        const std::string line = text.substr(0, end);
        text.erase(0, end + 2);
        constexpr std::string_view kData = "data: ";
        if (!line.starts_with(kData)) continue;
        const std::string data = line.substr(kData.size());
        told = Clock::now();
        done = done || data == "[DONE]";
        if (!done) status = Event(data, on_event);
      }
      if (status.ok() && text.size() > kMostEventBytes) {
        status = Wrong(Concat("an event is longer than ", kMostEventBytes, " bytes"));
      }
      if (status.ok() && Clock::now() - told > kPatience) status = Wrong("no event came in time");
      return status.ok() && !done;
    };
    http_.set_timeout(kPatience);
    TESSERA_ASSIGN_OR_RETURN(const net::HttpResponse response, http_.Stream(request, take));
    TESSERA_RETURN_IF_ERROR(status);
    if (response.status != 200) return Body(response).status();
    return done ? OkStatus() : Wrong("the answer ended in its midst");
  }

  // What the server sends is not what its interface says.
  Status Wrong(std::string_view what) const { return Internal(server_, ": ", what); }
  // So many choices of an answer.
  StatusOr<const ordered_json*> Choices(const ordered_json& answer, size_t count) const {
    const ordered_json& choices = MemberOf(answer, "choices");
    if (choices.is_array() && choices.size() == count) return &choices;
    return Wrong(Concat("the answer has not ", count, " 'choices'"));
  }
  // The first of the choices of an answer or event.
  StatusOr<const ordered_json*> Choice(const ordered_json& answer) const {
    const ordered_json& choices = MemberOf(answer, "choices");
    if (choices.is_array() && !choices.empty() && choices[0].is_object()) return &choices[0];
    return Wrong("the answer has no 'choices'");
  }
  // A text, or nothing.
  StatusOr<std::string> Text(const ordered_json& object, const char* key) const {
    const ordered_json& text = MemberOf(object, key);
    if (text.is_null()) return std::string();
    if (text.is_string()) return text.get<std::string>();
    return Wrong(Concat("'", key, "' of the answer is no text"));
  }

 private:
  Client(net::HttpClient http, std::string server)
      : http_(std::move(http)), server_(std::move(server)) {}

  StatusOr<net::HttpRequest> Request(const std::string& path, const ordered_json& body) const {
    try {
      // Not dump(), which has no integers beyond 64 bits.
      const data::chat::JsonStyle style = {.item_separator = ",", .key_separator = ":"};
      return net::HttpRequest{.method = "POST",
                              .path = path,
                              .headers = headers_,
                              .body = data::chat::Json(data::chat::Value::FromJson(body), style)};
    } catch (const data::chat::TemplateFailure& failure) {
      return InvalidArgument("the request to ", server_, ": ", failure.message);
    }
  }
  Status Failure(const ordered_json& body, bool ours) const {
    const ordered_json& error = MemberOf(body, "error");
    const ordered_json& said = error.is_object() ? MemberOf(error, "message") : error;
    std::string message = said.is_string() ? OneLine(said.get<std::string>()) : "";
    if (message.empty()) message = "it gives no reason";
    return ours ? InvalidArgument(server_, ": ", message) : Wrong(message);
  }
  // Of a refusal: printable, and as much as can be read.
  static std::string OneLine(std::string text) {
    if (text.size() > 1000) text = text.substr(0, 1000) + "...";
    std::replace_if(
        text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7F; }, ' ');
    return ReplaceInvalidUtf8(text);
  }
  StatusOr<ordered_json> Body(const net::HttpResponse& response) const {
    auto body = ParseOrderedJson(response.body, server_);
    if (response.status == 200) return body;
    if (body.ok() && !MemberOf(*body, "error").is_null()) {
      return Failure(*body, response.status < 500);
    }
    return Wrong(Concat("HTTP status ", response.status));
  }
  Status Event(const std::string& data,
               const std::function<Status(const ordered_json& event)>& on_event) const {
    TESSERA_ASSIGN_OR_RETURN(const ordered_json event, ParseOrderedJson(data, server_));
    if (!MemberOf(event, "error").is_null()) return Failure(event, /*ours=*/false);
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

// Texts of each prompt.
size_t TextsOfEach(const RemoteModel& remote) {
  const ordered_json& count = MemberOf(remote.fields, "n");
  return count.is_number_integer() ? count.get<size_t>() : 1;
}

// Whether texts of the model that is asked for begin with their prompt.
StatusOr<bool> ContinuesPrompt(const Client& client, const ordered_json& models,
                               const RemoteModel& remote) {
  const ordered_json& list = MemberOf(models, "data");
  const bool named = list.is_array() && !list.empty() &&
                     std::all_of(list.begin(), list.end(), [](const ordered_json& model) {
                       return MemberOf(model, "id").is_string();
                     });
  if (!named) return client.Wrong("/v1/models gives no list of models");
  const ordered_json& asked = MemberOf(remote.fields, "model");
  const auto found = std::find_if(list.begin(), list.end(), [&](const ordered_json& model) {
    return asked.is_null() || model["id"] == asked;
  });
  if (found == list.end()) {
    return InvalidArgument(remote.server, ": has no model ", asked.dump(), "; its first is ",
                           list[0]["id"].dump());
  }
  const ordered_json& continues = MemberOf(*found, "continues_prompt");
  return !continues.is_boolean() || continues.get<bool>();
}

}  // namespace

Status GenerateTextRemotely(const RemoteModel& remote, const std::string& prompt) {
  TESSERA_ASSIGN_OR_RETURN(Client client, Client::Open(remote));
  TESSERA_ASSIGN_OR_RETURN(const ordered_json models, client.Get("/v1/models"));
  TESSERA_ASSIGN_OR_RETURN(const bool continues, ContinuesPrompt(client, models, remote));
  const std::string begin = continues ? prompt : "";
  if (const size_t count = TextsOfEach(remote); count > 1) {
    TESSERA_ASSIGN_OR_RETURN(const ordered_json answer,
                             client.Post(kCompletions, With(remote.fields, "prompt", prompt)));
    TESSERA_ASSIGN_OR_RETURN(const ordered_json* const choices, client.Choices(answer, count));
    for (const ordered_json& choice : *choices) {
      TESSERA_ASSIGN_OR_RETURN(const std::string text, client.Text(choice, "text"));
      TESSERA_RETURN_IF_ERROR(WriteOut(begin + text + "\n"));
    }
    return OkStatus();
  }
  // Shown with the first text, so that a refused one shows nothing.
  std::string pending = begin;
  TESSERA_RETURN_IF_ERROR(client.Stream(
      kCompletions, With(remote.fields, "prompt", prompt),
      [&](const ordered_json& event) -> Status {
        // The last event says what it took alone.
        const ordered_json& choices = MemberOf(event, "choices");
        if (choices.is_array() && choices.empty()) return OkStatus();
        TESSERA_ASSIGN_OR_RETURN(const ordered_json* const choice, client.Choice(event));
        TESSERA_ASSIGN_OR_RETURN(const std::string text, client.Text(*choice, "text"));
        if (text.empty()) return OkStatus();
        return WriteOut(std::exchange(pending, "") + text);
      }));
  return WriteOut(pending + "\n");
}

Status GenerateIdsRemotely(const RemoteModel& remote, const std::vector<int64_t>& prompt) {
  TESSERA_ASSIGN_OR_RETURN(Client client, Client::Open(remote));
  const ordered_json body = With(With(remote.fields, "prompt", prompt), "return_token_ids", true);
  TESSERA_ASSIGN_OR_RETURN(const ordered_json answer, client.Post(kCompletions, body));
  TESSERA_ASSIGN_OR_RETURN(const ordered_json* const choices,
                           client.Choices(answer, TextsOfEach(remote)));
  for (const ordered_json& choice : *choices) {
    std::string line;
    for (const char* key : {"prompt_token_ids", "token_ids"}) {
      const ordered_json& ids = MemberOf(choice, key);
      const bool fits = ids.is_array() && std::all_of(ids.begin(), ids.end(), [](const auto& id) {
                          return id.is_number_integer();
                        });
      if (!fits) return client.Wrong(Concat("'", key, "' of the answer is no list of token ids"));
      for (const ordered_json& id : ids) {
        line += Concat(line.empty() ? "" : ",", id.get<int64_t>());
      }
    }
    TESSERA_RETURN_IF_ERROR(WriteOut(line + "\n"));
  }
  return OkStatus();
}

Status GenerateLinesRemotely(const RemoteModel& remote, const std::vector<std::string>& prompts) {
  if (prompts.empty()) return OkStatus();
  TESSERA_ASSIGN_OR_RETURN(Client client, Client::Open(remote));
  TESSERA_ASSIGN_OR_RETURN(const ordered_json answer,
                           client.Post(kCompletions, With(remote.fields, "prompt", prompts)));
  TESSERA_ASSIGN_OR_RETURN(const ordered_json* const choices,
                           client.Choices(answer, prompts.size() * TextsOfEach(remote)));
  for (const ordered_json& choice : *choices) {
    TESSERA_ASSIGN_OR_RETURN(std::string text, client.Text(choice, "text"));
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
    if (!chat.tools->is_null()) body["tools"] = chat.tools;
    if (!chat.variables->empty()) body[data::kTemplateVariables] = chat.variables;
    body["seed"] = body.value("seed", uint64_t{0}) + turn;
    std::string text;
    TESSERA_RETURN_IF_ERROR(
        client.Stream("/v1/chat/completions", body, [&](const ordered_json& event) -> Status {
          const ordered_json& choices = MemberOf(event, "choices");
          if (choices.is_array() && choices.empty()) return OkStatus();
          TESSERA_ASSIGN_OR_RETURN(const ordered_json* const choice, client.Choice(event));
          TESSERA_ASSIGN_OR_RETURN(const std::string piece,
                                   client.Text(MemberOf(*choice, "delta"), "content"));
          text += piece;
          if (text.size() > kMostTurnBytes) return client.Wrong("the answer does not end");
          return WriteOut(piece);
        }));
    TESSERA_RETURN_IF_ERROR(WriteOut("\n"));
    return text;
  };
}

}  // namespace tessera::tools
