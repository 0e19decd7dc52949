// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/block_pool.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/error.h"

namespace tessera::cuda {
namespace {

constexpr size_t kAlignment = 512;
constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kSmallRequest = kMiB;
constexpr size_t kSmallSegment = 2 * kMiB;
// Requests up to kMediumRequest are cut from segments of kMediumSegment.
constexpr size_t kMediumRequest = 10 * kMiB;
constexpr size_t kMediumSegment = 20 * kMiB;

size_t RoundUp(size_t n, size_t step) { return (n + step - 1) / step * step; }

size_t SegmentSize(size_t size) {
  if (size <= kSmallRequest) return kSmallSegment;
  if (size <= kMediumRequest) return kMediumSegment;
  return RoundUp(size, kSmallSegment);
}

std::string Readable(double bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  while (bytes >= 1024 && unit < 4) {
    bytes /= 1024;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof(text), unit == 0 ? "%.0f %s" : "%.1f %s", bytes, kUnits[unit]);
  return text;
}
template <typename T>
std::string Bytes(T bytes) {
  return Readable(static_cast<double>(bytes));
}

}  // namespace

BlockPool::BlockPool(std::string name, DeviceMemory* memory, std::function<size_t(size_t)> rounded)
    : name_(std::move(name)), memory_(memory), rounded_(std::move(rounded)) {}

BlockPool::~BlockPool() {
  Reclaim(/*wait=*/true);
  ReturnSegments();
  // Blocks that are still live belong to their users; the records go.
  for (const auto& [pointer, block] : live_) delete block;
  for (const auto& [key, blocks] : free_) {
    for (Block* block : blocks) delete block;
  }
}

void* BlockPool::Allocate(size_t bytes, StreamId stream) {
  if (bytes == 0) return nullptr;
  const size_t counted = rounded_(bytes);
  const size_t size = RoundUp(counted, kAlignment);
  std::lock_guard<std::mutex> lock(mutex_);
  if (limit_ > 0 && stats_.current_bytes + static_cast<int64_t>(counted) > limit_) {
    ThrowOutOfMemory(counted, "a limit is set");
  }
  Reclaim(/*wait=*/false);
  const Key key{stream, CurrentPool(), size <= kSmallRequest};
  Block* block = TakeFree(key, size);
  if (block == nullptr) block = NewSegment(key, size);
  if (block == nullptr) {
    Reclaim(/*wait=*/true);
    block = TakeFree(key, size);
  }
  if (block == nullptr) {
    ReturnSegments();
    block = NewSegment(key, size);
  }
  if (block == nullptr) ThrowOutOfMemory(counted, "the device has no room");
  Split(block, size);
  Count(block, counted);
  return block->pointer;
}

void BlockPool::Count(Block* block, size_t counted) {
  block->used = true;
  block->counted = counted;
  live_[block->pointer] = block;
  stats_.cached_bytes -= static_cast<int64_t>(block->size);
  stats_.current_bytes += static_cast<int64_t>(counted);
  stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.current_bytes);
  ++stats_.allocations;
}

void BlockPool::Free(void* pointer) {
  if (pointer == nullptr) return;
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = live_.find(pointer);
  TESSERA_CHECK(found != live_.end(), "free", name_, ": ", pointer, " is not a live block");
  Block* block = found->second;
  live_.erase(found);
  stats_.current_bytes -= static_cast<int64_t>(block->counted);
  if (block->others.empty()) {
    GiveBack(block);
    return;
  }
  Waiting waiting{block, {}};
  for (StreamId stream : block->others) waiting.marks.push_back(memory_->Mark(stream));
  block->others.clear();
  waiting_.push_back(std::move(waiting));
}

void BlockPool::UsedBy(void* pointer, StreamId stream) {
  if (pointer == nullptr) return;
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = live_.find(pointer);
  TESSERA_CHECK(found != live_.end(), "record_stream", name_, ": ", pointer,
                " is not a live block");
  Block* block = found->second;
  auto& others = block->others;
  if (stream == block->stream || std::find(others.begin(), others.end(), stream) != others.end()) {
    return;
  }
  others.push_back(stream);
}

