// SPDX-License-Identifier: Apache-2.0
#include "corpus/engine/block_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "core/thread_communicator.h"
#include "core/thread_pool.h"
#include "corpus/engine/document_pass.h"
#include "data/dataset/byte_source.h"

namespace tessera::corpus {
namespace {

namespace fs = std::filesystem;

class BlockRunTest : public testing::Test {
 protected:
  BlockRunTest()
      : root_(testing::TempDir() + "/" +
              testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(root_);
    fs::create_directories(root_);
    std::string lines;
    for (int i = 0; lines.size() < 12 * kBlockBytes; ++i) {
      const int kind = i % 97;
      lines += kind == 5 ? std::string("no json")
                         : "{\"id\": " + std::to_string(i) + ", \"text\": \"" +
                               std::string(static_cast<size_t>(i * 7919 % 4000), 'x') + "\"}";
      lines += '\n';
    }
    const size_t half = lines.find('\n', lines.size() / 2) + 1;
    std::ofstream(Path("a.jsonl")) << lines.substr(0, half);
    std::ofstream(Path("b.jsonl.gz"))
        << data::Compressed(lines.substr(half), data::Compression::kGzip);
  }
  ~BlockRunTest() override { SetNumThreads(AvailableCores()); }

  std::string Path(const std::string& name) const { return root_ + "/" + name; }
  static std::string Content(const std::string& path) {
    const auto text = ReadFile(path);
    EXPECT_TRUE(text.ok()) << Message(text.status());
    return text.ok() ? *text : "";
  }
  // Drops texts of less than 500 characters.
  DocumentPass Pass(const std::string& output) const {
    DocumentPass pass;
    pass.name = "test";
    pass.files.input = {Path("a.jsonl"), Path("b.jsonl.gz")};
    pass.files.output = Path(output);
    pass.files.dropped = Path(output + ".dropped.tsv");
    pass.made_from = {{"least", 500}};
    pass.apply = [](Document& document, Counts* counts) -> Verdict {
      ++(*counts)["seen"];
      const size_t size = document.text().size();
      if (size < 500) return {"characters", std::to_string(size)};
      return {};
    };
    return pass;
  }
  StatusOr<Counts> Run(const std::string& output) const {
    return RunDocuments(Pass(output), {.commit_seconds = 0});
  }

