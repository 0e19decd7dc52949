// SPDX-License-Identifier: Apache-2.0
// `tessera corpus`: web text from crawl to training shards (corpus/), a command for each step.
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "core/thread_pool.h"
#include "corpus/pipeline/pipeline.h"
#include "corpus/step.h"
#include "dist/comm/world.h"
#include "dist/mesh/mesh.h"
#include "tools/command_line.h"
#include "tools/commands.h"
#include "tools/settings.h"
#include "train/ranks/agreement.h"
#include "train/ranks/run_on_ranks.h"

namespace tessera::tools {
namespace {

using Clock = std::chrono::steady_clock;

// One rank may sort for hours while the others wait.
constexpr double kCollectiveTimeout = 30 * 24 * 3600.0;
constexpr int kMostThreads = 4096;

struct CorpusFlags {
  int64_t threads = 0;
  double commit_seconds = 1;
  std::string pipeline;    // of `run`
  bool overwrite = false;  // of `run`: every step may overwrite
};

// "dedup: 120 of 1,000 MB, 95.2 MB/s, 9 s left", from the begin of each pass.
class ProgressLines {
 public:
  void operator()(const std::string& what, int64_t done, int64_t bytes) {
    if (what != what_) {
      what_ = what;
      begin_ = Clock::now();
      begin_bytes_ = done;
      return;
    }
    const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
    const double rate = static_cast<double>(done - begin_bytes_) / 1e6 / std::max(seconds, 1e-3);
    const double left = static_cast<double>(bytes - done) / 1e6 / std::max(rate, 1e-3);
    std::fprintf(stderr, "%s: %s of %s MB, %.1f MB/s, %.0f s left\n", what.c_str(),
                 WithThousands(done / 1000000).c_str(), WithThousands(bytes / 1000000).c_str(),
                 rate, left);
  }

 private:
  std::string what_;
  Clock::time_point begin_;
  int64_t begin_bytes_ = 0;
};

// What was counted, and last how many documents came in and out.
std::string Summary(corpus::Counts counts) {
  std::string text;
  for (const auto& [name, count] : counts) {
    if (name != "in" && name != "out" && count > 0) {
      text += Concat(name, ": ", WithThousands(count), "\n");
    }
  }
  return text + Concat(counts["in"], " in, ", counts["out"], " out\n");
}

using Run = std::function<StatusOr<corpus::Counts>(const corpus::RunContext& context)>;

// Blocks of a MiB come and go all the time: where each is asked of the system again, a pass that
// does little spends half of its time on pages that are new.
void KeepFreedMemory() {
  constexpr int kMostFree = 256 << 20;
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, kMostFree);
}

// On the ranks that this process was started with.
Status RunOn(const CorpusFlags& flags, const Run& run) {
  if (flags.threads > 0) SetNumThreads(static_cast<int>(flags.threads));
  KeepFreedMemory();
  TESSERA_ASSIGN_OR_RETURN(const dist::World world,
                           dist::OpenWorld({.collective_timeout = kCollectiveTimeout}));
  return train::RunOnRanks(world, [&]() -> Status {
    // Another rank may have been told something wrong (tools/program.cc).
    TESSERA_RETURN_IF_ERROR(train::Agree(dist::Mesh(world.communicator, {}), OkStatus()));
    corpus::RunContext context = {.ranks = world.communicator,
                                  .commit_seconds = flags.commit_seconds};
    if (context.is_first()) {
      context.progress = ProgressLines();
      context.say = [](const std::string& line) { WriteOut(line + "\n").IgnoreError(); };
    }
    TESSERA_ASSIGN_OR_RETURN(const corpus::Counts counts, run(context));
    return context.is_first() ? WriteOut(Summary(counts)) : OkStatus();
  });
}

// Settings of how a step or a pipeline runs.
OptionTable RunTable() {
  using F = CorpusFlags;
  OptionTable table = OptionTable::Of<F>("Options");
  table.Add("threads", &F::threads, "threads; 0: all cores", {.least = 0, .most = kMostThreads})
      .Add("commit_seconds", &F::commit_seconds,
           "seconds between the places from which a killed run continues", {.least = 0});
  return table;
}

void AddStepCommand(CLI::App* corpus, const corpus::Step& step, CommandState& state) {
  CLI::App* command = corpus->add_subcommand(step.name, step.help);
  auto fields = std::make_shared<FieldFlags>();
  for (const Option& option : step.table->options()) fields->Add(command, option);
  command->footer("Examples:\n" + step.example);
  RunWith<CorpusFlags>(command, state, RunTable(), {},
                       [&step, fields](const CLI::App& words, const CorpusFlags& flags) -> Status {
                         TESSERA_ASSIGN_OR_RETURN(const nlohmann::json given, fields->Given(words));
                         return RunOn(flags, [&](const corpus::RunContext& context) {
                           return step.run(given, context);
                         });
                       });
}

void AddPipelineCommand(CLI::App* corpus, CommandState& state) {
  CLI::App* command = corpus->add_subcommand("run", "Take the steps of a pipeline's file");
  OptionTable table = RunTable();
  table.Add("pipeline", &CorpusFlags::pipeline, "the file, JSON", {.type = "FILE"})
      .Add("overwrite", &CorpusFlags::overwrite, kOverwriteHelp);
  command->footer("Example:\n  tessera corpus run pipeline.json");
  RunWith<CorpusFlags>(
      command, state, std::move(table), {.by_place = {"pipeline"}, .required = {"pipeline"}},
      [](const CLI::App&, const CorpusFlags& flags) {
        return RunOn(flags, [&](const corpus::RunContext& context) {
          return corpus::RunPipeline(flags.pipeline, corpus::Steps(), context, flags.overwrite);
        });
      });
}

}  // namespace

NextValue CorpusGoesOnList(const std::string& flag, const std::string& word, bool) {
  std::string key = flag.substr(std::min<size_t>(2, flag.size()));
  std::replace(key.begin(), key.end(), '-', '_');
  const bool list = std::ranges::any_of(corpus::Steps(), [&](const corpus::Step& step) {
    const Option* option = step.table->FindByAnyName(key);
    return option != nullptr && option->kind == Option::Kind::kTexts;
  });
  return list && !word.empty() && word[0] != '-' ? NextValue::kAnotherFlag : NextValue::kNone;
}

void AddCorpusCommand(CLI::App& app, CommandState& state) {
  CLI::App* corpus =
      app.add_subcommand("corpus", "Prepare web text: from crawl to training shards");
  corpus->footer(
      "Each step reads files of documents and writes one; the same command continues where a "
      "killed\n"
      "one was, and does nothing where all is done. Under mpirun the ranks share the work. The "
      "last\n"
      "line says how many documents came in and out.");
  for (const corpus::Step& step : corpus::Steps()) AddStepCommand(corpus, step, state);
  AddPipelineCommand(corpus, state);
}

}  // namespace tessera::tools
