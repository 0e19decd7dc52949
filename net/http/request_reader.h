// SPDX-License-Identifier: Apache-2.0
// From the bytes of a connection to a request, without a socket:
//
//   RequestReader reader({.head_bytes = 16 << 10, .body_bytes = 16 << 20});
//   const size_t used = reader.Feed("GET /v1/models?x=1 HTTP/1.1\r\nHost: a\r\n\r\nGET /nex");
//   reader.done(), reader.request().path      // true, "/v1/models"; the next one begins at `used`
//
// Whatever the bytes are and however they are cut into pieces, the result is the same, and memory
// stays within the limits. What could be understood in two ways is refused: lengths that disagree
// or stand beside a Transfer-Encoding, encodings other than "chunked", more than one Host.
#ifndef TESSERA_NET_HTTP_REQUEST_READER_H_
#define TESSERA_NET_HTTP_REQUEST_READER_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>

#include "net/http/http_message.h"

namespace tessera::net {

struct RequestLimits {
  size_t head_bytes;  // of the request line and the headers
  size_t body_bytes;
};

class RequestReader {
 public:
  explicit RequestReader(const RequestLimits& limits);
  RequestReader(RequestReader&&) noexcept;
  ~RequestReader();

  // Returns how many of the bytes were the request's: all, unless it is done now. Once it is done
  // or refused, nothing may be fed.
  size_t Feed(std::string_view bytes);

  bool begun() const;  // empty lines before a request are none of it
  bool done() const;
  // The answer to what is no request; the connection cannot continue after it.
  const std::optional<HttpResponse>& refusal() const;

  // True once, when the head has come and the client waits to be told that it may send the body
  // ("Expect: 100-continue").
  bool TakeExpectation();

  // What follows is there once it is done.
  HttpRequest TakeRequest();
  bool keep_alive() const;  // the client would send another one
  bool http_1_0() const;    // the client knows no chunks

 private:
  class Parser;
  std::unique_ptr<Parser> parser_;
};

}  // namespace tessera::net

#endif  // TESSERA_NET_HTTP_REQUEST_READER_H_
