// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <string>

#include "net/http/http_client.h"
#include "net/http/http_server.h"
#include "net/http/testing/raw_connection.h"
#include "net/http/testing/running_server.h"

namespace tessera::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::string_view kGet = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

// What is being answered, and what is being asked, comes to its end; nothing else continues.
TEST(HttpStopTest, FinishesWhatHasBegun) {
  std::atomic<int> handled = 0;
  std::optional<HttpExchange> waiting;
  RunningServer server({}, [&](HttpExchange exchange) {
    if (++handled > 1) return exchange.Respond({.body = "asked in time"});
    exchange.Begin(200, "text/plain");
    waiting = exchange;
  });
  RawConnection answered(server->port()), asking(server->port()), idle(server->port());
  answered.Send(kGet);
  ASSERT_TRUE(Comes([&] { return handled == 1; }));
  asking.Send(kGet.substr(0, 20));
  ASSERT_TRUE(Comes([&] { return server->counts().connections == 3; }));
  std::this_thread::sleep_for(milliseconds(50));
  const auto begin = steady_clock::now();
  server->Stop(std::chrono::seconds(10));
  EXPECT_TRUE(idle.Closes());
  EXPECT_FALSE(HttpClient::Open(server->url()).ok());
  asking.Send(kGet.substr(20));
  const auto asked = asking.ReadAnswer();
  EXPECT_EQ(asked.body, "asked in time");
  EXPECT_NE(asked.head.find("Connection: close"), std::string::npos);
  const std::string body(1 << 20, 'b');
  waiting->Write(body);
  waiting->End();
  server.Stop(std::chrono::seconds(10));
  EXPECT_EQ(answered.ReadAnswer().body, body);
  EXPECT_LT(steady_clock::now() - begin, std::chrono::seconds(5));
}

TEST(HttpStopTest, TheGraceEnds) {
  std::optional<HttpExchange> waiting;
  std::atomic<bool> left = false;
  std::atomic<bool> handled = false;
  RunningServer server({}, [&](HttpExchange exchange) {
    exchange.OnGone([&] { left = true; });
    waiting = exchange;
    handled = true;
  });
  RawConnection client(server->port());
  client.Send(kGet);
  ASSERT_TRUE(Comes([&] { return handled.load(); }));
  const auto begin = steady_clock::now();
  server.Stop(milliseconds(100));
  EXPECT_GE(steady_clock::now() - begin, milliseconds(95));
  EXPECT_LT(steady_clock::now() - begin, milliseconds(2000));
  EXPECT_TRUE(left);
  EXPECT_TRUE(waiting->gone());
  EXPECT_TRUE(client.Closes());
}

TEST(HttpStopTest, ASecondStopHurries) {
  std::optional<HttpExchange> waiting;
  std::atomic<bool> handled = false;
  RunningServer server({}, [&](HttpExchange exchange) {
    waiting = exchange;
    handled = true;
  });
  RawConnection client(server->port());
  client.Send(kGet);
  ASSERT_TRUE(Comes([&] { return handled.load(); }));
  server->Stop(std::chrono::hours(1));
  server.Stop(milliseconds(10));
  EXPECT_TRUE(waiting->gone());
}

TEST(HttpStopTest, BeforeServing) {
  auto server = HttpServer::Listen({});
  ASSERT_TRUE(server.ok());
  server->Stop(std::chrono::hours(1));
  server->Serve([](HttpExchange) {});
  EXPECT_FALSE(HttpClient::Open(server->url()).ok());
}

TEST(HttpStopTest, WithoutServing) {
  const auto server = HttpServer::Listen({});
  ASSERT_TRUE(server.ok());
  RawConnection client(server->port());
}

// What is posted throws out of Serve; connections that are open then are closed with the server.
TEST(HttpStopTest, WhatIsPostedMayThrow) {
  std::optional<HttpExchange> waiting;
  auto server = HttpServer::Listen({});
  ASSERT_TRUE(server.ok());
  RawConnection client(server->port());
  client.Send(kGet);
  EXPECT_THROW(server->Serve([&](HttpExchange exchange) {
    waiting = exchange;
    server->Post([] { throw std::runtime_error("posted"); });
  }),
               std::runtime_error);
  EXPECT_FALSE(waiting->gone());
  server = InvalidArgument("it is gone");
  EXPECT_TRUE(waiting->gone());
  EXPECT_TRUE(client.Closes());
}

}  // namespace
}  // namespace tessera::net
