// SPDX-License-Identifier: Apache-2.0
#include "dist/comm/rendezvous.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <random>
#include <thread>
#include <vector>

#include "dist/comm/tcp_socket.h"
#include "tests/process/free_port.h"

namespace tessera::dist {
namespace {

sockaddr_in Local(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
  return address;
}

// As soon as somebody listens there.
int ConnectTo(int port) {
  const sockaddr_in address = Local(port);
  for (;;) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return fd;
    close(fd);
  }
}

// The messages in one text, or the failure.
std::string Joined(const StatusOr<std::vector<RankPlace>>& got) {
  if (!got.ok()) return "error: " + Message(got.status());
  std::string text;
  for (const RankPlace& place : *got) text += place.message + ";";
  return text;
}

// "id;" with an empty message of one other rank.
const std::string kOfTwo = "id;;";

std::string Own(int rank) { return std::string("\0id", 3) + std::to_string(rank); }

// What each of `ranks` gets, "error: ..." for a failure.
std::vector<std::string> Meet(const std::vector<RendezvousOptions>& ranks) {
  std::vector<std::string> results(ranks.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < ranks.size(); ++i) {
    threads.emplace_back([&, i] { results[i] = Joined(Rendezvous(ranks[i], Own(ranks[i].rank))); });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

TEST(RendezvousTest, AllGetTheMessagesOfAllInAnyOrder) {
  const int port = FreePort();
  // Rank 0 comes last.
  std::vector<RendezvousOptions> ranks;
  for (const int r : {2, 1, 3, 0}) ranks.push_back({"127.0.0.1", port, r, 4, 20});
  std::vector<std::string> results(4);
  std::thread others([&] { results = Meet({ranks[0], ranks[1], ranks[2]}); });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const auto mine = Rendezvous(ranks[3], Own(0));
  others.join();
  ASSERT_TRUE(mine.ok()) << Message(mine.status());
  const std::string all = Own(0) + ";" + Own(1) + ";" + Own(2) + ";" + Own(3) + ";";
  EXPECT_EQ(Joined(mine), all);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(results[i], all);
  for (const RankPlace& place : *mine) {
    EXPECT_NE(place.address.find("127.0.0.1"), std::string::npos) << place.address;
  }
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

// The system takes ports for sockets that connect one after the other, the even ones first. So one
// of these attempts comes from the very port that it goes to.
TEST(RendezvousTest, ARankIsNotConnectedToItself) {
  const int port = FreePort() & ~1;
  std::string reason;
  for (int i = 0; i < 30000; ++i) {
    const Socket socket =
        dist::ConnectTo("127.0.0.1", port, SocketClock::now() + std::chrono::seconds(1), &reason);
    ASSERT_FALSE(socket.is_open()) << "attempt " << i;
    ASSERT_EQ(reason, "Connection refused") << "attempt " << i;
  }
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
    result = Joined(got);
  });
  const int fd = ConnectTo(port);
  const std::string request = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
  EXPECT_GT(send(fd, request.data(), request.size(), MSG_NOSIGNAL), 0);
  const auto mine = Rendezvous({"127.0.0.1", port, 1, 2, 20}, "");
  zero.join();
  close(fd);
  ASSERT_TRUE(mine.ok()) << Message(mine.status());
  EXPECT_EQ(Joined(mine), kOfTwo);
  EXPECT_EQ(result, kOfTwo);
}

// A greeting with some of its bits, bytes or its end lost is dropped, or named by rank 0; the rank
// that comes afterwards gets its answer or a reason.
TEST(RendezvousTest, MutatedGreetingsEndInAnAnswer) {
  std::mt19937 random(7);
  int dropped = 0;
  for (int i = 0; i < 60; ++i) {
    SCOPED_TRACE(i);
    const int port = FreePort();
    std::string greeting("tessera2\1\0\0\0\2\0\0\0\0\0\0\0", 20);
    for (int flips = random() % 3; flips >= 0; --flips) {
      greeting[random() % greeting.size()] ^= static_cast<char>(1 << random() % 8);
    }
    if (i % 3 == 0) greeting.resize(random() % greeting.size());
    if (i % 3 == 1) greeting += std::string(random() % 100, static_cast<char>(random()));
    std::string zero;
    std::thread serves([&] {
      const auto got = Rendezvous({"127.0.0.1", port, 0, 2, 1}, "id");
      zero = got.ok() ? Joined(got) : Message(got.status());
    });
    const int fd = ConnectTo(port);
    EXPECT_EQ(send(fd, greeting.data(), greeting.size(), MSG_NOSIGNAL), std::ssize(greeting));
    shutdown(fd, SHUT_WR);
    const auto mine = Rendezvous({"127.0.0.1", port, 1, 2, 0.2}, "");
    serves.join();
    close(fd);
    if (mine.ok()) {
      EXPECT_EQ(Joined(mine), kOfTwo);
      EXPECT_EQ(zero, kOfTwo);
      ++dropped;
    } else {
      EXPECT_EQ(Message(mine.status()).rfind("rendezvous at ", 0), 0u) << Message(mine.status());
      EXPECT_TRUE(zero.ends_with(";") || zero.rfind("rendezvous at ", 0) == 0) << zero;
    }
  }
  EXPECT_GT(dropped, 20);
}

// Something else listens where rank 0 should be.
TEST(RendezvousTest, MutatedAnswersAreRefused) {
  std::mt19937 random(8);
  for (int i = 0; i < 40; ++i) {
    SCOPED_TRACE(i);
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = Local(0);
    socklen_t length = sizeof(address);
    ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), length), 0);
    ASSERT_EQ(listen(listener, 1), 0);
    getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length);
    std::thread answers([&] {
      const int peer = accept(listener, nullptr, nullptr);
      std::string answer(random() % 40, '\0');
      for (char& c : answer) c = static_cast<char>(i % 2 == 0 ? random() : 0x7F);
      send(peer, answer.data(), answer.size(), MSG_NOSIGNAL);
      close(peer);
    });
    const auto got = Rendezvous({"127.0.0.1", ntohs(address.sin_port), 1, 2, 1}, "");
    answers.join();
    close(listener);
    ASSERT_FALSE(got.ok());
    EXPECT_NE(Message(got.status()).find("rank 0 has g"), std::string::npos)
        << Message(got.status());
  }
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
