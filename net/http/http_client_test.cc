// SPDX-License-Identifier: Apache-2.0
#include "net/http/http_client.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>

#include "net/http/http_server.h"
#include "net/http/testing/running_server.h"

namespace tessera::net {
namespace {

using std::chrono::milliseconds;

TEST(HttpClientTest, SaysWhatIsWrongWithAUrl) {
  for (const char* url : {"https://a", "127.0.0.1:80", "http://", "http://:1", "http://a/b",
                          "http://a:", "http://a:b", "http://u@a", "http://a b"}) {
    const auto client = HttpClient::Open(url);
    EXPECT_EQ(client.status().code(), StatusCode::kInvalidArgument) << url;
    EXPECT_TRUE(Message(client.status()).starts_with(url)) << Message(client.status());
  }
  std::string url;
  {
    const auto server = HttpServer::Listen({});
    url = server->url();
  }
  const auto nobody = HttpClient::Open(url);
  EXPECT_EQ(nobody.status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(Message(nobody.status()), url + ": no connection: Connection refused");
}

// The system takes ports for sockets that connect one after the other, the even ones first. So one
// of these attempts comes from the very port that it goes to.
TEST(HttpClientTest, IsNotConnectedToItself) {
  std::string free;
  {
    const auto server = HttpServer::Listen({});
    free = server->url();
  }
  const int port = std::stoi(free.substr(free.rfind(':') + 1)) & ~1;
  const std::string url = Concat("http://127.0.0.1:", port);
  for (int i = 0; i < 30000; ++i) {
    const auto nobody = HttpClient::Open(url);
    ASSERT_EQ(Message(nobody.status()), url + ": no connection: Connection refused") << i;
  }
}

TEST(HttpClientTest, SendsAndReceivesWhole) {
  RunningServer server({}, [](HttpExchange exchange) {
    const HttpRequest& request = exchange.request();
    exchange.Respond(
        {.status = 201,
         .content_type = "a/b",
         .headers = {{"X-Host", *request.Find("Host")}},
         .body = Concat(request.method, request.path, "?", request.query, request.body)});
  });
  auto client = HttpClient::Open(server->url() + "/");
  ASSERT_TRUE(client.ok()) << Message(client.status());
  const auto response =
      client->Send({.method = "POST", .path = "/a", .query = "b=c", .body = "body"});
  ASSERT_TRUE(response.ok()) << Message(response.status());
  EXPECT_EQ(response->status, 201);
  EXPECT_EQ(response->content_type, "a/b");
  EXPECT_EQ(response->body, "POST/a?b=cbody");
  ASSERT_NE(response->Find("x-host"), nullptr);
  EXPECT_EQ("http://" + *response->Find("x-host"), server->url());
  const auto other = client->Send({.headers = {{"Host", "other"}}});
  EXPECT_EQ(*other->Find("x-host"), "other");
  const auto head = client->Send({.method = "HEAD"});
  ASSERT_TRUE(head.ok()) << Message(head.status());
  EXPECT_EQ(head->body, "");
  EXPECT_EQ(*head->Find("content-length"), "6");
  EXPECT_EQ(server->counts().accepted, 1);
}

TEST(HttpClientTest, OpensAnewWhatWasClosed) {
  RunningServer server({.idle_timeout = milliseconds(50)},
                       [](HttpExchange exchange) { exchange.Respond({.body = "ok"}); });
  auto client = HttpClient::Open(server->url());
  ASSERT_TRUE(client.ok());
  for (int i = 0; i < 3; ++i) {
    const auto response = client->Send({});
    ASSERT_TRUE(response.ok()) << Message(response.status());
    EXPECT_EQ(response->body, "ok");
    ASSERT_TRUE(Comes([&] { return server->counts().connections == 0; }));
  }
  EXPECT_EQ(server->counts().accepted, 3);
  server.Stop(milliseconds(0));
  const auto late = client->Send({});
  EXPECT_EQ(late.status().code(), StatusCode::kUnavailable);
  EXPECT_TRUE(Message(late.status()).starts_with(server->url())) << Message(late.status());
}

TEST(HttpClientTest, GivesPiecesAsTheyCome) {
  std::atomic<int> seen = 0;
  std::atomic<bool> left = false;
  RunningServer server({}, [&](HttpExchange exchange) {
    if (exchange.request().path == "/404") {
      return exchange.Respond(ErrorResponse(404, "there is none"));
    }
    exchange.OnGone([&] { left = true; });
    std::thread([&seen, exchange]() mutable {
      exchange.Begin(200, "text/plain");
      for (int i = 0; i < 3; ++i) {
        exchange.Write(Concat(i));
        Comes([&] { return seen > i || exchange.gone(); });
      }
      exchange.End();
    }).detach();
  });
  auto client = HttpClient::Open(server->url());
  ASSERT_TRUE(client.ok());
  std::string pieces;
  const auto take = [&](std::string_view piece) {
    pieces += Concat("[", piece, "]");
    ++seen;
    return true;
  };
  auto response = client->Stream({}, take);
  ASSERT_TRUE(response.ok()) << Message(response.status());
  EXPECT_EQ(pieces, "[0][1][2]");
  EXPECT_EQ(response->body, "");
  EXPECT_EQ(response->content_type, "text/plain");

  response = client->Stream({.path = "/404"}, take);
  EXPECT_EQ(response->status, 404);
  EXPECT_NE(response->body.find("there is none"), std::string::npos);
  EXPECT_EQ(seen, 3);

  seen = 0;
  response = client->Stream({}, [&](std::string_view) { return false; });
  EXPECT_TRUE(response.ok()) << Message(response.status());
  EXPECT_TRUE(Comes([&] { return left.load(); }));
  EXPECT_EQ(client->Send({.path = "/404"})->status, 404);
}

TEST(HttpClientTest, DoesNotWaitForEver) {
  std::vector<HttpExchange> waiting;
  RunningServer server({}, [&](HttpExchange exchange) { waiting.push_back(exchange); });
  auto client = HttpClient::Open(server->url(), {.timeout = milliseconds(100)});
  ASSERT_TRUE(client.ok());
  const auto response = client->Send({});
  EXPECT_EQ(response.status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(Message(response.status()), server->url() + ": no answer: it takes too long");
  server.Stop(milliseconds(0));
}

TEST(HttpClientTest, AnswersAreBounded) {
  RunningServer server({}, [](HttpExchange exchange) {
    const bool refuses = exchange.request().path == "/404";
    if (exchange.request().path == "/pieces" || refuses) {
      exchange.Begin(refuses ? 404 : 200, "text/plain");
      for (int i = 0; i < 100; ++i) exchange.Write(std::string(1000, 'x'));
      return exchange.End();
    }
    exchange.Respond({.body = std::string(exchange.request().path == "/fits" ? 5000 : 5001, 'x')});
  });
  const std::string long_answer = server->url() + ": the answer is longer than 5000 bytes";
  auto client = HttpClient::Open(server->url(), {.max_body_bytes = 5000});
  ASSERT_TRUE(client.ok());
  EXPECT_EQ(client->Send({.path = "/fits"})->body.size(), 5000u);
  EXPECT_EQ(Message(client->Send({.path = "/long"}).status()), long_answer);
  EXPECT_EQ(Message(client->Send({.path = "/pieces"}).status()), long_answer);
  EXPECT_EQ(client->Send({.path = "/fits"})->body.size(), 5000u);
  size_t size = 0;
  const auto take = [&](std::string_view piece) {
    size += piece.size();
    return true;
  };
  EXPECT_EQ(client->Stream({.path = "/pieces"}, take)->status, 200);  // which nobody keeps
  EXPECT_EQ(size, 100'000u);
  const auto refused = client->Stream({.path = "/404"}, take);
  ASSERT_TRUE(refused.ok()) << Message(refused.status());
  EXPECT_EQ(refused->status, 404);
  EXPECT_LT(refused->body.size(), 70'000u);
}

// The time is that of the whole answer: pieces do not renew it.
TEST(HttpClientTest, DoesNotTakeDropsForEver) {
  std::atomic<bool> over = false;
  std::thread dripping;
  RunningServer server({}, [&](HttpExchange exchange) {
    dripping = std::thread([&over, exchange]() mutable {
      exchange.Begin(200, "text/plain");
      while (!over) {
        exchange.Write("x");
        std::this_thread::sleep_for(milliseconds(20));
      }
      exchange.End();
    });
  });
  auto client = HttpClient::Open(server->url(), {.timeout = milliseconds(300)});
  ASSERT_TRUE(client.ok());
  EXPECT_EQ(client->Send({}).status().code(), StatusCode::kDeadlineExceeded);
  over = true;
  dripping.join();
}

TEST(HttpClientTest, HearsARefusalWhileItSends) {
  RunningServer server({.max_body_bytes = 10}, [](HttpExchange) {});
  auto client = HttpClient::Open(server->url());
  ASSERT_TRUE(client.ok());
  const auto response = client->Send({.method = "POST", .body = std::string(20 << 20, 'b')});
  ASSERT_TRUE(response.ok()) << Message(response.status());
  EXPECT_EQ(response->status, 413);
}

}  // namespace
}  // namespace tessera::net
