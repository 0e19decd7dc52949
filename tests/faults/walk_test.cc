// SPDX-License-Identifier: Apache-2.0
// Commands that write, and the Nth of their calls for files that fails, is cut short, waits or is
// the last: each ends well with the output of an undisturbed run, or says in one line which file it
// was; what existed before is whole; and the same command again gives the undisturbed output, bit
// for bit.
//
// An ordinary run takes a few calls of each row. TESSERA_FAULT_WALKS=all takes every call, and a
// number so many of each row; --gtest_filter='*quantize*' one command.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/faults/fault_run.h"
#include "tests/process/process.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Arguments = std::vector<std::string>;

// ---- What goes wrong
// -----------------------------------------------------------------------------

// All that changes what is on the disk.
constexpr char kChanges[] = "create,write,sync,rename,unlink,mkdir,truncate,close";
// What needs room there.
constexpr char kTakesRoom[] = "create,write,sync,rename,mkdir,close";
constexpr char kReads[] = "open,read,map,list,lock";

struct Row {
  std::string name;
  Fault fault;
  bool absorbed = false;  // the command ends well in any case
};

std::vector<Row> Rows() {
  return {
      {"no_space", {.kinds = kTakesRoom, .how = "ENOSPC"}},
      {"no_space_any_more", {.kinds = kTakesRoom, .how = "ENOSPC", .onwards = true}},
      {"quota", {.kinds = kTakesRoom, .how = "EDQUOT"}},
      {"failing_disk", {.kinds = kChanges, .how = "EIO"}},
      {"read_only", {.kinds = kChanges, .how = "EROFS", .onwards = true}},
      {"vanished", {.kinds = "open,create,rename,list,mkdir", .how = "ENOENT"}},
      {"unreadable", {.kinds = kReads, .how = "EIO"}},
      {"unseen", {.kinds = "stat", .how = "EIO"}},
      {"cut_short", {.kinds = "read", .how = "end"}},
      {"partial", {.kinds = "read,write", .how = "short"}, /*absorbed=*/true},
      {"interrupted", {.kinds = "open,create,read,write", .how = "EINTR"}, /*absorbed=*/true},
      {"slow", {.kinds = "sync,rename", .how = "delay:20"}, /*absorbed=*/true},
      {"killed", {.kinds = kChanges, .how = "kill"}},
      {"torn", {.kinds = "write", .how = "tear"}},
  };
}

// ---- Commands
// ------------------------------------------------------------------------------------

struct Command {
  std::string name;
  Arguments arguments;   // the output is root/out
  Arguments again = {};  // what is added when it is run again
  // Makes what exists before; nullptr: nothing does.
  std::function<void()> prepare = nullptr;
  std::string rank = "";  // the one that meets the fault
};

class WalkTest : public testing::TestWithParam<std::string> {
 protected:
  static void SetUpTestSuite() {
    // As the system spells it: paths of open files are compared with it.
    root_ = fs::weakly_canonical(testing::TempDir()).string() + "/walk_test";
    fs::remove_all(root_);
    fs::create_directories(root_ + "/tiny");
    std::ofstream text(root_ + "/text.txt");
    for (int i = 0; i < 300; ++i) {
      text << "line " << i % 17 << " of the song, sung " << i % 5 << " times\n";
    }
    text.close();
    std::ofstream(root_ + "/tiny/config.json")
        << R"({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 257,)"
        << R"( "n_positions": 32, "n_embd": 32, "n_layer": 1, "n_head": 2})";
    std::ofstream documents(root_ + "/documents.jsonl");
    for (int i = 0; i < 60; ++i) {
      documents << R"({"url": "http://a.org/)" << i << R"(", "text": ")";
      for (int k = 0; k < 40; ++k) documents << "the word" << (i % 40 * 7 + k * k) % 300 << " is ";
      documents << "\"}\n";
    }
    documents.close();
    std::ofstream(root_ + "/pipeline.json")
        << R"({"input": [")" << root_ << R"(/documents.jsonl"], "folder": ")" << Out() << R"(",)"
        << R"("steps": [{"step": "clean", "min_tokens": 20}, {"step": "dedup", "threshold": 0.7},)"
        << R"({"step": "shuffle"}, {"step": "tokenize", "tokenizer": "byte"}]})";
  }
  static void TearDownTestSuite() { fs::remove_all(root_); }