BlockPool::Block* BlockPool::TakeFree(const Key& key, size_t size) {
  const auto blocks = free_.find(key);
  if (blocks == free_.end()) return nullptr;
  Block wanted;
  wanted.size = size;
  const auto best = blocks->second.lower_bound(&wanted);
  if (best == blocks->second.end()) return nullptr;
  Block* block = *best;
  // A block much larger than asked for is left for those who need it whole.
  if (size > kMediumRequest && block->size > size + size / 2 && block->size - size > 200 * kMiB &&
      block->previous == nullptr && block->next == nullptr &&
      memory_->FreeBytes() > SegmentSize(size)) {
    return nullptr;
  }
  blocks->second.erase(best);
  return block;
}

BlockPool::Block* BlockPool::NewSegment(const Key& key, size_t size) {
  size_t bytes = SegmentSize(size);
  void* pointer = memory_->Obtain(bytes);
  if (pointer == nullptr) return nullptr;
  Block* block = new Block;
  block->pointer = static_cast<char*>(pointer);
  block->size = bytes;
  std::tie(block->stream, block->pool, block->small) = key;
  stats_.reserved_bytes += static_cast<int64_t>(bytes);
  stats_.cached_bytes += static_cast<int64_t>(bytes);
  stats_.peak_reserved_bytes = std::max(stats_.peak_reserved_bytes, stats_.reserved_bytes);
  ++stats_.segments;
  return block;
}

void BlockPool::Split(Block* block, size_t size) {
  const size_t rest = block->size - size;
  if (rest < (block->small ? kAlignment : kSmallRequest)) return;
  Block* tail = new Block;
  tail->pointer = block->pointer + size;
  tail->size = rest;
  tail->stream = block->stream;
  tail->pool = block->pool;
  tail->small = block->small;
  tail->previous = block;
  tail->next = block->next;
  if (block->next != nullptr) block->next->previous = tail;
  block->next = tail;
  block->size = size;
  free_[{tail->stream, tail->pool, tail->small}].insert(tail);
}

void BlockPool::GiveBack(Block* block) {
  block->used = false;
  stats_.cached_bytes += static_cast<int64_t>(block->size);
  if (block->previous != nullptr && !block->previous->used) Merge(block, block->previous);
  if (block->next != nullptr && !block->next->used) Merge(block, block->next);
  free_[{block->stream, block->pool, block->small}].insert(block);
}

// `neighbour`, which is free, becomes part of `block`.
void BlockPool::Merge(Block* block, Block* neighbour) {
  free_[{neighbour->stream, neighbour->pool, neighbour->small}].erase(neighbour);
  if (neighbour == block->previous) {
    block->pointer = neighbour->pointer;
    block->previous = neighbour->previous;
    if (block->previous != nullptr) block->previous->next = block;
  } else {
    block->next = neighbour->next;
    if (block->next != nullptr) block->next->previous = block;
  }
  block->size += neighbour->size;
  delete neighbour;
}

void BlockPool::Reclaim(bool wait) {
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    auto& marks = it->marks;
    while (!marks.empty() && memory_->Passed(marks.back(), wait)) marks.pop_back();
    if (!marks.empty()) {
      ++it;
      continue;
    }
    GiveBack(it->block);
    it = waiting_.erase(it);
  }
}

// Gives back every segment that is free as a whole. Those of private pools only once retired: a
// graph still writes to them.
void BlockPool::ReturnSegments() {
  for (auto& [key, blocks] : free_) {
    const int pool = std::get<1>(key);
    if (pool != 0 && retired_.count(pool) == 0) continue;
    for (auto it = blocks.begin(); it != blocks.end();) {
      Block* block = *it;
      if (block->previous != nullptr || block->next != nullptr) {
        ++it;
        continue;
      }
      it = blocks.erase(it);
      memory_->Return(block->pointer, block->size);
      stats_.reserved_bytes -= static_cast<int64_t>(block->size);
      stats_.cached_bytes -= static_cast<int64_t>(block->size);
      --stats_.segments;
      delete block;
    }
  }
}

