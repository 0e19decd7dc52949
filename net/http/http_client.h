// SPDX-License-Identifier: Apache-2.0
// A small blocking client, for tests and tools.
//
//   TESSERA_ASSIGN_OR_RETURN(HttpClient client, HttpClient::Open("http://127.0.0.1:8000"));
//   TESSERA_ASSIGN_OR_RETURN(HttpResponse models, client.Send({.path = "/v1/models"}));
//
// It keeps its connection and opens it anew where the server has closed it in between. Failures
// name the url. What a server may answer with is not bounded: ask those that you trust.
#ifndef TESSERA_NET_HTTP_HTTP_CLIENT_H_
#define TESSERA_NET_HTTP_HTTP_CLIENT_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "core/status.h"
#include "net/http/http_message.h"

namespace tessera::net {

class HttpClient {
 public:
  // Of "http://host", "http://host:port" or these with "/" behind. It connects. The timeout is for
  // connecting, and for any progress of a request or its answer.
  static StatusOr<HttpClient> Open(const std::string& url,
                                   std::chrono::milliseconds timeout = std::chrono::seconds(30));

  HttpClient(HttpClient&&) noexcept;
  HttpClient& operator=(HttpClient&&) noexcept;
  ~HttpClient();

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
