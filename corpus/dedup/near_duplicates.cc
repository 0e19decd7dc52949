// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "absl/strings/str_format.h"
#include "base/file.h"
#include "base/json_text.h"
#include "base/output_files.h"
#include "corpus/dedup/dedup.h"
#include "corpus/dedup/fingerprints.h"
#include "corpus/dedup/similar_pairs.h"
#include "corpus/engine/scratch.h"
#include "corpus/engine/sorted_file.h"
#include "data/dataset/text_input.h"
#include "data/dataset/token_cache.h"

namespace tessera::corpus {
namespace {

using nlohmann::json;

constexpr char kStored[] = "fingerprints";  // the name of a saved set's files, in its folder
constexpr size_t kPairTextBytes = size_t{1} << 20;

// A document that goes, and the name, in a file of names, of the one of its group that stays.
struct Drop {
  int64_t number;
  int64_t id_offset;
  uint32_t id_bytes;
  uint32_t known;  // 1: that one was known before
};

// The stages' files.
struct Work {
  std::string folder;
  std::string Path(std::string_view name) const { return JoinPath(folder, name); }
};

// Signs the documents of `inputs`.
StatusOr<Counts> MakeFingerprints(const std::vector<std::string>& inputs, const std::string& prefix,
                                  const DedupOptions& options, const RunContext& context) {
  const MinHash hash(options.permutations);
  BlockRun run;
  run.name = "fingerprints";
  TESSERA_ASSIGN_OR_RETURN(run.inputs, data::ListInputFiles(inputs));
  run.outputs = FingerprintSet::Files(prefix);
  run.made_from = FingerprintSettings(options.permutations);
  run.made_from["text_key"] = options.text_key;
  run.work = [&](const Block& block, BlockResult* result) -> Status {
    ShingleReader reader;
    std::vector<uint64_t> shingles;
    ForEachDocument(block, options.text_key, [&](Document& document) {
      AddFingerprint(document, hash, &reader, &shingles, result->outputs);
    });
    return OkStatus();
  };
  return RunBlocks(run, context);
}

// Groups of documents, as a forest over their numbers.
class Groups {
 public:
  static StatusOr<Groups> Create(const std::string& folder, int64_t size) {
    TESSERA_ASSIGN_OR_RETURN(MappedBytes parents,
                             MappedBytes::Create(folder, size * int64_t{sizeof(int64_t)}));
    std::iota(parents.As<int64_t>().begin(), parents.As<int64_t>().end(), 0);
    return Groups(std::move(parents));
  }

  // The first of its group.
  int64_t First(int64_t i) const {
    const std::span<int64_t> parent = parents_.As<int64_t>();
    while (parent[static_cast<size_t>(i)] != i) {
      int64_t& above = parent[static_cast<size_t>(i)];
      above = parent[static_cast<size_t>(above)];
      i = above;
    }
    return i;
  }
  void Join(int64_t a, int64_t b) {
    const int64_t first_a = First(a), first_b = First(b);
    parents_.As<int64_t>()[static_cast<size_t>(std::max(first_a, first_b))] =
        std::min(first_a, first_b);
  }

