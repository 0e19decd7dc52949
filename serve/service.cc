// SPDX-License-Identifier: Apache-2.0
#include "serve/service.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <exception>
#include <new>
#include <utility>

#include "absl/strings/ascii.h"
#include "base/json_ordered.h"
#include "base/nearest_name.h"
#include "data/tokenizer/tokenizer.h"
#include "models/generation/written_text.h"
#include "nn/module.h"
#include "serve/endpoints/endpoints.h"

namespace tessera::serve {
namespace {

using net::HttpExchange;
using net::HttpRequest;
using nlohmann::ordered_json;

// Requests whose bodies wait to be parsed: their memory is bounded with the connections'.
constexpr size_t kLongestDesk = 256;
// Of a body that is parsed within a millisecond or so.
constexpr size_t kShortBody = 64 << 10;
// Of an answer that there is always room for: health, and short texts.
constexpr size_t kShortAnswer = 64 << 10;
// Of a body's JSON: each takes 16 bytes and more where its text may have 2.
constexpr JsonRules kBodyRules = {.max_values = 2'000'000};

// Takes as long for a wrong key as for a right one of its length.
bool SameSecret(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  volatile unsigned char difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference = difference | static_cast<unsigned char>(a[i] ^ b[i]);
  }
  return difference == 0;
}

std::string LowerCase(std::string_view text) { return absl::AsciiStrToLower(std::string(text)); }

std::string_view WithoutBlanks(std::string_view text) {
  const size_t first = std::min(text.find_first_not_of(" \t"), text.size());
  return text.substr(first, text.find_last_not_of(" \t") + 1 - first);
}

// A host without its port: "127.0.0.1:80", "[::1]:80", "localhost".
std::string_view HostName(std::string_view host) {
  if (host.starts_with('[')) return host.substr(0, host.find(']') + 1);
  return host.substr(0, host.find(':'));
}

bool IsThisMachine(std::string name) {
  if (name.ends_with('.')) name.pop_back();  // a name from the root
  constexpr std::array<std::string_view, 4> kNames = {"localhost", "127.0.0.1", "[::1]", ""};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

int64_t LongestToken(const data::Tokenizer& tokenizer) {
  size_t longest = 1;
  for (int64_t id = 0; id < tokenizer.vocab_size(); ++id) {
    longest = std::max(longest, tokenizer.TokenBytes(static_cast<int32_t>(id)).size());
  }
  return static_cast<int64_t>(longest);
}

// "; did you mean '/v1/completions'?", also where a client leaves out "/v1".
std::string NearAddress(const std::string& path) {
  std::vector<std::string> known;
  for (const Endpoint& endpoint : Endpoints()) known.emplace_back(endpoint.path);
  const std::string hint = DidYouMean(path, known);
  return hint.empty() ? DidYouMean("/v1" + path, known) : hint;
}

}  // namespace

int HttpStatusOf(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return 200;
    case StatusCode::kInvalidArgument:
    case StatusCode::kOutOfRange:
      return 400;
    case StatusCode::kUnauthenticated:
      return 401;
    case StatusCode::kPermissionDenied:
      return 403;
    case StatusCode::kNotFound:
      return 404;
    case StatusCode::kResourceExhausted:
      return 429;
    case StatusCode::kUnavailable:
    case StatusCode::kDeadlineExceeded:
    case StatusCode::kCancelled:
      return 503;
    default:
      return 500;
  }
}

ordered_json ErrorJson(const Status& status, const std::string& param) {
  const int http_status = HttpStatusOf(status.code());
  const char* type = http_status >= 500   ? "server_error"
                     : http_status == 401 ? "authentication_error"
                     : http_status == 429 ? "rate_limit_error"
                                          : "invalid_request_error";
  ordered_json error = {{"message", std::string(status.message())},
                        {"type", type},
                        {"param", nullptr},
                        {"code", nullptr}};
  if (!param.empty()) error["param"] = param;
  if (http_status == 401) error["code"] = "invalid_api_key";
  if (http_status == 404 && param == "model") error["code"] = "model_not_found";
  // Clients cut their history and ask again.
  if (HasMark(status, models::kTooLong)) error["code"] = "context_length_exceeded";
  return {{"error", std::move(error)}};
}

Status NoRoomForAnswer() {
  return Status(StatusCode::kUnavailable,
                "the answers at work are too long together; try again later");
}

