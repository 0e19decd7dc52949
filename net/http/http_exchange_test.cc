// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.h"
#include "net/http/http_client.h"
#include "net/http/http_server.h"
#include "net/http/testing/raw_connection.h"
#include "net/http/testing/running_server.h"

namespace tessera::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::string_view kGet = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

// A server that leaves its exchanges to the test.
class WaitingServer {
 public:
  explicit WaitingServer(const HttpServerOptions& options = {})
      : server_(options, [this](HttpExchange exchange) {
          const std::lock_guard<std::mutex> lock(mutex_);
          exchanges_.push_back(std::move(exchange));
        }) {}

  HttpServer* operator->() { return server_.operator->(); }
  // The one that comes next.
  HttpExchange Take() {
    std::optional<HttpExchange> taken;
    Comes([&] {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (exchanges_.empty()) return false;
      taken = exchanges_.front();
      exchanges_.erase(exchanges_.begin());
      return true;
    });
    return taken.value();
  }

 private:
  std::mutex mutex_;
  std::vector<HttpExchange> exchanges_;
  RunningServer server_;
};

TEST(HttpExchangeTest, SendsPiecesAsTheyAreWritten) {
  WaitingServer server;
  RawConnection client(server->port());
  client.Send(kGet);
  HttpExchange exchange = server.Take();
  exchange.Begin(200, "text/event-stream", {{"X-Id", "1"}});
  exchange.Write("data: 1\n\n");
  EXPECT_EQ(WithoutDate(client.ReadAll(milliseconds(100))),
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nX-Id: 1\r\n"
            "Transfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n");
  exchange.Write("");
  exchange.Write(std::string(17, 'x'));
  EXPECT_EQ(client.ReadAll(milliseconds(100)), "11\r\nxxxxxxxxxxxxxxxxx\r\n");
  EXPECT_EQ(exchange.unsent(), 0u);
  exchange.End();
  EXPECT_EQ(client.ReadAll(milliseconds(100)), "0\r\n\r\n");
  client.Send(kGet);
  server.Take().Respond({.body = "next"});
  EXPECT_EQ(client.ReadAnswer().body, "next");
}

// What is written together goes in one packet.
TEST(HttpExchangeTest, GathersPieces) {
  RunningServer server({}, [](HttpExchange exchange) {
    exchange.Begin(200, "");
    for (const char* piece : {"a", "b", "c"}) exchange.Write(piece);
    exchange.End();
  });
  RawConnection client(server->port());
  client.Send(kGet);
  EXPECT_EQ(WithoutDate(client.ReadSome()),
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
            "1\r\na\r\n1\r\nb\r\n1\r\nc\r\n0\r\n\r\n");
}