 private:
  explicit Groups(MappedBytes parents) : parents_(std::move(parents)) {}
  MappedBytes parents_;
};

std::string SettingsPath(const DedupOptions& options) {
  return JoinPath(options.fingerprints, "settings.json");
}

// The known sets and, last, that of the input. What this very run (`key`) has added to the saved
// ones is not known to it: it gives the same when it is run again.
StatusOr<FingerprintSets> OpenSets(const DedupOptions& options, const Work& work, const json& key) {
  std::vector<std::string> prefixes;
  const std::string stored =
      options.fingerprints.empty() ? std::string() : JoinPath(options.fingerprints, kStored);
  if (!stored.empty() && IsDirectory(options.fingerprints)) prefixes.push_back(stored);
  if (!options.reference.empty()) prefixes.push_back(work.Path("reference"));
  prefixes.push_back(work.Path("input"));
  std::vector<FingerprintSet> sets;
  for (const std::string& prefix : prefixes) {
    TESSERA_ASSIGN_OR_RETURN(FingerprintSet set,
                             FingerprintSet::Open(prefix, options.permutations, work.folder));
    if (prefix == stored) {
      TESSERA_ASSIGN_OR_RETURN(const json settings, ReadJsonFile(SettingsPath(options)));
      if (settings.value("added_last", json()) == key) set.Shorten(settings.value("before", 0));
    }
    sets.push_back(std::move(set));
  }
  return FingerprintSets(std::move(sets));
}

Status WritePairs(const FingerprintSets& documents, std::span<const SimilarPair> pairs,
                  AtomicFile* file) {
  std::string text;
  for (const SimilarPair& pair : pairs) {
    for (const int64_t index : {pair.a, pair.b}) {
      const auto [set, place] = documents.Find(index);
      TESSERA_ASSIGN_OR_RETURN(const std::string id, set->Id(place));
      text += FieldText(id) + '\t';
    }
    absl::StrAppendFormat(&text, "%.6f\n", pair.jaccard);
    if (text.size() < kPairTextBytes) continue;
    TESSERA_RETURN_IF_ERROR(file->Append(text));
    text.clear();
  }
  return file->Append(text);
}

// Who of each group stays: one that is known, else by the rule. Nobody's entry is -1.
Status ChooseKept(const FingerprintSets& documents, const Groups& groups, const std::string& keep,
                  std::span<int64_t> kept) {
  for (int64_t i = 0; i < documents.size(); ++i) {
    const int64_t first = groups.First(i);
    if (first == i) kept[static_cast<size_t>(i)] = i;
    if (first == i || keep == "first" || first < documents.num_known()) continue;
    int64_t& best = kept[static_cast<size_t>(first)];
    const auto [set, place] = documents.Find(i);
    const auto [best_set, best_place] = documents.Find(best);
    TESSERA_ASSIGN_OR_RETURN(const FingerprintHead mine, set->Head(place));
    TESSERA_ASSIGN_OR_RETURN(const FingerprintHead theirs, best_set->Head(best_place));
    if (mine.text_bytes > theirs.text_bytes) best = i;
  }
  return OkStatus();
}

// Finds pairs, lists them, and writes which documents go.
Status FindDrops(const DedupOptions& options, const Bands& bands, const Work& work,
                 const json& key) {
  TESSERA_ASSIGN_OR_RETURN(const FingerprintSets documents, OpenSets(options, work, key));
  TESSERA_ASSIGN_OR_RETURN(Groups groups, Groups::Create(work.folder, documents.size()));
  std::optional<AtomicFile> list;
  if (!options.pairs.empty()) {
    TESSERA_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(options.pairs));
    list.emplace(std::move(file));
  }
  TESSERA_RETURN_IF_ERROR(FindSimilarPairs(
      documents, {.threshold = options.threshold, .bands = bands, .scratch = work.folder},
      [&](std::span<const SimilarPair> pairs) -> Status {
        for (const SimilarPair& pair : pairs) groups.Join(pair.a, pair.b);
        return list ? WritePairs(documents, pairs, &*list) : OkStatus();
      }));
  if (list) TESSERA_RETURN_IF_ERROR(list->Commit());
  TESSERA_ASSIGN_OR_RETURN(
      const MappedBytes kept,
      MappedBytes::Create(work.folder, documents.size() * int64_t{sizeof(int64_t)}));
  TESSERA_RETURN_IF_ERROR(ChooseKept(documents, groups, options.keep, kept.As<int64_t>()));
  TESSERA_ASSIGN_OR_RETURN(AtomicFile drops, AtomicFile::Create(work.Path("drops")));
  TESSERA_ASSIGN_OR_RETURN(AtomicFile ids, AtomicFile::Create(work.Path("kept_ids")));
  int64_t offset = 0;
  for (int64_t i = documents.num_known(); i < documents.size(); ++i) {
    const int64_t stays = kept.As<int64_t>()[static_cast<size_t>(groups.First(i))];
    if (stays == i) continue;
    TESSERA_ASSIGN_OR_RETURN(const FingerprintHead head,
                             documents.sets().back().Head(i - documents.num_known()));
    const auto [set, place] = documents.Find(stays);
    TESSERA_ASSIGN_OR_RETURN(const std::string id, set->Id(place));
    const Drop drop = {head.number, offset, static_cast<uint32_t>(id.size()),
                       stays < documents.num_known() ? 1u : 0u};
    TESSERA_RETURN_IF_ERROR(drops.Append(&drop, sizeof(drop)));
    TESSERA_RETURN_IF_ERROR(ids.Append(id));
    offset += std::ssize(id);
  }
  TESSERA_RETURN_IF_ERROR(ids.Commit());
  return drops.Commit();
}

Status CheckStore(const DedupOptions& options) {
  if (options.fingerprints.empty() || !PathExists(options.fingerprints)) return OkStatus();
  const std::string path = SettingsPath(options);
  TESSERA_ASSIGN_OR_RETURN(const json settings, ReadJsonFile(path));
  const json expected = FingerprintSettings(options.permutations);
  for (const auto& [key, value] : expected.items()) {
    if (settings.value(key, json()) != value) {
      return InvalidArgument(path, ": fingerprints of ", key, " ",
                             settings.value(key, json()).dump(), ", not ", value.dump());
    }
  }
  return OkStatus();
}

// The kept documents of the input go into a new folder, with all that the old one had.
Status AddToStore(const DedupOptions& options, const Work& work, const json& key) {
  const bool exists = PathExists(options.fingerprints);
  if (exists) {
    TESSERA_ASSIGN_OR_RETURN(const json known, ReadJsonFile(SettingsPath(options)));
    if (known.value("added_last", json()) == key) return OkStatus();
  }
  TESSERA_ASSIGN_OR_RETURN(const FingerprintSets documents, OpenSets(options, work, key));
  TESSERA_ASSIGN_OR_RETURN(const auto drops, SortedFile<Drop>::Open(work.Path("drops")));
  TESSERA_ASSIGN_OR_RETURN(AtomicDirectory folder, AtomicDirectory::Create(options.fingerprints));
  std::vector<AtomicFile> files;
  for (const std::string& path :
       FingerprintSet::Files(JoinPath(folder.temporary_path(), kStored))) {
    TESSERA_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
    files.push_back(std::move(file));
  }
  const auto copy = [&](const FingerprintSet& set, bool all) -> Status {
    for (int64_t i = 0; i < set.size(); ++i) {
      TESSERA_ASSIGN_OR_RETURN(const FingerprintHead head, set.Head(i));
      if (!all && !drops.Of(head.number).empty()) continue;
      std::vector<std::string> bytes(files.size());
      TESSERA_RETURN_IF_ERROR(set.AppendTo(i, bytes));
      for (size_t k = 0; k < files.size(); ++k) {
        TESSERA_RETURN_IF_ERROR(files[k].Append(bytes[k]));
      }
    }
    return OkStatus();
  };
  if (exists) TESSERA_RETURN_IF_ERROR(copy(documents.sets().front(), /*all=*/true));
  TESSERA_RETURN_IF_ERROR(copy(documents.sets().back(), /*all=*/false));
  for (AtomicFile& file : files) TESSERA_RETURN_IF_ERROR(file.Commit());
  json now = FingerprintSettings(options.permutations);
  now["added_last"] = key;
  now["before"] = exists ? documents.sets().front().size() : 0;
  TESSERA_RETURN_IF_ERROR(
      WriteFileAtomically(JoinPath(folder.temporary_path(), "settings.json"), now.dump() + "\n"));
  return exists ? folder.CommitReplacing() : folder.Commit();
}

// Between the fingerprints and the last pass: on one rank, once.
Status Decide(const DedupOptions& options, const Bands& bands, const Work& work, const json& key) {
  const std::string decided = work.Path("decided.json");
  const auto known = ReadJsonFile(decided);
  if (!known.ok() || *known != key) {
    TESSERA_RETURN_IF_ERROR(CheckStore(options));
    TESSERA_RETURN_IF_ERROR(FindDrops(options, bands, work, key));
    if (!options.pairs.empty()) TESSERA_RETURN_IF_ERROR(RemoveHalfWritten(options.pairs));
    TESSERA_RETURN_IF_ERROR(WriteFileAtomically(decided, key.dump()));
  }
  if (options.fingerprints.empty()) return OkStatus();
  TESSERA_RETURN_IF_ERROR(AddToStore(options, work, key));
  return RemoveHalfWritten(options.fingerprints);
}

}  // namespace

