// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/block_pool.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "base/error.h"

namespace tessera::cuda {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

// Addresses without memory behind them; marks pass when the test says so.
class FakeMemory : public DeviceMemory {
 public:
  explicit FakeMemory(size_t total) : total_(total) {}
  void* Obtain(size_t bytes) override {
    ++asked;
    if (held + bytes > total_) return nullptr;
    held += bytes;
    void* pointer = reinterpret_cast<void*>(next_);
    next_ += bytes + 4096;
    segments[pointer] = bytes;
    return pointer;
  }
  void Return(void* pointer, size_t bytes) override {
    EXPECT_EQ(segments.at(pointer), bytes);
    segments.erase(pointer);
    held -= bytes;
  }
  size_t FreeBytes() override { return total_ - held; }
  size_t TotalBytes() override { return total_; }
  uint64_t Mark(StreamId) override { return ++marks; }
  bool Passed(uint64_t mark, bool wait) override {
    if (wait) passed = std::max(passed, mark);
    return mark <= passed;
  }

  size_t held = 0;
  int asked = 0;
  uint64_t marks = 0;
  uint64_t passed = 0;
  std::map<void*, size_t> segments;

 private:
  size_t total_;
  uintptr_t next_ = 0x100000;
};

size_t Rounded(size_t bytes) { return (bytes + 63) / 64 * 64; }

struct Fixture {
  explicit Fixture(size_t total = 1000 * kMiB) : memory(total), pool("cuda:0", &memory, Rounded) {}
  FakeMemory memory;
  BlockPool pool;
};

StreamId Stream(uintptr_t n) { return reinterpret_cast<StreamId>(n); }
size_t Apart(void* a, void* b) {
  return static_cast<size_t>(static_cast<char*>(b) - static_cast<char*>(a));
}

TEST(BlockPool, SmallRequestsShareASegmentAndMergeWhenFreed) {
  Fixture f;
  void* a = f.pool.Allocate(1000, nullptr);
  void* b = f.pool.Allocate(1, nullptr);
  void* c = f.pool.Allocate(512, nullptr);
  EXPECT_EQ(Apart(a, b), 1024u);
  EXPECT_EQ(Apart(b, c), 512u);
  EXPECT_EQ(f.memory.asked, 1);
  EXPECT_EQ(f.pool.stats().current_bytes, 1024 + 64 + 512);
  f.pool.Free(b);
  f.pool.Free(a);
  // The two are one block now, and the first that fits.
  EXPECT_EQ(f.pool.Allocate(1500, nullptr), a);
  f.pool.Free(a);
  f.pool.Free(c);
  EXPECT_EQ(f.pool.stats().cached_bytes, static_cast<int64_t>(2 * kMiB));
  EXPECT_EQ(f.pool.stats().fragmentation(), 0.0);
  f.pool.ReleaseCached();
  EXPECT_EQ(f.memory.held, 0u);
  EXPECT_EQ(f.pool.stats().reserved_bytes, 0);
}

TEST(BlockPool, ZeroBytesAndForeignPointers) {
  Fixture f;
  EXPECT_EQ(f.pool.Allocate(0, nullptr), nullptr);
  f.pool.Free(nullptr);
  EXPECT_THROW(f.pool.Free(&f), Error);
  void* a = f.pool.Allocate(1, nullptr);
  f.pool.Free(a);
  EXPECT_THROW(f.pool.Free(a), Error);
}

TEST(BlockPool, StreamsDoNotShareBlocks) {
  Fixture f;
  void* a = f.pool.Allocate(100, Stream(1));
  f.pool.Free(a);
  EXPECT_NE(f.pool.Allocate(100, Stream(2)), a);
  EXPECT_EQ(f.pool.Allocate(100, Stream(1)), a);
}

TEST(BlockPool, BlockUsedElsewhereWaitsForThatStream) {
  Fixture f;
  void* a = f.pool.Allocate(2 * kMiB, Stream(1));
  f.pool.UsedBy(a, Stream(2));
  f.pool.UsedBy(a, Stream(2));
  f.pool.UsedBy(a, Stream(1));
  f.pool.Free(a);
  EXPECT_EQ(f.memory.marks, 1u);
  void* b = f.pool.Allocate(2 * kMiB, Stream(1));
  EXPECT_NE(b, a);
  f.memory.passed = 1;
  EXPECT_EQ(f.pool.Allocate(2 * kMiB, Stream(1)), a);
}

TEST(BlockPool, CachedSegmentsGoBackBeforeARequestFails) {
  Fixture f(100 * kMiB);
  void* a = f.pool.Allocate(40 * kMiB, Stream(1));
  void* b = f.pool.Allocate(40 * kMiB, Stream(1));
  f.pool.Free(a);
  // Only by giving a's segment back is there room, and on another stream.
  void* c = f.pool.Allocate(50 * kMiB, Stream(2));
  EXPECT_NE(c, nullptr);
  EXPECT_EQ(f.memory.segments.size(), 2u);
  f.pool.Free(b);
  f.pool.Free(c);
}

TEST(BlockPool, OutOfMemorySaysWhatWasAskedWhatIsFreeAndWhatHoldsTheMost) {
  Fixture f(100 * kMiB);
  std::vector<void*> held;
  for (int i = 0; i < 3; ++i) held.push_back(f.pool.Allocate(24 * kMiB, nullptr));
  held.push_back(f.pool.Allocate(1024, nullptr));
  try {
    f.pool.Allocate(50 * kMiB, nullptr);
    FAIL() << "the device has no such room";
  } catch (const OutOfMemoryError& error) {
    const std::string text = error.what();
    EXPECT_EQ(text,
              "cuda:0: out of memory (the device has no room): asked for 50.0 MiB; in use 72.0 "
              "MiB, cached 2.0 MiB (largest piece 2.0 MiB), free on the device 26.0 MiB of 100.0 "
              "MiB; the most is held by 3 blocks of 24.0 MiB, 1 block of 1.0 KiB");
  }
  // What was there is intact, and a smaller request succeeds.
  held.push_back(f.pool.Allocate(20 * kMiB, nullptr));
  for (void* p : held) f.pool.Free(p);
}

TEST(BlockPool, LimitCountsWhatIsHandedOut) {
  Fixture f;
  f.pool.SetLimit(10 * kMiB);
  void* a = f.pool.Allocate(8 * kMiB, nullptr);
  EXPECT_THROW(f.pool.Allocate(3 * kMiB, nullptr), OutOfMemoryError);
  f.pool.Free(a);
  f.pool.Free(f.pool.Allocate(10 * kMiB, nullptr));
}

TEST(BlockPool, PrivatePoolKeepsItsAddressesUntilRetired) {
  Fixture f;
  const int graph = f.pool.NewPool();
  EXPECT_EQ(f.pool.UsePool(graph), 0);
  void* a = f.pool.Allocate(4 * kMiB, nullptr);
  f.pool.Free(a);
  EXPECT_EQ(f.pool.UsePool(0), graph);
  void* b = f.pool.Allocate(4 * kMiB, nullptr);
  EXPECT_NE(a, b);
  f.pool.ReleaseCached();
  EXPECT_EQ(f.memory.segments.size(), 2u);
  f.pool.RetirePool(graph);
  EXPECT_EQ(f.memory.segments.size(), 1u);
  EXPECT_THROW(f.pool.UsePool(graph), Error);
  EXPECT_THROW(f.pool.UsePool(7), Error);
  f.pool.Free(b);
}

TEST(BlockPool, APrivatePoolIsTheThreadsThatUsesIt) {
  Fixture f;
  const int graph = f.pool.NewPool();
  f.pool.UsePool(graph);
  void* inside = f.pool.Allocate(4 * kMiB, nullptr);
  void* outside = nullptr;
  std::thread([&] {
    outside = f.pool.Allocate(4 * kMiB, nullptr);
    EXPECT_THROW(f.pool.RetirePool(graph), Error);  // another thread is at it
  }).join();
  f.pool.UsePool(0);
  f.pool.Free(inside);
  f.pool.Free(outside);
  f.pool.ReleaseCached();
  EXPECT_EQ(f.memory.segments.size(), 1u);  // the graph's
  f.pool.RetirePool(graph);
  EXPECT_EQ(f.memory.segments.size(), 0u);
}

TEST(BlockPool, RandomUseNeverOverlapsAndEverythingComesBack) {
  Fixture f(400 * kMiB);
  std::mt19937 random(7);
  struct Live {
    char* pointer;
    size_t size;
  };
  std::vector<Live> live;
  std::map<char*, size_t> taken;
  int64_t expected = 0;
  for (int i = 0; i < 20000; ++i) {
    if (live.empty() || random() % 2 == 0) {
      const size_t size = 1 + random() % (random() % 4 == 0 ? 12 * kMiB : 5000);
      char* p = nullptr;
      try {
        p = static_cast<char*>(f.pool.Allocate(size, Stream(random() % 2)));
      } catch (const OutOfMemoryError&) {
        continue;
      }
      EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % 512, 0u);
      const auto after = taken.lower_bound(p);
      if (after != taken.end()) {
        ASSERT_LE(p + size, after->first);
      }
      if (after != taken.begin()) {
        const auto before = std::prev(after);
        ASSERT_LE(before->first + before->second, p);
      }
      const auto segment = std::prev(f.memory.segments.upper_bound(p));
      ASSERT_LE(p + size, static_cast<char*>(segment->first) + segment->second);
      taken[p] = size;
      live.push_back({p, size});
      expected += static_cast<int64_t>(Rounded(size));
    } else {
      const size_t at = random() % live.size();
      std::swap(live[at], live.back());
      if (random() % 8 == 0) f.pool.UsedBy(live.back().pointer, Stream(9));
      f.pool.Free(live.back().pointer);
      f.memory.passed = f.memory.marks - f.memory.marks % 3;
      taken.erase(live.back().pointer);
      expected -= static_cast<int64_t>(Rounded(live.back().size));
      live.pop_back();
    }
    const BlockPoolStats stats = f.pool.stats();
    ASSERT_EQ(stats.current_bytes, expected);
    ASSERT_EQ(stats.reserved_bytes, static_cast<int64_t>(f.memory.held));
    ASSERT_LE(stats.current_bytes + stats.cached_bytes, stats.reserved_bytes);
    ASSERT_GE(stats.peak_bytes, stats.current_bytes);
  }
  for (const Live& l : live) f.pool.Free(l.pointer);
  f.pool.ReleaseCached();
  EXPECT_EQ(f.memory.held, 0u);
  EXPECT_EQ(f.pool.stats().cached_bytes, 0);
}

}  // namespace
}  // namespace tessera::cuda
