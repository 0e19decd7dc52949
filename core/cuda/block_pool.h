// SPDX-License-Identifier: Apache-2.0
// The caching allocator behind CUDA tensors, free of CUDA: it asks a `DeviceMemory` for segments
// and hands out parts of them.
//
//   BlockPool pool("cuda:0", &memory, rounded_size);
//   void* p = pool.Allocate(bytes, stream);
//   pool.Free(p);                           // at once reusable by work on the same stream
//
// A block belongs to the stream it was asked for on. Work on one stream is ordered, so a freed
// block can be handed out again on that stream while the device still uses it. A block that other
// streams used (`UsedBy`) waits until these have passed their last use.
//
// Requests of at most 1 MiB share segments of 2 MiB; larger ones are cut from segments of their
// own. A free block is split where the rest is worth keeping, and merged with its free neighbours
// when it is freed. When the device has no room, cached segments are given back and it is asked
// again; then OutOfMemoryError says what was asked, what is free and what holds the most.
//
// Blocks asked for while a private pool is current (`UsePool`) come from segments that no other
// pool touches: a captured graph keeps the addresses it was captured with. Thread-safe.
#ifndef TESSERA_CORE_CUDA_BLOCK_POOL_H_
#define TESSERA_CORE_CUDA_BLOCK_POOL_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "core/allocator.h"

namespace tessera::cuda {

// A stream as the pool sees it: an identity.
using StreamId = void*;

// What the pool needs of a device; tests have one made of host memory.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  // `bytes` bytes aligned to 512; nullptr where the device has no room.
  virtual void* Obtain(size_t bytes) = 0;
  virtual void Return(void* pointer, size_t bytes) = 0;
  virtual size_t FreeBytes() = 0;
  virtual size_t TotalBytes() = 0;
  // A mark behind what `stream` has been given so far.
  virtual uint64_t Mark(StreamId stream) = 0;
  // Whether the mark has been passed; with `wait`, waits until it has. A passed mark is forgotten.
  virtual bool Passed(uint64_t mark, bool wait) = 0;
};

// What a pool holds at the moment.
struct BlockPoolStats : AllocatorStats {
  int64_t peak_reserved_bytes = 0;
  int64_t cached_bytes = 0;        // reserved but in no live block
  int64_t largest_free_bytes = 0;  // of the blocks that are cached
  int64_t segments = 0;
  // 0 where the cache is one block; towards 1 as it falls into small pieces.
  double fragmentation() const {
    return cached_bytes == 0
               ? 0.0
               : 1.0 - static_cast<double>(largest_free_bytes) / static_cast<double>(cached_bytes);
  }
};

class BlockPool {
 public:
  // `rounded` gives the bytes a request is counted as: that of `meta:cuda`'s allocator.
  BlockPool(std::string name, DeviceMemory* memory, std::function<size_t(size_t)> rounded);
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  void* Allocate(size_t bytes, StreamId stream);
  // Throws Error for a pointer that is not a live block.
  void Free(void* pointer);
  // `stream`, not the block's own, was given work that uses the block.
  void UsedBy(void* pointer, StreamId stream);
  void ReleaseCached();

  // Private pools. 0 is the shared one. UsePool is the calling thread's choice, and returns the one
  // before: what others allocate while a graph is recorded is none of the graph's.
  int NewPool();
  int UsePool(int pool);
  // Its blocks may be live still; its segments go back when they are free.
  void RetirePool(int pool);

  BlockPoolStats stats() const;
  void ResetPeak();
  void SetLimit(int64_t bytes);
  // "48 blocks of 512.0 MiB, 96 of 64.0 MiB": the sizes that hold the most of what is live.
  std::string LargestHolders(int count) const;

 private:
  struct Block {
    char* pointer = nullptr;
    size_t size = 0;
    size_t counted = 0;
    StreamId stream = nullptr;
    int pool = 0;
    bool small = false;
    bool used = false;
    Block* previous = nullptr;
    Block* next = nullptr;
    std::vector<StreamId> others;
  };
  struct BySize {
    bool operator()(const Block* a, const Block* b) const {
      return std::tie(a->size, a->pointer) < std::tie(b->size, b->pointer);
    }
  };
  using Key = std::tuple<StreamId, int, bool>;
  using FreeBlocks = std::set<Block*, BySize>;
  struct Waiting {
    Block* block;
    std::vector<uint64_t> marks;
  };

  // All called with the lock held.
  Block* TakeFree(const Key& key, size_t size);
  Block* NewSegment(const Key& key, size_t size);
  void Split(Block* block, size_t size);
  void GiveBack(Block* block);
  void Merge(Block* block, Block* neighbour);
  void Reclaim(bool wait);
  void ReturnSegments();
  int CurrentPool() const;
  void Count(Block* block, size_t counted);
  std::string LargestHoldersLocked(int count) const;
  [[noreturn]] void ThrowOutOfMemory(size_t bytes, const char* why);

  mutable std::mutex mutex_;
  std::string name_;
  DeviceMemory* memory_;
  std::function<size_t(size_t)> rounded_;
  std::map<Key, FreeBlocks> free_;
  std::unordered_map<void*, Block*> live_;
  std::deque<Waiting> waiting_;
  std::set<int> retired_;
  int pools_ = 0;
  std::map<std::thread::id, int> private_pools_;  // of threads that use one
  int64_t limit_ = 0;
  BlockPoolStats stats_;
};

}  // namespace tessera::cuda

#endif  // TESSERA_CORE_CUDA_BLOCK_POOL_H_
