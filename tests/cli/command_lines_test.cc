// SPDX-License-Identifier: Apache-2.0
// Command lines of other systems as they stand, the program's name aside, beside the same runs in
// our own keys: the same rows of metrics and the same weights.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/process/process.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Arguments = std::vector<std::string>;

class CommandLinesTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + "/command_lines";
    fs::remove_all(root_);
    fs::create_directories(root_);
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    std::string scratch = "/tmp/lines.XXXXXX";  // Open MPI's paths must be short
    scratch_ = mkdtemp(scratch.data());
    setenv("TMPDIR", scratch_.c_str(), 1);
  }
  void TearDown() override { fs::remove_all(scratch_); }
  std::string Path(const std::string& name) const { return root_ + "/" + name; }
  std::string Put(const std::string& name, const std::string& bytes) const {
    fs::create_directories(fs::path(Path(name)).parent_path());
    std::ofstream(Path(name), std::ios::binary) << bytes;
    return Path(name);
  }
  // The command line with the run's folder behind `out_flag`.
  std::string Run(const std::string& name, Arguments arguments, const std::string& out_flag) {
    arguments.insert(arguments.end(), {out_flag, Path(name)});
    Process run(arguments, Path(name + "-log"));
    EXPECT_EQ(run.ExitCode(), 0) << name << ": " << run.Errors();
    return Path(name);
  }
  static void ExpectSame(const std::string& theirs, const std::string& ours, size_t rows,
                         const std::string& weights = "model.safetensors") {
    EXPECT_EQ(Metrics(theirs), Metrics(ours));
    EXPECT_EQ(Metrics(ours).size(), rows) << ours;
    const std::string expected = ReadText(ours + "/model/" + weights);
    EXPECT_EQ(ReadText(theirs + "/model/" + weights), expected);
    EXPECT_FALSE(expected.empty());
  }

  std::string root_;
  std::string scratch_;
};

// What transformers' Trainer does where its command line says nothing.
void AddTrainersDefaults(Arguments* ours) {
  ours->insert(ours->end(), {"--weight-decay", "0", "--betas", "0.9,0.999", "--lr-schedule",
                             "linear", "--min-lr", "0", "--schedule-offset", "-1", "--join-epochs",
                             "false", "--seed", "42", "--loss-average", "trainer"});
}

// A folder with a small model whose weights are random.
Arguments Small(const std::string& preset, const std::string& tokenizer,
                const std::string& overrides) {
  return {"train",   preset,        "--tokenizer", tokenizer,        "--config-overrides",
          overrides, "--max-steps", "1",           "--val-fraction", "0"};
}

TEST_F(CommandLinesTest, RunGlue) {
  const std::string words = fs::path(Put("words/vocab.txt",
                                         "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\ncat\ndog\n"
                                         "sat\nran\n,\n\"\n"))
                                .parent_path();
  std::string rows = "sentence1,sentence2,label,idx\n";
  for (int i = 0; i < 24; ++i) {
    rows += std::string("\"the cat, ") + (i % 2 == 0 ? "sat" : "ran") + "\",the dog sat," +
            std::to_string(i % 2 == 0) + "," + std::to_string(i) + "\n";
  }
  const std::string train = Put("train.csv", rows);
  const std::string dev = Put("dev.csv", rows.substr(0, rows.find("8\n") + 2));
  Arguments first = Small("bert-tiny", words,
                          "hidden_size=16,num_hidden_layers=1,num_attention_heads=2,"
                          "intermediate_size=32,max_position_embeddings=128");
  first.insert(first.end(), {"--data", train});
  const std::string model = Run("first", first, "--out") + "/model";

  const std::string theirs = Run("theirs",
                                 {"train",
                                  "--model_name_or_path",
                                  model,
                                  "--task_name",
                                  "mrpc",
                                  "--train_file",
                                  train,
                                  "--validation_file",
                                  dev,
                                  "--do_train",
                                  "--do_eval",
                                  "--max_seq_length",
                                  "128",
                                  "--per_device_train_batch_size",
                                  "8",
                                  "--learning_rate",
                                  "2e-5",
                                  "--num_train_epochs",
                                  "3",
                                  "--overwrite_output_dir",
                                  "--logging_steps",
                                  "1"},
                                 "--output_dir");
  Arguments own = {"train",
                   model,
                   "--task",
                   "text_classification",
                   "--glue-task",
                   "mrpc",
                   "--data",
                   train,
                   "--val-data",
                   dev,
                   "--seq-len",
                   "128",
                   "--batch-size",
                   "8",
                   "--lr",
                   "2e-5",
                   "--epochs",
                   "3",
                   "--text-column",
                   "sentence1",
                   "--text-pair-column",
                   "sentence2",
                   "--log-interval",
                   "1"};
  AddTrainersDefaults(&own);
  const std::string ours = Run("ours", own, "--out");
  ExpectSame(theirs, ours, 10);
  EXPECT_TRUE(Metrics(ours).back().contains("val_f1")) << Metrics(ours).back();
}

