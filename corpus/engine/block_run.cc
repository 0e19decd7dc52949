// SPDX-License-Identifier: Apache-2.0
#include "corpus/engine/block_run.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <future>
#include <set>
#include <utility>

#include "base/file.h"
#include "base/json_text.h"
#include "base/open_file.h"
#include "base/output_files.h"
#include "core/thread_pool.h"
#include "data/dataset/byte_source.h"
#include "data/dataset/token_cache.h"
#include "dist/comm/agreement.h"

namespace tessera::corpus {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

// Blocks of a round on each rank: enough for the threads to even out, few enough to be held.
constexpr int64_t kLeastBlocks = 16;
constexpr int64_t kBlocksOfThread = 4;
constexpr double kProgressSeconds = 1;

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// An output while it is written: all ranks have it open.
class PartFile {
 public:
  static StatusOr<PartFile> Open(const std::string& path, bool create) {
    const std::string part = path + ".part";
    const int fd = OpenFile(part, O_RDWR | (create ? O_CREAT : 0), 0666);
    if (fd < 0) return SystemFailure(errno, part, ": cannot write");
    return PartFile(path, fd);
  }
  PartFile(PartFile&& other) noexcept
      : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}
  PartFile& operator=(PartFile&&) = delete;
  ~PartFile() {
    if (fd_ >= 0) close(fd_);
  }

  Status CutTo(int64_t size) const {
    if (TEMP_FAILURE_RETRY(ftruncate(fd_, size)) == 0) return OkStatus();
    return SystemFailure(errno, path_, ": cannot write");
  }
  Status Write(std::string_view bytes, int64_t offset) const {
    while (!bytes.empty()) {
      const ssize_t n = pwrite(fd_, bytes.data(), bytes.size(), offset);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return SystemFailure(errno, path_, ": cannot write");
      bytes.remove_prefix(static_cast<size_t>(n));
      offset += n;
    }
    return OkStatus();
  }
  Status Sync() const {
    if (TEMP_FAILURE_RETRY(fdatasync(fd_)) == 0) return OkStatus();
    return SystemFailure(errno, path_, ": cannot write");
  }

 private:
  PartFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  std::string path_;
  int fd_;
};

int64_t SizeOf(const std::string& path) {
  struct stat status;
  return stat(path.c_str(), &status) == 0 ? status.st_size : -1;
}

std::string JournalOf(const BlockRun& run) { return run.outputs[0] + ".journal"; }

// What the outputs follow from.
StatusOr<json> MadeFrom(const BlockRun& run) {
  TESSERA_ASSIGN_OR_RETURN(const json inputs, data::DescribeFiles(run.inputs));
  return json{{"run", run.made_from}, {"inputs", inputs}, {"outputs", run.outputs}};
}

// How far a run is.
struct Progress {
  ReadPosition position;
  std::vector<int64_t> lengths;
  Counts counts;
};

StatusOr<Progress> ReadProgress(const json& journal, size_t num_outputs) {
  Progress progress;
  TESSERA_ASSIGN_OR_RETURN(progress.position,
                           ReadPosition::FromJson(journal.value("position", json())));
  const json lengths = journal.value("lengths", json::array());
  if (!lengths.is_array() || lengths.size() != num_outputs) return DataLoss("lengths are missing");
  for (const json& length : lengths) {
    if (!length.is_number_integer()) return DataLoss("a length that is none");
    progress.lengths.push_back(length);
  }
  const json counts = journal.value("counts", json::object());
  for (const auto& [name, count] : counts.items()) {
    if (!count.is_number_integer()) return DataLoss("a count that is none");
    progress.counts[name] = count;
  }
  return progress;
}

// The journal of this run; nothing where there is none, or another run's, or a damaged one.
std::optional<json> ReadJournal(const BlockRun& run, const json& made_from) {
  if (!PathExists(JournalOf(run))) return std::nullopt;
  StatusOr<json> journal = ReadJsonFile(JournalOf(run));
  if (!journal.ok() || !journal->is_object()) return std::nullopt;
  if (journal->value("made_from", json()) != made_from) return std::nullopt;
  return *std::move(journal);
}

