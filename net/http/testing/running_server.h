// SPDX-License-Identifier: Apache-2.0
// A server that runs on a thread of its own until the end of a test.
//
//   RunningServer server({}, [](HttpExchange exchange) { exchange.Respond({.body = "{}"}); });
//   RawConnection client(server->port());
#ifndef TESSERA_NET_HTTP_TESTING_RUNNING_SERVER_H_
#define TESSERA_NET_HTTP_TESTING_RUNNING_SERVER_H_

#include <chrono>
#include <functional>
#include <thread>
#include <utility>

#include "net/http/http_server.h"

namespace tessera::net {

// Whether it comes true within five seconds.
inline bool Comes(const std::function<bool()>& condition) {
  for (int tries = 0; tries < 5000; ++tries) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

class RunningServer {
 public:
  RunningServer(const HttpServerOptions& options, HttpServer::Handler handler)
      : server_(HttpServer::Listen(options).value()),
        handler_(std::move(handler)),
        thread_([this] { server_.Serve(handler_); }) {}
  ~RunningServer() { Stop(std::chrono::milliseconds(0)); }

  HttpServer* operator->() { return &server_; }

  // Returns when Serve has.
  void Stop(std::chrono::milliseconds grace) {
    if (!thread_.joinable()) return;
    server_.Stop(grace);
    thread_.join();
  }

 private:
  HttpServer server_;
  HttpServer::Handler handler_;
  std::thread thread_;
};

}  // namespace tessera::net

#endif  // TESSERA_NET_HTTP_TESTING_RUNNING_SERVER_H_
