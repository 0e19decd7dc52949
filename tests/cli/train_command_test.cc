// SPDX-License-Identifier: Apache-2.0
// `train`, `eval` and `explain`: the keys and flags that they take, what they say and leave behind.
#include <gtest/gtest.h>
#include <sys/file.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/cli/cli_runs.h"
#include "tests/process/shell.h"

namespace tessera {
namespace {

class TrainCommandTest : public CliRuns {};

TEST_F(TrainCommandTest, TrainsAndEvaluatesAClassifier) {
  fs::create_directories(Path("words"));
  std::ofstream(Path("words") + "/vocab.txt") << "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\ngood\nbad\n";
  std::string table = "sentence\tlabel\n";
  for (int i = 0; i < 60; ++i) table += i % 3 == 0 ? "good\tyes\n" : "bad bad\tno\n";
  const std::string data = Write("reviews.tsv", table);
  const std::string out =
      Output({"train", "bert-tiny", "--data", data, "--out", Path("run"), "--tokenizer",
              Path("words"), "--config-overrides",
              "hidden_size=16,num_hidden_layers=1,num_attention_heads=2,intermediate_size=16",
              "--max-steps", "60", "--lr", "1e-2", "--dropout", "0", "--threads", "2"});
  EXPECT_NE(out.find("text_classification on 57 training samples"), std::string::npos) << out;
  EXPECT_NE(out.find("accuracy 1.0000"), std::string::npos) << out;
  const std::string found =
      Output({"eval", "--model", Path("run") + "/model", "--data", data, "--batch-size", "16"});
  EXPECT_NE(found.find("accuracy 1.0000  f1 1.0000  matthews 1.0000  samples 60"),
            std::string::npos)
      << found;
  ExpectError({"eval", "--model", Path("run") + "/model", "--data",
               Write("other.tsv", "sentence\tlabel\ngood\tperhaps\n")},
              2, "labels that the model does not know; it has: no, yes");
  // Predictions, with labels and without.
  const std::string model = Path("run") + "/model";
  const std::string predicted = Output({"predict", "--model", model, "--data", data, "--out",
                                        Path("predictions.jsonl"), "--batch-size", "7"});
  EXPECT_EQ(predicted, found + "60 predictions in " + Path("predictions.jsonl") + "\n");
  ExpectError({"predict", "--model", model, "--data", data, "--out", data}, 2,
              data + ": would replace the input " + data);
  std::istringstream lines(Read(Path("predictions.jsonl")));
  int number = 0;
  for (std::string line; std::getline(lines, line); ++number) {
    const auto row = nlohmann::json::parse(line);
    EXPECT_EQ(row["prediction"], number % 3 == 0 ? "yes" : "no") << line;
    EXPECT_EQ(row["label"], row["prediction"]);
    ASSERT_EQ(row["probabilities"].size(), 2u);
    EXPECT_NEAR(row["probabilities"][0].get<double>() + row["probabilities"][1].get<double>(), 1,
                1e-12);
    EXPECT_GT(row["probabilities"][number % 3 == 0 ? 1 : 0], 0.5);
  }
  EXPECT_EQ(number, 60);
  EXPECT_EQ(Output({"predict", "--model", model, "--data", Write("bare.tsv", "sentence\ngood\n"),
                    "--out", Path("bare.jsonl")}),
            "1 predictions in " + Path("bare.jsonl") + "\n");
  EXPECT_EQ(nlohmann::json::parse(Read(Path("bare.jsonl"))).contains("label"), false);
  ExpectError({"predict", "--model", model, "--data", data}, 2, "--out is required");
  ExpectError({"generate", model, "--prompt", "good"}, 2,
              model + ": this model does not generate text");
  // Before the model is read.
  ExpectError({"predict", "--model", Path("none"), "--data", data, "--out", model}, 2,
              model + ": Is a directory");
  ExpectError({"predict", "--model", model, "--data", data, "--out", Path("absent/x.jsonl")}, 2,
              Path("absent") + ": no such folder");
}

// FlagAI's names of models, folders that do not say their family, archives, and a run's folder to
// continue from.
TEST_F(TrainCommandTest, BeginsWithWhatTheUserHas) {
  const std::string data = Write("text", "some words of a text\n" + std::string(300, 'x'));
  const auto train = [&](const std::string& name, Arguments more) {
    Arguments all = {"train", "--data",         data, "--batch-size", "2",       "--save-interval",
                     "1",     "--val-fraction", "0",  "--out",        Path(name)};
    if (std::find(more.begin(), more.end(), "--max-steps") == more.end()) {
      more.insert(more.end(), {"--max-steps", "2"});
    }
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  Output(train("plain", {*model_}));
  const std::string expected = Read(Path("plain") + "/model/model.safetensors");
  EXPECT_FALSE(expected.empty());
  const auto expect_same = [&](const std::string& name, const Arguments& more) {
    Output(train(name, more));
    EXPECT_EQ(Read(Path(name) + "/model/model.safetensors"), expected) << name;
  };
  // A folder without model_type.
  fs::copy(*model_, Path("unnamed"), fs::copy_options::recursive);
  auto config = nlohmann::json::parse(Read(*model_ + "/config.json"));
  config.erase("model_type");
  Write("unnamed/config.json", config.dump());
  ExpectError(train("none", {Path("unnamed")}), 2, "has no \"model_type\"");
  expect_same("typed", {Path("unnamed"), "--model-type", "gpt2"});
  ExpectError(train("other", {*model_, "--model-type", "llama"}), 2,
              "--model-type is 'llama', and " + *model_ + " is 'gpt2'");
  // An archive.
  ASSERT_EQ(RunShell("tar -cf " + Path("model.tar") + " -C " + *model_ + " .").code, 0);
  expect_same("archive", {Path("model.tar")});
  // A folder of FlagAI's hub, and its name for a preset.
  fs::create_directories(Path("state"));
  fs::copy(*model_, Path("state/GLM-large-ch"), fs::copy_options::recursive);
  expect_same("hub", {"--model_name", "GLM-large-ch", "--download_path", Path("state")});
  ExpectError(train("preset", {"--model_name", "GLM-large-ch"}), 2,
              "--model_name 'glm-large-chinese' comes without a tokenizer");
  // The newest checkpoint of another run.
  const std::string resumed =
      Output(train("again", {*model_, "--load_dir", Path("plain"), "--max-steps", "3"}));
  EXPECT_NE(resumed.find("resuming from " + Path("plain") + "/checkpoint-2 at step 2"),
            std::string::npos)
      << resumed;
}

// As users of Hugging Face's Trainer ask for it.
TEST_F(TrainCommandTest, StopsEarlyAndKeepsTheBestModel) {
  const std::string text = Write("text", [] {
    std::string lines;
    for (int i = 0; i < 600; ++i) lines += Concat("line ", i % 17, ", sung ", i % 5, " times\n");
    return lines;
  }());
  Arguments arguments = {"train",
                         "gpt-tiny",
                         "--data",
                         text,
                         "--output_dir",
                         Path("run"),
                         "--tokenizer",
                         "byte",
                         "--max_steps",
                         "60",
                         "--seq-len",
                         "16",
                         "--per_device_train_batch_size",
                         "2",
                         "--learning_rate",
                         "0.03",
                         "--lr_scheduler_type",
                         "constant",
                         "--eval_strategy",
                         "steps",
                         "--val-fraction",
                         "0.05",
                         "--eval_steps",
                         "2",
                         "--eval-batches",
                         "2",
                         "--load_best_model_at_end",
                         "--metric_for_best_model",
                         "eval_loss",
                         "--greater_is_better",
                         "False",
                         "--early-stopping-patience",
                         "5",
                         "--save_total_limit",
                         "1",
                         "--threads",
                         "1"};
  const std::string out = Output(arguments);
  EXPECT_NE(out.find("the model is the best one, of step "), std::string::npos) << out;
  EXPECT_NE(out.find("(early stopping: val_loss was no better in 5 evaluations); the model is in "),
            std::string::npos)
      << out;
  // The folder's own loss is that of the best evaluation, not of the last.
  std::istringstream rows(Read(Path("run") + "/metrics.jsonl"));
  double best = 1e9;
  double last = 0;
  for (std::string line; std::getline(rows, line);) {
    const auto row = nlohmann::json::parse(line);
    if (!row.contains("val_loss")) continue;
    last = row["val_loss"];
    best = std::min(best, last);
  }
  EXPECT_LT(best, last);
  // Resumed, it stays as it is.
  const std::string weights = Read(Path("run") + "/model/model.safetensors");
  arguments.emplace_back("--resume");
  EXPECT_NE(Output(arguments).find("early stopping"), std::string::npos);
  EXPECT_EQ(Read(Path("run") + "/model/model.safetensors"), weights);
}

TEST_F(TrainCommandTest, TrainAndEvalRefuseWhatTheyCannotUse) {
  const std::string text = Write("text", std::string(2000, 'a'));
  const auto train = [&](const Arguments& more) {
    Arguments arguments = {"train", "gpt-tiny", "--out", Path("run"), "--max-steps", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  };
  ExpectError(train({}), 2, "--data is missing");
  for (const char* keys : {"axolotl.yaml", "config/train_shakespeare_char.py", "llama3_8b.toml"}) {
    ExpectError(
        {"train", keys, "--out", Path("out")}, 2,
        Concat("'", keys, "' is no preset or model folder; give a file of keys by --config"));
  }
  ExpectError(train({"--data", Path("absent")}), 2, Path("absent"));
  ExpectError(train({"--data", Write("empty", "")}), 2, "empty: no text");
  ExpectError(train({"--data", Write("invalid", "ab\xff")}), 2, "invalid: ");
  ExpectError(train({"--data", text, "--lr", "fast"}), 2, "lr must be a number");
  ExpectError(train({"--data", text, "--lr", "-1"}), 2, "lr");
  ExpectError(train({"--data", text, "--learning-pace", "1"}), 2, "unknown flag '--learning-pace'");
  ExpectError(train({"--data", text, "--config", Write("c.json", R"({"max_stepz": 1})")}), 2,
              "unknown key 'max_stepz'; did you mean 'max_steps'?");
  ExpectError(train({"--data", text, "--config", Write("d.json", "{")}), 2, "d.json");
  ExpectError(train({"--data", text, "--out", text}), 2, "--out");
  ExpectError({"train", "gpt-tiny", "--data", text, "--out", text + "/below"}, 2,
              "Not a directory");
  ExpectError({"train", "gpt-tinny", "--data", text, "--out", Path("run")}, 2, "gpt-tinny");
  ExpectError({"eval", "--model", *model_, "--data", Path("absent")}, 2, Path("absent"));
  const std::string shorter = Write("shorter", "a");
  ExpectError({"eval", "--model", *model_, "--data", shorter, "--seq-len", "8"}, 2,
              "error: " + shorter + ": ");
  fs::create_directories(Path("texts"));
  ExpectError(
      train({"--task", "preference", "--reference-model", *model_, "--data", Path("texts")}), 2,
      "texts: is a directory; give one of its files");
  // A run's folder has the configuration of the run.
  Output(train({"--data", text, "--batch-size", "1", "--seq-len", "16"}));
  const std::string run = Path("run") + ": is a run's folder; its model is " + Path("run/model");
  ExpectError({"train", Path("run"), "--data", text, "--out", Path("next")}, 2, run);
  ExpectError({"eval", "--model", Path("run"), "--data", text}, 2, run);
  ExpectError({"generate", "--model", Path("run"), "--prompt", "a"}, 2, run);
}

// Flags as they were typed, and keys by the names that they were given under.
TEST_F(TrainCommandTest, ErrorsNameWhatTheUserWrote) {
  const std::string text = Write("text", std::string(2000, 'a'));
  const std::string absent = Path("absent.txt");
  const auto in_file = [&](const std::string& name, const std::string& keys) {
    return Arguments{"--config", Write(name, "{" + keys + "}")};
  };
  struct Case {
    Arguments more;
    std::string said;
    bool has_data = true;
  };
  const std::vector<Case> cases = {
      // A missing file.
      {{"--train_file", absent}, "error: --train_file: " + absent + ": ", false},
      {{"--validation_file", absent}, "error: --validation_file: " + absent + ": "},
      {{"--data", absent}, "error: --data: " + absent + ": ", false},
      {in_file("hf.json", "\"train_file\": \"" + absent + "\""),
       "error: train_file: " + absent + ": ", false},
      // A wrong type.
      {{"--num_train_epochs", "many"}, "error: --num_train_epochs must be a number"},
      {{"--batch_size", "many"}, "error: --batch_size must be an integer"},
      {in_file("type.json", "\"per_device_train_batch_size\": \"many\""),
       "type.json: 'per_device_train_batch_size' must be an integer"},
      // Out of range: of Hugging Face, Megatron-LM and FlagAI.
      {{"--per_device_train_batch_size", "0"},
       "error: --per_device_train_batch_size must be at least 1, not 0"},
      {{"--micro-batch-size", "0"}, "error: --micro-batch-size must be at least 1, not 0"},
      {{"--warm_up_iters", "-1"}, "error: --warm_up_iters must be at least 0, not -1"},
      {in_file("range.json", "\"max_seq_length\": 0"), "range.json: 'max_seq_length' must be"},
      // What only the run finds out.
      {{"--max_seq_length", "100000"}, "error: --max_seq_length 100000 is longer than"},
      {{"--seq-length", "100000"}, "error: --seq-length 100000 is longer than"},
      {{"--warmup_steps", "1.5"}, "error: --warmup_steps is 1.5, expected whole steps"},
      {{"--warm_up_iters", "1.5"}, "error: --warm_up_iters is 1.5, expected whole steps"},
      {in_file("steps.json", "\"logging_steps\": 1.5"), "error: logging_steps is 1.5, expected"},
      // An unknown choice.
      {{"--lr_scheduler_type", "zigzag"}, "error: --lr_scheduler_type is 'zigzag'"},
      {{"--warmup_type", "zigzag"}, "error: --warmup_type 'zigzag' is not known"},
      {{"--mixed_precision", "zigzag"}, "error: --mixed_precision 'zigzag' is not known"},
      {{"--growth-factor", "2"}, "error: --growth-factor is set, which needs dtype float16"},
  };
  for (const Case& c : cases) {
    Arguments arguments = {"train", "gpt-tiny", "--max-steps", "1", "--out", Path("run")};
    if (c.has_data) arguments.insert(arguments.end(), {"--data", text});
    arguments.insert(arguments.end(), c.more.begin(), c.more.end());
    ExpectError(arguments, 2, c.said);
  }
  ExpectError({"train", *model_, "--data", text, "--output_dir", *model_}, 2,
              "error: --output_dir: '" + *model_ + "' is the folder of the model");
  ExpectError({"eval", *model_, "--data", absent}, 2, "error: --data: " + absent);
  ExpectError({"predict", *model_, "--data", text, "--out", Path("p"), "--max_seq_length", "0"}, 2,
              "error: --max_seq_length must be at least 1, not 0");
}

// Data of a hub are not downloaded; the line says which flag takes a file.
TEST_F(TrainCommandTest, ADataSetOfAHubIsRefused) {
  const std::string text = Write("text", std::string(2000, 'a'));
  const Arguments train = {"train", "gpt-tiny", "--output_dir", Path("run"), "--max_steps", "1"};
  const auto with = [](Arguments command, const Arguments& more) {
    command.insert(command.end(), more.begin(), more.end());
    return command;
  };
  const std::string refused = "is refused: nothing is downloaded; --train_file takes a file";
  ExpectError(with(train, {"--dataset_name", "wikitext"}), 2, "--dataset_name " + refused);
  ExpectError(with(train, {"--dataset_name", "tatsu-lab/alpaca", "--train_file", text}), 2,
              "--dataset_name " + refused);
  ExpectError(with(train, {"--config", Write("hub.json", R"({"dataset_name": "wikitext"})")}), 2,
              "hub.json: 'dataset_name' " + refused);
  ExpectError(
      with(train, {"--task_name", "mrpc"}), 2,
      "--data is missing: a file of this machine (also --train_file); nothing is downloaded");
  ExpectError(with(train, {"--train_file", "tatsu-lab/alpaca"}), 2,
              "--train_file: tatsu-lab/alpaca: ");
  ExpectError(with(train, {"--train_file", "tatsu-lab/alpaca"}), 2, "nothing is downloaded");
  for (const char* command : {"eval", "predict"}) {
    ExpectError({command, *model_, "--dataset_name", "wikitext"}, 2, "--dataset_name " + refused);
  }
}

TEST_F(TrainCommandTest, KeysThatMeanNothingAreRefusedWithTheReason) {
  const std::string text = Write("text", std::string(2000, 'a'));
  const auto train = [&](const Arguments& more) {
    Arguments arguments = {"train", "gpt-tiny", "--data", text, "--out", Path("run")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  };
  ExpectError(train({"--momentum", "0.9"}), 2,
              "momentum is set, which needs optimizer muon or sgd (it is adamw)");
  ExpectError(train({"--growth-factor", "2"}), 2,
              "--growth-factor is set, which needs dtype float16");
  ExpectError(train({"--mlm-probability", "0.2"}), 2,
              "which needs task masked_lm (it is causal_lm)");
  ExpectError(train({"--optimizer", "adamm"}), 2,
              "'adamm' is not known; use one of adafactor, adam,");
  ExpectError(train({"--lr", "1e-3", "--learning-rate", "1e-4"}), 2, "--lr is given twice");
  // A DeepSpeed file may say such things of what it has switched off.
  const std::string ds = Write("ds.json", R"({"fp16": {"enabled": false, "loss_scale_window": 9},
      "optimizer": {"type": "SGD", "params": {"momentum": 0.5}}})");
  Output(train({"--deepspeed", ds, "--optimizer", "lion", "--max-steps", "1", "--seq-len", "16",
                "--val-fraction", "0"}));
}

// Other launchers start scripts.
TEST_F(TrainCommandTest, ALauncherSaysThatItStartsNoScript) {
  ExpectError({"launch", "--num_gpus", "2", "main.py", "--deepspeed", "ds.json"}, 2,
              "`tessera launch` starts a command of its own, and 'main.py' is none; give `train` "
              "and its flags in the script's place (`tessera --help` lists them)");
  ExpectError({"launch", "trian", "--lr", "1"}, 2, "'trian' is none; did you mean 'train'? (");
  ExpectError({"launch", "--use_fsdp", "true", "main.py"}, 2, "'main.py' is none");
  ExpectError({"launch", "--num_gpus", "2", "--", "main.py"}, 2,
              "'main.py' is none; give `train` and its flags in the script's place");
  ExpectError({"launch", "--", "python3", "main.py"}, 2, "'python3' is none; give `train`");
  ExpectError({"launch", "--", "trian"}, 2, "'trian' is none; did you mean 'train'? (");
}

// As HfArgumentParser reads the word behind a switch: `--log_level_replica error --log_on_each_node
// 0` is on the Trainer's page.
TEST_F(TrainCommandTest, AWordBehindASwitchIsItsValue) {
  const std::string out = Output({"explain", "--log_on_each_node", "0", "--bf16", "yes",
                                  "--push_to_hub", "no", "--do_eval", "1", "--fp16=F"});
  for (const char* line :
       {"log_on_each_node\thonoured\t", "bf16\ttranslated\tautocast\n", "push_to_hub\tno-effect\t",
        "do_eval\ttranslated\teval_strategy\n", "fp16\tno-effect\t"}) {
    EXPECT_NE(out.find(line), std::string::npos) << line << "\n" << out;
  }
}

// A line for each key, tabs between; what a run refuses is listed like the rest.
TEST_F(TrainCommandTest, ExplainSaysWhatBecomesOfEachKey) {
  const std::string ds =
      Write("ds.json", R"({"zero_optimization": {"stage": 2, "sub_group_size": 9},
      "steps_per_print": 7, "amp": {"enabled": true}, "no\tsuch": 1})");
  const std::string acc =
      Write("acc.yaml", "distributed_type: NO  # one process\nmixed_precision: 'no'\n");
  const Arguments given = {"--deepspeed",
                           ds,
                           "--accelerate",
                           acc,
                           "--learning_rate",
                           "1e-3",
                           "--bf16",
                           "True",
                           "--push_to_hub",
                           "--epochs",
                           "2"};
  Arguments explain = {"explain"};
  explain.insert(explain.end(), given.begin(), given.end());
  const std::string out = Output(explain);
  for (const char* line :
       {"zero_optimization.stage\ttranslated\tzero\n",
        "zero_optimization.sub_group_size\tno-effect\tit tunes",
        "steps_per_print\ttranslated\tlog_interval\n", "amp\trefused\tuse fp16 or bf16\n",
        "no such\trefused\tunknown key\n", "distributed_type\ttranslated\tzero\n",
        "learning_rate\ttranslated\tlr\n", "bf16\ttranslated\tdtype\n",
        "push_to_hub\trefused\tthere is no hub", "epochs\thonoured\t"}) {
    EXPECT_NE(("\n" + out).find(std::string("\n") + line), std::string::npos) << line << "\n"
                                                                              << out;
  }
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 11) << out;
  Arguments train = {"train", "gpt-tiny", "--data", Write("text", "a"), "--out", Path("run")};
  train.insert(train.end(), given.begin(), given.end());
  ExpectError(train, 2, "'amp' is refused: use fp16 or bf16");
  ExpectError({"explain", "--deepspeed", Path("nowhere")}, 2, "nowhere");
  EXPECT_EQ(Output({"explain", "--no_such_flag", "3", "--lr=1"}),
            "lr\thonoured\ta key of a run\nno_such_flag\trefused\tunknown key\n");
  ExpectError({"explain", "gpt-tiny", "ds.json"}, 2, "'ds.json' was not expected");
}

TEST_F(TrainCommandTest, APlanIsOfEveryRankAndWritesNothing) {
  const std::string text = Write("text", std::string(4000, 'a'));
  const Arguments run = {"gpt-tiny", "--data", text, "--seq-len", "32", "--max-steps", "3"};
  Arguments plan = {"plan", "--json", "--ranks", "4", "--tp", "2", "--zero", "1"};
  plan.insert(plan.end(), run.begin(), run.end());
  const auto json = nlohmann::json::parse(Output(plan));
  ASSERT_EQ(json.at("ranks").size(), 4U);
  for (const auto& rank : json.at("ranks")) {
    EXPECT_GT(rank.at("peak_bytes").get<int64_t>(), rank.at("parameters_bytes").get<int64_t>());
    EXPECT_EQ(rank.at("host_bytes"), 0);
    EXPECT_GT(rank.at("sent_bytes").at("tp"), 0);
  }
  // One rank's peak is what the run reports.
  Arguments one = {"plan", "--json"};
  one.insert(one.end(), run.begin(), run.end());
  const auto planned = nlohmann::json::parse(Output(one)).at("ranks")[0].at("peak_bytes");
  Arguments train = {"train", "--out", Path("planned")};
  train.insert(train.end(), run.begin(), run.end());
  Output(train);
  std::ifstream rows(Path("planned/metrics.jsonl"));
  std::string row;
  std::getline(rows, row);
  const auto peak = nlohmann::json::parse(row).at("peak_bytes").get<double>();
  EXPECT_NEAR(planned.get<double>(), peak, 1e-3 * peak);
  EXPECT_NE(Output({"plan", "gpt-tiny", "--seq-len", "32"}).find("the data are not there"),
            std::string::npos);
  ExpectError({"plan"}, 2, "a preset or a model folder is missing");
  ExpectError({"plan", "gpt-tiny", "--ranks", "3", "--tp", "2"}, 2, "tp 2");
  ExpectError({"plan", "gpt-tiny", "--ranks", "0"}, 2, "--ranks must be at least 1, not 0");
  ExpectError({"plan", "gpt-tiny", "--ranks", "x"}, 2, "--ranks must be an integer, not \"x\"");
  ExpectError({"plan", "gpt-tiny", "--ranks="}, 2, "--ranks must be an integer");
  ExpectError({"plan", "gpt-tiny", "--fit", "much"}, 2, "--fit");
  // A layout without a pipeline goes without what is said of one.
  const Arguments fit = {"plan",  "gpt-tiny", "--seq-len",  "8",
                         "--fit", "1GiB",     "--schedule", "zb-h1"};
  const std::string fitted = Output(fit);
  EXPECT_NE(fitted.find("--pp 1 "), std::string::npos) << fitted;
  EXPECT_NE(fitted.find(" bytes, without --schedule\n"), std::string::npos) << fitted;
  ExpectError({"plan", "gpt-tiny", "--machine", Path("nowhere")}, 2, "nowhere");
}

TEST_F(TrainCommandTest, LaunchTakesTheHostFileByItsShortName) {
  const std::string hosts = Write("hosts", "localhost slots=3\n");
  for (const char* name : {"--hostfile", "-H"}) {
    const std::string command = Output({"launch", name, hosts, "--dry-run", "--", "train"});
    EXPECT_NE(command.find(" -n 3 "), std::string::npos) << command;
  }
}

// A command line as scripts for Hugging Face's Trainer have it.
TEST_F(TrainCommandTest, AFileWithoutKeysIsNoConfiguration) {
  const std::string list = Write("list.json", "[1, 2]");
  const std::string text = Write("text.yaml", "only words\n");
  for (const char* command : {"explain", "train"}) {
    for (const char* flag : {"--config", "--deepspeed"}) {
      ExpectError({command, flag, list}, 2, list + ": a JSON object is needed");
    }
    for (const std::string& file : {list, text, Write("empty.yaml", "")}) {
      ExpectError({command, "--accelerate", file}, 2, file + ": its keys and values are missing");
    }
  }
}

TEST_F(TrainCommandTest, HuggingFaceFlagsAreTaken) {
  const std::string text = Write("text", std::string(4000, 'a'));
  const std::string fsdp =
      Write("fsdp.json", R"({"fsdp_transformer_layer_cls_to_wrap": ["GPT2Block"], "xla": false})");
  const Arguments arguments = {"train",
                               "--model_name_or_path",
                               "gpt-tiny",
                               "--data",
                               text,
                               "--output_dir",
                               Path("run"),
                               "--do_train",
                               "--do_eval",
                               "True",
                               "--max_steps",
                               "2",
                               "--seq_len",
                               "16",
                               "--report_to",
                               "none",
                               "--per_device_train_batch_size",
                               "2",
                               "--logging_steps",
                               "1",
                               "--optim",
                               "adamw_torch_fused",
                               "--lr_scheduler_type",
                               "cosine",
                               "--warmup_ratio",
                               "0.1",
                               "--bf16",
                               "--save_total_limit",
                               "2",
                               "--disable_tqdm",
                               "True",
                               "--push_to_hub",
                               "False",
                               "--fsdp",
                               "full_shard auto_wrap",
                               "--fsdp_config",
                               fsdp};
  Output(arguments);
  const auto saved = nlohmann::json::parse(Read(Path("run") + "/config.json"));
  EXPECT_EQ(saved["zero"], 3);
  EXPECT_EQ(saved["auto_wrap_classes"], "TransformerBlock");
  EXPECT_EQ(saved["autocast"], "bfloat16");
  EXPECT_EQ(saved["warmup_steps"], 0.1);
  EXPECT_EQ(saved["betas"], (std::vector<double>{0.9, 0.999}));
  Arguments on = arguments;
  on[11] = "3";
  on.insert(on.end(), {"--resume_from_checkpoint", Path("run") + "/checkpoint-2"});
  EXPECT_NE(Output(on).find("trained 3 steps"), std::string::npos);
}

// As repeated flags and as lists with commas, wherever the flag stands; what is no value is left to
// the command.
TEST_F(TrainCommandTest, AListsValuesStandBehindOneFlag) {
  const std::string text = Write("text", std::string(4000, 'a'));
  const auto saved = [&](Arguments arguments) {
    arguments.insert(arguments.begin(), "train");
    arguments.insert(arguments.end(), {"--out", Path("run"), "--max-steps", "1", "--seq-len", "16",
                                       "--val-fraction", "0", "--overwrite"});
    Output(arguments);
    const auto config = nlohmann::json::parse(Read(Path("run") + "/config.json"));
    return nlohmann::json{config["report_to"], config["betas"], config["model"], config["data"]};
  };
  const nlohmann::json expected = {
      {"tensorboard", "csv"}, {0.8, 0.99}, "gpt-tiny", nlohmann::json::array({text})};
  for (const Arguments& arguments : {Arguments{"gpt-tiny", "--data", text, "--report_to",
                                               "tensorboard", "csv", "--betas", "0.8", "0.99"},
                                     Arguments{"--report-to", "tensorboard", "csv", "gpt-tiny",
                                               "--betas", "0.8,0.99", "--data", text},
                                     Arguments{"--data", text, "gpt-tiny", "--betas", "0.8", "0.99",
                                               "--report-to=tensorboard", "--report-to", "csv"},
                                     Arguments{"gpt-tiny", "--data", text, "--report-to",
                                               "tensorboard,csv", "--betas", "0.8", "0.99"}}) {
    EXPECT_EQ(saved(arguments), expected);
  }
  ExpectError({"train", "gpt-tiny", "--data", text, "--report_to", "tensorboard", "wandb"}, 2,
              "wandb");
  ExpectError({"train", "gpt-tiny", "--data", text, "--betas", "0.8", "0.9", "0.99"}, 2,
              "--betas must be 2 values");
}

TEST_F(TrainCommandTest, AQuietRunPrintsNothing) {
  const std::string text = Write("text", std::string(4000, 'a'));
  EXPECT_EQ(Output({"train", "gpt-tiny", "--data", text, "--out", Path("run"), "--max_steps", "1",
                    "--seq_len", "16", "--log_level", "warning"}),
            "");
}

TEST_F(TrainCommandTest, AnEnvironmentIsWhatItSays) {
  const std::string text = Write("text", std::string(4000, 'a'));
  const auto train = [&](const Arguments& more) {
    Arguments arguments = {"train", "gpt-tiny", "--data", text, "--out", Path("run")};
    arguments.insert(arguments.end(), {"--max-steps", "1", "--seq-len", "16", "--overwrite"});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  };
  ExpectError(train({"--env_type", "deepspeed"}), 2, "env_type 'zero' needs zero (1, 2 or 3)");
  ExpectError(train({"--env_type", "deepspeed+mpu", "--zero", "1"}), 2, "needs tp above 1");
  ExpectError(train({"--env_type", "pytorchDDP", "--zero", "1"}), 2,
              "env_type 'ddp' excludes zero, which is 1 (a DeepSpeed file may say so)");
  ExpectError(train({"--env_type", "bmtrain"}), 2,
              "use one of single, ddp, zero, zero+tp; words of other systems: pytorch, pytorchDDP, "
              "deepspeed, deepspeed+mpu");
  const std::string ds = Write("ds.json", R"({"train_micro_batch_size_per_gpu": 2})");
  Output(train({"--env_type", "deepspeed", "--deepspeed", ds}));
  const auto saved = nlohmann::json::parse(Read(Path("run") + "/config.json"));
  EXPECT_EQ(saved["zero"], 0);
  EXPECT_EQ(saved["max_grad_norm"], 0);
  EXPECT_EQ(saved["lr_schedule"], "constant");
  ExpectError(train({"--zero", "3", "--bucket-cap-mb", "5"}), 2,
              "--bucket-cap-mb is set, which needs zero 0, 1 or 2 (zero is 3)");
}

TEST_F(TrainCommandTest, WhatWasSetIsPrintedAndTheWholeIsSaved) {
  const std::string text = Write("text", std::string(4000, 'a'));
  const Arguments arguments = {"train",     "gpt-tiny",  "--data",       text,
                               "--out",     Path("run"), "--max-steps",  "1",
                               "--seq-len", "16",        "--batch-size", "8"};
  const std::string out = Output(arguments);
  EXPECT_NE(out.find("\n  max_steps   1"), std::string::npos) << out;
  EXPECT_NE(out.find("(the default)"), std::string::npos) << out;
  EXPECT_EQ(out.find("bucket_cap_mb"), std::string::npos) << out;
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("  ", 0) != 0) continue;
    EXPECT_LE(line.size(), 120u) << line;
  }
  const auto saved = nlohmann::json::parse(Read(Path("run") + "/config.json"));
  EXPECT_EQ(saved["bucket_cap_mb"], 25);
  EXPECT_EQ(saved["dropout"], nullptr);
  EXPECT_EQ(saved["min_lr"], 0.1 * 3e-4);
  EXPECT_EQ(saved["betas"], (std::vector<double>{0.9, 0.95}));
  EXPECT_FALSE(saved.contains("growth_factor"));
  // It can be given back as it is.
  Output({"train", "--config", Path("run") + "/config.json", "--out", Path("again")});
}

