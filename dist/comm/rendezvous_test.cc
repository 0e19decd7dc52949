#include "dist/comm/rendezvous.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>
#include <vector>

namespace tessera::dist {
namespace {

// A port that was free a moment ago.
int FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t length = sizeof(address);
  bind(fd, reinterpret_cast<sockaddr*>(&address), length);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length);
  close(fd);
  return ntohs(address.sin_port);
}

// What each of `ranks` gets, "error: ..." for a failure.
std::vector<std::string> Meet(const std::vector<RendezvousOptions>& ranks) {
  std::vector<std::string> results(ranks.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < ranks.size(); ++i) {
    threads.emplace_back([&, i] {
      const auto got = Rendezvous(ranks[i], ranks[i].rank == 0 ? std::string("\0id", 3) : "");
      results[i] = got.ok() ? *got : "error: " + Message(got.status());
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

TEST(RendezvousTest, AllGetTheMessageInAnyOrder) {
  const int port = FreePort();
  // Rank 0 comes last.
  std::vector<RendezvousOptions> ranks;
  for (const int r : {2, 1, 3, 0}) ranks.push_back({"127.0.0.1", port, r, 4, 20});
  std::vector<std::string> results(4);
  std::thread others([&] { results = Meet({ranks[0], ranks[1], ranks[2]}); });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const auto mine = Rendezvous(ranks[3], std::string("\0id", 3));
  others.join();
  ASSERT_TRUE(mine.ok()) << Message(mine.status());
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(results[i], std::string("\0id", 3));
}

TEST(RendezvousTest, MissingRanksAreNamed) {
  const int port = FreePort();
  const auto results = Meet({{"127.0.0.1", port, 0, 4, 1}, {"127.0.0.1", port, 2, 4, 5}});
  EXPECT_EQ(results[0], "error: rendezvous at 127.0.0.1:" + std::to_string(port) +
                            ": after 1 s ranks 1 and 3 have not come");
  EXPECT_NE(results[1].find("rank 0 has given up"), std::string::npos) << results[1];
}

TEST(RendezvousTest, RankZeroIsMissing) {
  const int port = FreePort();
  const auto results = Meet({{"127.0.0.1", port, 1, 2, 0.5}});
  EXPECT_NE(results[0].find("127.0.0.1:" + std::to_string(port) +
                            ": rank 1 cannot reach rank 0 within 0.5 s: Connection refused"),
            std::string::npos)
      << results[0];
}

TEST(RendezvousTest, AnotherNumberOfRanksIsRefused) {
  const int port = FreePort();
  const auto results = Meet({{"127.0.0.1", port, 0, 2, 5}, {"127.0.0.1", port, 1, 3, 5}});
  EXPECT_NE(results[0].find("rank 1 of 3 ranks came, but rank 0 is one of 2"), std::string::npos)
      << results[0];
}

TEST(RendezvousTest, StrangersAreDropped) {
  const int port = FreePort();
  std::string result;
  std::thread zero([&] {
    const auto got = Rendezvous({"127.0.0.1", port, 0, 2, 20}, "id");
    result = got.ok() ? *got : Message(got.status());
  });
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
  int fd = -1;
  do {
    if (fd >= 0) close(fd);
    fd = socket(AF_INET, SOCK_STREAM, 0);
  } while (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0);
  const std::string request = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
  EXPECT_GT(send(fd, request.data(), request.size(), MSG_NOSIGNAL), 0);
  const auto mine = Rendezvous({"127.0.0.1", port, 1, 2, 20}, "");
  zero.join();
  close(fd);
  ASSERT_TRUE(mine.ok()) << Message(mine.status());
  EXPECT_EQ(*mine, "id");
  EXPECT_EQ(result, "id");
}

TEST(RendezvousTest, APortInUseIsNamed) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t length = sizeof(address);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), length), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length);
  const auto got = Rendezvous({"127.0.0.1", ntohs(address.sin_port), 0, 2, 1}, "id");
  close(fd);
  EXPECT_NE(Message(got.status()).find("Address already in use"), std::string::npos)
      << Message(got.status());
}

}  // namespace
}  // namespace tessera::dist
