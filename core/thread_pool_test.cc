// SPDX-License-Identifier: Apache-2.0
#include "core/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "core/control_groups.h"
#include "core/cpu_isa.h"
#include "core/execution_context.h"

namespace tessera {
namespace {

class ThreadPoolTest : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    before_ = NumThreads();
    SetNumThreads(GetParam());
  }
  void TearDown() override { SetNumThreads(before_); }

 private:
  int before_ = 1;
};

using Chunks = std::vector<std::pair<int64_t, int64_t>>;

Chunks ChunksOf(int64_t n, int64_t grain) {
  std::mutex mutex;
  Chunks chunks;
  ParallelFor(n, grain, [&](int64_t begin, int64_t end) {
    std::lock_guard<std::mutex> lock(mutex);
    chunks.emplace_back(begin, end);
  });
  std::sort(chunks.begin(), chunks.end());
  return chunks;
}

TEST_P(ThreadPoolTest, ChunksFollowFromSizeAndGrainAlone) {
  EXPECT_EQ(ChunksOf(0, 4), Chunks{});
  EXPECT_EQ(ChunksOf(-3, 4), Chunks{});
  EXPECT_EQ(ChunksOf(1, 4), (Chunks{{0, 1}}));
  EXPECT_EQ(ChunksOf(4, 4), (Chunks{{0, 4}}));
  EXPECT_EQ(ChunksOf(5, 4), (Chunks{{0, 4}, {4, 5}}));
  EXPECT_EQ(ChunksOf(12, 4), (Chunks{{0, 4}, {4, 8}, {8, 12}}));
  EXPECT_EQ(ChunksOf(3, 1), (Chunks{{0, 1}, {1, 2}, {2, 3}}));
  const int64_t most = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(ChunksOf(most, most - 1), (Chunks{{0, most - 1}, {most - 1, most}}));
  EXPECT_EQ(ChunksOf(7, most), (Chunks{{0, 7}}));
  EXPECT_THROW(ParallelFor(1, 0, [](int64_t, int64_t) {}), Error);
}

TEST_P(ThreadPoolTest, EveryIndexOnce) {
  constexpr int64_t kN = 100003;
  std::vector<int> hits(kN);
  for (int64_t grain : {1, 7, 1000, 200000}) {
    ParallelFor(kN, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) ++hits[i];
    });
  }
  for (int h : hits) ASSERT_EQ(h, 4);
}

