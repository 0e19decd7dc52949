// SPDX-License-Identifier: Apache-2.0
// What comes from outside and misleads, exhausts or damages: one line that says so, in time, and
// nothing lost.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/file.h"
#include "core/safetensors.h"
#include "core/tensor.h"
#include "dist/checkpoint/checkpoint.h"
#include "nlohmann/json.hpp"
#include "tests/process/process.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Arguments = std::vector<std::string>;
using nlohmann::json;

class HostileTest : public testing::Test {
 protected:
  HostileTest()
      : root_(testing::TempDir() + "/hostile_" +
              testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(root_);
    fs::create_directories(root_);
    std::ofstream text(Path("text.txt"));
    for (int i = 0; i < 800; ++i) text << "row " << i % 13 << " of many, number " << i << "\n";
  }

  std::string Path(const std::string& name) const { return root_ + "/" + name; }
  std::string Write(const std::string& name, const std::string& content) const {
    fs::create_directories(fs::path(Path(name)).parent_path());
    std::ofstream(Path(name), std::ios::binary) << content;
    return Path(name);
  }
  Arguments Train(const std::string& out, const Arguments& more = {}) const {
    Arguments arguments = {"train",        "gpt-tiny", "--data",    Path("text.txt"),
                           "--out",        Path(out),  "--seq-len", "16",
                           "--batch-size", "2",        "--threads", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  static Arguments With(Arguments arguments, const Arguments& more) {
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  // Ends within a minute with `code` and one line that has every one of `parts`.
  void ExpectRefused(const Arguments& arguments, int code, const Arguments& parts) {
    Process run(arguments, Path("refused"));
    ASSERT_TRUE(run.EndsWithin(std::chrono::minutes(1))) << testing::PrintToString(arguments);
    EXPECT_EQ(run.ExitCode(), code) << run.Errors();
    ExpectLine(run.Errors(), parts);
  }
  static void ExpectLine(const std::string& errors, const Arguments& parts) {
    EXPECT_EQ(errors.rfind("error: ", 0), 0u) << errors;
    EXPECT_EQ(std::count(errors.begin(), errors.end(), '\n'), 1) << errors;
    for (const std::string& part : parts) {
      EXPECT_NE(errors.find(part), std::string::npos) << part << " is not in: " << errors;
    }
  }
  std::string Succeed(const Arguments& arguments) {
    Process run(arguments, Path("succeeds"));
    EXPECT_EQ(run.ExitCode(), 0) << run.Errors();
    return run.Output();
  }
  // Of a BPE of single letters that splits text by a pattern, or normalizes it.
  std::string Tokenizer(const std::string& folder, const json& normalizer, const json& splitter) {
    json vocab;
    for (char c = 'a'; c <= 'z'; ++c) vocab[std::string(1, c)] = c - 'a';
    vocab["<unk>"] = 26;
    Write(folder + "/tokenizer.json", json{{"version", "1.0"},
                                           {"added_tokens", json::array()},
                                           {"normalizer", normalizer},
                                           {"pre_tokenizer", splitter},
                                           {"post_processor", nullptr},
                                           {"decoder", nullptr},
                                           {"model",
                                            {{"type", "BPE"},
                                             {"vocab", vocab},
                                             {"merges", json::array()},
                                             {"unk_token", "<unk>"}}}}
                                          .dump());
    return Path(folder);
  }
  static json SplitBy(const std::string& pattern) {
    return {{"type", "Split"},
            {"pattern", {{"Regex", pattern}}},
            {"behavior", "Isolated"},
            {"invert", false}};
  }

  std::string root_;
};

// --- Files that change, or are none --------------------------------------------------------------

TEST_F(HostileTest, TrainingDataThatShrinksEndsInOneLine) {
  Succeed(
      {"tokenize", "--tokenizer", "byte", "--input", Path("text.txt"), "--output", Path("tokens")});
  Arguments arguments =
      Train("run", {"--max-steps", "1000000", "--val-fraction", "0", "--log-interval", "1"});
  arguments[3] = Path("tokens");
  Process run(arguments, Path("log"));
  while (!PathExists(Path("run/metrics.jsonl")) && !run.EndsWithin(std::chrono::milliseconds(20))) {
  }
  ASSERT_EQ(truncate(Path("tokens.bin").c_str(), 0), 0);
  ASSERT_TRUE(run.EndsWithin(std::chrono::minutes(1)));
  EXPECT_EQ(run.ExitCode(), 1);
  ExpectLine(run.Errors(), {"tokens.bin: was cut short while it was read"});
}

TEST_F(HostileTest, AFifoIsNoFile) {
  ASSERT_EQ(mkfifo(Path("fifo").c_str(), 0600), 0);
  ExpectRefused(Train("run", {"--config", Path("fifo")}), 2, {"fifo: is a FIFO"});
  Arguments arguments = Train("run");
  arguments[3] = Path("fifo");
  ExpectRefused(arguments, 2, {"fifo: not a regular file"});
  ExpectRefused({"inspect", Path("fifo")}, 2, {"fifo: not a regular file"});
}

TEST_F(HostileTest, WhatCannotBePrintedIsAFailure) {
  const pid_t child = fork();
  if (child == 0) {
    if (freopen("/dev/full", "w", stdout) == nullptr) _exit(9);
    execl("tools/tessera", "tessera", "inspect", "--devices", nullptr);
    _exit(8);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 1);
}

// --- Runs and their directories ------------------------------------------------------------------

TEST_F(HostileTest, ARunWithoutNumbersStops) {
  ExpectRefused(Train("run", {"--lr", "1e30", "--max-steps", "20", "--save-interval", "1"}), 1,
                {"the loss is", "on_non_finite", Path("run/checkpoint-")});
  EXPECT_FALSE(PathExists(Path("run/model")));
  Succeed(Train("on", {"--lr", "1e30", "--max-steps", "4", "--on-non-finite", "continue",
                       "--save-interval", "3"}));
  Succeed(
      Train("on", {"--lr", "1e30", "--max-steps", "5", "--on-non-finite", "continue", "--resume"}));
}

TEST_F(HostileTest, ADirectoryWithAnEarlierRunIsLeftAlone) {
  const Arguments run = Train("run", {"--max-steps", "2"});
  Succeed(run);
  const std::string weights = Weights(Path("run"));
  ExpectRefused(run, 2, {"checkpoints of an earlier run", "--resume", "--overwrite"});
  Write("other/metrics.jsonl", "{}\n");
  ExpectRefused(Train("other"), 2, {"metrics.jsonl of an earlier run"});
  EXPECT_EQ(ReadText(Path("other/metrics.jsonl")), "{}\n");
  Write("third/model/config.json", "{}");
  ExpectRefused(Train("third"), 2, {"a folder 'model' of an earlier run"});
  // A run does not begin with what it ends in.
  Arguments itself = Train("run", {"--resume"});
  itself[1] = Path("run/model");
  ExpectRefused(itself, 2, {"run/model is the model to begin with"});
  EXPECT_EQ(Weights(Path("run")), weights);
  Succeed(With(run, {"--overwrite", "--seed", "3"}));
  EXPECT_NE(Weights(Path("run")), weights);
  EXPECT_EQ(Metrics(Path("run")).back()["step"], 2);
}

TEST_F(HostileTest, ACopyUnderAnotherStepsNameIsPassedOver) {
  Succeed(Train("run", {"--max-steps", "4", "--save-interval", "2", "--num-checkpoints", "9"}));
  fs::copy(Path("run/checkpoint-2"), Path("run/checkpoint-10"), fs::copy_options::recursive);
  const std::string said =
      Succeed(Train("run", {"--max-steps", "5", "--resume", "--num-checkpoints", "9"}));
  EXPECT_NE(said.find("checkpoint-10: its index is that of step 2"), std::string::npos) << said;
  EXPECT_NE(said.find("at step 4"), std::string::npos) << said;
  for (const char* kept : {"run/checkpoint-2", "run/checkpoint-4", "run/checkpoint-10"}) {
    EXPECT_TRUE(PathExists(Path(kept))) << kept;
  }
}

TEST_F(HostileTest, ADamagedTokenCacheIsMadeAgain) {
  const Arguments whole = Train("whole", {"--max-steps", "4"});
  Succeed(whole);
  Succeed(Train("run", {"--max-steps", "2"}));
  // Other ids of the vocabulary, all over the file.
  std::string tokens = ReadText(Path("run/data/train.bin"));
  for (size_t i = 0; i < tokens.size(); i += 2) tokens[i] ^= 1;
  Write("run/data/train.bin", tokens);
  Succeed(Train("run", {"--max-steps", "4", "--resume"}));
  // As if it had not been touched. (The schedule is that of 4 steps from the start.)
  Succeed(Train("again", {"--max-steps", "2"}));
  Succeed(Train("again", {"--max-steps", "4", "--resume"}));
  EXPECT_EQ(Weights(Path("run")), Weights(Path("again")));
}

// --- Texts that exhaust --------------------------------------------------------------------------

TEST_F(HostileTest, APatternThatCannotBeDecidedLosesNoText) {
  std::string letters;
  for (int i = 0; i < 903; ++i) letters += i % 2 == 0 ? 'a' : 'b';
  Write("letters.txt", letters);
  const auto tokenize = [&](const std::string& folder) {
    return Arguments{"tokenize", "--tokenizer",       Path(folder),
                     "--input",  Path("letters.txt"), "--print-ids"};
  };
  Tokenizer("deep", nullptr, SplitBy("(?:(a)|(b))+"));
  const std::string ids = Succeed(tokenize("deep"));
  EXPECT_EQ(std::count(ids.begin(), ids.end(), '0') + std::count(ids.begin(), ids.end(), '1'), 903);
  Tokenizer("endless", nullptr, SplitBy("(?:[ab]+[ab]+)+y|z"));
  ExpectRefused(tokenize("endless"), 1,
                {"(?:[ab]+[ab]+)+y|z", "at byte 0", "retry-limit-in-match over"});
  json grow = json::array();
  for (int i = 0; i < 9; ++i) {
    grow.push_back(
        {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aaaaaaaaaa"}});
  }
  Tokenizer("growing", {{"type", "Sequence"}, {"normalizers", grow}}, nullptr);
  ExpectRefused(tokenize("growing"), 1, {"normalizers"});
}

TEST_F(HostileTest, ManyLayersOfNothingAreRefusedInTime) {
  Succeed(Train("run", {"--max-steps", "1"}));
  const std::string folder = Path("run/model");
  json config = json::parse(ReadText(folder + "/config.json"));
  config["n_layer"] = 9999;
  Write("run/model/config.json", config.dump());
  ExpectRefused({"inspect", folder}, 2, {"tensors are missing", "transformer.h."});
}

TEST_F(HostileTest, OneLongNameDoesNotWidenAllLines) {
  std::vector<SafetensorsEntry> entries;
  for (int i = 0; i < 2000; ++i) {
    entries.push_back({.name = Concat("t", i), .dtype = DType::kFloat32, .shape = {}});
  }
  entries.push_back({.name = std::string(200000, 'n'), .dtype = DType::kFloat32, .shape = {}});
  entries.push_back({.name = "evil\x1b[2J\n\x07name", .dtype = DType::kFloat32, .shape = {}});
  auto writer = SafetensorsWriter::Create(Path("names.safetensors"), entries, {});
  ASSERT_TRUE(writer.ok()) << Message(writer.status());
  const float zero = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    ASSERT_TRUE(writer->Append(&zero, sizeof(zero)).ok());
  }
  ASSERT_TRUE(writer->Commit().ok());
  const std::string said = Succeed({"inspect", Path("names.safetensors")});
  EXPECT_LT(said.size(), 500000u);
  EXPECT_NE(said.find("evil\\x1b[2J\\x0a\\x07name"), std::string::npos);
  EXPECT_EQ(said.find('\x1b'), std::string::npos);
}

// --- Numbers out of range ------------------------------------------------------------------------

TEST_F(HostileTest, CountsBeyondReasonAreRefused) {
  const std::vector<std::pair<const char*, const char*>> bad = {
      {"epochs", "1e308"},
      {"batch-size", "1000000000"},
      {"gradient-accumulation-steps", "9223372036854775807"},
      {"seq-len", "1000000000"},
      {"seed", "-1"},
      {"max-steps", "0"}};
  for (const auto& [key, value] : bad) {
    const std::string flag = Concat("--", key);
    ExpectRefused(
        {"train", "gpt-tiny", "--data", Path("text.txt"), "--out", Path("run"), flag, value}, 2,
        {flag + " must be at "});
  }
  EXPECT_FALSE(PathExists(Path("run")));
}

TEST_F(HostileTest, ColumnsAreNamedOnce) {
  Write("words/vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\nd\n");
  Write("words/tokenizer_config.json", R"({"tokenizer_class": "BertTokenizer"})");
  Write("rows.tsv", "text\ttext\tlabel\na\tb\t0\nc\td\t1\n");
  const auto train = [&](const Arguments& more) {
    Arguments arguments = {"train",  "bert-tiny",      "--task",      "text_classification",
                           "--data", Path("rows.tsv"), "--tokenizer", Path("words"),
                           "--out",  Path("run"),      "--max-steps", "1"};
    return With(arguments, more);
  };
  ExpectRefused(train({"--text-column", "text", "--label-columns", "label"}), 2,
                {"column 'text' twice"});
  ExpectRefused(train({"--text-column", "label", "--label-columns", "label"}), 2,
                {"column 'label' is asked for twice"});
}

}  // namespace
}  // namespace tessera