// All outputs of the step so far: this run may be one of its parts, and their journals lie under
// one name where the first output is the same.
std::set<std::string> WrittenBy(const BlockRun& run) {
  std::set<std::string> written = FilesInJournal(JournalOf(run));
  written.insert(run.outputs.begin(), run.outputs.end());
  return written;
}

Status WriteJournal(const BlockRun& run, const json& made_from, const Progress& progress,
                    bool done) {
  const json journal = {{"made_from", made_from},
                        {"written", WrittenBy(run)},
                        {"done", done},
                        {"position", progress.position.ToJson()},
                        {"lengths", progress.lengths},
                        {"counts", progress.counts}};
  return WriteFileAtomically(JournalOf(run), journal.dump() + "\n");
}

std::optional<Counts> DoneCounts(const BlockRun& run, const json& journal) {
  if (!journal.value("done", false)) return std::nullopt;
  const auto progress = ReadProgress(journal, run.outputs.size());
  if (!progress.ok()) return std::nullopt;
  for (size_t i = 0; i < run.outputs.size(); ++i) {
    if (SizeOf(run.outputs[i]) != progress->lengths[i]) return std::nullopt;
  }
  return progress->counts;
}

// Rank 0 makes the outputs what the journal says, or begins afresh.
StatusOr<Progress> Prepare(const BlockRun& run, const json& made_from) {
  Progress progress;
  progress.lengths.assign(run.outputs.size(), 0);
  const std::optional<json> journal = ReadJournal(run, made_from);
  bool goes_on = journal.has_value() && !journal->value("done", false);
  if (goes_on) {
    auto read = ReadProgress(*journal, run.outputs.size());
    goes_on = read.ok();
    for (size_t i = 0; goes_on && i < run.outputs.size(); ++i) {
      const std::string& path = run.outputs[i];
      // The end may have been reached, and the name been given already.
      if (!PathExists(path + ".part") && SizeOf(path) == read->lengths[i]) {
        goes_on = rename(path.c_str(), (path + ".part").c_str()) == 0;
      }
      goes_on = goes_on && SizeOf(path + ".part") >= read->lengths[i];
    }
    if (goes_on) progress = *std::move(read);
  }
  for (size_t i = 0; i < run.outputs.size(); ++i) {
    const std::string& path = run.outputs[i];
    const size_t slash = path.rfind('/');
    if (slash != std::string::npos && slash > 0) {
      TESSERA_RETURN_IF_ERROR(MakeDirectories(path.substr(0, slash)));
    }
    TESSERA_ASSIGN_OR_RETURN(const PartFile part, PartFile::Open(path, /*create=*/true));
    TESSERA_RETURN_IF_ERROR(part.CutTo(progress.lengths[i]));
  }
  TESSERA_RETURN_IF_ERROR(WriteJournal(run, made_from, progress, /*done=*/false));
  return progress;
}

// The blocks of this rank in a round, and where the next round begins.
struct Round {
  std::vector<Block> blocks;
  ReadPosition next;
  bool last = false;
  int64_t bytes_read = 0;
};

StatusOr<Round> ReadRound(RecordReader& reader, int64_t blocks_of_rank, const RunContext& context) {
  Round round;
  const int64_t mine = context.ranks->rank() * blocks_of_rank;
  for (int64_t i = 0; i < context.ranks->size() * blocks_of_rank; ++i) {
    Block block;
    TESSERA_ASSIGN_OR_RETURN(const bool more, reader.Next(&block));
    round.last = !more;
    if (!more) break;
    if (i >= mine && i < mine + blocks_of_rank) round.blocks.push_back(std::move(block));
  }
  round.next = reader.position();
  round.bytes_read = reader.bytes_read();
  return round;
}

