// SPDX-License-Identifier: Apache-2.0
#include "net/http/request_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "base/status.h"

namespace tessera::net {
namespace {

constexpr RequestLimits kLimits = {.head_bytes = 400, .body_bytes = 100};

// What became of all bytes of a connection.
struct Outcome {
  std::vector<HttpRequest> requests;
  int refused = 0;  // the status
  std::string message;
  bool waits = false;  // in the midst of a request

  friend bool operator==(const Outcome&, const Outcome&) = default;
};

// Reads requests until the bytes end or are refused; each call is given `piece()` bytes at most.
template <typename Piece>
Outcome ReadAll(std::string_view bytes, Piece piece) {
  Outcome outcome;
  while (!bytes.empty()) {
    RequestReader reader(kLimits);
    while (!bytes.empty() && !reader.done() && !reader.refusal()) {
      const std::string_view next = bytes.substr(0, piece());
      const size_t used = reader.Feed(next);
      EXPECT_LE(used, next.size());
      EXPECT_TRUE(used == next.size() || reader.done() || reader.refusal());
      bytes.remove_prefix(used);
    }
    if (reader.refusal()) {
      outcome.refused = reader.refusal()->status;
      outcome.message = reader.refusal()->body;
      return outcome;
    }
    outcome.waits = reader.begun() && !reader.done();
    if (reader.done()) outcome.requests.push_back(reader.TakeRequest());
  }
  return outcome;
}

Outcome Read(std::string_view bytes) {
  return ReadAll(bytes, [] { return std::string_view::npos; });
}

TEST(RequestReaderTest, ReadsWhatARequestSays) {
  const Outcome outcome = Read(
      "\r\nPOST /v1/completions?a=b&c HTTP/1.1\r\nHost: a:1\r\nX-Odd:  two words \r\n"
      "Content-Length: 4\r\n\r\n{} \nGET / HTTP/1.0\r\n\r\n");
  ASSERT_EQ(outcome.requests.size(), 2u) << outcome.message;
  const HttpRequest& first = outcome.requests[0];
  EXPECT_EQ(first.method, "POST");
  EXPECT_EQ(first.path, "/v1/completions");
  EXPECT_EQ(first.query, "a=b&c");
  EXPECT_EQ(first.body, "{} \n");
  ASSERT_NE(first.Find("x-odd"), nullptr);
  EXPECT_EQ(*first.Find("x-odd"), "two words");
  EXPECT_EQ(first.Find("X-Odd2"), nullptr);
  EXPECT_EQ(outcome.requests[1], HttpRequest());
}

TEST(RequestReaderTest, JoinsChunksAndIgnoresTrailers) {
  const Outcome outcome = Read(
      "PUT /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n"
      "4;name=\"va;lue\"\r\n1234\r\nA\r\n567890abcd\r\n0\r\nX-Late: 1\r\nHost: b\r\n\r\n");
  ASSERT_EQ(outcome.requests.size(), 1u) << outcome.message;
  EXPECT_EQ(outcome.requests[0].body, "1234567890abcd");
  EXPECT_EQ(outcome.requests[0].Find("x-late"), nullptr);
  EXPECT_EQ(*outcome.requests[0].Find("host"), "a");
}

TEST(RequestReaderTest, TheHostOfATargetCountsForMore) {
  const Outcome outcome = Read("GET http://b:2?q HTTP/1.1\r\nHost: a\r\n\r\n");
  ASSERT_EQ(outcome.requests.size(), 1u) << outcome.message;
  EXPECT_EQ(outcome.requests[0].path, "/");
  EXPECT_EQ(outcome.requests[0].query, "q");
  EXPECT_EQ(*outcome.requests[0].Find("host"), "b:2");
}

TEST(RequestReaderTest, KnowsWhetherTheClientGoesOn) {
  const struct {
    const char* head;
    bool keep_alive, http_1_0;
  } cases[] = {{"GET / HTTP/1.1\r\nHost: a\r\n\r\n", true, false},
               {"GET / HTTP/1.1\r\nHost: a\r\nConnection: x, Close\r\n\r\n", false, false},
               {"GET / HTTP/1.0\r\n\r\n", false, true},
               {"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", true, true}};
  for (const auto& c : cases) {
    RequestReader reader(kLimits);
    reader.Feed(c.head);
    ASSERT_TRUE(reader.done()) << c.head;
    EXPECT_EQ(reader.keep_alive(), c.keep_alive) << c.head;
    EXPECT_EQ(reader.http_1_0(), c.http_1_0) << c.head;
  }
}

TEST(RequestReaderTest, AnExpectationIsToldOnce) {
  RequestReader reader(kLimits);
  reader.Feed("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-Continue\r\nContent-Length: 2\r\n");
  EXPECT_FALSE(reader.TakeExpectation());
  reader.Feed("\r\n");
  EXPECT_TRUE(reader.TakeExpectation());
  EXPECT_FALSE(reader.TakeExpectation());
  reader.Feed("ab");
  EXPECT_TRUE(reader.done());

  RequestReader impatient(kLimits);
  impatient.Feed(
      "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\na");
  EXPECT_FALSE(impatient.TakeExpectation());
}

std::string Head(std::string_view headers) {
  return Concat("POST / HTTP/1.1\r\nHost: a\r\n", headers, "\r\n");
}

const struct {
  std::string bytes;
  int status;
} kRefused[] = {
    {"nonsense\r\n\r\n", 400},
    {"G@T / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
    {"GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
    {"GET / \r\nHost: a\r\n\r\n", 505},
    {"GET a HTTP/1.1\r\nHost: a\r\n\r\n", 400},
    {"GET http:// HTTP/1.1\r\nHost: a\r\n\r\n", 400},
    {"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n", 400},
    {"GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505},
    {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
    {"GET / HTTP/1.1\nHost: a\n\n", 400},
    {"GET / HTTP/1.1\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400},
    {Head("X : 1\r\n"), 400},
    {Head("X\r\n"), 400},
    {Head(": 1\r\n"), 400},
    {Head("X(: 1\r\n"), 400},
    {Head(std::string("X: a\0b\r\n", 8)), 400},
    {Head("X: a\nY: b\r\n"), 400},
    {"GET / HTTP/1.1\r\nHost: a\n\nb", 400},
    {Head("X: a\rY: b\r\n"), 400},
    {Head("Content-Length: 2x\r\n"), 400},
    {Head("Content-Length: -1\r\n"), 400},
    {Head("Content-Length: +1\r\n"), 400},
    {Head("Content-Length: \r\n"), 400},
    {Head("Content-Length: 1, 1\r\n"), 400},
    {Head("Content-Length: 1\r\nContent-Length: 1\r\n"), 400},
    {Head("Content-Length: 1\r\nContent-Length: 2\r\n"), 400},
    {Head("Content-Length: 99999999999999999999\r\n"), 400},
    {Head("Content-Length: 101\r\n"), 413},
    {Head("Content-Encoding: gzip\r\nContent-Length: 1\r\n"), 415},
    {Head("Transfer-Encoding: gzip\r\n"), 501},
    {Head("Transfer-Encoding: gzip, chunked\r\n"), 501},
    {Head("Transfer-Encoding: chunked, identity\r\n"), 501},
    {Head("Transfer-Encoding: \r\n"), 501},
    {Head("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), 400},
    {Head("Transfer-Encoding: chunked\r\nContent-Length: 1\r\n"), 400},
    {Head("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n"), 400},
    {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
    {Head("Transfer-Encoding: chunked\r\n") + "x\r\nabc", 400},
    {Head("Transfer-Encoding: chunked\r\n") + "-1\r\nabc", 400},
    {Head("Transfer-Encoding: chunked\r\n") + "1\r\nab\r\n0\r\n", 400},
    {Head("Transfer-Encoding: chunked\r\n") + "1 ?\r\na\r\n", 400},
    {Head("Transfer-Encoding: chunked\r\n") + "fffffffffffffffff\r\n", 400},
    {Head("Transfer-Encoding: chunked\r\n") + "65\r\nabc", 413},
    {Head("Transfer-Encoding: chunked\r\n") + "60\r\n" + std::string(96, 'a') + "\r\n5\r\n", 413},
    {Head("Transfer-Encoding: chunked\r\n") + "1;" + std::string(500, 'a'), 431},
    {Head("Transfer-Encoding: chunked\r\n") + "0\r\nA: " + std::string(500, 'a'), 431},
    {Head("Expect: miracles\r\n"), 417},
    {"GET /" + std::string(500, 'a'), 431},
    {Head("X: " + std::string(500, 'a') + "\r\n"), 431},
    {Head("X: " + std::string(500, 'a')), 431},
};

TEST(RequestReaderTest, RefusesWhatIsNoRequestOrTwo) {
  for (const auto& c : kRefused) {
    const Outcome whole = Read(c.bytes);
    EXPECT_EQ(whole.refused, c.status) << c.bytes << whole.message;
    EXPECT_TRUE(whole.message.starts_with("{\"error\":{\"message\":\"")) << whole.message;
    EXPECT_NE(
        whole.message.find("\"type\":\"invalid_request_error\",\"param\":null,\"code\":null}}"),
        std::string::npos);
    EXPECT_EQ(ReadAll(c.bytes, [] { return 1; }).refused, c.status) << c.bytes;
  }
}

// Beast alone would take any number of them, each in a packet of its own.
TEST(RequestReaderTest, ManyShortHeadersAreLong) {
  RequestReader reader(kLimits);
  reader.Feed("GET / HTTP/1.1\r\nHost: a\r\nX: ");
  int fed = 0;
  for (; fed < 1000 && !reader.refusal(); ++fed) reader.Feed("b\r\nX: ");
  ASSERT_TRUE(reader.refusal());
  EXPECT_EQ(reader.refusal()->status, 431);
  EXPECT_LT(fed, 100);
}

// Requests with bytes changed, doubled, left out and cut into pieces at random: the pieces make no
// difference.
TEST(RequestReaderTest, PiecesMakeNoDifference) {
  std::mt19937 random(1);
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  std::vector<std::string> seeds = {
      "GET /a?b HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
      Head("Content-Length: 10\r\nExpect: 100-continue\r\n") + "0123456789" + Head(""),
      Head("Transfer-Encoding: chunked\r\n") + "3;a=b\r\nabc\r\n0\r\nT: 1\r\n\r\n" + Head("")};
  for (const auto& c : kRefused) seeds.push_back(c.bytes);
  const std::string_view words[] = {"\r\n",
                                    "\r\n\r\n",
                                    ":",
                                    " ",
                                    "\t",
                                    "0",
                                    "chunked",
                                    ",",
                                    "Content-Length: 3\r\n",
                                    "Transfer-Encoding: chunked\r\n"};
  int requests = 0, refused = 0, waiting = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes = seeds[below(seeds.size())];
    for (size_t changes = below(4); changes > 0 && !bytes.empty(); --changes) {
      const size_t at = below(bytes.size());
      switch (below(4)) {
        case 0:
          bytes[at] = static_cast<char>(below(256));
          break;
        case 1:
          bytes.erase(at, 1 + below(5));
          break;
        case 2:
          bytes.insert(at, words[below(std::size(words))]);
          break;
        default:
          bytes.insert(at, bytes.substr(below(bytes.size()), below(40)));
      }
    }
    const Outcome whole = Read(bytes);
    const size_t most = 1 + below(20);
    const Outcome pieces = ReadAll(bytes, [&] { return 1 + below(most); });
    EXPECT_EQ(whole.requests, pieces.requests) << bytes;
    EXPECT_EQ(whole.waits, pieces.waits) << bytes;
    // What is wrong and too long may be found to be either first.
    const bool is_long = whole.refused == 431 || pieces.refused == 431;
    EXPECT_EQ(whole.refused == 0, pieces.refused == 0) << bytes;
    EXPECT_TRUE(is_long || whole.message == pieces.message)
        << bytes << whole.message << pieces.message;
    requests += !whole.requests.empty();
    refused += whole.refused != 0;
    waiting += whole.waits;
  }
  EXPECT_GT(std::min({requests, refused, waiting}), 300);
}

}  // namespace
}  // namespace tessera::net
