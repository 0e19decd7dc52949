// SPDX-License-Identifier: Apache-2.0
// Requests and answers of HTTP/1.1 as values; http_server.h receives and http_client.h sends them.
//
//   HttpRequest request{.method = "POST", .path = "/v1/completions", .body = "{}"};
//   if (const std::string* type = request.Find("content-type")) ...
#ifndef TESSERA_NET_HTTP_HTTP_MESSAGE_H_
#define TESSERA_NET_HTTP_HTTP_MESSAGE_H_

#include <string>
#include <string_view>
#include <vector>

namespace tessera::net {

struct HttpHeader {
  std::string name = {};
  std::string value = {};
  friend bool operator==(const HttpHeader&, const HttpHeader&) = default;
};

struct HttpRequest {
  std::string method = "GET";
  std::string path = "/";  // as it came, without the query
  std::string query = {};  // behind '?', as it came
  std::vector<HttpHeader> headers = {};
  std::string body = {};

  // The value of the first header of that name, whatever its case; nullptr: there is none.
  const std::string* Find(std::string_view name) const;
  friend bool operator==(const HttpRequest&, const HttpRequest&) = default;
};

// An answer as a whole.
struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";  // empty: none
  std::vector<HttpHeader> headers = {};           // others
  std::string body = {};

  // As HttpRequest's; the content type is not among them.
  const std::string* Find(std::string_view name) const;
};

// {"error":{"message":...,"type":...,"param":null,"code":null}}, as clients of OpenAI's interface
// read it. The type is "invalid_request_error", or "server_error" where the client could do nothing
// about it (500, 503).
HttpResponse ErrorResponse(int status, std::string_view message);

}  // namespace tessera::net

#endif  // TESSERA_NET_HTTP_HTTP_MESSAGE_H_