// All blocks of a round through `work`, compressed as the outputs are.
StatusOr<BlockResult> WorkOn(const BlockRun& run, const Round& round) {
  std::vector<BlockResult> results(round.blocks.size());
  std::vector<Status> statuses(round.blocks.size());
  ParallelFor(std::ssize(round.blocks), 1, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      results[i].outputs.resize(run.outputs.size());
      statuses[i] = run.work(round.blocks[i], &results[i]);
      for (size_t k = 0; k < run.outputs.size(); ++k) {
        std::string& bytes = results[i].outputs[k];
        const data::Compression compression = data::CompressionOfName(run.outputs[k]);
        if (compression != data::Compression::kNone && !bytes.empty()) {
          bytes = data::Compressed(bytes, compression);
        }
      }
    }
  });
  BlockResult all;
  all.outputs.resize(run.outputs.size());
  for (size_t i = 0; i < results.size(); ++i) {
    TESSERA_RETURN_IF_ERROR(statuses[i]);
    for (size_t k = 0; k < run.outputs.size(); ++k) all.outputs[k] += results[i].outputs[k];
    for (const auto& [name, count] : results[i].counts) all.counts[name] += count;
  }
  return all;
}

class Runner {
 public:
  Runner(const BlockRun& run, const RunContext& context) : run_(run), context_(context) {}

  StatusOr<Counts> Run() {
    TESSERA_ASSIGN_OR_RETURN(made_from_, MadeFrom(run_));
    TESSERA_RETURN_IF_ERROR(Begin());
    if (done_) return *done_;
    for (const std::string& path : run_.outputs) {
      TESSERA_ASSIGN_OR_RETURN(PartFile part, PartFile::Open(path, /*create=*/false));
      parts_.push_back(std::move(part));
    }
    TESSERA_RETURN_IF_ERROR(Pass());
    TESSERA_RETURN_IF_ERROR(dist::AgreeOnStatus(*context_.ranks, Sync()));
    TESSERA_RETURN_IF_ERROR(OnFirstRank(context_, [&] { return Finish(); }));
    return progress_.counts;
  }

 private:
  // All ranks learn from rank 0 how far the run is.
  Status Begin() {
    std::string told;
    TESSERA_RETURN_IF_ERROR(OnFirstRank(context_, [&]() -> Status {
      const std::optional<json> journal = ReadJournal(run_, made_from_);
      if (journal) done_ = DoneCounts(run_, *journal);
      json all = {{"done", done_.has_value()}};
      if (done_) {
        all["counts"] = *done_;
      } else {
        TESSERA_ASSIGN_OR_RETURN(progress_, Prepare(run_, made_from_));
        all["position"] = progress_.position.ToJson();
        all["lengths"] = progress_.lengths;
        all["counts"] = progress_.counts;
      }
      told = all.dump();
      return OkStatus();
    }));
    TESSERA_ASSIGN_OR_RETURN(const json all, ParseJson(dist::BroadcastString(*context_.ranks, told),
                                                       "what rank 0 told"));
    if (all["done"]) {
      done_ = all["counts"].get<Counts>();
      return OkStatus();
    }
    TESSERA_ASSIGN_OR_RETURN(progress_, ReadProgress(all, run_.outputs.size()));
    return OkStatus();
  }

  Status Pass() {
    TESSERA_ASSIGN_OR_RETURN(const auto reader,
                             RecordReader::Open(run_.inputs, progress_.position, run_.whole_files));
    int64_t blocks = run_.whole_files
                         ? NumThreads()
                         : std::max<int64_t>(kLeastBlocks, kBlocksOfThread * NumThreads());
    for (const std::string& text : dist::GatherStrings(*context_.ranks, std::to_string(blocks))) {
      blocks = std::max<int64_t>(blocks, std::stoll(text));
    }
    const auto read = [&] { return ReadRound(*reader, blocks, context_); };
    TESSERA_ASSIGN_OR_RETURN(Round round, read());
    for (;;) {
      std::future<StatusOr<Round>> ahead;
      if (!round.last) ahead = std::async(std::launch::async, read);
      const StatusOr<BlockResult> result = WorkOn(run_, round);
      const Status status = result.ok() ? Put(*result, round) : result.status();
      Tell(round.bytes_read, reader->bytes_in_all());
      if (round.last) return status;
      StatusOr<Round> next = ahead.get();
      TESSERA_RETURN_IF_ERROR(status);
      TESSERA_RETURN_IF_ERROR(next.status());
      round = *std::move(next);
    }
  }

