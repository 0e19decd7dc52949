// SPDX-License-Identifier: Apache-2.0
#include "tools/report/follow_server.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "net/http/http_client.h"

namespace tessera::report {
namespace {

using net::HttpClient;
using net::HttpHeader;
using net::HttpResponse;

// A server in this process, which a signal ends.
class FollowServerTest : public testing::Test {
 protected:
  void SetUp() override {
    auto server = FollowServer::Listen(0);
    ASSERT_TRUE(server.ok()) << Message(server.status());
    server_ = std::make_unique<FollowServer>(*std::move(server));
    serving_ = std::thread([this] {
      ended_ = server_->ServeUntilSignal([this]() -> StatusOr<std::string> {
        ++made_;
        std::this_thread::sleep_for(takes_.load());
        if (version_ == 0) return InvalidArgument("runs/a: is gone");
        return Concat("page ", version_.load());
      });
    });
  }
  void TearDown() override {
    kill(getpid(), SIGINT);
    serving_.join();
    EXPECT_TRUE(ended_.ok()) << Message(ended_);
  }
  HttpResponse Ask(const std::string& method, const std::string& path,
                   const std::vector<HttpHeader>& headers = {}) {
    return HttpClient::Open(server_->url())
        .value()
        .Send({.method = method, .path = path, .headers = headers})
        .value();
  }

  // The body of the first answer of that status: a page may be a little old.
  std::string AskUntil(int status, const std::vector<HttpHeader>& headers) {
    for (int tries = 0; tries < 500; ++tries) {
      const HttpResponse answer = Ask("GET", "/", headers);
      if (answer.status == status) return answer.body;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return "never";
  }

  std::unique_ptr<FollowServer> server_;
  std::thread serving_;
  std::atomic<int> version_ = 1;
  std::atomic<int> made_ = 0;
  std::atomic<std::chrono::milliseconds> takes_ = std::chrono::milliseconds(0);
  Status ended_ = Internal("serves");
};

TEST_F(FollowServerTest, AnswersWithThePageAsItIsNow) {
  EXPECT_EQ(server_->url(), Concat("http://127.0.0.1:", server_->port(), "/"));
  const HttpResponse answer = Ask("GET", "/");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, "page 1");
  EXPECT_EQ(answer.content_type, "text/html; charset=utf-8");
  EXPECT_EQ(*answer.Find("Cache-Control"), "no-store");
  EXPECT_EQ(Ask("HEAD", "/").status, 200);
  EXPECT_EQ(Ask("HEAD", "/").body, "");
  const std::vector<HttpHeader> known = {{"If-None-Match", *answer.Find("ETag")}};
  EXPECT_EQ(Ask("GET", "/", known).status, 304);
  version_ = 2;
  EXPECT_EQ(AskUntil(200, known), "page 2");
  version_ = 0;
  EXPECT_EQ(AskUntil(500, known), "runs/a: is gone");
}

TEST_F(FollowServerTest, RefusesWhatIsNotItsPage) {
  EXPECT_EQ(Ask("GET", "/other").status, 404);
  EXPECT_EQ(Ask("GET", "/../etc/passwd").status, 404);
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "PATCH"}) {
    EXPECT_EQ(Ask(method, "/").status, 405) << method;
  }
}

TEST_F(FollowServerTest, RefusesOtherHosts) {
  const std::string behind = Concat(":", server_->port());
  EXPECT_EQ(Ask("GET", "/", {{"Host", "localhost" + behind}}).status, 200);
  for (const std::string& host :
       {std::string("example.com") + behind, std::string("example.com"), std::string("127.0.0.1"),
        std::string("127.0.0.1:1"), "127.0.0.1" + behind + ".example.com", "a127.0.0.1" + behind}) {
    const HttpResponse answer = Ask("GET", "/", {{"Host", host}});
    EXPECT_EQ(answer.status, 403) << host;
    EXPECT_EQ(answer.body, "this page is this machine's own\n") << host;
  }
}

// What takes long is made seldom, however often it is asked for.
TEST_F(FollowServerTest, LeavesTimeForOthers) {
  takes_ = std::chrono::milliseconds(500);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(Ask("GET", "/").status, 200);
  EXPECT_EQ(made_, 1);
}

// Who asks for something else does not wait for it.
TEST_F(FollowServerTest, AnswersOthersWhileAPageIsMade) {
  takes_ = std::chrono::milliseconds(1000);
  std::thread waiting([this] { EXPECT_EQ(Ask("GET", "/").body, "page 1"); });
  while (made_ == 0) std::this_thread::yield();
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(Ask("GET", "/other").status, 404);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(500));
  waiting.join();
}

TEST_F(FollowServerTest, APortIsOneServers) {
  const auto second = FollowServer::Listen(server_->port());
  EXPECT_EQ(Message(second.status()),
            Concat("port ", server_->port(), " of 127.0.0.1 cannot be had"));
}

}  // namespace
}  // namespace tessera::report
