// SPDX-License-Identifier: Apache-2.0
// Data as they lie on the Hub, on the command line: what a run learns from Parquet, Arrow,
// compressed text and the split of a folder has the bits of the same records in JSON lines.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/cli/cli_runs.h"
#include "tests/process/shell.h"

namespace tessera {
namespace {

const std::string kFiles = "data/columns/testdata/tasks";
constexpr char kTokenizer[] = "data/chat/testdata/tokenizer";
constexpr char kLlama[] =
    "hidden_size=16,num_hidden_layers=1,num_attention_heads=2,num_key_value_heads=1,head_dim=8,"
    "intermediate_size=16";

struct TaskCase {
  std::string name;
  Arguments arguments;
};

class DataFilesTest : public CliRuns {
 protected:
  std::vector<TaskCase> Tasks() const {
    fs::create_directories(Path("words"));
    std::ofstream(Path("words") + "/vocab.txt")
        << "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\ngood\nbad\nthe\nfilm\nnumber\n";
    const Arguments llama = {"llama-tiny", "--tokenizer", kTokenizer, "--config-overrides", kLlama};
    const auto with = [](Arguments all, const Arguments& more) {
      all.insert(all.end(), more.begin(), more.end());
      return all;
    };
    return {
        {"causal_lm", {*model_, "--task", "causal_lm"}},
        {"text_classification",
         {"bert-tiny", "--tokenizer", Path("words"), "--task", "text_classification",
          "--text-column", "text", "--label-column", "label", "--config-overrides",
          "hidden_size=16,num_hidden_layers=1,num_attention_heads=2,intermediate_size=16"}},
        {"seq2seq",
         {"t5-small", "--tokenizer", "byte", "--task", "seq2seq", "--source-column",
          "translation.en", "--target-column", "translation.de", "--config-overrides",
          "d_model=16,d_kv=8,d_ff=16,num_layers=1,num_decoder_layers=1,num_heads=2"}},
        {"chat", with(llama, {"--task", "chat", "--seq-len", "64"})},
        {"preference", with(llama, {"--task", "preference", "--adapter", "lora"})},
    };
  }
  // Four steps of a task on some data.
  Arguments Train(const TaskCase& task, const std::string& out, const Arguments& data) const {
    Arguments all = {"train", "--out",           Path(out), "--max-steps", "4", "--lr",
                     "1e-2",  "--batch-size",    "2",       "--threads",   "1", "--val-fraction",
                     "0",     "--save-interval", "2"};
    all.insert(all.end(), task.arguments.begin(), task.arguments.end());
    all.insert(all.end(), data.begin(), data.end());
    return all;
  }
  // What was trained: a model, or an adapter.
  std::string Weights(const std::string& out) const {
    for (const char* file : {"/model/model.safetensors", "/model/adapter_model.safetensors",
                             "/adapter/adapter_model.safetensors"}) {
      const std::string bytes = Read(Path(out) + file);
      if (!bytes.empty()) return bytes;
    }
    ADD_FAILURE() << out << " has no weights";
    return "";
  }
  // A data-set folder, as it is downloaded; its training split is in two files.
  std::string Folder() const {
    fs::create_directories(Path("set/data"));
    Write("set/README.md",
          "---\nconfigs:\n- config_name: default\n  data_files:\n  - split: train\n"
          "    path: data/train-*\n---\n");
    const std::string lines = Read(kFiles + ".parquet.jsonl");
    size_t middle = 0;
    for (int i = 0; i < 9; ++i) middle = lines.find('\n', middle) + 1;
    Write("set/data/train-00000-of-00002.jsonl", lines.substr(0, middle));
    Write("set/data/train-00001-of-00002.jsonl", lines.substr(middle));
    return Path("set");
  }
};

TEST_F(DataFilesTest, EveryTaskLearnsTheSameFromEveryKindOfFile) {
  const std::string lines = Write("tasks.jsonl", Read(kFiles + ".parquet.jsonl"));
  ASSERT_EQ(RunShell("gzip -k " + lines).code, 0);
  const std::vector<std::pair<std::string, Arguments>> kinds = {
      {"parquet", {"--data", kFiles + ".parquet"}},
      {"arrow", {"--data", kFiles + ".arrow"}},
      {"gz", {"--data", lines + ".gz"}},
      {"folder", {"--data", Folder(), "--split", "train"}}};
  for (const TaskCase& task : Tasks()) {
    Output(Train(task, task.name, {"--data", lines}));
    const std::string expected = Weights(task.name);
    for (const auto& [kind, data] : kinds) {
      const std::string out = task.name + "_" + kind;
      Output(Train(task, out, data));
      EXPECT_EQ(Weights(out), expected) << out;
    }
    // Goes on in the middle.
    const std::string out = task.name + "_parquet";
    fs::remove_all(Path(out) + "/checkpoint-4");
    fs::remove_all(Path(out) + "/model");
    Arguments again = Train(task, out, kinds[0].second);
    again.insert(again.end(), {"--resume"});
    EXPECT_NE(Output(again).find("at step 2"), std::string::npos);
    EXPECT_EQ(Weights(out), expected) << out;
  }
}

TEST_F(DataFilesTest, TokenizeAndInspect) {
  const std::string lines = Write("tasks.jsonl", Read(kFiles + ".parquet.jsonl"));
  const auto tokens = [&](const std::string& input, const std::string& name) {
    Output({"tokenize", "--input", input, "--output", Path(name), "--tokenizer", "byte"});
    return Read(Path(name) + ".bin") + Read(Path(name) + ".idx");
  };
  const std::string expected = tokens(lines, "lines");
  EXPECT_GT(expected.size(), 100U);
  EXPECT_EQ(tokens(kFiles + ".parquet", "parquet"), expected);
  EXPECT_EQ(tokens(kFiles + ".arrow", "arrow"), expected);

  const std::string seen = Output({"inspect", kFiles + ".parquet"});
  EXPECT_NE(seen.find(": Parquet, 24 rows, 8 columns, 3 row groups\n"), std::string::npos) << seen;
  EXPECT_NE(seen.find("  column messages: list<struct<role: string, content: string>>\n"),
            std::string::npos)
      << seen;
  EXPECT_NE(seen.find("  part 2: 4 rows, "), std::string::npos) << seen;
  EXPECT_NE(seen.find(" bytes, compression zstd"), std::string::npos) << seen;
  EXPECT_NE(seen.find(R"(  row 0  {"text": "the good film number 0", "label": 1, )"),
            std::string::npos)
      << seen;
  EXPECT_NE(Output({"inspect", kFiles + ".arrow"}).find(": Arrow stream, 24 rows"),
            std::string::npos);

  std::string bytes = Read(kFiles + ".parquet");
  bytes[bytes.size() / 3] ^= 0x40;
  ExpectError({"inspect", Write("bad.parquet", bytes)}, 1, "bad.parquet: row group ");
}

TEST_F(DataFilesTest, WhatIsNotThereIsNamed) {
  const Arguments train = {"train", *model_, "--out", Path("run"), "--max-steps", "1"};
  const auto with = [&](const Arguments& more) {
    Arguments all = train;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  ExpectError(with({"--data", Folder(), "--split", "trian"}), 2,
              "set: no split 'trian'; did you mean 'train'? there are: train");
  ExpectError(with({"--data", kFiles + ".parquet", "--split", "train"}), 2,
              "split is 'train', but data is no folder of a data set: " + kFiles + ".parquet");
  ExpectError(with({"--data", Folder(), "--split", "train", "--dataset-config-name", "fr"}), 2,
              "set: no configuration 'fr'; there are: default");
  ExpectError(
      {"train", "t5-small", "--tokenizer", "byte", "--task", "seq2seq", "--out", Path("run"),
       "--data", kFiles + ".parquet", "--source-column", "nothing", "--target-column", "text"},
      2, "no column 'nothing' (columns: text: string, label: int8, ");
  ExpectError(
      {"train", "t5-small", "--tokenizer", "byte", "--task", "seq2seq", "--out", Path("run"),
       "--data", kFiles + ".parquet", "--source-column", "messages", "--target-column", "text"},
      2, "\"messages\" must be text, a number or a truth value; the column is list<struct<");
}

}  // namespace
}  // namespace tessera