  void Tell(int64_t bytes_done, int64_t bytes) {
    if (!context_.progress || SecondsSince(last_told_) < kProgressSeconds) return;
    last_told_ = Clock::now();
    context_.progress(run_.name, bytes_done, bytes);
  }

  // Writes what this rank has behind what the ranks before it have.
  Status Put(const BlockResult& result, const Round& round) {
    json mine = {{"counts", result.counts}, {"lengths", json::array()}};
    for (const std::string& bytes : result.outputs) mine["lengths"].push_back(bytes.size());
    // Ten times what it takes at least: what is asked for often must not cost much.
    mine["commit"] =
        SecondsSince(last_commit_) >= std::max(context_.commit_seconds, 10 * commit_costs_);
    const std::vector<std::string> all = dist::GatherStrings(*context_.ranks, mine.dump());
    bool commit = false;
    for (size_t rank = 0; rank < all.size(); ++rank) {
      TESSERA_ASSIGN_OR_RETURN(const json told, ParseJson(all[rank], "what a rank told"));
      if (rank == 0) commit = told["commit"];
      for (size_t i = 0; i < parts_.size(); ++i) {
        if (static_cast<int>(rank) == context_.ranks->rank()) {
          TESSERA_RETURN_IF_ERROR(parts_[i].Write(result.outputs[i], progress_.lengths[i]));
        }
        progress_.lengths[i] += told["lengths"][i].get<int64_t>();
      }
      for (const auto& [name, count] : told["counts"].items()) {
        progress_.counts[name] += count.get<int64_t>();
      }
    }
    progress_.position = round.next;
    return commit ? Commit() : OkStatus();
  }

  Status Commit() {
    const Clock::time_point begin = Clock::now();
    // The journal speaks of what all ranks have on the disk.
    TESSERA_RETURN_IF_ERROR(dist::AgreeOnStatus(*context_.ranks, Sync()));
    TESSERA_RETURN_IF_ERROR(OnFirstRank(
        context_, [&] { return WriteJournal(run_, made_from_, progress_, /*done=*/false); }));
    last_commit_ = Clock::now();
    commit_costs_ = context_.commit_seconds > 0 ? SecondsSince(begin) : 0;
    return OkStatus();
  }

  Status Sync() const {
    for (const PartFile& part : parts_) TESSERA_RETURN_IF_ERROR(part.Sync());
    return OkStatus();
  }

  // What was cut off or replaced while this run read it has given some of its documents alone.
  Status CheckInputs() const {
    TESSERA_ASSIGN_OR_RETURN(const json now, MadeFrom(run_));
    const json& before = made_from_["inputs"]["inputs"];
    const json& after = now["inputs"]["inputs"];
    for (size_t i = 0; i < std::min(before.size(), after.size()); ++i) {
      if (before[i] != after[i]) {
        return Failure(StatusCode::kAborted, run_.inputs[i],
                       ": changed while it was read; the same command begins anew");
      }
    }
    return OkStatus();
  }

  Status Finish() {
    TESSERA_RETURN_IF_ERROR(CheckInputs());
    for (size_t i = 0; i < parts_.size(); ++i) {
      // Compressed files have one member at least.
      const data::Compression compression = data::CompressionOfName(run_.outputs[i]);
      if (progress_.lengths[i] == 0 && compression != data::Compression::kNone) {
        const std::string nothing = data::Compressed("", compression);
        TESSERA_RETURN_IF_ERROR(parts_[i].Write(nothing, 0));
        progress_.lengths[i] = std::ssize(nothing);
      }
      TESSERA_RETURN_IF_ERROR(parts_[i].CutTo(progress_.lengths[i]));
    }
    TESSERA_RETURN_IF_ERROR(Sync());
    TESSERA_RETURN_IF_ERROR(WriteJournal(run_, made_from_, progress_, /*done=*/false));
    for (const std::string& path : run_.outputs) {
      if (rename((path + ".part").c_str(), path.c_str()) != 0) {
        return SystemFailure(errno, path, ": cannot write");
      }
    }
    TESSERA_RETURN_IF_ERROR(RemoveHalfWritten(JournalOf(run_)));
    return WriteJournal(run_, made_from_, progress_, /*done=*/true);
  }

