// SPDX-License-Identifier: Apache-2.0
#include "net/http/http_server.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "net/http/connection.h"
#include "net/http/mailbox.h"

namespace tessera::net {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using Tcp = asio::ip::tcp;

// Connections above max_connections that are told so; those above these are closed at once.
constexpr size_t kTold = 64;
// Until accepting is tried again, where the system had no descriptor or memory left.
constexpr std::chrono::milliseconds kAcceptPause{100};
// After memory has ended: others may give some back.
constexpr std::chrono::milliseconds kMemoryPause{10};

}  // namespace

struct HttpServer::Impl {
  explicit Impl(const HttpServerOptions& options) {
    host.options = options;
    host.budget = std::make_shared<AnswerBudget>(options.max_answer_bytes);
    host.mailbox = std::make_shared<Mailbox>(&io);
    host.on_quiet = [this] {
      if (host.stopping) host.mailbox->Post([this] { EndIfQuiet(); });
    };
  }
  ~Impl() {
    host.mailbox->Close();
    try {
      CloseAll();
    } catch (const std::exception&) {
      // The sockets are closed with their connections.
    }
  }

  Status Listen();
  void Accept();
  void AcceptLater();
  // What the thread of Serve does, whether memory ends meanwhile or not.
  void Run();
  void Admit(Tcp::socket socket);
  void Stop(std::chrono::milliseconds grace);
  void EndIfQuiet() {
    if (host.busy == 0) End();
  }
  void End();
  void CloseAll();

  asio::io_context io{1};
  asio::executor_work_guard<asio::io_context::executor_type> work = asio::make_work_guard(io);
  Tcp::acceptor acceptor{io};
  Tcp::endpoint endpoint;
  asio::steady_timer accept_pause{io};
  asio::steady_timer grace_timer{io};
  ConnectionHost host;
  bool accepting = false;  // or about to
};

Status HttpServer::Impl::Listen() {
  const HttpServerOptions& options = host.options;
  error_code error;
  Tcp::resolver resolver(io);
  const auto found =
      resolver.resolve(options.host, std::to_string(options.port),
                       Tcp::resolver::passive | Tcp::resolver::numeric_service, error);
  if (!error) {
    endpoint = *found.begin();
    acceptor.open(endpoint.protocol(), error);
    if (!error) acceptor.set_option(Tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor.bind(endpoint, error);
    if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
    if (!error) endpoint = acceptor.local_endpoint(error);
  }
  if (!error) return OkStatus();
  return InvalidArgument(options.host, ":", options.port,
                         " cannot be listened at: ", error.message());
}

void HttpServer::Impl::Accept() {
  accepting = true;
  acceptor.async_accept([this](error_code error, Tcp::socket socket) {
    accepting = false;
    if (host.stopping) return;
    if (!error) {
      Admit(std::move(socket));
      return Accept();
    }
    // What was refused is still there: trying again at once would be all that this thread does.
    AcceptLater();
  });
}

void HttpServer::Impl::AcceptLater() {
  accepting = true;
  accept_pause.expires_after(kAcceptPause);
  accept_pause.async_wait([this](error_code) {
    accepting = false;
    if (!host.stopping) Accept();
  });
}

void HttpServer::Impl::Run() {
  for (bool again = true; again;) {
    again = false;
    try {
      // It was lost where memory ended.
      if (!accepting && !host.stopping) Accept();
      io.run();
    } catch (const std::bad_alloc&) {
      std::this_thread::sleep_for(kMemoryPause);
      again = true;
    }
  }
}

void HttpServer::Impl::Admit(Tcp::socket socket) {
  ++host.accepted;
  const auto most = static_cast<size_t>(host.options.max_connections);
  const size_t now = host.connections.size();
  if (now >= most + kTold) return;
  try {
    const auto connection = std::make_shared<Connection>(std::move(socket), host);
    host.connections.insert(connection);
    ++host.open;
    try {
      if (now < most) {
        connection->Start();
      } else {
        connection->StartRefused(ErrorResponse(503, "too many connections"));
      }
    } catch (const std::exception&) {
      connection->Drop();
    }
  } catch (const std::exception&) {
    // No memory: the socket is closed by now.
  }
}

void HttpServer::Impl::Stop(std::chrono::milliseconds grace) {
  host.stopping = true;
  error_code ignored;
  acceptor.close(ignored);
  accept_pause.cancel();
  const std::vector<std::shared_ptr<Connection>> all(host.connections.begin(),
                                                     host.connections.end());
  for (const auto& connection : all) connection->CloseIfIdle();
  grace_timer.expires_after(grace);
  grace_timer.async_wait([this](error_code error) {
    if (!error) End();
  });
  EndIfQuiet();
}

void HttpServer::Impl::End() {
  CloseAll();
  grace_timer.cancel();
  work.reset();
}

void HttpServer::Impl::CloseAll() {
  const std::vector<std::shared_ptr<Connection>> all(host.connections.begin(),
                                                     host.connections.end());
  for (const auto& connection : all) connection->Drop();
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::HttpServer(HttpServer&&) noexcept = default;
HttpServer& HttpServer::operator=(HttpServer&&) noexcept = default;
HttpServer::~HttpServer() = default;

StatusOr<HttpServer> HttpServer::Listen(const HttpServerOptions& options) {
  auto impl = std::make_unique<Impl>(options);
  TESSERA_RETURN_IF_ERROR(impl->Listen());
  return HttpServer(std::move(impl));
}

int HttpServer::port() const { return impl_->endpoint.port(); }

std::string HttpServer::url() const { return Concat("http://", impl_->endpoint); }

void HttpServer::Serve(const Handler& handler) {
  impl_->host.handler = &handler;
  impl_->Run();
}

void HttpServer::Post(std::function<void()> f) { impl_->host.mailbox->Post(std::move(f)); }

void HttpServer::Stop(std::chrono::milliseconds grace) {
  impl_->host.mailbox->Post([impl = impl_.get(), grace] { impl->Stop(grace); });
}

HttpServer::Counts HttpServer::counts() const {
  const ConnectionHost& host = impl_->host;
  return {.connections = host.open,
          .accepted = host.accepted,
          .requests = host.requests,
          .refused = host.refused,
          .gone = host.gone};
}

}  // namespace tessera::net
