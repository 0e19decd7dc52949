#include "tools/report/follow_server.h"

#include <gtest/gtest.h>
#include <httplib.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <thread>

namespace tessera::report {
namespace {

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
  httplib::Result Ask(const std::string& method, const std::string& path,
                      httplib::Headers headers = {}) {
    httplib::Client client("127.0.0.1", server_->port());
    httplib::Request request;
    request.method = method;
    request.path = path;
    request.headers = std::move(headers);
    return client.send(request);
  }

  // The body of the first answer of that status: a page may be a little old.
  std::string AskUntil(int status, const httplib::Headers& headers) {
    for (int tries = 0; tries < 500; ++tries) {
      const auto answer = Ask("GET", "/", headers);
      if (answer && answer->status == status) return answer->body;
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
  auto answer = Ask("GET", "/");
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->body, "page 1");
  EXPECT_EQ(answer->get_header_value("Content-Type"), "text/html; charset=utf-8");
  EXPECT_EQ(answer->get_header_value("Cache-Control"), "no-store");
  const httplib::Headers known = {{"If-None-Match", answer->get_header_value("ETag")}};
  EXPECT_EQ(Ask("GET", "/", known)->status, 304);
  version_ = 2;
  EXPECT_EQ(AskUntil(200, known), "page 2");
  version_ = 0;
  EXPECT_EQ(AskUntil(500, known), "runs/a: is gone");
}

TEST_F(FollowServerTest, RefusesWhatIsNotItsPage) {
  EXPECT_EQ(Ask("GET", "/other")->status, 404);
  EXPECT_EQ(Ask("GET", "/../etc/passwd")->status, 404);
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "PATCH"}) {
    EXPECT_EQ(Ask(method, "/")->status, 405) << method;
  }
}

TEST_F(FollowServerTest, RefusesOtherHosts) {
  const std::string behind = Concat(":", server_->port());
  EXPECT_EQ(Ask("GET", "/", {{"Host", "localhost" + behind}})->status, 200);
  for (const std::string& host :
       {std::string("example.com") + behind, std::string("example.com"), std::string("127.0.0.1"),
        std::string("127.0.0.1:1"), "127.0.0.1" + behind + ".example.com", "a127.0.0.1" + behind}) {
    const auto answer = Ask("GET", "/", {{"Host", host}});
    ASSERT_TRUE(answer) << host;
    EXPECT_EQ(answer->status, 403) << host;
    EXPECT_EQ(answer->body, "this page is this machine's own\n") << host;
  }
}

// What takes long is made seldom, however often it is asked for.
TEST_F(FollowServerTest, LeavesTimeForOthers) {
  takes_ = std::chrono::milliseconds(500);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(Ask("GET", "/")->status, 200);
  EXPECT_EQ(made_, 1);
}

TEST_F(FollowServerTest, APortIsOneServers) {
  const auto second = FollowServer::Listen(server_->port());
  EXPECT_EQ(Message(second.status()),
            Concat("port ", server_->port(), " of 127.0.0.1 cannot be had"));
}

}  // namespace
}  // namespace tessera::report