// ChatGLM's ptuning/main.py, whole or with a prefix, with the DeepSpeed file beside it.
TEST_F(CommandLinesTest, PtuningMain) {
  std::string lines;
  for (int i = 0; i < 12; ++i) {
    lines += "{\"content\": \"say " + std::to_string(i % 3) +
             "\", \"summary\": \"one two\", \"history\": [[\"a\", \"b\"]]}\n";
  }
  const std::string data = Put("train.json", lines);
  const std::string dev = Put("dev.json", lines.substr(0, lines.find('\n', 300) + 1));
  const std::string deepspeed = Put("deepspeed.json", R"({
    "train_micro_batch_size_per_gpu": "auto", "zero_allow_untested_optimizer": true,
    "fp16": {"enabled": "auto", "loss_scale": 0, "initial_scale_power": 16,
             "loss_scale_window": 1000, "hysteresis": 2, "min_loss_scale": 1},
    "zero_optimization": {"stage": 2, "allgather_partitions": true, "allgather_bucket_size": 5e8,
                          "overlap_comm": false, "reduce_scatter": true,
                          "reduce_bucket_size": 5e8, "contiguous_gradients": true}})");
  Arguments first = Small("chatglm-tiny", "data/tokenizer/testdata/sentence_piece/chatglm",
                          "hidden_size=16,num_layers=1,num_attention_heads=2,inner_hidden_size=32");
  first.insert(first.end(),
               {"--data", data, "--prompt-column", "content", "--response-column", "summary"});
  const std::string model = Run("first", first, "--out") + "/model";

  const Arguments theirs = {"launch",
                            "--num_gpus=2",
                            "--master_port",
                            "29501",
                            "train",
                            "--deepspeed",
                            deepspeed,
                            "--do_train",
                            "--do_eval",
                            "--train_file",
                            data,
                            "--validation_file",
                            dev,
                            "--test_file",
                            dev,
                            "--prompt_column",
                            "content",
                            "--response_column",
                            "summary",
                            "--history_column",
                            "history",
                            "--overwrite_cache",
                            "--model_name_or_path",
                            model,
                            "--overwrite_output_dir",
                            "--max_source_length",
                            "64",
                            "--max_target_length",
                            "64",
                            "--per_device_train_batch_size",
                            "1",
                            "--per_device_eval_batch_size",
                            "1",
                            "--gradient_accumulation_steps",
                            "2",
                            "--predict_with_generate",
                            "--max_steps",
                            "3",
                            "--logging_steps",
                            "1",
                            "--save_steps",
                            "1000",
                            "--learning_rate",
                            "2e-2",
                            "--fp16"};
  Arguments ours = {"launch",
                    "--num-gpus",
                    "2",
                    "--",
                    "train",
                    model,
                    "--data",
                    data,
                    "--task",
                    "instruction",
                    "--prompt-column",
                    "content",
                    "--response-column",
                    "summary",
                    "--history-column",
                    "history",
                    "--max-source-length",
                    "64",
                    "--max-target-length",
                    "64",
                    "--batch-size",
                    "1",
                    "--gradient-accumulation-steps",
                    "2",
                    "--predict-with-generate",
                    "--max-steps",
                    "3",
                    "--log-interval",
                    "1",
                    "--lr",
                    "2e-2",
                    "--val-data",
                    dev,
                    "--max-grad-norm",
                    "0",
                    "--dtype",
                    "float16",
                    "--zero",
                    "2",
                    "--overlap-comm=false",
                    "--growth-interval",
                    "1000"};
  AddTrainersDefaults(&ours);
  for (const bool prefix : {false, true}) {
    Arguments their = theirs, our = ours;
    if (prefix) {
      their.insert(their.end(), {"--pre_seq_len", "6", "--prefix_projection"});
      our.insert(our.end(), {"--adapter", "prefix", "--pre-seq-len", "6", "--prefix-projection"});
    }
    const std::string name = prefix ? "prefix_" : "";
    const std::string their_run = Run(name + "theirs", their, "--output_dir");
    const std::string our_run = Run(name + "ours", our, "--out");
    ExpectSame(their_run, our_run, 4, prefix ? "adapter_model.safetensors" : "model.safetensors");
    EXPECT_TRUE(Metrics(our_run).back().contains("val_bleu")) << Metrics(our_run).back();
  }
}

