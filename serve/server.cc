// SPDX-License-Identifier: Apache-2.0
#include "serve/server.h"

#include <chrono>
#include <new>
#include <thread>
#include <utility>

namespace tessera::serve {
namespace {

// For what runs, and for the answers to be sent.
constexpr std::chrono::seconds kGrace{15};
constexpr std::chrono::seconds kGraceOfAnswers{18};

template <typename F>
void UntilThereIsMemory(const F& f) {
  for (;;) {
    try {
      return f();
    } catch (const std::bad_alloc&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
}

}  // namespace

Status ServeUntilSignal(const ServedModel& served, const ServiceOptions& options,
                        const net::HttpServerOptions& http, const net::WaitingSignals& signals,
                        const std::function<Status(const std::string& url)>& listening) {
  TESSERA_ASSIGN_OR_RETURN(net::HttpServer server, net::HttpServer::Listen(http));
  Service service(served, options);
  service.set_server(&server);
  TESSERA_RETURN_IF_ERROR(listening(server.url()));
  std::thread ending([&] {
    signals.Wait();
    signals.LetThrough();
    UntilThereIsMemory([&] { server.Stop(kGraceOfAnswers); });
    UntilThereIsMemory([&] { service.Drain(kGrace); });
  });
  server.Serve([&](net::HttpExchange exchange) { service.Handle(std::move(exchange)); });
  ending.join();
  return OkStatus();
}

}  // namespace tessera::serve
