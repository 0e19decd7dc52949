// SPDX-License-Identifier: Apache-2.0
// What is too long, too slow or no HTTP, each with its answer; the server continues.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "net/http/http_server.h"
#include "net/http/testing/raw_connection.h"
#include "net/http/testing/running_server.h"

namespace tessera::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::string_view kGet = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

void Ok(HttpExchange exchange) { exchange.Respond({.body = "ok"}); }

TEST(HttpLimitsTest, RefusalsReachTheClient) {
  RunningServer server({.max_header_bytes = 1000, .max_body_bytes = 1000}, Ok);
  const std::string post = "POST / HTTP/1.1\r\nHost: a\r\n";
  const struct {
    std::string bytes;
    int status;
  } cases[] = {
      {"no request\r\n\r\n", 400},
      {"GET / HTTP/3.0\r\n\r\n", 505},
      {"GET / HTTP/1.1\nHost: a\n\n", 400},
      {"GET / HTTP/1.1\r\nHost: a\n\r\n", 400},
      {post + "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n", 400},
      {post + "Transfer-Encoding: gzip\r\n\r\n", 501},
      {post + "X: " + std::string(100'000, 'x'), 431},
      {post + "Content-Length: 4000000\r\n\r\n" + std::string(4'000'000, 'x'), 413},
      {post + "Transfer-Encoding: chunked\r\n\r\nfffff\r\n" + std::string(1'000'000, 'x'), 413}};
  for (const auto& c : cases) {
    RawConnection client(server->port());
    // What the client continues sending is taken, or it would destroy the answer on its way.
    EXPECT_TRUE(client.Send(c.bytes)) << c.bytes.substr(0, 100);
    const auto answer = client.ReadAnswer();
    EXPECT_EQ(answer.status, c.status) << c.bytes.substr(0, 100);
    EXPECT_NE(answer.head.find("\r\nContent-Type: application/json"), std::string::npos);
    EXPECT_NE(answer.head.find("\r\nConnection: close"), std::string::npos);
    EXPECT_NE(answer.body.find("\"type\":\"invalid_request_error\""), std::string::npos);
    EXPECT_TRUE(client.Closes()) << c.bytes.substr(0, 100);
  }
  RawConnection client(server->port());
  client.Send(kGet);
  EXPECT_EQ(client.ReadAnswer().body, "ok");
  EXPECT_EQ(server->counts().refused, static_cast<int64_t>(std::size(cases)));
}

// A byte now and then does not prolong the time that a request has.
TEST(HttpLimitsTest, SlowRequestsEnd) {
  RunningServer server({.request_timeout = milliseconds(300)}, Ok);
  for (const std::string_view before :
       {"GET / HTTP/1.1\r\nX: ", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n"}) {
    RawConnection client(server->port());
    client.Send(before);
    const auto begin = steady_clock::now();
    std::string answer;
    while (answer.empty() && steady_clock::now() - begin < milliseconds(5000)) {
      client.Send("a");
      answer = client.ReadAll(milliseconds(20));
    }
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 408 Request Timeout\r\n")) << answer;
    EXPECT_GE(steady_clock::now() - begin, milliseconds(290));
    EXPECT_LT(steady_clock::now() - begin, milliseconds(2000));
  }
}

TEST(HttpLimitsTest, IdleConnectionsAreClosed) {
  RunningServer server({.idle_timeout = milliseconds(200)}, Ok);
  RawConnection silent(server->port());
  RawConnection asks(server->port());
  asks.Send(kGet);
  EXPECT_EQ(asks.ReadAnswer().status, 200);
  EXPECT_EQ(silent.ReadAll(), "");
  EXPECT_TRUE(silent.Closes(milliseconds(2000)));
  EXPECT_TRUE(asks.Closes(milliseconds(2000)));
  EXPECT_TRUE(Comes([&] { return server->counts().connections == 0; }));
  EXPECT_EQ(server->counts().refused, 0);
}

// The time of an answer is the handler's.
TEST(HttpLimitsTest, WaitingForAnAnswerIsNotIdle) {
  RunningServer server({.request_timeout = milliseconds(50),
                        .idle_timeout = milliseconds(50),
                        .write_timeout = milliseconds(50)},
                       [](HttpExchange exchange) {
                         std::thread([exchange]() mutable {
                           exchange.Begin(200, "text/plain");
                           std::this_thread::sleep_for(milliseconds(300));
                           exchange.Write("late");
                           exchange.End();
                         }).detach();
                       });
  RawConnection client(server->port());
  client.Send(kGet);
  EXPECT_EQ(client.ReadAnswer().body, "late");
}

TEST(HttpLimitsTest, RequestsTogetherAreBounded) {
  RunningServer server({.max_body_bytes = 1000, .max_held_bytes = 2000}, Ok);
  const std::string post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 900\r\n\r\n";
  const auto half = [&](RawConnection& client) {
    client.Send(post + std::string(850, 'x'));
    return client.ReadAll(milliseconds(50));
  };
  RawConnection first(server->port()), second(server->port()), third(server->port());
  EXPECT_EQ(half(first), "");
  EXPECT_EQ(half(second), "");
  const std::string refusal = half(third);
  EXPECT_TRUE(refusal.starts_with("HTTP/1.1 503 Service Unavailable\r\n")) << refusal;
  EXPECT_NE(refusal.find("too long together"), std::string::npos);
  // The others continue, and give place: by their end, or by leaving.
  first.Send(std::string(50, 'x'));
  EXPECT_EQ(first.ReadAnswer().body, "ok");
  second.Reset();
  for (int i = 0; i < 10; ++i) {
    first.Send(post + std::string(900, 'x'));
    EXPECT_EQ(first.ReadAnswer().body, "ok");
  }
  RawConnection last(server->port());
  EXPECT_EQ(half(last), "");
  last.Send(std::string(50, 'x'));
  EXPECT_EQ(last.ReadAnswer().body, "ok");
}

TEST(HttpLimitsTest, ConnectionsAreCounted) {
  RunningServer server({.max_connections = 3}, Ok);
  std::vector<RawConnection> clients;
  for (int i = 0; i < 3; ++i) {
    clients.emplace_back(server->port());
    clients.back().Send(kGet);
    EXPECT_EQ(clients.back().ReadAnswer().status, 200);
  }
  {
    RawConnection fourth(server->port());
    fourth.Send(kGet);
    const auto answer = fourth.ReadAnswer();
    EXPECT_EQ(answer.status, 503);
    EXPECT_NE(answer.body.find("too many connections"), std::string::npos);
    EXPECT_TRUE(fourth.Closes());
  }
  clients.pop_back();
  EXPECT_TRUE(Comes([&] { return server->counts().connections == 2; }));
  RawConnection another(server->port());
  another.Send(kGet);
  EXPECT_EQ(another.ReadAnswer().status, 200);
}

}  // namespace
}  // namespace tessera::net
