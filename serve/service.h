// SPDX-License-Identifier: Apache-2.0
// What the server's addresses do: a model, its queue, and the endpoints.
//
//   Service service({.name = "gpt2", .model = *model, .tokenizer = *tokenizer, ...}, {.slots = 8});
//   server.Serve([&](net::HttpExchange exchange) { service.Handle(std::move(exchange)); });
//
// Handle returns at once: bodies are parsed and texts tokenised by a thread of the service, the
// model runs on that of its queue, and answers are sent from wherever they become known. What a
// client may do wrong is answered as OpenAI does: {"error": {"message", "type", "param", "code"}}.
#ifndef TESSERA_SERVE_SERVICE_H_
#define TESSERA_SERVE_SERVICE_H_

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/status.h"
#include "data/chat/chat_format.h"
#include "data/tokenizer/tokenizer.h"
#include "models/generation/generation_config.h"
#include "models/model.h"
#include "models/open/text_encoder.h"
#include "models/text_format.h"
#include "net/http/http_server.h"
#include "nlohmann/json.hpp"
#include "nn/module.h"
#include "serve/grammar_cache.h"
#include "serve/inference_queue.h"

namespace tessera::serve {

// The number of an adapter that is none: the model itself.
inline constexpr int kBaseModel = nn::ForwardContext::kNoAdapter;

// All of it outlives the service.
struct ServedModel {
  std::string name;
  const models::Model& model;
  const data::Tokenizer& tokenizer;
  const data::ChatFormat* chat = nullptr;              // its folder's, where there is one
  const models::Conversation* conversation = nullptr;  // its family's
  bool generates = true;                               // models::Generates
  models::GenerationConfig defaults = {};
  std::vector<std::string> adapters = {};                         // their names, number 0, 1, ...
  StatusOr<models::TextEncoder> encoder = models::TextEncoder();  // of embeddings and scores
};

struct ServiceOptions {
  InferenceQueueOptions queue = {};
  std::vector<std::string> api_keys = {};  // one of them is asked for, where there are any
  // Names of this machine that a browser may know it by: where no key is asked for, requests whose
  // Host or Origin is another are refused, so that no page from elsewhere reads or asks anything.
  bool loopback_only = true;
  // Whose pages a browser lets read the answers ("https://chat.example.com"; "*": anyone's), as
  // the Fetch standard has it (CORS); "": the server's own alone.
  std::string cors_origin = {};
};

class Service;

// A request that has come to its endpoint.
struct Call {
  net::HttpExchange exchange;
  nlohmann::ordered_json body = {};  // an object, of POST
  std::string client = {};           // whose turn it is
};

// An address and what answers it. One file of serve/endpoints/ makes a few of them.
struct Endpoint {
  const char* method;
  const char* path;  // "/v1/models/*": all that begin so
  void (*answer)(Service& service, Call call);
  bool open = false;  // without a key
};

class Service {
 public:
  Service(const ServedModel& served, const ServiceOptions& options);
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  // From the server's thread.
  void Handle(net::HttpExchange exchange);
  // Finishes what runs; what comes gets 503.
  void Drain(std::chrono::milliseconds grace) { queue_.Drain(grace); }
  // What /metrics says of connections.
  void set_server(const net::HttpServer* server) { server_ = server; }

  // ---- For endpoints ----
  const ServedModel& served() const { return served_; }
  const ServiceOptions& options() const { return options_; }
  InferenceQueue& queue() { return queue_; }
  const InferenceQueue& queue() const { return queue_; }
  GrammarCache& grammars() { return grammars_; }
  const net::HttpServer* server() const { return server_; }
  double uptime_seconds() const;
  int64_t started() const { return started_unix_; }
  // Bytes of the longest token.
  int64_t longest_token() const { return longest_token_; }

  // Which adapter a request's `model` names: kBaseModel for the model itself, or none. NotFound.
  StatusOr<int> AdapterOf(const std::optional<std::string>& model) const;
  const std::string& NameOf(int adapter) const;
  // "cmpl-18f0c2a-17": new each time.
  std::string NewId(std::string_view kind);
  // Of a tool's call: nine letters and digits, which Mistral's templates ask for.
  std::string NewCallId();

  // An answer of this status, counted.
  void Respond(const net::HttpExchange& exchange, int http_status,
               const nlohmann::ordered_json& body);
  // 200 with JSON as text; 503 where the server's answers have no room for it.
  void RespondJson(net::HttpExchange exchange, std::string body);
  void RespondText(net::HttpExchange exchange, net::HttpResponse response);
  void Refuse(const net::HttpExchange& exchange, const Status& status,
              const std::string& param = "");
  void CountAnswer(int http_status);
  // What tells a browser that a page from elsewhere may read the answer; often none.
  std::vector<net::HttpHeader> CorsHeaders(const net::HttpRequest& request) const;
  std::map<int, int64_t> answers() const;  // by HTTP status

 private:
  const Endpoint* Find(const net::HttpRequest& request, std::string* methods) const;
  bool AllowsOrigin(const net::HttpRequest& request) const;
  void AnswerPreflight(const net::HttpExchange& exchange);
  bool MayCome(const net::HttpRequest& request) const;
  bool HasKey(const net::HttpRequest& request) const;
  struct Desk;
  void Work(Desk& desk);
  void EndWork();
  // Parses the body and answers.
  void Attend(const Endpoint& endpoint, Call call);

  const ServedModel served_;
  const ServiceOptions options_;
  InferenceQueue queue_;
  GrammarCache grammars_;
  const net::HttpServer* server_ = nullptr;
  const std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  const int64_t started_unix_;
  const int64_t longest_token_;
  std::atomic<int64_t> next_id_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Requests that are to be parsed, those with short bodies and the others: so that who asks little
  // waits for nobody who asks much.
  struct Desk {
    std::deque<std::function<void()>> requests = {};
    std::thread worker = {};
  };
  std::array<Desk, 2> desks_;
  std::map<int, int64_t> answers_;
  bool ending_ = false;
};

// {"error": ...} as a client gets it, and its HTTP status.
int HttpStatusOf(StatusCode code);
nlohmann::ordered_json ErrorJson(const Status& status, const std::string& param = "");
// Answers that are made or sent take too much together (HttpServerOptions::max_answer_bytes).
Status NoRoomForAnswer();
// One line; what is no UTF-8 is replaced.
std::string JsonText(const nlohmann::ordered_json& json);

}  // namespace tessera::serve

#endif  // TESSERA_SERVE_SERVICE_H_