TEST(HttpExchangeTest, SendsPiecesToOldClients) {
  WaitingServer server;
  RawConnection client(server->port());
  client.Send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  HttpExchange exchange = server.Take();
  exchange.Begin(200, "text/plain");
  exchange.Write("abc");
  exchange.Write("def");
  exchange.End();
  EXPECT_EQ(WithoutDate(client.ReadAll()),
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\nabcdef");
  EXPECT_TRUE(client.Closes());
}

TEST(HttpExchangeTest, HandlersMayThrow) {
  RunningServer server({}, [](HttpExchange exchange) {
    const std::string& path = exchange.request().path;
    if (path == "/pieces") {
      exchange.Begin(200, "text/plain");
      exchange.Write("a piece");
    }
    if (path == "/answered") exchange.Respond({.body = "answered"});
    if (path == "/no_exception") throw 1;
    if (path != "/nothing") throw std::runtime_error("it is \"broken\" \xff");
  });
  const auto error = [](std::string_view message) {
    return Concat("{\"error\":{\"message\":\"", message,
                  "\",\"type\":\"server_error\",\"param\":null,\"code\":null}}");
  };
  RawConnection client(server->port());
  const auto ask = [&](std::string_view path) {
    client.Send(Concat("GET ", path, " HTTP/1.1\r\nHost: a\r\n\r\n"));
    return client.ReadAnswer();
  };
  EXPECT_EQ(ask("/").status, 500);
  EXPECT_EQ(ask("/").body, error("it is \\\"broken\\\" \xef\xbf\xbd"));
  EXPECT_EQ(ask("/no_exception").body, error("the handler failed"));
  EXPECT_EQ(ask("/answered").body, "answered");
  EXPECT_EQ(ask("/nothing").body, error("the request was given up"));
  EXPECT_EQ(ask("/pieces").status, 0) << "an answer without its end";
  EXPECT_TRUE(client.Closes());
}

TEST(HttpExchangeTest, MisuseThrows) {
  WaitingServer server;
  RawConnection client(server->port());
  client.Send(kGet);
  HttpExchange exchange = server.Take();
  EXPECT_THROW(exchange.Write("early"), Error);
  EXPECT_THROW(exchange.End(), Error);
  EXPECT_THROW(exchange.Respond({.headers = {{"X", "a\r\nY: b"}}}), Error);
  EXPECT_THROW(exchange.Respond({.headers = {{"X:", "a"}}}), Error);
  EXPECT_THROW(exchange.Respond({.content_type = "a\nb"}), Error);
  EXPECT_THROW(exchange.Begin(204, ""), Error);
  exchange.Respond({.body = "one"});
  EXPECT_THROW(exchange.Respond({.body = "two"}), Error);
  EXPECT_THROW(exchange.Begin(200, ""), Error);
  EXPECT_EQ(client.ReadAnswer().body, "one");
}

// However a client leaves, it is known within seconds, while its request waits or is answered.
TEST(HttpExchangeTest, NoticesWhoLeaves) {
  for (const bool begun : {false, true}) {
    for (const bool resets : {false, true}) {
      SCOPED_TRACE(Concat(begun, resets));
      WaitingServer server;
      RawConnection client(server->port());
      client.Send(kGet);
      HttpExchange exchange = server.Take();
      if (begun) {
        exchange.Begin(200, "text/plain");
        EXPECT_NE(client.ReadSome(), "");
      }
      std::atomic<int> calls = 0;
      exchange.OnGone([&] { ++calls; });
      client.Send("GET /next HTTP/1.1\r\n");  // is no leaving
      std::this_thread::sleep_for(milliseconds(20));
      EXPECT_FALSE(exchange.gone());
      const auto left = steady_clock::now();
      if (resets) client.Reset();
      if (!resets) RawConnection(std::move(client));
      EXPECT_TRUE(Comes([&] { return calls == 1; })) << resets << begun;
      EXPECT_LT(steady_clock::now() - left, milliseconds(resets ? 500 : 2000)) << begun;
      EXPECT_TRUE(exchange.gone());
      if (begun) exchange.Write("ignored");
      if (begun) exchange.End();
      exchange.OnGone([&] { ++calls; });  // too late: at once
      EXPECT_TRUE(Comes([&] { return calls == 2; }));
      EXPECT_EQ(server->counts().gone, 1);
    }
  }
}

// As `printf ... | nc -N` and HTTP's older clients do.
TEST(HttpExchangeTest, WhoSendsNoMoreIsAnswered) {
  for (const int wait : {0, 800, 3500}) {
    WaitingServer server;
    RawConnection client(server->port());
    client.Send(kGet);
    client.Send(kGet);
    client.EndSending();
    HttpExchange whole = server.Take();
    std::this_thread::sleep_for(milliseconds(wait));
    EXPECT_FALSE(whole.gone());
    whole.Respond({.body = "whole"});
    RawConnection::Answer answer = client.ReadAnswer();
    // After half a second the client is asked whether it is there.
    if (answer.status == 100) answer = client.ReadAnswer();
    EXPECT_EQ(answer.body, "whole");
    HttpExchange pieces = server.Take();
    pieces.Begin(200, "text/plain");
    pieces.Write("one");
    std::this_thread::sleep_for(milliseconds(wait));
    EXPECT_FALSE(pieces.gone());
    pieces.Write("two");
    pieces.End();
    EXPECT_EQ(client.ReadAnswer().body, "onetwo");
    EXPECT_TRUE(client.Closes());
    EXPECT_EQ(server->counts().gone, 0);
  }
  // Of an incomplete request nothing becomes.
  WaitingServer server;
  RawConnection client(server->port());
  client.Send("GET / HTTP/1.1\r\nHost");
  client.EndSending();
  EXPECT_EQ(client.ReadAll(), "");
}

TEST(HttpExchangeTest, WhoIsAnsweredHasNotLeft) {
  WaitingServer server;
  std::atomic<int> calls = 0;
  {
    RawConnection client(server->port());
    client.Send(kGet);
    HttpExchange exchange = server.Take();
    exchange.OnGone([&] { ++calls; });
    exchange.Respond({});
    EXPECT_EQ(client.ReadAnswer().status, 200);
  }
  EXPECT_TRUE(Comes([&] { return server->counts().connections == 0; }));
  EXPECT_EQ(calls, 0);
  EXPECT_EQ(server->counts().gone, 0);
}

TEST(HttpExchangeTest, WhoDoesNotReadIsDropped) {
  WaitingServer server({.write_timeout = milliseconds(20'000), .max_unsent = 1 << 20});
  RawConnection client(server->port(), 4096);
  client.Send(kGet);
  HttpExchange exchange = server.Take();
  exchange.Begin(200, "text/plain");
  const std::string piece(64 << 10, 'p');
  size_t most = 0;
  EXPECT_TRUE(Comes([&] {
    exchange.Write(piece);
    most = std::max(most, exchange.unsent());
    return exchange.gone();
  }));
  EXPECT_GT(most, (1u << 20) - piece.size());  // the piece that was too much is gone as well
  EXPECT_TRUE(Comes([&] { return server->counts().connections == 0; }));
}

TEST(HttpExchangeTest, WhoReadsTooSlowlyIsDropped) {
  WaitingServer server({.write_timeout = milliseconds(200)});
  RawConnection client(server->port(), 4096);
  client.Send(kGet);
  HttpExchange exchange = server.Take();
  exchange.Respond({.body = std::string(8 << 20, 'b')});
  EXPECT_TRUE(Comes([&] { return exchange.gone(); }));
  EXPECT_EQ(exchange.unsent(), 0u);  // nothing is kept for it
}

// Progress is not enough where it is too slow: 100 KB of a second are asked for, 20 are read.
TEST(HttpExchangeTest, WhoReadsBelowTheRateIsDropped) {
  WaitingServer server({.write_timeout = milliseconds(1000), .min_write_rate = 100'000});
  RawConnection client(server->port(), 4096);
  client.Send(kGet);
  HttpExchange exchange = server.Take();
  exchange.Respond({.body = std::string(8 << 20, 'b')});
  size_t taken = 0;
  for (int i = 0; i < 100 && !exchange.gone(); ++i) {
    taken += client.ReadAll(milliseconds(0)).size();
    std::this_thread::sleep_for(milliseconds(100));
  }
  EXPECT_TRUE(exchange.gone()) << taken;
  EXPECT_LT(taken, 8u << 20);
}

TEST(HttpExchangeTest, AnswersTogetherAreBounded) {
  WaitingServer server({.max_unsent = 1 << 20, .max_answer_bytes = 3 << 20});
  RawConnection slow(server->port(), 4096), other(server->port(), 4096);
  slow.Send(kGet);
  other.Send(kGet);
  HttpExchange first = server.Take(), second = server.Take();
  EXPECT_TRUE(first.Reserve(1 << 20));
  EXPECT_TRUE(second.Reserve(1 << 20));
  EXPECT_FALSE(second.Reserve(2 << 20));
  EXPECT_TRUE(second.Reserve(1 << 20));
  // What was reserved makes room for what it has become.
  second.Respond({.body = "short"});
  EXPECT_EQ(other.ReadAnswer().body, "short");
  EXPECT_TRUE(Comes([&] { return second.unsent() == 0; }));
  EXPECT_TRUE(first.Reserve(2 << 20));
  first.Respond({.body = std::string(20 << 20, 'b')});
  // It is unsent, and there is no room: who reads as fast as it is answered is, who does not is
  // not.
  other.Send(kGet);
  HttpExchange third = server.Take();
  EXPECT_FALSE(third.Reserve(1));
  third.Begin(200, "text/plain");
  third.Write(std::string(100 << 10, 'p'));
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_FALSE(third.gone());
  EXPECT_TRUE(Comes([&] {
    third.Write(std::string(16 << 10, 'p'));
    return third.gone();
  }));
  EXPECT_LT(third.unsent(), 1u << 20);
  // Who leaves gives it back.
  slow.Reset();
  EXPECT_TRUE(Comes([&] { return server->counts().connections == 0; }));
  RawConnection last(server->port());
  last.Send(kGet);
  HttpExchange fourth = server.Take();
  EXPECT_TRUE(fourth.Reserve(3 << 20));
  fourth.Respond({});
}

// Progress is enough, however long the whole takes.
TEST(HttpExchangeTest, WhoReadsSlowlyGetsAll) {
  WaitingServer server({.write_timeout = milliseconds(400)});
  auto client = HttpClient::Open(server->url());
  ASSERT_TRUE(client.ok());
  const std::string body(16 << 20, 'b');
  std::thread answering([&] { server.Take().Respond({.body = body}); });
  size_t size = 0;
  const auto begin = steady_clock::now();
  const auto response = client->Stream({}, [&](std::string_view piece) {
    if (size / (2 << 20) != (size + piece.size()) / (2 << 20)) {
      std::this_thread::sleep_for(milliseconds(100));
    }
    size += piece.size();
    return true;
  });
  answering.join();
  EXPECT_TRUE(response.ok()) << Message(response.status());
  EXPECT_EQ(size, body.size());
  EXPECT_GT(steady_clock::now() - begin, milliseconds(500));
}

// Pieces from many threads of many answers at once.
TEST(HttpExchangeTest, AnyThreadMayAnswer) {
  std::vector<std::thread> threads;
  RunningServer server({}, [&](HttpExchange exchange) {
    threads.emplace_back([exchange]() mutable {
      exchange.Begin(200, "text/plain");
      for (int i = 0; i < 200; ++i) exchange.Write(Concat(exchange.request().path, ";"));
      exchange.End();
    });
  });
  std::vector<std::thread> clients;
  for (int c = 0; c < 8; ++c) {
    clients.emplace_back([&, c] {
      auto client = HttpClient::Open(server->url());
      ASSERT_TRUE(client.ok());
      for (int i = 0; i < 10; ++i) {
        const auto response = client->Send({.path = Concat("/", c, "/", i)});
        ASSERT_TRUE(response.ok()) << Message(response.status());
        std::string expected;
        for (int k = 0; k < 200; ++k) expected += Concat("/", c, "/", i, ";");
        EXPECT_EQ(response->body, expected);
      }
    });
  }
  for (std::thread& client : clients) client.join();
  server.Stop(milliseconds(0));
  for (std::thread& thread : threads) thread.join();
}

TEST(HttpExchangeTest, MayOutliveTheServer) {
  std::optional<HttpExchange> exchange;
  {
    WaitingServer server;
    RawConnection client(server->port());
    client.Send(kGet);
    exchange = server.Take();
  }
  EXPECT_TRUE(exchange->gone());
  exchange->Respond({});
  exchange->OnGone([] { FAIL(); });
  EXPECT_EQ(exchange->request().path, "/");
}

}  // namespace
}  // namespace tessera::net
