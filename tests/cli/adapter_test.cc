// Adapters from the command line: trained, resumed, run, judged and merged.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/cli/cli_runs.h"

namespace tessera {
namespace {

using nlohmann::json;

class AdapterCommandsTest : public CliRuns {
 protected:
  std::string Text() const {
    std::string text;
    for (int i = 0; i < 200; ++i) text += "the " + std::to_string(i % 13) + "th of many lines\n";
    return Write("text.txt", text);
  }
  Arguments TrainArguments(const std::string& out, const Arguments& more,
                           const std::string& steps = "6") const {
    Arguments arguments = {
        "train",        *model_, "--data",         Text(), "--out",          Path(out),
        "--batch-size", "4",     "--seq-len",      "16",   "--lr",           "1e-2",
        "--max-steps",  steps,   "--log-interval", "1",    "--val-fraction", "0.2"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  std::string Train(const std::string& out, const Arguments& more,
                    const std::string& steps = "6") const {
    const Outcome outcome = Run(TrainArguments(out, more, steps));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return Path(out) + "/model";
  }
  std::string Generated(const Arguments& more) const {
    Arguments arguments = {"generate", "--ids", "5,9,17", "--max-new-tokens", "12"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Output(arguments);
  }
  double EvaluatedLoss(const Arguments& more) const {
    Arguments arguments = {"eval", "--data", Text(), "--seq-len", "16"};
    arguments.insert(arguments.begin() + 1, more.begin(), more.end());
    const std::string line = Output(arguments);
    const size_t at = line.find("loss ");
    EXPECT_NE(at, std::string::npos) << line;
    return at == std::string::npos ? 0 : std::stod(line.substr(at + 5));
  }
};

TEST_F(AdapterCommandsTest, EveryKindIsTrainedRunAndMerged) {
  for (const std::string kind : {"lora", "rslora", "dora"}) {
    SCOPED_TRACE(kind);
    const std::string adapter =
        Train(kind, {"--adapter", kind, "--lora-r", "4", "--lora-alpha", "8", "--lora-dropout",
                     "0.1", "--target-modules", "c_attn,c_fc"});
    const auto config = json::parse(Read(adapter + "/adapter_config.json"));
    EXPECT_EQ(config["r"], 4);
    EXPECT_EQ(config["target_modules"], json({"c_attn", "c_fc"}));
    EXPECT_EQ(config["use_dora"], kind == "dora");
    EXPECT_EQ(config["use_rslora"], kind == "rslora");
    EXPECT_EQ(config["fan_in_fan_out"], true);
    EXPECT_EQ(config["base_model_name_or_path"], *model_);
    EXPECT_FALSE(fs::exists(adapter + "/model.safetensors"));
    const std::string with = Generated({"--model", *model_, "--adapter", adapter});
    EXPECT_NE(with, Generated({"--model", *model_}));
    Output({"merge", *model_, adapter, Path(kind + "_merged")});
    EXPECT_EQ(with, Generated({"--model", Path(kind + "_merged")}));
    const double loss = EvaluatedLoss({"--model", *model_, "--adapter", adapter});
    EXPECT_LT(loss, EvaluatedLoss({"--model", *model_}));
    EXPECT_NEAR(loss, EvaluatedLoss({"--model", Path(kind + "_merged")}), 1e-5);
  }
}

// The base is read from its folder again.
TEST_F(AdapterCommandsTest, CheckpointsHoldTheSmallPartAndResumeExactly) {
  const Arguments lora = {"--adapter",       "lora", "--lora-dropout",   "0.2",
                          "--save-interval", "3",    "--schedule-steps", "6"};
  const std::string whole = Train("whole", lora);
  Train("resumed", lora, /*steps=*/"3");
  Arguments rest = lora;
  rest.push_back("--resume");
  EXPECT_EQ(Read(Train("resumed", rest) + "/adapter_model.safetensors"),
            Read(whole + "/adapter_model.safetensors"));
  int64_t bytes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(Path("whole"))) {
    const std::string path = entry.path().string();
    if (path.find("checkpoint") == std::string::npos || !path.ends_with(".safetensors")) continue;
    bytes = std::max<int64_t>(bytes, static_cast<int64_t>(entry.file_size()));
  }
  EXPECT_GT(bytes, 0);
  EXPECT_LT(bytes, static_cast<int64_t>(fs::file_size(*model_ + "/model.safetensors")) / 2);
  // An adapter goes on where it was.
  const Outcome more = Run(TrainArguments("more", {"--adapter", whole}));
  EXPECT_EQ(more.code, 0) << more.err;
}

TEST_F(AdapterCommandsTest, WhatCannotBeIsSaidInALine) {
  ExpectError(TrainArguments("x", {"--adapter", "loar"}), 2,
              "adapter: 'loar' is neither lora, rslora, dora nor a folder");
  ExpectError(TrainArguments("x", {"--adapter", "lora", "--target-modules", "q_proj"}), 2,
              "target_modules name no linear layer of this model");
  ExpectError(TrainArguments("x", {"--lora-r", "4"}), 2,
              "lora_r is set, which needs adapter lora, rslora or dora");
  ExpectError({"generate", "--model", *model_, "--adapter", *model_, "--ids", "1"}, 2,
              "is no adapter: it has no adapter_config.json");
  ExpectError({"merge", *model_, *model_, Path("merged")}, 2, "is no adapter");
  ExpectError({"merge", *model_, *model_, *model_}, 2, "exists; a new folder is written");
}

TEST_F(AdapterCommandsTest, ConversationsAreShownAsTheFoldersTemplateHasThem) {
  const std::string chats =
      Write("chats.jsonl", R"({"messages": [{"role": "user", "content": "a \"b\"\nü"}]})"
                           "\n"
                           R"({"messages": [{"role": "system", "content": "c"}]})"
                           "\n");
  fs::create_directories(Path("folder"));
  Write("folder/chat_template.jinja",
        "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}");
  EXPECT_EQ(Output({"tokenize", "--tokenizer", Path("folder"), "--chat", chats, "--print-text"}),
            "\"[user]a \\\"b\\\"\\nü\"\n\"[system]c\"\n");
  Write("folder/chat_template.jinja", "\n{{ raise_exception('no ' ~ messages[0].role) }}");
  ExpectError({"tokenize", "--tokenizer", Path("folder"), "--chat", chats, "--print-text"}, 2,
              chats + ":1: " + Path("folder") + "/chat_template.jinja:2: no user");
  ExpectError({"tokenize", "--tokenizer", *model_, "--chat", chats, "--print-text"}, 2,
              "has no chat template");
  ExpectError({"tokenize", "--tokenizer", *model_, "--chat", chats}, 2, "--print-text");
}

}  // namespace
}  // namespace tessera