std::string JsonText(const ordered_json& json) {
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

Service::Service(const ServedModel& served, const ServiceOptions& options)
    : served_(served),
      options_(options),
      queue_(served.model, &served.tokenizer, options.queue),
      grammars_(served.tokenizer),
      started_unix_(std::time(nullptr)),
      longest_token_(LongestToken(served.tokenizer)) {
  try {
    for (Desk& desk : desks_) desk.worker = std::thread([this, &desk] { Work(desk); });
  } catch (const std::exception&) {  // the system has no thread left
    EndWork();
    throw;
  }
}

Service::~Service() { EndWork(); }

void Service::EndWork() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  for (Desk& desk : desks_) {
    if (desk.worker.joinable()) desk.worker.join();
  }
}

void Service::Work(Desk& desk) {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return ending_ || !desk.requests.empty(); });
    if (ending_) return;
    std::function<void()> next = std::move(desk.requests.front());
    desk.requests.pop_front();
    lock.unlock();
    try {
      next();
    } catch (const std::exception&) {
      // No memory to say so: the request's exchange ends with it.
    }
    next = nullptr;
    lock.lock();
  }
}

void Service::Attend(const Endpoint& endpoint, Call call) {
  const HttpExchange exchange = call.exchange;
  try {
    auto body = ParseOrderedJson(exchange.request().body, "the body", kBodyRules);
    if (!body.ok()) return Refuse(exchange, body.status());
    call.body = *std::move(body);
    endpoint.answer(*this, std::move(call));
  } catch (const std::bad_alloc&) {
    Refuse(exchange, Status(StatusCode::kUnavailable, "the server has no memory left for this"));
  } catch (const std::exception& error) {
    Refuse(exchange, Internal(error.what()));
  }
}

double Service::uptime_seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
}

StatusOr<int> Service::AdapterOf(const std::optional<std::string>& model) const {
  if (!model || *model == served_.name) return kBaseModel;
  const auto& names = served_.adapters;
  const auto found = std::find(names.begin(), names.end(), *model);
  if (found != names.end()) return static_cast<int>(found - names.begin());
  return NotFound("the model '", *model, "' does not exist; GET /v1/models names those that do");
}

const std::string& Service::NameOf(int adapter) const {
  return adapter == kBaseModel ? served_.name : served_.adapters[static_cast<size_t>(adapter)];
}

std::string Service::NewId(std::string_view kind) {
  return Concat(kind, "-", started_unix_, "-", next_id_++);
}

std::string Service::NewCallId() {
  constexpr std::string_view kDigits = "0123456789abcdefghijklmnopqrstuvwxyz";
  uint64_t number = data::HashBytes(NewId("call"));
  std::string id;
  for (int i = 0; i < 9; ++i, number /= kDigits.size()) id += kDigits[number % kDigits.size()];
  return id;
}

// ---- Answers ------------------------------------------------------------------------------------

void Service::CountAnswer(int http_status) {
  const std::lock_guard lock(mutex_);
  ++answers_[http_status];
}

std::map<int, int64_t> Service::answers() const {
  const std::lock_guard lock(mutex_);
  return answers_;
}

void Service::RespondText(HttpExchange exchange, net::HttpResponse response) {
  CountAnswer(response.status);
  for (net::HttpHeader& header : CorsHeaders(exchange.request())) {
    response.headers.push_back(std::move(header));
  }
  exchange.Respond(std::move(response));
}

void Service::Respond(const HttpExchange& exchange, int http_status, const ordered_json& body) {
  if (http_status == 200) return RespondJson(exchange, JsonText(body));
  RespondText(exchange, {.status = http_status, .body = JsonText(body)});
}

void Service::RespondJson(HttpExchange exchange, std::string body) {
  if (body.size() > kShortAnswer && !exchange.Reserve(body.size())) {
    return Refuse(exchange, NoRoomForAnswer());
  }
  RespondText(std::move(exchange), {.body = std::move(body)});
}

void Service::Refuse(const HttpExchange& exchange, const Status& status, const std::string& param) {
  net::HttpResponse response = {.status = HttpStatusOf(status.code()),
                                .body = JsonText(ErrorJson(status, param))};
  if (response.status == 429) response.headers.push_back({"Retry-After", "1"});
  if (response.status == 401) response.headers.push_back({"WWW-Authenticate", "Bearer"});
  RespondText(exchange, std::move(response));
}

// ---- Requests -----------------------------------------------------------------------------------

const Endpoint* Service::Find(const HttpRequest& request, std::string* methods) const {
  for (const Endpoint& endpoint : Endpoints()) {
    std::string_view path = endpoint.path;
    const bool begins = path.ends_with('*');
    if (begins) path.remove_suffix(1);
    if (begins ? !request.path.starts_with(path) : request.path != path) continue;
    const bool head = request.method == "HEAD" && std::string_view(endpoint.method) == "GET";
    if (head || request.method == endpoint.method) return &endpoint;
    *methods += Concat(methods->empty() ? "" : ", ", endpoint.method);
  }
  return nullptr;
}

