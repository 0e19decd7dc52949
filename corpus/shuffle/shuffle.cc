// SPDX-License-Identifier: Apache-2.0
#include "corpus/shuffle/shuffle.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "corpus/engine/hash.h"
#include "corpus/engine/scratch.h"
#include "data/dataset/byte_source.h"

namespace tessera::corpus {
namespace {

constexpr int64_t kBucketBytes = int64_t{8} << 20;
constexpr int64_t kMostBuckets = 512;
constexpr int64_t kInflation = 5;  // what compressed text becomes, about

// Before each line of a bucket.
struct LineHead {
  uint64_t key;
  int64_t number;
  int64_t size;
  auto operator<=>(const LineHead&) const = default;
};

int64_t NumBuckets(const std::vector<std::string>& inputs) {
  int64_t bytes = 0;
  for (const std::string& path : inputs) {
    std::error_code error;
    const auto size = static_cast<int64_t>(std::filesystem::file_size(path, error));
    if (!error)
      bytes += data::CompressionOfName(path) == data::Compression::kNone ? size : kInflation * size;
  }
  return std::clamp<int64_t>(bytes / kBucketBytes, 1, kMostBuckets);
}

// The lines of a bucket by their keys.
Status SortBucket(std::string_view bytes, const std::string& text_key, AppendDocument append,
                  BlockResult* result) {
  std::vector<std::pair<LineHead, std::string_view>> lines;
  while (bytes.size() >= sizeof(LineHead)) {
    LineHead head;
    std::memcpy(&head, bytes.data(), sizeof(head));
    bytes.remove_prefix(sizeof(head));
    const auto size = static_cast<size_t>(head.size);
    if (size > bytes.size()) return DataLoss("a bucket ends within a line");
    lines.emplace_back(head, bytes.substr(0, size));
    bytes.remove_prefix(size);
  }
  std::ranges::sort(lines);
  for (const auto& [head, line] : lines) {
    Document document;
    document.number = head.number;
    if (document.Parse(line, text_key) != nullptr) {
      return DataLoss("a bucket has a line that is no document");
    }
    append(document, &result->outputs[0]);
  }
  return OkStatus();
}

}  // namespace

const OptionTable& ShuffleOptions::Table() {
  static const auto* const table = new OptionTable(
      OptionTable::Of<ShuffleOptions>("Shuffling")
          .Include<ShuffleOptions, StepFiles>()
          .Add("seed", &ShuffleOptions::seed, "another one is another order", {.least = 0}));
  return *table;
}

StatusOr<Counts> RunShuffle(const ShuffleOptions& options, const RunContext& context) {
  const std::string folder = options.output + ".work";
  DocumentPass scatter;
  scatter.name = "shuffle";
  static_cast<StepFiles&>(scatter.files) = options;
  scatter.made_from = {{"seed", options.seed}};
  // What it gives is the last pass's as well: documents that can be read, and which cannot.
  TESSERA_ASSIGN_OR_RETURN(BlockRun whole, MakeBlockRun(scatter));
  const int64_t num_buckets = NumBuckets(whole.inputs);
  BlockRun first = whole;
  first.name = "shuffle, scatter";
  first.outputs.clear();
  for (int64_t i = 0; i < num_buckets; ++i) {
    first.outputs.push_back(JoinPath(folder, Concat("bucket-", i)));
  }
  first.work = [&](const Block& block, BlockResult* result) -> Status {
    CountDocuments(block, options.text_key, &result->counts, [&](Document& document) {
      std::string line;
      document.AppendLine(&line);
      line.pop_back();
      const uint64_t key = Fold(static_cast<uint64_t>(options.seed) ^ kHashA,
                                static_cast<uint64_t>(document.number) ^ kHashB);
      const uint64_t mixed = Fold(key ^ kHashB, kHashA);
      const LineHead head = {mixed, document.number, std::ssize(line)};
      std::string& bucket = result->outputs[static_cast<size_t>(BucketOfHash(mixed, num_buckets))];
      bucket.append(reinterpret_cast<const char*>(&head), sizeof(head));
      bucket += line;
      return true;
    });
    return OkStatus();
  };
  BlockRun second;
  second.name = "shuffle, gather";
  second.whole_files = true;
  second.inputs = first.outputs;
  second.outputs = whole.outputs;
  const AppendDocument append = AppendFor(options.output);
  second.work = [&](const Block& block, BlockResult* result) {
    return SortBucket(block.bytes, options.text_key, append, result);
  };
  return RunThrough(whole, {first, second}, folder, context);
}

}  // namespace tessera::corpus
