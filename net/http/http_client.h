// SPDX-License-Identifier: Apache-2.0
// A small blocking client, for tests and tools.
//
//   TESSERA_ASSIGN_OR_RETURN(HttpClient client, HttpClient::Open("http://127.0.0.1:8000"));
//   TESSERA_ASSIGN_OR_RETURN(HttpResponse models, client.Send({.path = "/v1/models"}));
//
// It keeps its connection and opens it anew where the server has closed it in between. Failures
// name the url. Time and length of what a server answers with are bounded.
#ifndef TESSERA_NET_HTTP_HTTP_CLIENT_H_
#define TESSERA_NET_HTTP_HTTP_CLIENT_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "net/http/http_message.h"

namespace tessera::net {

struct HttpClientOptions {
  // Of connecting, of sending a request, and of its answer as a whole; of one that is streamed: of
  // the time between two pieces.
  std::chrono::milliseconds timeout{30'000};
  uint64_t max_body_bytes = 64 << 20;  // of an answer that comes whole
};

class HttpClient {
 public:
  // Of "http://host", "http://host:port" or these with "/" behind. It connects.
  static StatusOr<HttpClient> Open(const std::string& url, const HttpClientOptions& options = {});

  HttpClient(HttpClient&&) noexcept;
  HttpClient& operator=(HttpClient&&) noexcept;
  ~HttpClient();

  // From the next request on.
  void set_timeout(std::chrono::milliseconds timeout);

  // Host and Content-Length are added where the headers do not have them.
  StatusOr<HttpResponse> Send(const HttpRequest& request);

  // Gives the body of an answer of status 200 as it comes, in pieces of any size, and none of it in
  // the response. `on_piece` returns false to leave: the connection is closed. Answers of other
  // statuses come whole.
  StatusOr<HttpResponse> Stream(const HttpRequest& request,
                                const std::function<bool(std::string_view)>& on_piece);

 private:
  struct State;
  explicit HttpClient(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace tessera::net

#endif  // TESSERA_NET_HTTP_HTTP_CLIENT_H_
