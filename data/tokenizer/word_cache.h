// SPDX-License-Identifier: Apache-2.0
// Remembers the token ids of short words: text repeats itself, and a word that has been seen needs
// no merging.
//
//   WordCache cache;
//   WordCache::Key key(word);
//   if (const WordCache::Entry* entry = cache.Find(key)) ... entry->ids[0 .. entry->count) ...
//
// Each word has one place, where the latest one stays: constant memory, no clearing. One thread
// uses a cache at a time.
#ifndef TESSERA_DATA_TOKENIZER_WORD_CACHE_H_
#define TESSERA_DATA_TOKENIZER_WORD_CACHE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::data {

class WordCache {
 public:
  static constexpr size_t kMaxWordBytes = 23;
  static constexpr int kMaxIds = 9;

  // A word of 1 to kMaxWordBytes bytes, padded with zeros, its length in the last byte.
  struct Key {
    explicit Key(std::string_view word) {
      char bytes[24] = {};
      std::memcpy(bytes, word.data(), word.size());
      bytes[23] = static_cast<char>(word.size());
      std::memcpy(words, bytes, sizeof(bytes));
    }
    uint64_t words[3];
  };

  struct alignas(64) Entry {
    uint64_t words[3];  // all zero: empty
    int32_t ids[kMaxIds];
    int32_t count;
  };

  WordCache() : entries_(kEntries) {}

  const Entry* Find(const Key& key) const {
    const Entry& entry = entries_[Index(key)];
    const uint64_t difference = (entry.words[0] ^ key.words[0]) | (entry.words[1] ^ key.words[1]) |
                                (entry.words[2] ^ key.words[2]);
    return difference == 0 ? &entry : nullptr;
  }

  // 0 <= count <= kMaxIds.
  void Insert(const Key& key, const int32_t* ids, int count) {
    Entry& entry = entries_[Index(key)];
    std::memcpy(entry.words, key.words, sizeof(entry.words));
    std::copy_n(ids, count, entry.ids);
    entry.count = count;
  }

 private:
  static constexpr size_t kEntries = 1 << 15;

  static size_t Index(const Key& key) {
    uint64_t hash = key.words[0] * 0x9E3779B97F4A7C15u;
    hash = (hash ^ (hash >> 32) ^ key.words[1]) * 0xD6E8FEB86659FD93u;
    hash = (hash ^ (hash >> 32) ^ key.words[2]) * 0xCA9B0C7EBA1DA115u;
    return static_cast<size_t>(hash >> 49);
  }

  std::vector<Entry> entries_;
};

// Caches for whoever encodes: each has one to itself and gives it back for the next.
//
//   WordCachePool pool;
//   std::unique_ptr<WordCache> cache = pool.Take();
//   ... cache->Find(key) ...
//   pool.Return(std::move(cache));
//
// Safe from several threads.
class WordCachePool {
 public:
  std::unique_ptr<WordCache> Take() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!caches_.empty()) {
        std::unique_ptr<WordCache> cache = std::move(caches_.back());
        caches_.pop_back();
        return cache;
      }
    }
    return std::make_unique<WordCache>();
  }
  void Return(std::unique_ptr<WordCache> cache) {
    const std::lock_guard<std::mutex> lock(mutex_);
    caches_.push_back(std::move(cache));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<WordCache>> caches_;  // those that nobody uses now
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_TOKENIZER_WORD_CACHE_H_