  const BlockRun& run_;
  const RunContext& context_;
  json made_from_;
  std::optional<Counts> done_;
  Progress progress_;
  std::vector<PartFile> parts_;
  Clock::time_point last_commit_ = Clock::now();
  double commit_costs_ = 0;
  Clock::time_point last_told_ = Clock::now();
};

}  // namespace

std::set<std::string> FilesInJournal(const std::string& journal) {
  std::set<std::string> files;
  const auto read = ReadJsonFile(journal);
  if (!read.ok() || !read->is_object()) return files;
  const json made_from = read->value("made_from", json::object());
  for (const json& list : {read->value("written", json()),
                           made_from.is_object() ? made_from.value("outputs", json()) : json()}) {
    if (!list.is_array()) continue;
    for (const json& file : list) {
      if (file.is_string()) files.insert(file.get<std::string>());
    }
  }
  return files;
}

StatusOr<Counts> RunBlocks(const BlockRun& run, const RunContext& context) {
  return Runner(run, context).Run();
}

StatusOr<Counts> FindDone(const BlockRun& run) {
  TESSERA_ASSIGN_OR_RETURN(const json made_from, MadeFrom(run));
  const std::optional<json> journal = ReadJournal(run, made_from);
  std::optional<Counts> counts;
  if (journal) counts = DoneCounts(run, *journal);
  if (!counts) return NotFound(JournalOf(run), ": not done");
  return *std::move(counts);
}

Status MarkDone(const BlockRun& run, const Counts& counts) {
  TESSERA_ASSIGN_OR_RETURN(const json made_from, MadeFrom(run));
  Progress progress;
  progress.counts = counts;
  for (const std::string& output : run.outputs) {
    progress.lengths.push_back(SizeOf(output));
    TESSERA_RETURN_IF_ERROR(RemoveHalfWritten(output));
  }
  TESSERA_RETURN_IF_ERROR(RemoveHalfWritten(JournalOf(run)));
  return WriteJournal(run, made_from, progress, /*done=*/true);
}

StatusOr<Counts> RunOnce(const BlockRun& run, const std::string& folder, const RunContext& context,
                         const std::function<StatusOr<Counts>()>& body) {
  StatusOr<Counts> counts = FindDone(run);
  // A journal, so that the folder and the outputs of a run that fails are known as a step's own
  // (StepOutputs::Take).
  if (!counts.ok()) {
    TESSERA_RETURN_IF_ERROR(OnFirstRank(context, [&]() -> Status {
      const std::set<std::string> known = FilesInJournal(JournalOf(run));
      if (std::ranges::all_of(run.outputs,
                              [&](const std::string& file) { return known.contains(file); })) {
        return OkStatus();
      }
      TESSERA_ASSIGN_OR_RETURN(const json made_from, MadeFrom(run));
      Progress nothing;
      nothing.lengths.assign(run.outputs.size(), 0);
      return WriteJournal(run, made_from, nothing, /*done=*/false);
    }));
    counts = body();
  }
  TESSERA_RETURN_IF_ERROR(counts.status());
  TESSERA_RETURN_IF_ERROR(OnFirstRank(context, [&] { return RemoveAll(folder); }));
  return counts;
}

StatusOr<Counts> RunThrough(const BlockRun& whole, const std::vector<BlockRun>& stages,
                            const std::string& folder, const RunContext& context,
                            const std::function<Status()>& last) {
  return RunOnce(whole, folder, context, [&]() -> StatusOr<Counts> {
    Counts counts;
    for (size_t i = 0; i < stages.size(); ++i) {
      TESSERA_ASSIGN_OR_RETURN(Counts of_stage, RunBlocks(stages[i], context));
      if (i == 0) counts = std::move(of_stage);
    }
    TESSERA_RETURN_IF_ERROR(OnFirstRank(context, [&]() -> Status {
      if (last != nullptr) TESSERA_RETURN_IF_ERROR(last());
      return MarkDone(whole, counts);
    }));
    return counts;
  });
}

Status OnFirstRank(const RunContext& context, const std::function<Status()>& body) {
  return dist::AgreeOnStatus(*context.ranks, context.is_first() ? body() : OkStatus());
}

}  // namespace tessera::corpus
