// SPDX-License-Identifier: Apache-2.0
// One pass over records: blocks of input become pieces of files, in the order of the blocks.
//
//   BlockRun run;
//   run.inputs = {"a.jsonl", "b.jsonl.gz"};
//   run.outputs = {"clean.jsonl.zst", "dropped.tsv"};
//   run.made_from = {{"step", "clean"}, {"min_tokens", 128}};
//   run.work = [&](const Block& block, BlockResult* result) { ...; return OkStatus(); };
//   TESSERA_ASSIGN_OR_RETURN(const Counts counts, RunBlocks(run, context));
//
// `work` is called from all threads at once, and what it gives must follow from the block alone.
// The outputs are then the same bytes for any number of threads and ranks. Where an output's name
// ends in .gz or .zst every block is a member or frame of its own.
//
// Until all is done an output is `<path>.part`, and `<first output>.journal` says how far it is:
// where the input continues, and how long each output was then. A run that was killed at any moment
// goes on there, if it is the same run (`made_from`, paths, sizes and times of the inputs); else it
// begins afresh. A run that is done and unchanged does nothing.
//
// On several ranks each takes its share of every round of blocks and writes to its place in the
// files, which all ranks must see.
#ifndef TESSERA_CORPUS_ENGINE_BLOCK_RUN_H_
#define TESSERA_CORPUS_ENGINE_BLOCK_RUN_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/json_member.h"
#include "base/status.h"
#include "core/communicator.h"
#include "corpus/io/record_reader.h"
#include "nlohmann/json_fwd.hpp"

namespace tessera::corpus {

// How a step is run; nothing of it changes what comes out.
struct RunContext {
  std::shared_ptr<Communicator> ranks = SingleProcessCommunicator();
  double commit_seconds = 1;  // between two entries of the journal; 0: one each round
  // Told how far a step is, now and then; null: nobody.
  std::function<void(const std::string& what, int64_t bytes_done, int64_t bytes)> progress =
      nullptr;
  // Told what a part of several has done, a line; null: nobody.
  std::function<void(const std::string& line)> say = nullptr;

  bool is_first() const { return ranks->rank() == 0; }
};

// What a run counts, by name: `in`, `out`, and what else `work` has counted.
using Counts = std::map<std::string, int64_t, std::less<>>;

struct BlockResult {
  std::vector<std::string> outputs;  // one for each of the run's
  Counts counts;
};

struct BlockRun {
  std::string name;  // for the progress
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
  bool whole_files = false;  // as RecordReader::Open has it
  JsonMember made_from;
  std::function<Status(const Block& block, BlockResult* result)> work;
};

StatusOr<Counts> RunBlocks(const BlockRun& run, const RunContext& context);

// The counts of a run that is done and unchanged, whose outputs are still there.
StatusOr<Counts> FindDone(const BlockRun& run);

// The outputs are those of `run`, whoever wrote them: FindDone will say so.
Status MarkDone(const BlockRun& run, const Counts& counts);

// The files that a step has written or is about to write, by its journal; none where that cannot be
// read.
std::set<std::string> FilesInJournal(const std::string& journal);

// Calls `body`, which has to make `run` done, unless it is done already. What `body` keeps in
// `folder` goes then.
StatusOr<Counts> RunOnce(const BlockRun& run, const std::string& folder, const RunContext& context,
                         const std::function<StatusOr<Counts>()>& body);

// Several runs one behind the other as one: `whole` has the inputs of the first and the outputs of
// the last, and counts what the first does. `last` does the rest, on one rank. What they keep in
// `folder` goes when all is done.
StatusOr<Counts> RunThrough(const BlockRun& whole, const std::vector<BlockRun>& stages,
                            const std::string& folder, const RunContext& context,
                            const std::function<Status()>& last = nullptr);

// Runs on rank 0 alone; the others wait and get its status.
Status OnFirstRank(const RunContext& context, const std::function<Status()>& body);

}  // namespace tessera::corpus

#endif  // TESSERA_CORPUS_ENGINE_BLOCK_RUN_H_
