// SPDX-License-Identifier: Apache-2.0
// An HTTP/1.1 server on one thread, driven by events: thousands of connections, answers that come
// in pieces, and clients whose leaving is noticed while they wait.
//
//   TESSERA_ASSIGN_OR_RETURN(HttpServer server, HttpServer::Listen({.port = 8000}));
//   std::cout << server.url();                               // http://127.0.0.1:8000
//   server.Serve([&](HttpExchange exchange) {
//     if (exchange.request().path == "/health") return exchange.Respond({.body = "{}"});
//     work.Push(std::move(exchange));                        // answered by another thread, later
//   });                                                      // another thread calls
//   server.Stop(5s)
//
// What is no HTTP, too long or too slow is answered by the server itself (ErrorResponse of
// http_message.h) and the connection closed. A connection has one request at work; what follows it
// waits, at first here and then with the client. A client that closes its sending side is answered.
// One that has left altogether looks the same at first: half a second later it gets an interim
// answer (100), or in the midst of one in chunks a leading 0 of the next chunk's size, which its
// system refuses. A client that has sent more than 64 KiB behind its
// request is seen to leave when writing fails.
#ifndef TESSERA_NET_HTTP_HTTP_SERVER_H_
#define TESSERA_NET_HTTP_HTTP_SERVER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "net/http/http_message.h"

namespace tessera::net {

// One request on its way to its answer. Copies share it. All calls may come from any thread and
// return at once; they may outlive the server, which then ignores them. Answering twice, a piece
// outside of Begin and End, and headers with line ends throw Error. When the last copy goes before
// the answer is whole, the client gets 500, or sees the connection end in its midst.
class HttpExchange {
 public:
  const HttpRequest& request() const;
  const std::string& peer() const;  // whose connection it is: 127.0.0.1:40422

  // The whole answer. What a HEAD asks for is that of GET: its body is counted and not sent.
  void Respond(HttpResponse response);

  // An answer in pieces: chunked, or up to the connection's end for HTTP/1.0.
  void Begin(int status, std::string content_type, std::vector<HttpHeader> headers = {});
  void Write(std::string_view piece);
  void End();

  bool gone() const;      // the client has left, or was dropped: the rest is ignored
  size_t unsent() const;  // bytes queued that the system has not taken
  // Counts bytes of an answer in the making among those of the server's answers, until it is given
  // or the exchange ends. False, and nothing is counted: there is no room (max_answer_bytes).
  bool Reserve(size_t bytes);
  // Called on the server's thread, at most once, when the client leaves before the answer's end. It
  // must not throw, nor hold a copy of this exchange, which then would not end by itself.
  void OnGone(std::function<void()> callback);

  struct State;
  explicit HttpExchange(std::shared_ptr<State> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<State> state_;
};

struct HttpServerOptions {
  std::string host = "127.0.0.1";       // an address, or a name that has one
  int port = 0;                         // 0: any that is free
  int64_t max_connections = 1024;       // more get 503 and are closed
  int64_t max_header_bytes = 16 << 10;  // 431
  int64_t max_body_bytes = 16 << 20;    // 413, before it is read where Content-Length says so
  int64_t max_held_bytes = 256 << 20;   // of requests that are read or answered, together: 503
  std::chrono::milliseconds request_timeout{10'000};  // from its first byte to its end: 408
  std::chrono::milliseconds idle_timeout{60'000};     // between requests: closed
  // What is unsent for this long is dropped with its client, unless the client took
  // `min_write_rate` bytes a second meanwhile.
  std::chrono::milliseconds write_timeout{30'000};
  int64_t min_write_rate = 16 << 10;
  size_t max_unsent = 4 << 20;  // of an answer in pieces; more: the client is dropped
  // Of all answers, reserved or unsent: then Reserve is false, and a client is dropped whose answer
  // in pieces has more than 256 KiB unsent.
  int64_t max_answer_bytes = 256 << 20;
};

class HttpServer {
 public:
  // On the server's thread; must not block. What it throws is answered with 500.
  using Handler = std::function<void(HttpExchange)>;

  // From here on clients can connect. A failure names host:port.
  static StatusOr<HttpServer> Listen(const HttpServerOptions& options);

  HttpServer(HttpServer&&) noexcept;
  HttpServer& operator=(HttpServer&&) noexcept;
  ~HttpServer();

  int port() const;
  std::string url() const;  // http://127.0.0.1:41234

  // Returns after Stop, once all requests of which a byte was there are answered and the answers
  // are sent, or the grace is over: who still waits then is dropped. Once.
  void Serve(const Handler& handler);

  // Runs f on the thread in Serve, which throws what f throws. Any thread.
  void Post(std::function<void()> f);

  // Accepts nothing new and closes idle connections. Any thread, before Serve too; again: with
  // another grace from now on.
  void Stop(std::chrono::milliseconds grace);

  // For metrics; any thread.
  struct Counts {
    int64_t connections = 0;  // open now
    int64_t accepted = 0;     // connections so far
    int64_t requests = 0;     // that reached the handler
    int64_t refused = 0;      // answered by the server itself: 4xx, 5xx
    int64_t gone = 0;         // clients that left, or were dropped, before their answer was sent
  };
  Counts counts() const;

 private:
  struct Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::net

#endif  // TESSERA_NET_HTTP_HTTP_SERVER_H_
