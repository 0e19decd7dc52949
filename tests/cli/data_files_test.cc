// SPDX-License-Identifier: Apache-2.0
// Data as they lie on the Hub, on the command line: what a run learns from Parquet, Arrow,
// compressed text and the split of a folder has the bits of the same records in JSON lines.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "data/columns/open_table.h"
#include "tests/cli/cli_runs.h"
#include "tests/process/process.h"
#include "tests/process/shell.h"

namespace tessera {
namespace {

const std::string kFiles = "data/columns/testdata/tasks";
const std::string kPictures = "data/columns/testdata/pictures.parquet";
const std::string kPieces = "data/tokenizer/testdata/sentence_piece/";
constexpr char kTokenizer[] = "data/chat/testdata/tokenizer";
constexpr char kEncoder[] =
    "hidden_size=16,num_hidden_layers=1,num_attention_heads=2,intermediate_size=16";
constexpr char kT5[] = "d_model=16,d_kv=8,d_ff=16,num_layers=1,num_decoder_layers=1,num_heads=2";
const std::string kGlm = "hidden_size=16,num_layers=1,num_attention_heads=2";
constexpr char kLlama[] =
    "hidden_size=16,num_hidden_layers=2,num_attention_heads=2,num_key_value_heads=1,head_dim=8,"
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
    const Arguments bert = {"bert-tiny", "--tokenizer", Path("words"), "--config-overrides",
                            kEncoder};
    const Arguments glm = {"glm-tiny", "--tokenizer", kPieces + "glm", "--config-overrides",
                           kGlm + ",max_sequence_length=64"};
    const Arguments columns = {"--text-column", "text", "--label-columns", "label"};
    return {
        {"causal_lm", {*model_, "--task", "causal_lm"}},
        {"text_classification", with(with(bert, {"--task", "text_classification"}), columns)},
        {"masked_lm",
         with(bert, {"--task", "masked_lm", "--seq-len", "16", "--mlm-probability", "0.5"})},
        {"seq2seq",
         {"t5-small", "--tokenizer", "byte", "--task", "seq2seq", "--source-column",
          "translation.en", "--target-column", "translation.de", "--config-overrides", kT5}},
        {"span_corruption",
         {"t5-mini", "--tokenizer", kPieces + "t5", "--task", "span_corruption", "--seq-len", "32",
          "--config-overrides", kT5}},
        {"blank_infilling", with(glm, {"--task", "blank_infilling", "--seq-len", "32"})},
        {"cloze", with(with(glm, {"--task", "cloze"}), columns)},
        {"instruction",
         {"chatglm-tiny", "--tokenizer", kPieces + "chatglm", "--task", "instruction",
          "--max-source-length", "24", "--max-target-length", "24", "--config-overrides",
          kGlm + ",inner_hidden_size=32"}},
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
      EXPECT_TRUE(Weights(out) == expected) << out;
    }
    // Goes on in the middle.
    const std::string out = task.name + "_parquet";
    fs::remove_all(Path(out) + "/checkpoint-4");
    fs::remove_all(Path(out) + "/model");
    Arguments again = Train(task, out, kinds[0].second);
    again.insert(again.end(), {"--resume"});
    EXPECT_NE(Output(again).find("at step 2"), std::string::npos);
    EXPECT_TRUE(Weights(out) == expected) << out;
  }
}

// Two ranks learn the same from Parquet as from JSON lines, also when they go on in the middle.
TEST_F(DataFilesTest, EveryLayoutLearnsTheSame) {
  const std::string lines = Write("tasks.jsonl", Read(kFiles + ".parquet.jsonl"));
  const std::vector<std::pair<std::string, Arguments>> layouts = {
      {"dp", {"--deterministic"}},
      {"zero", {"--deterministic", "--zero", "2"}},
      {"tp", {"--tp", "2"}},
      {"pp", {"--pp", "2"}}};
  for (const TaskCase& task : Tasks()) {
    if (task.name != "chat" && task.name != "seq2seq") continue;
    for (const auto& [name, layout] : layouts) {
      const auto run = [&](const std::string& out, const std::string& data, const Arguments& more) {
        Arguments all = Train(task, out, {"--data", data});
        all.insert(all.end(), layout.begin(), layout.end());
        all.insert(all.end(), more.begin(), more.end());
        Process job(2, all, Path(out));
        EXPECT_EQ(job.ExitCode(), 0) << job.Errors();
        return job.Output();
      };
      const std::string expected = task.name + "_" + name + "_lines";
      const std::string out = task.name + "_" + name;
      run(expected, lines, {});
      run(out, kFiles + ".parquet", {});
      EXPECT_TRUE(Weights(out) == Weights(expected)) << out;
      fs::remove_all(Path(out) + "/checkpoint-4");
      fs::remove_all(Path(out) + "/model");
      EXPECT_NE(run(out, kFiles + ".parquet", {"--resume"}).find("at step 2"), std::string::npos);
      EXPECT_TRUE(Weights(out) == Weights(expected)) << out;
    }
  }
}

// A column of pictures is what class folders of the same files are.
TEST_F(DataFilesTest, PicturesOfATableLearnTheSame) {
  const auto table = data::OpenTable(kPictures);
  ASSERT_TRUE(table.ok()) << Message(table.status());
  ASSERT_TRUE((*table)->Select({"image", "animal"}).ok());
  data::RecordBatch batch;
  while (*(*table)->Next(&batch)) {
    for (int64_t row = 0; row < batch.rows.length; ++row) {
      const data::Column& files = batch.rows.children[0];
      const std::string folder =
          Path("folders/") + std::string(batch.rows.children[1].strings[row]) + "/";
      fs::create_directories(folder);
      std::ofstream(folder + std::string(files.children[1].strings[row]), std::ios::binary)
          << files.children[0].strings[row];
    }
  }
  fs::create_directories(Path("set/data"));
  fs::copy(kPictures, Path("set/data/train-00000-of-00001.parquet"));
  fs::copy(kPictures, Path("set/data/test-00000-of-00001.parquet"));
  const TaskCase task = {
      "pictures",
      {"vit-mini", "--config-overrides", Concat(kEncoder, ",image_size=8,patch_size=4")}};
  Output(Train(task, "folders_run", {"--data", Path("folders")}));
  Output(Train(task, "table_run", {"--data", Path("set"), "--split", "train"}));
  EXPECT_TRUE(Weights("table_run") == Weights("folders_run"));
  // The names of classes are in the model, as in a folder's.
  EXPECT_EQ(Read(Path("table_run/model/config.json")), Read(Path("folders_run/model/config.json")));
  const Arguments eval = {"eval", Path("table_run/model"), "--data"};
  const auto with = [&](const Arguments& more) {
    Arguments all = eval;
    all.insert(all.end(), more.begin(), more.end());
    return Output(all);
  };
  EXPECT_EQ(with({Path("set"), "--split", "test"}), with({Path("folders")}));
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
              "set: no split 'trian'; did you mean 'train'?; there are: train");
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
