// SPDX-License-Identifier: Apache-2.0
// net/http/request_reader.h
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/status.h"
#include "net/http/request_reader.h"
#include "tests/fuzz/fuzz_target.h"

namespace tessera::fuzz {
namespace {

using net::HttpRequest;
using net::RequestLimits;
using net::RequestReader;

constexpr RequestLimits kLimits = {.head_bytes = 2000, .body_bytes = 2000};

struct Outcome {
  std::vector<HttpRequest> requests;
  int refused = 0;
};

// The bytes of a connection, in pieces of that many.
Outcome ReadAll(std::string_view bytes, size_t piece) {
  Outcome outcome;
  while (!bytes.empty() && outcome.refused == 0) {
    RequestReader reader(kLimits);
    while (!bytes.empty() && !reader.done() && !reader.refusal()) {
      bytes.remove_prefix(reader.Feed(bytes.substr(0, piece)));
    }
    reader.TakeExpectation();
    if (reader.refusal()) outcome.refused = reader.refusal()->status;
    if (reader.done()) {
      outcome.requests.push_back(reader.TakeRequest());
      TESSERA_CHECK(outcome.requests.back().body.size() <= kLimits.body_bytes, "http", "too long");
    }
  }
  return outcome;
}

bool Run(std::string_view bytes) {
  const Outcome whole = ReadAll(bytes, bytes.size());
  for (const size_t piece : {1, 7}) {
    const Outcome pieces = ReadAll(bytes, piece);
    TESSERA_CHECK(whole.requests == pieces.requests, "http", "pieces make a difference");
    // With which status, and how early, may differ: what is wrong may be too long as well.
    TESSERA_CHECK(whole.refused == 0 || pieces.refused != 0, "http", "pieces are not refused");
  }
  return whole.refused == 0 && !whole.requests.empty();
}

std::vector<std::string> Seeds() {
  return {"GET /v1/models?limit=2 HTTP/1.1\r\nHost: localhost:8000\r\nAccept: */*\r\n\r\n",
          "POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
          "Content-Length: 18\r\n\r\n{\"prompt\":\"hello\"}GET / HTTP/1.0\r\nConnection: "
          "keep-alive\r\n\r\n",
          "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
          "5;a=\"b\"\r\nhello\r\n1e\r\n012345678901234567890123456789\r\n0\r\nX: y\r\n\r\n",
          "PUT http://a:1/b HTTP/1.1\r\nHost: c\r\nExpect: 100-continue\r\nContent-Length: 1\r\n"
          "X-Folded: a\r\n b\r\nConnection: close\r\n\r\nx"};
}

// A few requests of one connection: their bodies have a length, come in chunks, or are none.
std::string Make(uint64_t seed) {
  Choices choices(seed);
  std::string bytes;
  for (uint64_t left = 1 + choices.Below(3); left > 0; --left) {
    const std::string body(choices.Below(40), 'b');
    const uint64_t form = choices.Below(3);
    bytes += choices.Of({"GET", "POST", "PUT", "OPTIONS", "HEAD", "DELETE"});
    bytes += choices.Of({" / ", " /v1/models?limit=2&a=%20 ", " http://a:1/b ", " /%C3%A4 "});
    bytes += choices.OneIn(4) ? "HTTP/1.0\r\nConnection: keep-alive\r\n" : "HTTP/1.1\r\n";
    bytes += choices.Of({"Host: a\r\n", "host:a:80\r\n", "HOST: [::1]:8000 \r\n"});
    for (uint64_t others = choices.Below(4); others > 0; --others) {
      bytes += choices.Of({"Accept: */*\r\n", "X-Empty:\r\n", "Expect: 100-continue\r\n",
                           "Authorization: Bearer k\r\n", "Connection: keep-alive\r\n",
                           "Cookie: a=b; c=\"d\"\r\n", "Connection: close, x\r\n"});
    }
    if (choices.OneIn(16))
      bytes += choices.Of({"Host: b\r\n", "Content-Length: 1\r\n", "a b: c\r\n"});
    if (form == 0) bytes += Concat("Content-Length: ", body.size(), "\r\n\r\n", body);
    if (form == 1) bytes += "\r\n";
    if (form != 2) continue;
    bytes += "Transfer-Encoding: chunked\r\n\r\n";
    for (std::string_view rest = body; !rest.empty();) {
      const std::string_view piece = rest.substr(0, 1 + choices.Below(15));
      char size[8];
      snprintf(size, sizeof(size), choices.OneIn(2) ? "%zx" : "0%zX", piece.size());
      bytes += Concat(size, choices.Of({"", ";a", ";a=\"b\""}), "\r\n", piece, "\r\n");
      rest.remove_prefix(piece.size());
    }
    bytes += choices.Of({"0\r\n\r\n", "0\r\nX: y\r\n\r\n", "000\r\n\r\n"});
  }
  return bytes;
}

const FuzzTargetRegistration registration(
    {.name = "http_request",
     .run = Run,
     .seeds = Seeds,
     .words = {"\r\n", "\r\n\r\n", "GET ", "HEAD ", "OPTIONS * ", " HTTP/1.1\r\n", " HTTP/1.0\r\n",
               "Host: ", "Content-Length: ", "Transfer-Encoding: chunked\r\n",
               "Connection: keep-alive\r\n", "Connection: close\r\n", "Expect: 100-continue\r\n",
               "http://", "0\r\n\r\n", "ffffffffffffffff"},
     .make = Make});

}  // namespace
}  // namespace tessera::fuzz