  static std::string Out() { return root_ + "/out"; }
  static std::string Log() { return root_ + "/calls"; }

  static Arguments Train(const Arguments& more = {}) {
    Arguments arguments = {"train",           root_ + "/tiny",
                           "--data",          root_ + "/text.txt",
                           "--out",           Out(),
                           "--tokenizer",     "byte",
                           "--max-steps",     "3",
                           "--seq-len",       "16",
                           "--batch-size",    "2",
                           "--dropout",       "0.1",
                           "--threads",       "1",
                           "--save-interval", "1",
                           "--log-interval",  "1",
                           "--eval-batches",  "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  // Folders that several walks read, made by the first that does.
  static std::string Model() {
    const std::string model = root_ + "/model";
    if (!fs::exists(model)) {
      fs::remove_all(Out());
      RunWell(Train());
      fs::rename(Out() + "/model", model);
    }
    return model;
  }
  static std::string Adapter() {
    const std::string adapter = root_ + "/adapter";
    if (!fs::exists(adapter)) {
      Arguments train = Train({"--adapter", "lora", "--lora-r", "2"});
      train[1] = Model();
      fs::remove_all(Out());
      RunWell(train);
      fs::rename(Out() + "/model", adapter);
    }
    return adapter;
  }

  static void RunWell(const Arguments& arguments) {
    Process run(arguments, root_ + "/run");
    ASSERT_EQ(run.ExitCode(), 0) << run.Errors();
  }

  static Command CommandNamed(const std::string& name);
  static void PrepareKilledRun();
  // The numbers of the calls that an undisturbed run makes, by its log.
  static size_t CountCalls(const Command& command, const Row& row);
  static void WalkRow(const Command& command, const Row& row, size_t row_number,
                      const Tree& wanted);
  static void MeetFault(const Command& command, const Row& row, const Fault& fault, size_t at,
                        const Tree& wanted);
  static void Prepare(const Command& command) {
    fs::remove_all(Out());
    for (const auto& entry : fs::directory_iterator(root_)) {
      if (entry.path().filename().string().starts_with("out.")) fs::remove_all(entry.path());
    }
    if (command.prepare != nullptr) command.prepare();
  }

  static std::string root_;
  static int well_, failed_;  // of the walk that is under way
};
std::string WalkTest::root_;
int WalkTest::well_ = 0;
int WalkTest::failed_ = 0;

Command WalkTest::CommandNamed(const std::string& name) {
  const Arguments resume = {"--resume"};
  if (name == "train") return {name, Train(), resume};
  if (name == "train_async") return {name, Train({"--async-save"}), resume};
  if (name == "train_resumed") return {name, Train(resume), {}, PrepareKilledRun};
  if (name == "train_ranks_0" || name == "train_ranks_1") {
    Arguments launch = {"launch", "--num-processes", "2", "--"};
    const Arguments train = Train({"--async-save"});
    launch.insert(launch.end(), train.begin(), train.end());
    return {name, launch, resume, nullptr, name.substr(name.size() - 1)};
  }
  if (name == "quantize") return {name, {"quantize", Model(), Out(), "--type", "q8_0"}};
  if (name == "quantize_over") {
    return {name,
            {"quantize", Model(), Out(), "--type", "q8_0", "--overwrite", "--shard-size", "20KB"},
            {},
            [] {
              RunWell({"quantize", Model(), Out(), "--type", "q4_0"});
            }};
  }
  if (name == "convert") {
    return {name, {"convert", Model(), Out(), "--dtype", "bfloat16", "--shard-size", "20KB"}};
  }
  if (name == "convert_gguf") {
    return {name, {"convert", Model(), Out() + ".gguf"}};
  }
  if (name == "merge") return {name, {"merge", Model(), Adapter(), Out()}};
  if (name == "corpus_run") {
    return {name,
            {"corpus", "run", root_ + "/pipeline.json", "--threads", "1", "--commit-seconds", "0"}};
  }
  return {name,
          {"tokenize", "--tokenizer", "byte", "--input", root_ + "/text.txt", "--output",
           Out() + ".tokens"}};
}

// A run that was killed when its third checkpoint was about to get its name.
void WalkTest::PrepareKilledRun() {
  const std::string killed = root_ + "/killed";
  if (!fs::exists(killed)) {
    fs::remove_all(Out());
    const Fault fault{.kinds = "rename", .how = "kill", .under = Out()};
    size_t at = 0;
    {
      FaultScope scope(fault, 0, Log());
      RunWell(Train());
    }
    const std::vector<std::string> calls = LoggedCalls(Log());
    for (size_t i = 0; i < calls.size(); ++i) {
      if (calls[i].ends_with("/checkpoint-3")) at = i + 1;
    }
    ASSERT_GT(at, 0u);
    fs::remove_all(Out());
    FaultScope scope(fault, at, Log());
    Process run(Train(), root_ + "/run");
    ASSERT_EQ(run.ExitCode(), 128 + SIGKILL);
    fs::rename(Out(), killed);
  }
  fs::copy(killed, Out(), fs::copy_options::recursive);
}

// All that a command may have written: files beside `out` too.
Tree Outputs(const std::string& root) {
  Tree outputs;
  for (const auto& entry : fs::directory_iterator(root)) {
    const std::string top = entry.path().filename();
    if ((top != "out" && !top.starts_with("out.")) || top.ends_with(".lock")) continue;
    for (auto& [name, bytes] : TreeOf(entry.path())) outputs[top + "/" + name] = bytes;
  }
  return outputs;
}

// A name that a process which still runs, or was killed, uses for what is not whole.
bool IsUnfinished(const std::string& name) {
  return name.find(".tmp-") != std::string::npos || name.find(".part") != std::string::npos ||
         name.find(".lock") != std::string::npos || name.find(".old-") != std::string::npos ||
         name.find(".journal") != std::string::npos || name.find("scratch") != std::string::npos;
}

// Files of weights and tokens that stand under their final name.
std::string DamagedIn(const Tree& tree, const Tree& before, const Tree& wanted) {
  std::string damaged;
  for (const auto& [name, bytes] : tree) {
    if (IsUnfinished(name)) continue;
    if (!name.ends_with(".safetensors") && !name.ends_with(".gguf") && !name.ends_with(".bin") &&
        !name.ends_with(".idx")) {
      continue;
    }
    const auto old = before.find(name);
    const auto whole = wanted.find(name);
    const bool is_old = old != before.end() && old->second == bytes;
    const bool is_whole = whole != wanted.end() && whole->second == bytes;
    // A checkpoint that the undisturbed run has removed since.
    const bool is_gone = whole == wanted.end() && name.find("checkpoint-") != std::string::npos;
    if (!is_old && !is_whole && !is_gone) damaged += name + " ";
  }
  return damaged;
}

size_t WalkTest::CountCalls(const Command& command, const Row& row) {
  Prepare(command);
  Fault fault = row.fault;
  fault.under = root_;
  fault.rank = command.rank;
  FaultScope scope(fault, 0, Log());
  RunWell(command.arguments);
  return LoggedCalls(Log()).size();
}

void WalkTest::WalkRow(const Command& command, const Row& row, size_t row_number,
                       const Tree& wanted) {
  const size_t count = CountCalls(command, row);
  if (HasFatalFailure()) return;
  Fault fault = row.fault;
  fault.under = root_;
  fault.rank = command.rank;
  well_ = failed_ = 0;
  const std::vector<size_t> places = PlacesOf(count, 2, row_number);
  for (const size_t at : places) MeetFault(command, row, fault, at, wanted);
  std::printf("%-14s %-18s %4zu of %4zu calls: %d ended well, %d said so\n", command.name.c_str(),
              row.name.c_str(), places.size(), count, well_, failed_);
  std::fflush(stdout);
}

void WalkTest::MeetFault(const Command& command, const Row& row, const Fault& fault, size_t at,
                         const Tree& wanted) {
  Prepare(command);
  const Tree before = Outputs(root_);
  const bool kills = fault.how == "kill" || fault.how == "tear";
  std::string met;
  {
    FaultScope scope(fault, at, Log());
    Process run(command.arguments, root_ + "/run");
    const bool ended = run.EndsWithin(std::chrono::seconds(120));
    for (const std::string& call : LoggedCalls(Log())) {
      if (call.ends_with(" !") && met.empty()) met = call;
    }
    const std::string where = command.name + ": " + Name(fault, at) + ": " + met + ": ";
    ASSERT_TRUE(ended) << where << "it hangs\n" << run.WhatItDoes();
    const int code = run.ExitCode();
    const std::string errors = run.Errors();
    ++(code == 0 ? well_ : failed_);
    if (kills && command.rank.empty() && !met.empty()) {
      EXPECT_EQ(code, 128 + SIGKILL) << where << errors;
    } else if (code == 0) {
      Tree outputs = Outputs(root_);
      // An old checkpoint stays where the run could not find out whether another needs it.
      std::erase_if(outputs, [&](const auto& entry) {
        return entry.first.starts_with("out/checkpoint-") && !wanted.contains(entry.first);
      });
      EXPECT_EQ(Difference(outputs, wanted), "") << where << "exit 0, but";
    } else if (!kills) {
      // The rest of a piece that several threads write beside may not come later.
      const bool is_piece = met.find(".work/") != std::string::npos && fault.how == "short";
      EXPECT_TRUE(is_piece || !row.absorbed) << where << errors;
      EXPECT_LT(code, 3) << where << errors;
      EXPECT_EQ(errors.find("error: "), errors.rfind("error: ")) << where << errors;
      EXPECT_TRUE(errors.starts_with("error: ")) << where << "no line: " << errors;
      EXPECT_NE(errors.find(root_), std::string::npos) << where << "names no file: " << errors;
      if (command.rank.empty()) {
        EXPECT_EQ(errors.find('\n'), errors.size() - 1) << where << errors;
      }
    }
    EXPECT_EQ(DamagedIn(Outputs(root_), before, wanted), "") << where << "damaged";
    // A first attempt that ended well, or was killed behind its last call, has its output.
    if (Difference(Outputs(root_), wanted).empty()) return;
  }
  Arguments again = command.arguments;
  again.insert(again.end(), command.again.begin(), command.again.end());
  Process rest(again, root_ + "/again");
  const std::string where = command.name + ": " + Name(fault, at) + ": " + met + ": again: ";
  ASSERT_TRUE(rest.EndsWithin(std::chrono::seconds(120))) << where << "it hangs";
  EXPECT_EQ(rest.ExitCode(), 0) << where << rest.Errors();
  EXPECT_EQ(rest.Errors(), "") << where;
  EXPECT_EQ(Difference(Outputs(root_), wanted), "") << where;
}

TEST_P(WalkTest, EndsWholeOrSaysSoAndContinues) {
  if (!kHasShim) GTEST_SKIP() << "a sanitizer has calls of its own";
  const Command command = CommandNamed(GetParam());
  if (HasFatalFailure()) return;
  Prepare(command);
  RunWell(command.arguments);
  const Tree wanted = Outputs(root_);
  Prepare(command);
  RunWell(command.arguments);
  ASSERT_EQ(Difference(Outputs(root_), wanted), "") << "two undisturbed runs differ";
  const std::vector<Row> rows = Rows();
  for (size_t i = 0; i < rows.size(); ++i) WalkRow(command, rows[i], i, wanted);
}

INSTANTIATE_TEST_SUITE_P(Commands, WalkTest,
                         testing::Values("train", "train_async", "train_resumed", "train_ranks_0",
                                         "train_ranks_1", "quantize", "quantize_over", "convert",
                                         "convert_gguf", "merge", "corpus_run", "tokenize"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tessera
