// SPDX-License-Identifier: Apache-2.0
#include "tools/report/follow_server.h"

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "net/http/http_server.h"
#include "net/http/waiting_signals.h"

namespace tessera::report {
namespace {

using net::HttpExchange;
using net::HttpHeader;
using net::HttpRequest;
using net::HttpResponse;
using net::HttpServer;
using MakePage = std::function<StatusOr<std::string>()>;

constexpr char kAddress[] = "127.0.0.1";
constexpr int kRest = 9;                    // as many times as long as making a page takes
constexpr std::chrono::seconds kGrace{10};  // of a page that is being made

// Every answer has these.
std::vector<HttpHeader> Headers(std::vector<HttpHeader> others = {}) {
  others.insert(others.end(), {{"Cache-Control", "no-store"},
                               {"X-Content-Type-Options", "nosniff"},
                               {"X-Frame-Options", "DENY"},
                               {"Cross-Origin-Resource-Policy", "same-origin"}});
  return others;
}

HttpResponse Text(int status, std::string text, std::vector<HttpHeader> others = {}) {
  return {.status = status,
          .content_type = "text/plain; charset=utf-8",
          .headers = Headers(std::move(others)),
          .body = std::move(text)};
}

// Who asks, for what, and how; true: for the page.
bool Check(const HttpExchange& exchange, int port) {
  HttpExchange answer = exchange;
  const HttpRequest& request = exchange.request();
  const std::string behind = Concat(":", port);
  const std::string* const host = request.Find("host");
  if (host == nullptr || (*host != kAddress + behind && *host != "localhost" + behind)) {
    answer.Respond(Text(403, "this page is this machine's own\n"));
  } else if (request.method != "GET" && request.method != "HEAD") {
    answer.Respond(Text(405, "only GET\n", {{"Allow", "GET, HEAD"}}));
  } else if (request.path != "/") {
    answer.Respond(Text(404, "there is only /\n"));
  } else {
    return true;
  }
  return false;
}

HttpResponse AnswerOf(const HttpRequest& request, const StatusOr<std::string>& page) {
  if (!page.ok()) return Text(500, Message(page.status()));
  const std::string tag = Concat("\"", std::hash<std::string>()(*page), "\"");
  const std::string* const known = request.Find("if-none-match");
  HttpResponse response = {.content_type = "text/html; charset=utf-8",
                           .headers = Headers({{"ETag", tag}})};
  if (known != nullptr && *known == tag) {
    response.status = 304;
  } else {
    response.body = *page;
  }
  return response;
}

// The thread that makes pages for those who wait.
class PageMaker {
 public:
  explicit PageMaker(const MakePage& make_page) : make_page_(make_page) {}
  ~PageMaker() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ends_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  PageMaker(const PageMaker&) = delete;
  PageMaker& operator=(const PageMaker&) = delete;

  void Add(HttpExchange exchange) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      waiting_.push_back(std::move(exchange));
    }
    changed_.notify_one();
  }

 private:
  using Clock = std::chrono::steady_clock;

  void Run() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return ends_ || !waiting_.empty(); });
      if (ends_) return;
      std::vector<HttpExchange> asked = std::exchange(waiting_, {});
      lock.unlock();
      const StatusOr<std::string> page = PageNow();
      for (HttpExchange& exchange : asked) exchange.Respond(AnswerOf(exchange.request(), page));
      asked.clear();
      lock.lock();
    }
  }

  StatusOr<std::string> PageNow() {
    if (Clock::now() - ended_ < kRest * (ended_ - begun_)) return page_;
    begun_ = Clock::now();
    try {
      TESSERA_ASSIGN_OR_RETURN(page_, make_page_());
    } catch (const std::exception& error) {
      return Internal(error.what());
    }
    ended_ = Clock::now();
    return page_;
  }

  const MakePage& make_page_;
  std::string page_;  // the one made last, from `begun_` to `ended_`
  Clock::time_point begun_ = {};
  Clock::time_point ended_ = {};

  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::vector<HttpExchange> waiting_;
  bool ends_ = false;
  std::thread thread_{[this] { Run(); }};
};

}  // namespace

struct FollowServer::State {
  explicit State(HttpServer from) : server(std::move(from)) {}

  HttpServer server;
  net::WaitingSignals signals;  // from now on: one that comes before serving begins counts, too
};

FollowServer::FollowServer(std::unique_ptr<State> state) : state_(std::move(state)) {}
FollowServer::FollowServer(FollowServer&&) noexcept = default;
FollowServer::~FollowServer() = default;

StatusOr<FollowServer> FollowServer::Listen(int port) {
  StatusOr<HttpServer> server =
      HttpServer::Listen({.host = kAddress, .port = port, .max_body_bytes = 0});
  if (!server.ok()) return InvalidArgument("port ", port, " of ", kAddress, " cannot be had");
  return FollowServer(std::make_unique<State>(*std::move(server)));
}

int FollowServer::port() const { return state_->server.port(); }

std::string FollowServer::url() const { return state_->server.url() + "/"; }

Status FollowServer::ServeUntilSignal(const MakePage& make_page) {
  HttpServer& server = state_->server;
  PageMaker maker(make_page);
  std::thread serving([&] {
    server.Serve([&](const HttpExchange& exchange) {
      if (Check(exchange, server.port())) maker.Add(exchange);
    });
  });
  state_->signals.Wait();
  server.Stop(kGrace);
  serving.join();
  return OkStatus();
}

}  // namespace tessera::report