  const std::string root_;
};

TEST_F(BlockRunTest, WhatAKilledRunHalfWroteGoes) {
  const auto write = [&](const std::string& name) { std::ofstream(Path(name)) << "x"; };
  write("out.jsonl.journal.tmp-17-0");
  write("another.jsonl.journal.tmp-17-0");
  ASSERT_TRUE(Run("out.jsonl").ok());
  EXPECT_FALSE(PathExists(Path("out.jsonl.journal.tmp-17-0")));
  EXPECT_TRUE(PathExists(Path("another.jsonl.journal.tmp-17-0")));
  // Of a run whose last part somebody else writes, its outputs, too.
  write("page.tmp-17-0");
  write("page.journal.tmp-17-0");
  write("page");
  BlockRun run;
  run.inputs = {Path("a.jsonl")};
  run.outputs = {Path("page")};
  ASSERT_TRUE(MarkDone(run, {{"in", 1}}).ok());
  EXPECT_FALSE(PathExists(Path("page.tmp-17-0")));
  EXPECT_FALSE(PathExists(Path("page.journal.tmp-17-0")));
  EXPECT_EQ(FindDone(run)->at("in"), 1);
}

TEST_F(BlockRunTest, CountsListsAndKeepsTheOrder) {
  const auto counts = Run("out.jsonl");
  ASSERT_TRUE(counts.ok()) << Message(counts.status());
  const std::string out = Content(Path("out.jsonl"));
  EXPECT_EQ(counts->at("out"), std::ranges::count(out, '\n'));
  EXPECT_EQ(counts->at("in"), counts->at("out") + counts->at("dropped: characters") +
                                  counts->at("unreadable: no JSON object"));
  EXPECT_EQ(counts->at("seen"), counts->at("in") - counts->at("unreadable: no JSON object"));
  const std::string dropped = Content(Path("out.jsonl.dropped.tsv"));
  EXPECT_EQ(counts->at("in") - counts->at("out"), std::ranges::count(dropped, '\n'));
  EXPECT_TRUE(dropped.starts_with("0\tcharacters\t0\n")) << dropped.substr(0, 100);
  EXPECT_NE(dropped.find("a.jsonl:6\tunreadable\tno JSON object\n"), std::string::npos);
  int64_t last = -1;
  for (size_t at = 0; (at = out.find("{\"id\": ", at)) != std::string::npos; ++at) {
    const int64_t id = std::stoll(out.substr(at + 7, 10));
    EXPECT_GT(id, last);
    last = id;
  }
}

TEST_F(BlockRunTest, IsTheSameForAnyThreadsAndRanks) {
  for (const char* end : {"jsonl", "jsonl.gz", "jsonl.zst"}) {
    const std::string first = std::string("one.") + end;
    SetNumThreads(1);
    ASSERT_TRUE(Run(first).ok());
    SetNumThreads(3);
    ASSERT_TRUE(Run(std::string("three.") + end).ok());
    EXPECT_EQ(Content(Path(first)), Content(Path(std::string("three.") + end)));
    const std::string ranked = std::string("ranks.") + end;
    SetNumThreads(1);
    RunRanks(3, [&](const std::shared_ptr<Communicator>& ranks) {
      const auto counts = RunDocuments(Pass(ranked), {.ranks = ranks, .commit_seconds = 0});
      EXPECT_TRUE(counts.ok()) << Message(counts.status());
      EXPECT_GT(counts->at("out"), 0);
    });
    EXPECT_EQ(Content(Path(first)), Content(Path(ranked)));
    EXPECT_EQ(Content(Path(first + ".dropped.tsv")), Content(Path(ranked + ".dropped.tsv")));
  }
}

TEST_F(BlockRunTest, AnInputThatChangesMeanwhileIsNamed) {
  const std::string input = Path("a.jsonl");
  const std::string whole = Content(input);
  const auto block_run = MakeBlockRun(Pass("out.jsonl"));
  ASSERT_TRUE(block_run.ok());
  BlockRun run = *block_run;
  run.work = [&, inner = run.work](const Block& block, BlockResult* result) -> Status {
    std::ofstream(input, std::ios::app) << '\n';
    return inner(block, result);
  };
  EXPECT_EQ(RunBlocks(run, {}).status().message(),
            input + ": changed while it was read; the same command begins anew");
  EXPECT_FALSE(PathExists(Path("out.jsonl")));
  std::ofstream(input) << whole;
  ASSERT_TRUE(Run("out.jsonl").ok());
  ASSERT_TRUE(Run("other.jsonl").ok());
  EXPECT_EQ(Content(Path("out.jsonl")), Content(Path("other.jsonl")));
}

// The work fails after so many documents, as if the process had been killed there.
TEST_F(BlockRunTest, GoesOnWhereItWas) {
  SetNumThreads(1);
  ASSERT_TRUE(Run("whole.jsonl.gz").ok());
  int64_t attempts = 0, documents = 0;
  for (bool done = false; !done; ++attempts) {
    DocumentPass pass = Pass("parts.jsonl.gz");
    const auto block_run = MakeBlockRun(pass);
    ASSERT_TRUE(block_run.ok());
    BlockRun run = *block_run;
    std::atomic<int> blocks = 0;
    run.work = [&, inner = run.work](const Block& block, BlockResult* result) -> Status {
      if (++blocks > 20) return Internal("killed");
      documents += std::ssize(block.records);
      return inner(block, result);
    };
    const auto counts = RunBlocks(run, {.commit_seconds = 0});
    done = counts.ok();
    if (!done) {
      EXPECT_EQ(counts.status().message(), "killed");
      EXPECT_FALSE(fs::exists(Path("parts.jsonl.gz")));
      // What was written behind the last entry of the journal is cut off.
      std::ofstream(Path("parts.jsonl.gz.part"), std::ios::app) << "half a block";
    }
    ASSERT_LT(attempts, 20);
  }
  EXPECT_GT(attempts, 0);
  EXPECT_EQ(Content(Path("whole.jsonl.gz")), Content(Path("parts.jsonl.gz")));
  EXPECT_EQ(Content(Path("whole.jsonl.gz.dropped.tsv")),
            Content(Path("parts.jsonl.gz.dropped.tsv")));
}

// The step fails after it has written its second output. The journal that lies there is its part's,
// and names the second output as well: the next run may replace it.
TEST_F(BlockRunTest, TheJournalOfAPartNamesAllThatTheStepWrites) {
  BlockRun whole;
  whole.name = "test";
  whole.inputs = {Path("a.jsonl")};
  whole.outputs = {Path("out.bin"), Path("out.idx")};
  BlockRun part = whole;
  part.outputs = {Path("out.bin"), Path("work/lengths")};
  part.work = [](const Block& block, BlockResult* result) {
    result->outputs[0] = std::string(block.bytes);
    return OkStatus();
  };
  const auto run = [&](const Status& end) {
    return RunThrough(whole, {part}, Path("work"), {}, [&] {
      std::ofstream(Path("out.idx")) << "index";
      return end;
    });
  };
  EXPECT_EQ(Message(run(Internal("full")).status()), "full");
  ASSERT_TRUE(PathExists(Path("out.idx")));
  EXPECT_TRUE(FilesInJournal(Path("out.bin") + ".journal").contains(Path("out.idx")));
  EXPECT_TRUE(run(OkStatus()).ok());
  EXPECT_TRUE(FindDone(whole).ok());
  // Of an output that another run of the step wrote, and did not name.
  whole.outputs.push_back(Path("pairs"));
  EXPECT_EQ(Message(run(Internal("full")).status()), "full");
  EXPECT_TRUE(FilesInJournal(Path("out.bin") + ".journal").contains(Path("pairs")));
}

TEST_F(BlockRunTest, WhatIsDoneAndUnchangedIsNotDoneAgain) {
  ASSERT_TRUE(Run("out.jsonl").ok());
  const auto time = fs::last_write_time(Path("out.jsonl"));
  const auto again = Run("out.jsonl");
  ASSERT_TRUE(again.ok());
  EXPECT_GT(again->at("out"), 0);
  EXPECT_EQ(fs::last_write_time(Path("out.jsonl")), time);
  // Other options, other inputs, and an output that is gone.
  DocumentPass pass = Pass("out.jsonl");
  pass.made_from = {{"least", 501}};
  ASSERT_TRUE(RunDocuments(pass, {}).ok());
  EXPECT_NE(fs::last_write_time(Path("out.jsonl")), time);
  std::ofstream(Path("a.jsonl")) << "{\"text\": \"" << std::string(600, 'y') << "\"}\n";
  ASSERT_TRUE(Run("out.jsonl").ok());
  EXPECT_NE(Content(Path("out.jsonl")).find('y'), std::string::npos);
  fs::remove(Path("out.jsonl"));
  ASSERT_TRUE(Run("out.jsonl").ok());
  EXPECT_TRUE(fs::exists(Path("out.jsonl")));
}

TEST_F(BlockRunTest, RefusesFilesThatClash) {
  DocumentPass pass = Pass("out.jsonl");
  pass.files.output = Path("a.jsonl");
  EXPECT_EQ(RunDocuments(pass, {}).status().code(), StatusCode::kInvalidArgument);
  pass = Pass("out.jsonl");
  pass.files.dropped = pass.files.output;
  EXPECT_EQ(RunDocuments(pass, {}).status().code(), StatusCode::kInvalidArgument);
  pass = Pass("out.jsonl");
  pass.files.input = {Path("none.jsonl")};
  EXPECT_EQ(RunDocuments(pass, {}).status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace tessera::corpus