TEST_F(CommandLinesTest, AccelerateLaunch) {
  std::string text;
  for (int i = 0; i < 60; ++i) text += "line " + std::to_string(i * i % 97) + " of the text\n";
  const std::string data = Put("text.txt", text);
  const Arguments train = {"train",          "gpt-tiny", "--data",         data,
                           "--seq-len",      "16",       "--max-steps",    "3",
                           "--log-interval", "1",        "--val-fraction", "0"};
  const auto started = [&](Arguments launch, const Arguments& more) {
    launch.insert(launch.begin(), "launch");
    launch.insert(launch.end(), train.begin(), train.end());
    launch.insert(launch.end(), more.begin(), more.end());
    return launch;
  };
  const std::string ours = Run(
      "ours", started({"--num-gpus", "2", "--"}, {"--zero", "2", "--batch-size", "2"}), "--out");
  const std::string flags = Run("flags",
                                started({"--num_processes", "2", "--cpu", "--use_fsdp",
                                         "--fsdp_sharding_strategy", "SHARD_GRAD_OP"},
                                        {"--per_device_train_batch_size", "2"}),
                                "--out");
  const std::string file = Put("default_config.yaml",
                               "compute_environment: LOCAL_MACHINE\n"
                               "distributed_type: FSDP  # two ranks\n"
                               "fsdp_config:\n"
                               "  fsdp_sharding_strategy: 2\n"
                               "  fsdp_backward_prefetch_policy: BACKWARD_PRE\n"
                               "  fsdp_state_dict_type: FULL_STATE_DICT\n"
                               "mixed_precision: 'no'\nnum_processes: 2\nuse_cpu: true\n");
  const std::string yaml =
      Run("yaml", started({"--config_file", file}, {"--batch-size", "2"}), "--out");
  ExpectSame(flags, ours, 3);
  ExpectSame(yaml, ours, 3);
  const std::string torchrun = Run(
      "torchrun",
      started({"--nproc_per_node=2", "--nnodes=1"}, {"--zero", "2", "--batch-size", "2"}), "--out");
  ExpectSame(torchrun, ours, 3);
  // Each node by itself: the ranks meet over TCP, and the bits are the same.
  const Arguments here = {
      "--nnodes",      "2",         "--nproc_per_node", "1",
      "--master_addr", "127.0.0.1", "--master_port",    std::to_string(21000 + getpid() % 9000),
      "--node_rank"};
  const auto node = [&](const char* rank) {
    Arguments launch = here;
    launch.push_back(rank);
    return started(launch, {"--zero", "2", "--batch-size", "2", "--out", Path("nodes")});
  };
  Process second(node("1"), Path("second-log"));
  Process first(node("0"), Path("first-log"));
  EXPECT_EQ(first.ExitCode(), 0) << first.Errors();
  EXPECT_EQ(second.ExitCode(), 0) << second.Errors();
  ExpectSame(Path("nodes"), ours, 3);
}