void BlockPool::ReleaseCached() {
  std::lock_guard<std::mutex> lock(mutex_);
  Reclaim(/*wait=*/true);
  ReturnSegments();
}

int BlockPool::NewPool() {
  std::lock_guard<std::mutex> lock(mutex_);
  return ++pools_;
}
int BlockPool::UsePool(int pool) {
  std::lock_guard<std::mutex> lock(mutex_);
  TESSERA_CHECK(pool >= 0 && pool <= pools_ && retired_.count(pool) == 0, "private pool", name_,
                ": there is no pool ", pool);
  const int before = CurrentPool();
  if (pool == 0) {
    private_pools_.erase(std::this_thread::get_id());
  } else {
    private_pools_[std::this_thread::get_id()] = pool;
  }
  return before;
}
int BlockPool::CurrentPool() const {
  const auto found = private_pools_.find(std::this_thread::get_id());
  return found == private_pools_.end() ? 0 : found->second;
}
void BlockPool::RetirePool(int pool) {
  std::lock_guard<std::mutex> lock(mutex_);
  const bool in_use = std::any_of(private_pools_.begin(), private_pools_.end(),
                                  [&](const auto& used) { return used.second == pool; });
  TESSERA_CHECK(pool > 0 && pool <= pools_ && !in_use, "private pool", name_,
                ": cannot retire pool ", pool);
  retired_.insert(pool);
  ReturnSegments();
}

BlockPoolStats BlockPool::stats() const {
  std::lock_guard<std::mutex> lock(mutex_);
  BlockPoolStats stats = stats_;
  for (const auto& [key, blocks] : free_) {
    if (blocks.empty()) continue;
    stats.largest_free_bytes =
        std::max(stats.largest_free_bytes, static_cast<int64_t>((*blocks.rbegin())->size));
  }
  return stats;
}
void BlockPool::ResetPeak() {
  std::lock_guard<std::mutex> lock(mutex_);
  stats_.peak_bytes = stats_.current_bytes;
  stats_.peak_reserved_bytes = stats_.reserved_bytes;
}
void BlockPool::SetLimit(int64_t bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  limit_ = bytes;
}

std::string BlockPool::LargestHolders(int count) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return LargestHoldersLocked(count);
}

std::string BlockPool::LargestHoldersLocked(int count) const {
  std::map<size_t, int64_t> by_size;
  for (const auto& [pointer, block] : live_) ++by_size[block->counted];
  std::vector<std::pair<double, size_t>> totals;
  for (const auto& [size, number] : by_size) {
    totals.emplace_back(static_cast<double>(size) * static_cast<double>(number), size);
  }
  std::sort(totals.rbegin(), totals.rend());
  std::string text;
  for (const auto& [total, size] : totals) {
    if (count-- == 0) break;
    const int64_t number = by_size[size];
    text += Concat(text.empty() ? "" : ", ", number, number == 1 ? " block of " : " blocks of ",
                   Bytes(size));
  }
  return text.empty() ? "none" : text;
}

void BlockPool::ThrowOutOfMemory(size_t bytes, const char* why) {
  int64_t largest = 0;
  for (const auto& [key, blocks] : free_) {
    if (!blocks.empty()) {
      largest = std::max(largest, static_cast<int64_t>((*blocks.rbegin())->size));
    }
  }
  throw OutOfMemoryError(
      name_,
      Concat("out of memory (", why, "): asked for ", Bytes(bytes), "; in use ",
             Bytes(stats_.current_bytes), limit_ > 0 ? Concat(" of ", Bytes(limit_)) : "",
             ", cached ", Bytes(stats_.cached_bytes), " (largest piece ", Bytes(largest),
             "), free on the device ", Bytes(memory_->FreeBytes()), " of ",
             Bytes(memory_->TotalBytes()), "; the most is held by ", LargestHoldersLocked(3)));
}

}  // namespace tessera::cuda
