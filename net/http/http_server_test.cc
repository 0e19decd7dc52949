// SPDX-License-Identifier: Apache-2.0
#include "net/http/http_server.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "net/http/http_client.h"
#include "net/http/testing/raw_connection.h"
#include "net/http/testing/running_server.h"

namespace tessera::net {
namespace {

using std::chrono::milliseconds;

// Answers with what was asked.
void Echo(HttpExchange exchange) {
  const HttpRequest& request = exchange.request();
  exchange.Respond(
      {.content_type = "text/plain",
       .body = Concat(request.method, " ", request.path, " ", request.query, " ", request.body)});
}

TEST(HttpServerTest, SaysWhereItIs) {
  RunningServer server({}, Echo);
  EXPECT_GT(server->port(), 0);
  EXPECT_EQ(server->url(), Concat("http://127.0.0.1:", server->port()));
  const auto second = HttpServer::Listen({.port = server->port()});
  EXPECT_EQ(second.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Message(second.status()),
            Concat("127.0.0.1:", server->port(), " cannot be listened at: Address already in use"));
  const auto nowhere = HttpServer::Listen({.host = "no.such.host.invalid", .port = 1});
  EXPECT_TRUE(
      Message(nowhere.status()).starts_with("no.such.host.invalid:1 cannot be listened at"));
}

TEST(HttpServerTest, AnswersOnAConnectionThatGoesOn) {
  RunningServer server({}, Echo);
  RawConnection client(server->port());
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(client.Send("PUT /a?b=c HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nxyz"));
    const auto answer = client.ReadAnswer();
    EXPECT_EQ(WithoutDate(answer.head),
              "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 14");
    EXPECT_EQ(answer.body, "PUT /a b=c xyz");
  }
  const HttpServer::Counts counts = server->counts();
  EXPECT_EQ(counts.connections, 1);
  EXPECT_EQ(counts.accepted, 1);
  EXPECT_EQ(counts.requests, 3);
  EXPECT_EQ(counts.refused, 0);
}

// Many requests at once, answered by other threads in whatever order.
TEST(HttpServerTest, AnswersInTheOrderOfTheRequests) {
  std::vector<std::thread> threads;
  RunningServer server(
      {}, [&](HttpExchange exchange) { threads.emplace_back([exchange] { Echo(exchange); }); });
  RawConnection client(server->port());
  std::string requests;
  constexpr int kRequests = 200;
  for (int i = 0; i < kRequests; ++i) {
    requests += i % 2 == 0
                    ? Concat("GET /", i, " HTTP/1.1\r\nHost: a\r\n\r\n")
                    : Concat("PUT /", i, " HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody");
  }
  ASSERT_TRUE(client.Send(requests));
  for (int i = 0; i < kRequests; ++i) {
    EXPECT_EQ(client.ReadAnswer().body,
              i % 2 == 0 ? Concat("GET /", i, "  ") : Concat("PUT /", i, "  body"));
  }
  server.Stop(milliseconds(0));
  for (std::thread& thread : threads) thread.join();
}

// More than the server keeps: the rest waits with the client.
TEST(HttpServerTest, ReadsManyBytesBehindARequestLater) {
  std::vector<HttpExchange> waiting;
  RunningServer server({}, [&](HttpExchange exchange) {
    if (exchange.request().path == "/wait") {
      waiting.push_back(exchange);
    } else {
      Echo(exchange);
    }
  });
  RawConnection client(server->port());
  const std::string body(1 << 20, 'b');
  std::thread sending([&] {
    client.Send(Concat("GET /wait HTTP/1.1\r\nHost: a\r\n\r\nPUT / HTTP/1.1\r\nHost: a\r\n",
                       "Content-Length: ", body.size(), "\r\n\r\n", body));
  });
  ASSERT_TRUE(Comes([&] { return server->counts().requests == 1; }));
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_EQ(server->counts().connections, 1);
  server->Post([&] {
    EXPECT_FALSE(waiting[0].gone());
    Echo(waiting[0]);
    waiting.clear();
  });
  EXPECT_EQ(client.ReadAnswer().body, "GET /wait  ");
  EXPECT_EQ(client.ReadAnswer().body, "PUT /  " + body);
  sending.join();
}

TEST(HttpServerTest, KnowsOldAndLeavingClients) {
  RunningServer server({}, Echo);
  const struct {
    const char* head;
    const char* connection;  // what the answer says of it
    bool goes_on;
  } cases[] = {{"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "close", false},
               {"GET / HTTP/1.0\r\n\r\n", "close", false},
               {"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", "keep-alive", true}};
  for (const auto& c : cases) {
    RawConnection client(server->port());
    ASSERT_TRUE(client.Send(c.head));
    const auto answer = client.ReadAnswer();
    EXPECT_EQ(answer.body, "GET /  ") << c.head;
    EXPECT_NE(answer.head.find(Concat("\r\nConnection: ", c.connection)), std::string::npos);
    if (c.goes_on) {
      client.Send(c.head);
      EXPECT_EQ(client.ReadAnswer().status, 200);
    } else {
      EXPECT_TRUE(client.Closes(milliseconds(500))) << c.head;
    }
  }
}

TEST(HttpServerTest, HeadHasNoBody) {
  RunningServer server({}, [](HttpExchange exchange) {
    if (exchange.request().path == "/whole") return Echo(exchange);
    if (exchange.request().path == "/304") return exchange.Respond({.status = 304, .body = "no"});
    exchange.Begin(200, "text/plain");
    exchange.Write("piece");
    exchange.End();
  });
  RawConnection client(server->port());
  client.Send("HEAD /whole HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_NE(client.ReadAnswer(true).head.find("Content-Length: 13"), std::string::npos);
  client.Send("HEAD /pieces HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_NE(client.ReadAnswer(true).head.find("Transfer-Encoding: chunked"), std::string::npos);
  client.Send("GET /304 HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_EQ(WithoutDate(client.ReadAnswer().head), "HTTP/1.1 304 Not Modified");
  client.Send("GET /whole HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_EQ(client.ReadAnswer().body, "GET /whole  ");
}

TEST(HttpServerTest, TellsWhoWaitsToGoOn) {
  RunningServer server({.max_body_bytes = 100}, Echo);
  RawConnection client(server->port());
  client.Send("PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
  EXPECT_EQ(client.ReadAnswer().head, "HTTP/1.1 100 Continue");
  client.Send("abc");
  EXPECT_EQ(client.ReadAnswer().body, "PUT /  abc");
  client.Send("PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 101\r\n\r\n");
  EXPECT_EQ(client.ReadAnswer().status, 413);
  EXPECT_TRUE(client.Closes());
}

TEST(HttpServerTest, RunsWhatIsPosted) {
  std::thread::id handlers;
  RunningServer server({}, [&](HttpExchange exchange) {
    handlers = std::this_thread::get_id();
    Echo(exchange);
  });
  auto client = HttpClient::Open(server->url());
  ASSERT_TRUE(client.ok()) << Message(client.status());
  ASSERT_TRUE(client->Send({}).ok());
  std::atomic<int> ran = 0;
  for (int i = 0; i < 10; ++i) {
    server->Post([&, i] {
      EXPECT_EQ(std::this_thread::get_id(), handlers);
      EXPECT_EQ(ran++, i);
    });
  }
  EXPECT_TRUE(Comes([&] { return ran == 10; }));
}

}  // namespace
}  // namespace tessera::net