// FlagAI's trainer starts the ranks that its configuration asks for.
TEST_F(CommandLinesTest, ConfigurationsStartTheirRanks) {
  std::string text;
  for (int i = 0; i < 60; ++i) text += "line " + std::to_string(i * i % 97) + " of the text\n";
  const std::string data = Put("text.txt", text);
  const auto configuration = [&](const std::string& name, const std::string& launch) {
    return Put(name,
               "{\"env_type\": \"pytorchDDP\", \"epochs\": 1, \"batch_size\": 2, "
               "\"lr\": 1e-3, \"max_steps\": 3, \"log_interval\": 1, \"seq_len\": 16, "
               "\"val_fraction\": 0" +
                   launch + "}");
  };
  const std::string plain = configuration("plain.json", "");
  const std::string theirs = configuration(
      "flagai.json",
      ", \"master_ip\": \"127.0.0.1\", \"master_port\": 17750, \"num_nodes\": 1, "
      "\"num_gpus\": 2, \"hostfile\": \"./hostfile\", \"training_script\": \"train.py\"");
  const auto train = [&](const std::string& config) {
    return Arguments{"train", "gpt-tiny", "--data", data, "--config", config};
  };
  Arguments launched = train(plain);
  launched.insert(launched.begin(), {"launch", "--num-gpus", "2", "--"});
  const std::string ours = Run("ours", launched, "--save_dir");
  ExpectSame(Run("flagai", train(theirs), "--save_dir"), ours, 3);
  // The environment's ranks count where somebody else has started them.
  const auto output = [&](const std::string& name, Arguments arguments) {
    arguments.insert(arguments.end(), {"--save_dir", Path(name)});
    Process run(arguments, Path(name + "-log"));
    EXPECT_EQ(run.ExitCode(), 0) << run.Errors();
    return run.Output();
  };
  Arguments alone = train(theirs);
  alone.push_back("--not_call_launch");
  EXPECT_NE(output("alone", alone).find("ranks: 1, by one process; num_gpus and num_nodes say 2"),
            std::string::npos);
  // One process is one process.
  Arguments single = train(theirs);
  single.insert(single.end(), {"--env_type", "pytorch"});
  EXPECT_EQ(output("single", single).find("ranks"), std::string::npos);
}

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// What all ranks have to say, one of them says.
TEST_F(CommandLinesTest, RanksSpeakOnce) {
  const std::string data = Put("text.txt", std::string(3000, 'a') + std::string(1000, 'b'));
  const Arguments train = {"train", "gpt-tiny",  "--data",          data, "--seq-len",  "16",
                           "--out", Path("run"), "--save-interval", "1",  "--max-steps"};
  const auto with = [&](const Arguments& more) {
    Arguments arguments = train;
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  };
  Process first(2, with({"1"}), Path("first"));
  ASSERT_EQ(first.ExitCode(), 0) << first.Errors();
  EXPECT_EQ(Count(first.Output() + first.Errors(), "warning:"), 0u) << first.Output();
  // The resumed run's learning rate is another one.
  Process resumed(2, with({"2", "--lr", "0.01", "--resume"}), Path("resumed"));
  ASSERT_EQ(resumed.ExitCode(), 0) << resumed.Errors();
  const std::string said = resumed.Output() + resumed.Errors();
  EXPECT_EQ(Count(said, "warning: lr is now 0.01"), 1u) << said;
  EXPECT_EQ(Count(said, "warning:"), Count(said, "\nwarning:")) << said;

  for (const auto& [arguments, part] : std::vector<std::pair<Arguments, std::string>>{
           {with({"1", "--batch_sise", "2"}), "unknown flag '--batch_sise'"},
           {with({"1", "--per_device_train_batch_size", "0"}),
            "--per_device_train_batch_size must"},
           {with({"1", "--max_seq_length", "100000", "--overwrite"}), "given twice"},
           {{"corpus", "clean", "--inputt", data}, "unknown flag '--inputt'"}}) {
    Process wrong(2, arguments, Path("wrong"));
    EXPECT_EQ(wrong.ExitCode(), 2);
    EXPECT_EQ(Count(wrong.Errors(), "error: "), 1u) << wrong.Errors();
    EXPECT_NE(wrong.Errors().find(part), std::string::npos) << wrong.Errors();
  }
}

}  // namespace
}  // namespace tessera
