// SPDX-License-Identifier: Apache-2.0
#include "corpus/dedup/repeats.h"

#include <algorithm>
#include <memory>

#include "base/file.h"
#include "corpus/engine/document_pass.h"
#include "corpus/engine/hash.h"
#include "corpus/engine/scratch.h"

namespace tessera::corpus {
namespace {

constexpr int64_t kEntriesOfChunk = 1 << 15;

struct KeyEntry {
  uint64_t hash[2];
  int64_t number;
  int64_t unit;
  auto operator<=>(const KeyEntry&) const = default;
};

Status HashKeys(const RepeatSearch& search, const std::string& path, const RunContext& context) {
  BlockRun run;
  run.name = search.name + " hashes";
  run.inputs = search.inputs;
  run.outputs = {path};
  run.made_from = {{"text_key", search.text_key}, {"keys", search.made_from}};
  run.work = [&](const Block& block, BlockResult* result) -> Status {
    ForEachDocument(block, search.text_key, [&](Document& document) {
      search.keys(document, [&](int64_t unit, std::string_view key) {
        const KeyEntry entry = {{HashBytes(key, 1), HashBytes(key, 2)}, document.number, unit};
        result->outputs[0].append(reinterpret_cast<const char*>(&entry), sizeof(entry));
      });
    });
    return OkStatus();
  };
  return RunBlocks(run, context).status();
}

// Entries by their hashes, so that equal keys lie together.
Status PutEntries(const RandomFile& file, BucketFiles& buckets) {
  const int64_t count = file.size() / int64_t{sizeof(KeyEntry)};
  const int64_t chunks = (count + kEntriesOfChunk - 1) / kEntriesOfChunk;
  return ParallelTasks(chunks, [&](int64_t chunk) -> Status {
    const int64_t first = chunk * kEntriesOfChunk;
    TESSERA_ASSIGN_OR_RETURN(const auto entries,
                             file.ReadAll<KeyEntry>(first * int64_t{sizeof(KeyEntry)},
                                                    std::min(kEntriesOfChunk, count - first)));
    BucketBuffer<KeyEntry> buffer(buckets);
    for (const KeyEntry& entry : entries) {
      TESSERA_RETURN_IF_ERROR(buffer.Put(BucketOfHash(entry.hash[0], buckets.count()), entry));
    }
    return buffer.Flush();
  });
}

Status SortRepeats(const std::string& hashes, const std::string& folder, const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(const RandomFile file, RandomFile::Open(hashes));
  int64_t last_number = 0;
  if (file.size() > 0) {
    KeyEntry last;
    TESSERA_RETURN_IF_ERROR(file.Read(file.size() - int64_t{sizeof(last)}, &last, sizeof(last)));
    last_number = last.number;
  }
  const int64_t num_buckets = BucketsFor(file.size());
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<BucketFiles> keys,
                           BucketFiles::Create(JoinPath(folder, "keys"), num_buckets));
  TESSERA_RETURN_IF_ERROR(PutEntries(file, *keys));
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<BucketFiles> repeats,
                           BucketFiles::Create(JoinPath(folder, "repeats.buckets"), num_buckets));
  TESSERA_RETURN_IF_ERROR(ParallelTasks(num_buckets, [&](int64_t bucket) -> Status {
    TESSERA_ASSIGN_OR_RETURN(std::vector<KeyEntry> entries, keys->Take<KeyEntry>(bucket));
    std::sort(entries.begin(), entries.end());
    BucketBuffer<Repeat> buffer(*repeats);
    for (size_t i = 1, first = 0; i < entries.size(); ++i) {
      if (!std::ranges::equal(entries[i].hash, entries[first].hash)) {
        first = i;
        continue;
      }
      const Repeat repeat = {entries[i].number, entries[i].unit, entries[first].number};
      TESSERA_RETURN_IF_ERROR(buffer.Put(repeat.number * num_buckets / (last_number + 1), repeat));
    }
    return buffer.Flush();
  }));
  keys = nullptr;
  TESSERA_ASSIGN_OR_RETURN(AtomicFile out, AtomicFile::Create(path));
  for (int64_t bucket = 0; bucket < num_buckets; ++bucket) {
    TESSERA_ASSIGN_OR_RETURN(std::vector<Repeat> sorted, repeats->Take<Repeat>(bucket));
    std::sort(sorted.begin(), sorted.end());
    TESSERA_RETURN_IF_ERROR(out.Append(sorted.data(), sorted.size() * sizeof(Repeat)));
  }
  return out.Commit();
}

}  // namespace

StatusOr<SortedFile<Repeat>> FindRepeats(const RepeatSearch& search, const RunContext& context) {
  const std::string hashes = JoinPath(search.folder, "hashes");
  const std::string path = JoinPath(search.folder, "repeats");
  TESSERA_RETURN_IF_ERROR(HashKeys(search, hashes, context));
  TESSERA_RETURN_IF_ERROR(
      OnFirstRank(context, [&] { return SortRepeats(hashes, search.folder, path); }));
  return SortedFile<Repeat>::Open(path);
}

}  // namespace tessera::corpus