bool Service::MayCome(const HttpRequest& request) const {
  if (!options_.loopback_only || !options_.api_keys.empty()) return true;
  const std::string* const host = request.Find("host");
  if (host != nullptr && !IsThisMachine(LowerCase(HostName(*host)))) return false;
  const std::string* const origin = request.Find("origin");
  if (origin == nullptr || AllowsOrigin(request)) return true;
  const size_t name = origin->find("://");
  return name != std::string::npos && host != nullptr &&
         LowerCase(origin->substr(name + 3)) == LowerCase(*host);
}

bool Service::AllowsOrigin(const HttpRequest& request) const {
  const std::string* const origin = request.Find("origin");
  if (origin == nullptr || options_.cors_origin.empty()) return false;
  return options_.cors_origin == "*" || LowerCase(*origin) == LowerCase(options_.cors_origin);
}

std::vector<net::HttpHeader> Service::CorsHeaders(const HttpRequest& request) const {
  if (options_.cors_origin == "*") return {{"Access-Control-Allow-Origin", "*"}};
  if (options_.cors_origin.empty()) return {};
  std::vector<net::HttpHeader> headers = {{"Vary", "Origin"}};
  if (AllowsOrigin(request)) {
    headers.push_back({"Access-Control-Allow-Origin", *request.Find("origin")});
  }
  return headers;
}

// A browser asks so, without a key, before a page's request that is not a form's.
void Service::AnswerPreflight(const HttpExchange& exchange) {
  RespondText(exchange, {.status = 204,
                         .headers = {{"Access-Control-Allow-Methods", "GET, HEAD, POST"},
                                     {"Access-Control-Allow-Headers", "*, Authorization"},
                                     {"Access-Control-Max-Age", "600"}}});
}

bool Service::HasKey(const HttpRequest& request) const {
  if (options_.api_keys.empty()) return true;
  constexpr std::string_view kScheme = "bearer ";  // in any case (RFC 9110, 11.1)
  const std::string* const given = request.Find("authorization");
  std::string_view key = given == nullptr ? std::string_view() : std::string_view(*given);
  const bool bearer = LowerCase(key.substr(0, kScheme.size())) == kScheme;
  key = bearer ? WithoutBlanks(key.substr(kScheme.size())) : std::string_view();
  bool found = false;
  for (const std::string& right : options_.api_keys) found |= SameSecret(key, right);
  return found;
}

void Service::Handle(HttpExchange exchange) {
  const HttpRequest& request = exchange.request();
  if (!MayCome(request)) {
    return Refuse(exchange, Status(StatusCode::kPermissionDenied,
                                   "without a key this server answers its own machine alone"));
  }
  if (request.method == "OPTIONS" && AllowsOrigin(request)) return AnswerPreflight(exchange);
  std::string methods;
  const Endpoint* const endpoint = Find(request, &methods);
  const bool open = endpoint != nullptr && endpoint->open;
  if (!open && !HasKey(request)) {
    return Refuse(exchange, Status(StatusCode::kUnauthenticated,
                                   "the key is missing or wrong (Authorization: Bearer KEY)"));
  }
  if (endpoint == nullptr && methods.empty()) {
    return Refuse(exchange, NotFound("there is no ", request.path, NearAddress(request.path)));
  }
  if (endpoint == nullptr) {
    const Status status =
        InvalidArgument(request.path, " takes ", methods, ", not ", request.method);
    return RespondText(
        exchange,
        {.status = 405, .headers = {{"Allow", methods}}, .body = JsonText(ErrorJson(status))});
  }
  Call call = {.exchange = exchange, .client = exchange.peer()};
  if (std::string_view(endpoint->method) == "GET") return endpoint->answer(*this, std::move(call));
  const std::lock_guard lock(mutex_);
  Desk& desk = desks_[request.body.size() <= kShortBody ? 0 : 1];
  if (desk.requests.size() < kLongestDesk) {
    desk.requests.push_back(
        [this, endpoint, call = std::move(call)]() mutable { Attend(*endpoint, std::move(call)); });
    return changed_.notify_all();
  }
  ++answers_[503];
  exchange.Respond({.status = 503,
                    .headers = CorsHeaders(request),
                    .body = JsonText(ErrorJson(
                        Status(StatusCode::kUnavailable, "too many requests; try again later")))});
}

}  // namespace tessera::serve