TEST_P(ThreadPoolTest, SeveralCallersAtOnce) {
  constexpr int kCallers = 5;
  std::vector<int64_t> sums(kCallers);
  std::vector<std::thread> callers;
  for (int c = 0; c < kCallers; ++c) {
    callers.emplace_back([&sums, c] {
      for (int round = 0; round < 200; ++round) {
        std::vector<int64_t> parts(17);
        ParallelFor(1700 + c, 100 + c, [&](int64_t begin, int64_t end) {
          int64_t sum = 0;
          for (int64_t i = begin; i < end; ++i) sum += i;
          parts[begin / (100 + c)] = sum;
        });
        sums[c] += std::accumulate(parts.begin(), parts.end(), int64_t{0});
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  for (int64_t c = 0; c < kCallers; ++c) {
    EXPECT_EQ(sums[c], 200 * ((1700 + c) * (1699 + c) / 2)) << "caller " << c;
  }
}

TEST_P(ThreadPoolTest, ACallerDoesNotWaitForAnothersLoop) {
  std::atomic<bool> release{false};
  std::atomic<int> blocked{0};
  std::thread slow([&] {
    ParallelFor(2 * NumThreads(), 1, [&](int64_t, int64_t) {
      ++blocked;
      while (!release) std::this_thread::yield();
    });
  });
  while (blocked < NumThreads()) std::this_thread::yield();
  std::atomic<int> done{0};
  ParallelFor(64, 1, [&](int64_t, int64_t) { ++done; });
  EXPECT_EQ(done, 64);
  release = true;
  slow.join();
  EXPECT_EQ(blocked, 2 * NumThreads());
}

TEST_P(ThreadPoolTest, NestedLoopsStayOnTheThread) {
  std::atomic<int> elsewhere{0};
  std::atomic<int64_t> total{0};
  ParallelFor(16, 1, [&](int64_t, int64_t) {
    const std::thread::id me = std::this_thread::get_id();
    ParallelFor(100, 3, [&](int64_t begin, int64_t end) {
      if (std::this_thread::get_id() != me) ++elsewhere;
      total += end - begin;
    });
  });
  EXPECT_EQ(elsewhere, 0);
  EXPECT_EQ(total, 1600);
}

TEST_P(ThreadPoolTest, ExceptionsReachTheCallerAfterTheLoop) {
  for (int bad : {0, 31, 63}) {
    std::atomic<int> running{0};
    try {
      ParallelFor(64, 1, [&](int64_t begin, int64_t) {
        ++running;
        const bool throws = begin == bad;
        std::this_thread::sleep_for(std::chrono::microseconds(50));
        --running;
        if (throws) throw std::runtime_error("chunk " + std::to_string(begin));
      });
      FAIL() << "no exception";
    } catch (const std::runtime_error& e) {
      EXPECT_EQ(e.what(), "chunk " + std::to_string(bad));
    }
    EXPECT_EQ(running, 0);
  }
  // The pool is as good as before, and loops on this thread are parallel again.
  std::atomic<int> done{0};
  ParallelFor(10, 1, [&](int64_t, int64_t) { ++done; });
  EXPECT_EQ(done, 10);
}

// Of chunks that fail at the same time the first one's exception is thrown, whichever failed last.
TEST_P(ThreadPoolTest, TheFirstChunksExceptionIsTheLoops) {
  const int at_once = std::min(2, NumThreads());  // on one thread the second chunk does not begin
  for (const int64_t last : {0, 1}) {
    std::atomic<int> begun{0};
    try {
      ParallelFor(2, 1, [&](int64_t begin, int64_t) {
        ++begun;
        while (begun < at_once) std::this_thread::yield();
        if (begin == last) std::this_thread::sleep_for(std::chrono::milliseconds(50));
        throw std::runtime_error("chunk " + std::to_string(begin));
      });
      FAIL() << "no exception";
    } catch (const std::runtime_error& e) {
      EXPECT_STREQ(e.what(), "chunk 0") << last;
    }
  }
}

TEST_P(ThreadPoolTest, AllThreadsTakePart) {
  std::mutex mutex;
  std::set<std::thread::id> ids;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  ParallelFor(NumThreads(), 1, [&](int64_t, int64_t) {
    std::unique_lock<std::mutex> lock(mutex);
    ids.insert(std::this_thread::get_id());
    while (static_cast<int>(ids.size()) < NumThreads() &&
           std::chrono::steady_clock::now() < deadline) {
      lock.unlock();
      std::this_thread::yield();
      lock.lock();
    }
  });
  EXPECT_EQ(static_cast<int>(ids.size()), NumThreads());
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, testing::Values(1, 2, 3, 8));

TEST(AvailableCores, NoMoreThanTheAffinityMask) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  EXPECT_GE(AvailableCores(), 1);
  EXPECT_LE(AvailableCores(), CPU_COUNT(&before));
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0; CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(AvailableCores(), 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
}

// Runs `f` in a fork of this process. True if it returned true; not if it died, or took a minute.
template <typename F>
bool TrueInFork(F f) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    _exit(f() ? 0 : 1);
  }
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// The threads that take part in a loop, each of whose chunks waits for `wanted` of them.
size_t ThreadsOfALoop(size_t wanted) {
  std::mutex mutex;
  std::set<std::thread::id> ids;
  ParallelFor(static_cast<int64_t>(wanted), 1, [&](int64_t, int64_t) {
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(2);
    while (std::chrono::steady_clock::now() < give_up) {
      const std::lock_guard<std::mutex> lock(mutex);
      ids.insert(std::this_thread::get_id());
      if (ids.size() == wanted) return;
    }
  });
  return ids.size();
}

TEST(ThreadPoolOfAForkTest, HasThreadsOfItsOwn) {
  if (kSanitized) GTEST_SKIP() << "sanitizers do not let a fork start threads";
  auto pool = std::make_unique<ThreadPool>(3);
  ExecutionContext context;
  context.threads = pool.get();
  const ExecutionScope scope(context);
  EXPECT_EQ(ThreadsOfALoop(3), 3u);
  EXPECT_TRUE(TrueInFork([&] {
    const bool all = ThreadsOfALoop(3) == 3;
    pool.reset();
    return all;
  }));
  EXPECT_TRUE(TrueInFork([&] {
    pool.reset();  // which never worked here
    return true;
  }));
  EXPECT_EQ(ThreadsOfALoop(3), 3u);
}

TEST(ThreadPoolStartTest, WorksWithTheThreadsThatItGets) {
  if (kSanitized) GTEST_SKIP() << "sanitizers need memory of their own";
  EXPECT_TRUE(TrueInFork([&] {
    // Room for the loop, and none for the stack of another thread.
    long pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlim_t room = static_cast<rlim_t>(pages) * sysconf(_SC_PAGESIZE) + (1 << 20);
    const rlimit limit = {room, room};
    if (setrlimit(RLIMIT_AS, &limit) != 0) return false;
    ThreadPool pool(4);
    ExecutionContext context;
    context.threads = &pool;
    const ExecutionScope scope(context);
    int64_t sum = 0;  // of one thread
    ParallelFor(100, 1, [&](int64_t begin, int64_t) { sum += begin; });
    return sum == 4950;
  }));
}

class CpuQuotaTest : public testing::Test {
 protected:
  CpuQuotaTest() { std::filesystem::remove_all(root_); }
  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  double Quota(const std::string& membership) {
    Write("/membership", membership);
    return CpuQuota(root_ + "/membership", root_ + "/fs");
  }
  const std::string root_ = testing::TempDir() + "cgroups";
  const double unlimited_ = std::numeric_limits<double>::infinity();
};

TEST_F(CpuQuotaTest, Version2CountsAncestors) {
  EXPECT_EQ(Quota("0::/a/b\n"), unlimited_);
  Write("/fs/a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(Quota("0::/a/b\n"), unlimited_);
  Write("/fs/a/cpu.max", "150000 100000\n");
  EXPECT_DOUBLE_EQ(Quota("0::/a/b\n"), 1.5);
  Write("/fs/a/b/cpu.max", "50000 100000\n");
  EXPECT_DOUBLE_EQ(Quota("0::/a/b\n"), 0.5);
  EXPECT_DOUBLE_EQ(Quota("0::/a\n"), 1.5);
  EXPECT_EQ(Quota("0::/other\n"), unlimited_);
  Write("/fs/cpu.max", "300000 100000\n");
  EXPECT_DOUBLE_EQ(Quota("0::/not/mounted/here\n"), 3.0);
  EXPECT_DOUBLE_EQ(Quota("0::/\n"), 3.0);
}

TEST_F(CpuQuotaTest, Version1AndBothSideBySide) {
  Write("/fs/cpu/docker/cpu.cfs_quota_us", "-1\n");
  Write("/fs/cpu/docker/cpu.cfs_period_us", "100000\n");
  const std::string membership = "5:cpuset:/docker\n4:cpu,cpuacct:/docker\n0::/docker\n";
  EXPECT_EQ(Quota(membership), unlimited_);
  Write("/fs/cpu/docker/cpu.cfs_quota_us", "250000\n");
  EXPECT_DOUBLE_EQ(Quota(membership), 2.5);
  Write("/fs/unified/docker/cpu.max", "200000 100000\n");
  EXPECT_DOUBLE_EQ(Quota(membership), 2.0);
  // Only the cpu controller counts.
  EXPECT_EQ(Quota("5:cpuset,cpuacct:/docker\n"), unlimited_);
}

TEST_F(CpuQuotaTest, MemoryIsWhatAncestorsLeaveAndCachedFilesGiveWay) {
  const auto left = [&](const std::string& membership) {
    Write("/membership", membership);
    return GroupMemoryLeft(root_ + "/membership", root_ + "/fs");
  };
  EXPECT_EQ(left("0::/a/b\n"), unlimited_);
  Write("/fs/a/b/memory.max", "max\n");
  Write("/fs/a/b/memory.current", "700\n");
  EXPECT_EQ(left("0::/a/b\n"), unlimited_);
  Write("/fs/a/memory.max", "1000\n");
  Write("/fs/a/memory.current", "800\n");
  EXPECT_EQ(left("0::/a/b\n"), 200);
  Write("/fs/a/memory.stat", "anon 500\ninactive_file 200\nactive_file 50\n");
  EXPECT_EQ(left("0::/a/b\n"), 450);
  Write("/fs/memory/docker/memory.limit_in_bytes", "300\n");
  Write("/fs/memory/docker/memory.usage_in_bytes", "290\n");
  Write("/fs/memory/docker/memory.stat", "inactive_file 9\ntotal_inactive_file 30\n");
  EXPECT_EQ(left("3:memory:/docker\n0::/a\n"), 40);
  EXPECT_EQ(left("3:cpu:/docker\n"), unlimited_);
  EXPECT_GT(MemoryLeft(), 0);
}

TEST_F(CpuQuotaTest, NonsenseSetsNoLimit) {
  EXPECT_EQ(CpuQuota("/nonexistent", "/nonexistent"), unlimited_);
  Write("/fs/a/cpu.max", "many 5\n");
  EXPECT_EQ(Quota("0::/a\n\nx\n1:2\n"), unlimited_);
  Write("/fs/a/cpu.max", "100 0\n");
  EXPECT_EQ(Quota("0::/a\n"), unlimited_);
}

#if defined(__x86_64__)
TEST(CpuIsa, NamesAndFallBack) {
  EXPECT_EQ(ParseCpuIsa("avx2"), CpuIsa::kAvx2);
  EXPECT_EQ(ParseCpuIsa("AVX2"), std::nullopt);
  EXPECT_EQ(DetectedIsa() >= CpuIsa::kAvx2,
            static_cast<bool>(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")));
  EXPECT_EQ(DetectedIsa() == CpuIsa::kAvx512Bf16,
            static_cast<bool>(__builtin_cpu_supports("avx512bf16")));
  using Fn = int();
  const IsaTable<Fn> table{[] { return 0; }, nullptr, [] { return 2; }};
  EXPECT_EQ(table.Select(CpuIsa::kBaseline)(), 0);
  EXPECT_EQ(table.Select(CpuIsa::kAvx2)(), 0);
  EXPECT_EQ(table.Select(CpuIsa::kAvx512)(), 2);
  EXPECT_EQ(table.Select(CpuIsa::kAvx512Bf16)(), 2);
}
#endif

TEST_P(ThreadPoolTest, ACancelledCallerGetsNoFurtherChunk) {
  std::atomic<bool> cancelled{false};
  const ExecutionModeScope<&ExecutionContext::cancelled> scope(&cancelled);
  std::atomic<int64_t> chunks{0};
  const auto run = [&](int64_t n) {
    ParallelFor(n, 1, [&](int64_t, int64_t) {
      if (chunks.fetch_add(1) == 100) cancelled = true;
      ParallelFor(1, 1, [](int64_t, int64_t) {});  // inside a body it is noticed as well
    });
  };
  run(50);
  EXPECT_EQ(chunks, 50);
  EXPECT_THROW(run(int64_t{1} << 40), CancelledError);
  EXPECT_GE(chunks, 101);
  EXPECT_LE(chunks, 101 + GetParam());  // those that were on their way
  EXPECT_THROW(run(1), CancelledError);
  cancelled = false;
  run(1);
  // Other callers go on.
  cancelled = true;
  std::thread([] { ParallelFor(8, 1, [](int64_t, int64_t) {}); }).join();
}

TEST(CpuIsa, CanBeLoweredButNotRaised) {
  const CpuIsa before = ActiveIsa();
  EXPECT_LE(before, DetectedIsa());
  SetActiveIsa(kCpuIsas[0]);
  EXPECT_EQ(ActiveIsa(), kCpuIsas[0]);
  SetActiveIsa(before);
  for (const CpuIsa isa : kCpuIsas) {
    if (isa <= DetectedIsa()) continue;
    EXPECT_THROW(SetActiveIsa(isa), Error);
  }
}

TEST(CpuIsa, TheEnvironmentIsChecked) {
  const char* before = getenv("TESSERA_CPU_ISA");
  const std::string saved = before == nullptr ? "" : before;
  setenv("TESSERA_CPU_ISA", "sse9", 1);
  EXPECT_EQ(Message(CheckIsaEnvironment()),
            CpuIsaName(kCpuIsas[0]) == "neon"
                ? "TESSERA_CPU_ISA=sse9: must be neon or neondot"
                : "TESSERA_CPU_ISA=sse9: must be baseline, avx2, avx512, avx512vnni or avx512bf16");
  for (const CpuIsa isa : kCpuIsas) {
    setenv("TESSERA_CPU_ISA", std::string(CpuIsaName(isa)).c_str(), 1);
    EXPECT_EQ(CheckIsaEnvironment().ok(), isa <= DetectedIsa());
  }
  setenv("TESSERA_CPU_ISA", "", 1);  // as unset
  EXPECT_TRUE(CheckIsaEnvironment().ok());
  unsetenv("TESSERA_CPU_ISA");
  EXPECT_TRUE(CheckIsaEnvironment().ok());
  if (before != nullptr) setenv("TESSERA_CPU_ISA", saved.c_str(), 1);
}

}  // namespace
}  // namespace tessera
