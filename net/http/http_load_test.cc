// SPDX-License-Identifier: Apache-2.0
// Many connections, and a system that has no more.
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/resource.h>
#include <time.h>

#include <fstream>
#include <string>
#include <vector>

#include "net/http/http_client.h"
#include "net/http/http_server.h"
#include "net/http/testing/raw_connection.h"
#include "net/http/testing/running_server.h"

namespace tessera::net {
namespace {

using std::chrono::milliseconds;

constexpr std::string_view kGet = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

void Ok(HttpExchange exchange) { exchange.Respond({.body = "ok"}); }

int64_t BytesInUse() { return static_cast<int64_t>(mallinfo2().uordblks + mallinfo2().hblkhd); }

double CpuSeconds() {
  timespec now = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

bool Serves(HttpServer& server) {
  RawConnection client(server.port());
  client.Send(kGet);
  return client.ReadAnswer().body == "ok";
}

// Connections left in every stage, thousands of them, and the memory that stays.
TEST(HttpLoadTest, MemoryReturns) {
  constexpr int kAtOnce = 400, kRounds = 8;
  std::vector<HttpExchange> held;
  RunningServer server({}, [&](HttpExchange exchange) {
    if (exchange.request().path == "/held") {
      exchange.Begin(200, "text/plain");
      exchange.Write(std::string(1000, 'p'));
      exchange.OnGone([&] { held.clear(); });
      held.push_back(std::move(exchange));
    } else {
      Ok(exchange);
    }
  });
  const std::string_view sent[] = {
      "",
      kGet,
      "GET / HTTP/1.1\r\nHo",
      "GET /held HTTP/1.1\r\nHost: a\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10000000\r\n\r\nabc",
      "nonsense\r\n\r\n"};
  int64_t first = 0, idle_bytes = 0;
  for (int round = 0; round < kRounds; ++round) {
    {
      const int64_t before = BytesInUse();
      std::vector<RawConnection> clients;
      for (int i = 0; i < kAtOnce; ++i) clients.emplace_back(server->port());
      ASSERT_TRUE(Comes([&] { return server->counts().connections == kAtOnce; }));
      idle_bytes = (BytesInUse() - before) / kAtOnce;
      for (int i = 0; i < kAtOnce; ++i) clients[i].Send(sent[i % std::size(sent)]);
      ASSERT_TRUE(Serves(*server.operator->()));
    }
    ASSERT_TRUE(Comes([&] { return server->counts().connections == 0; }));
    server->Post([&] { held.clear(); });
    ASSERT_TRUE(Serves(*server.operator->()));
    ASSERT_TRUE(Comes([&] { return server->counts().connections == 0; }));
    if (round == 0) first = BytesInUse();
  }
  EXPECT_LT(BytesInUse() - first, 256 << 10);
  EXPECT_LT(idle_bytes, 4096) << "of a connection that has asked nothing";
}

// Announcing a body takes no memory for it.
TEST(HttpLoadTest, MemoryIsTakenForBytesThatAreThere) {
  RunningServer server({}, Ok);
  const int64_t before = BytesInUse();
  std::vector<RawConnection> clients;
  for (int i = 0; i < 200; ++i) {
    clients.emplace_back(server->port());
    clients.back().Send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 16000000\r\n\r\na");
  }
  ASSERT_TRUE(Comes([&] { return server->counts().connections == 200; }));
  ASSERT_TRUE(Serves(*server.operator->()));
  EXPECT_LT(BytesInUse() - before, 4 << 20);
}

// Without a descriptor left the server waits, with a tenth of a processor at most.
TEST(HttpLoadTest, DescriptorsRunOut) {
  RunningServer server({}, Ok);
  ASSERT_TRUE(Serves(*server.operator->()));
  rlimit limit = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit few = {.rlim_cur = 64, .rlim_max = limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  {
    std::vector<RawConnection> clients;
    // Both sides of a connection are in this process.
    do {
      clients.emplace_back(server->port());
    } while (clients.back().connected() && clients.size() < 100);
    ASSERT_LT(clients.size(), 100u);
    const double before = CpuSeconds();
    std::this_thread::sleep_for(milliseconds(500));
    EXPECT_LT(CpuSeconds() - before, 0.05);
    EXPECT_LT(server->counts().connections, static_cast<int64_t>(clients.size()));
    // Those that are served already still are.
    clients.front().Send(kGet);
    EXPECT_EQ(clients.front().ReadAnswer().body, "ok");
  }
  EXPECT_TRUE(Serves(*server.operator->()));
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

}  // namespace
}  // namespace tessera::net