StatusOr<Counts> DropNearDuplicates(const DedupOptions& options, const RunContext& context) {
  Bands bands = BandsFor(options.threshold, options.permutations);
  if (options.rows) bands = {options.permutations / *options.rows, *options.rows};
  const Work work = {options.output + ".work"};
  DocumentPass pass;
  pass.name = "dedup";
  pass.files = options;
  pass.made_from = {
      {"by", "near"},           {"threshold", options.threshold},       {"keep", options.keep},
      {"pairs", options.pairs}, {"permutations", options.permutations}, {"bands", bands.bands},
      {"rows", bands.rows},     {"fingerprints", options.fingerprints}};
  if (!options.reference.empty()) {
    TESSERA_ASSIGN_OR_RETURN(const auto files, data::ListInputFiles(options.reference));
    TESSERA_ASSIGN_OR_RETURN(pass.made_from["reference"], data::DescribeFiles(files));
  }
  TESSERA_ASSIGN_OR_RETURN(const BlockRun run, MakeBlockRun(pass));
  BlockRun whole = run;
  if (!options.pairs.empty()) whole.outputs.push_back(options.pairs);
  return RunOnce(whole, work.folder, context, [&]() -> StatusOr<Counts> {
    TESSERA_RETURN_IF_ERROR(OnFirstRank(context, [&] { return MakeDirectories(work.folder); }));
    if (!options.reference.empty()) {
      TESSERA_RETURN_IF_ERROR(
          MakeFingerprints(options.reference, work.Path("reference"), options, context).status());
    }
    TESSERA_RETURN_IF_ERROR(
        MakeFingerprints(options.input, work.Path("input"), options, context).status());
    TESSERA_ASSIGN_OR_RETURN(const json inputs, data::DescribeFiles(run.inputs));
    TESSERA_RETURN_IF_ERROR(OnFirstRank(context, [&] {
      return Decide(options, bands, work, {{"run", pass.made_from}, {"inputs", inputs}});
    }));
    TESSERA_ASSIGN_OR_RETURN(const auto drops, SortedFile<Drop>::Open(work.Path("drops")));
    TESSERA_ASSIGN_OR_RETURN(const RandomFile ids, RandomFile::Open(work.Path("kept_ids")));
    pass.apply = [&](Document& document, Counts*) -> Verdict {
      const std::span<const Drop> gone = drops.Of(document.number);
      if (gone.empty()) return {};
      std::string id(gone[0].id_bytes, '\0');
      Status read = ids.Read(gone[0].id_offset, id.data(), id.size());
      return {gone[0].known != 0 ? "near_known" : "near_duplicate", id, std::move(read)};
    };
    TESSERA_ASSIGN_OR_RETURN(const Counts counts, RunDocuments(pass, context));
    TESSERA_RETURN_IF_ERROR(OnFirstRank(context, [&] { return MarkDone(whole, counts); }));
    return counts;
  });
}

}  // namespace tessera::corpus
