#include "tools/report/follow_server.h"

#include <httplib.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace tessera::report {
namespace {

constexpr char kAddress[] = "127.0.0.1";
constexpr int kThreads = 4;
constexpr int kRest = 9;  // as many times as long as making a page takes

using httplib::Request;
using httplib::Response;
using HandlerResponse = httplib::Server::HandlerResponse;

HandlerResponse Refuse(int status, const char* reason, Response& response) {
  response.status = status;
  response.set_content(reason, "text/plain");
  return HandlerResponse::Handled;
}

// Who asks, for what, and how; before anything is made.
HandlerResponse Check(const Request& request, Response& response, int port) {
  const std::string behind = ":" + std::to_string(port);
  const std::string host = request.get_header_value("Host");
  if (host != kAddress + behind && host != "localhost" + behind) {
    return Refuse(403, "this page is this machine's own\n", response);
  }
  if (request.method != "GET" && request.method != "HEAD") {
    response.set_header("Allow", "GET, HEAD");
    return Refuse(405, "only GET\n", response);
  }
  if (request.path != "/") return Refuse(404, "there is only /\n", response);
  return HandlerResponse::Unhandled;
}

// SIGINT and SIGTERM wait until they are asked for, in this thread and those that it starts.
class WaitingSignals {
 public:
  WaitingSignals() {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGINT);
    sigaddset(&signals_, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals_, &before_);
  }
  ~WaitingSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  WaitingSignals(const WaitingSignals&) = delete;
  WaitingSignals& operator=(const WaitingSignals&) = delete;

  void Wait() const {
    int signal = 0;
    sigwait(&signals_, &signal);
  }

 private:
  sigset_t signals_;
  sigset_t before_;
};

}  // namespace

struct FollowServer::State {
  httplib::Server server;
  int port = 0;
  std::mutex making;
  std::string page;  // the one made last, from `begun` to `ended`
  std::chrono::steady_clock::time_point begun = {};
  std::chrono::steady_clock::time_point ended = {};
  WaitingSignals signals;  // from now on: one that comes before serving begins counts, too
};

FollowServer::FollowServer(std::unique_ptr<State> state) : state_(std::move(state)) {}
FollowServer::FollowServer(FollowServer&&) noexcept = default;
FollowServer::~FollowServer() = default;

StatusOr<FollowServer> FollowServer::Listen(int port) {
  auto state = std::make_unique<State>();
  // The library's own options let two servers share a port.
  state->server.set_socket_options([](socket_t socket) {
    const int yes = 1;
    setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  });
  state->server.new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
  state->server.set_payload_max_length(0);
  state->server.set_read_timeout(5);
  state->server.set_write_timeout(5);
  state->server.set_keep_alive_timeout(2);
  if (port == 0) {
    state->port = state->server.bind_to_any_port(kAddress);
  } else if (state->server.bind_to_port(kAddress, port)) {
    state->port = port;
  }
  if (state->port <= 0) return InvalidArgument("port ", port, " of ", kAddress, " cannot be had");
  return FollowServer(std::move(state));
}

int FollowServer::port() const { return state_->port; }

std::string FollowServer::url() const { return Concat("http://", kAddress, ":", port(), "/"); }

StatusOr<std::string> FollowServer::PageNow(
    const std::function<StatusOr<std::string>()>& make_page) {
  using Clock = std::chrono::steady_clock;
  State& s = *state_;
  if (Clock::now() - s.ended < kRest * (s.ended - s.begun)) return s.page;
  s.begun = Clock::now();
  TESSERA_ASSIGN_OR_RETURN(s.page, make_page());
  s.ended = Clock::now();
  return s.page;
}

Status FollowServer::ServeUntilSignal(const std::function<StatusOr<std::string>()>& make_page) {
  httplib::Server& server = state_->server;
  server.set_default_headers({{"Cache-Control", "no-store"},
                              {"X-Content-Type-Options", "nosniff"},
                              {"X-Frame-Options", "DENY"},
                              {"Cross-Origin-Resource-Policy", "same-origin"}});
  server.set_pre_routing_handler([port = port()](const Request& request, Response& response) {
    return Check(request, response, port);
  });
  server.Get("/", [&](const Request& request, Response& response) {
    const std::lock_guard<std::mutex> one_at_a_time(state_->making);
    const StatusOr<std::string> page = PageNow(make_page);
    if (!page.ok()) {
      response.status = 500;
      response.set_content(Message(page.status()), "text/plain; charset=utf-8");
      return;
    }
    const std::string tag = Concat("\"", std::hex, std::hash<std::string>()(*page), "\"");
    response.set_header("ETag", tag);
    if (request.get_header_value("If-None-Match") == tag) {
      response.status = 304;
    } else {
      response.set_content(*page, "text/html; charset=utf-8");
    }
  });
  bool listened = true;
  std::atomic<bool> ended = false;
  std::thread serving([&] {
    listened = server.listen_after_bind();
    ended = true;
  });
  state_->signals.Wait();
  // Stopping does nothing before it runs.
  while (!server.is_running() && !ended) std::this_thread::yield();
  server.stop();
  serving.join();
  return listened ? OkStatus() : Internal(url(), ": listening failed");
}

}  // namespace tessera::report