TEST_F(TrainCommandTest, OneRunAtATimeWorksInADirectory) {
  const std::string text = Write("text", std::string(4000, 'a'));
  const Arguments arguments = {"train",     "gpt-tiny",    "--data", text,        "--out",
                               Path("run"), "--max-steps", "2",      "--seq-len", "16"};
  fs::create_directories(Path("run"));
  const std::string lock = Path("run") + "/run.lock";
  std::ofstream(Path("run") + "/checkpoint-1.tmp-1-1") << "a save of the other run";
  const int file = open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(write(file, "process 4711 on there\n", 22), 22);
  ASSERT_EQ(flock(file, LOCK_EX | LOCK_NB), 0);
  ExpectError(arguments, 1, "process 4711 on there is training there");
  EXPECT_TRUE(fs::exists(Path("run") + "/checkpoint-1.tmp-1-1"));
  EXPECT_FALSE(fs::exists(Path("run") + "/data"));
  close(file);  // as the kernel does for a process that was killed
  Output(arguments);
  EXPECT_FALSE(fs::exists(Path("run") + "/checkpoint-1.tmp-1-1"));
  // One in a checkpoint, whose index was being amended.
  const std::string left = Path("run") + "/checkpoint-2/checkpoint.json.tmp-1-1";
  ASSERT_TRUE(fs::exists(Path("run") + "/checkpoint-2/checkpoint.json"));
  std::ofstream(left) << "half an index";
  Arguments resumed = arguments;
  resumed.emplace_back("--resume");
  Output(resumed);
  EXPECT_FALSE(fs::exists(left));
}

