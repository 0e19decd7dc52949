// SPDX-License-Identifier: Apache-2.0
// net/http/request_reader.h
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
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

const FuzzTargetRegistration registration(
    {.name = "http_request",
     .run = Run,
     .seeds = Seeds,
     .words = {"\r\n", "\r\n\r\n", "GET ", "HEAD ", "OPTIONS * ", " HTTP/1.1\r\n", " HTTP/1.0\r\n",
               "Host: ", "Content-Length: ", "Transfer-Encoding: chunked\r\n",
               "Connection: keep-alive\r\n", "Connection: close\r\n", "Expect: 100-continue\r\n",
               "http://", "0\r\n\r\n", "ffffffffffffffff"}});

}  // namespace
}  // namespace tessera::fuzz