// transformers' Trainer has the same names for other checkpoints, which no run may take for its
// own.
TEST_F(TrainCommandTest, ACheckpointOfAnotherSystemIsLeftAlone) {
  const std::string text = Write("text", std::string(4000, 'a'));
  const std::string theirs = Path("run") + "/checkpoint-2";
  fs::create_directories(theirs);
  std::ofstream(theirs + "/trainer_state.json") << "{}";
  const Arguments run = {"train",     "gpt-tiny",  "--data",          text,
                         "--out",     Path("run"), "--max-steps",     "4",
                         "--seq-len", "16",        "--save-interval", "1"};
  for (const char* flag : {"", "--resume", "--overwrite"}) {
    Arguments arguments = run;
    if (*flag != '\0') arguments.emplace_back(flag);
    ExpectError(arguments, 2, theirs + ": is no checkpoint of this program");
    EXPECT_TRUE(fs::exists(theirs + "/trainer_state.json")) << flag;
  }
  // Nor is there anything to be continued in it, or in a checkpoint of torch.distributed.
  std::ofstream(theirs + "/__0_0.distcp") << "";
  Arguments named = run;
  named[5] = Path("other");
  named.insert(named.end(), {"--resume", theirs});
  ExpectError(named, 2,
              theirs +
                  ": no checkpoint of a run (checkpoint.json), but a checkpoint of "
                  "torch.distributed; `python -m torch.distributed.checkpoint.format_utils "
                  "dcp_to_torch` makes one file of it");
  named.back() = *model_;
  ExpectError(
      named, 2,
      *model_ + ": no checkpoint of a run (checkpoint.json), but a model's folder; give it");
}

TEST_F(TrainCommandTest, SeveralSourcesAreBlended) {
  const std::string a = Write("a.txt", std::string(4000, 'a'));
  const std::string b = Write("b.txt", std::string(8000, 'b'));
  const auto train = [&](const std::string& out, const Arguments& data) {
    Arguments arguments = {"train",          "gpt-tiny", "--out",     Path(out),
                           "--max-steps",    "1",        "--seq-len", "16",
                           "--val-fraction", "0",        "--threads", "1"};
    arguments.insert(arguments.end(), data.begin(), data.end());
    return arguments;
  };
  // 3 of 10 samples are of a.txt, all of whose 249 must be seen.
  EXPECT_NE(Output(train("weighted", {"--data", a + ":0.3", "--data", b + ":0.7"}))
                .find("causal_lm on 832 training samples"),
            std::string::npos);
  EXPECT_NE(Output(train("by_size", {"--data", a, "--data", b})).find("causal_lm on 750 "),
            std::string::npos);
  EXPECT_NE(Output(train("one_flag", {"--data", a + ":0.3", b + ":0.7"}))
                .find("causal_lm on 832 training samples"),
            std::string::npos);
  // Megatron-LM's list of weights and paths.
  EXPECT_NE(Output(train("megatron", {"--data-path", "0.3", a, "0.7", b}))
                .find("causal_lm on 832 training samples"),
            std::string::npos);
  ExpectError(train("mixed", {"--data", a + ":0.3", "--data", b}), 2, "b.txt' has no weight");
  ExpectError(train("absent", {"--data", a + ":x"}), 2, "a.txt:x");
}

}  // namespace
}  // namespace tessera
