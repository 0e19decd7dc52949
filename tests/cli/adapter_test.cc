// SPDX-License-Identifier: Apache-2.0
// Adapters from the command line: trained, resumed, run, judged and merged.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
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
        "train",        base_, "--data",         Text(), "--out",          Path(out),
        "--batch-size", "4",   "--seq-len",      "16",   "--lr",           "1e-2",
        "--max-steps",  steps, "--log-interval", "1",    "--val-fraction", "0.2"};
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
  // With positions for a prefix, too.
  void TakeRoomierBase() {
    const json config = {
        {"model_type", "gpt2"}, {"vocab_size", 257}, {"n_positions", 32},       {"n_embd", 8},
        {"n_layer", 2},         {"n_head", 2},       {"initializer_range", 0.5}};
    const auto model = models::BuildModel(config, {.seed = 1});
    ASSERT_TRUE(model.ok()) << Message(model.status());
    const data::ByteTokenizer tokenizer;
    base_ = Path("base");
    const Status saved = models::SaveModel(**model, base_, &tokenizer);
    ASSERT_TRUE(saved.ok()) << Message(saved);
  }
  double EvaluatedLoss(const Arguments& more) const {
    Arguments arguments = {"eval", "--data", Text(), "--seq-len", "16"};
    arguments.insert(arguments.begin() + 1, more.begin(), more.end());
    const std::string line = Output(arguments);
    const size_t at = line.find("loss ");
    EXPECT_NE(at, std::string::npos) << line;
    return at == std::string::npos ? 0 : std::stod(line.substr(at + 5));
  }

  std::string base_ = *model_;
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
    const std::string said = Output({"inspect", adapter});
    EXPECT_TRUE(said.starts_with(Concat(adapter, ": an adapter, ", kind, " of rank 4, alpha 8, of ",
                                        *model_, "\n", adapter, "/adapter_model.safetensors\n")))
        << said;
    EXPECT_NE(said.find("base_model.model.transformer.h.0.attn.c_attn.lora_A.weight"),
              std::string::npos);
    for (const Arguments& command : {Arguments{"generate", "--ids", "5", "--model", adapter},
                                     Arguments{"eval", "--data", Text(), "--model", adapter}}) {
      ExpectError(command, 2, adapter + ": is an adapter, and no model; give the model that");
    }
    Output({"merge", *model_, adapter, Path(kind + "_merged")});
    EXPECT_EQ(with, Generated({"--model", Path(kind + "_merged")}));
    const double loss = EvaluatedLoss({"--model", *model_, "--adapter", adapter});
    EXPECT_LT(loss, EvaluatedLoss({"--model", *model_}));
    EXPECT_NEAR(loss, EvaluatedLoss({"--model", Path(kind + "_merged")}), 1e-5);
  }
}

TEST_F(AdapterCommandsTest, AnAdapterBecomesLlamaCpps) {
  const std::string adapter = Train("lora", {"--adapter", "lora", "--lora-r", "4"});
  Output({"convert", adapter, Path("lora.gguf")});  // the base is the one that it names
  Output({"convert", adapter, Path("again.gguf"), "--base", *model_});
  EXPECT_EQ(Read(Path("lora.gguf")), Read(Path("again.gguf")));
  ExpectError({"convert", adapter, Path("again.gguf"), "--overwrite", "--dtype", "float16"}, 2,
              "--dtype means nothing to an adapter's file");
  const std::string said = Output({"inspect", Path("lora.gguf")});
  for (const char* line : {"\n  metadata general.type: adapter\n",
                           "\n  metadata adapter.type: lora\n", "\n  metadata adapter.lora.alpha: ",
                           "  blk.0.attn_qkv.weight.lora_a ", "  blk.0.attn_qkv.weight.lora_b "}) {
    EXPECT_NE(said.find(line), std::string::npos) << line << said;
  }
  ExpectError({"convert", adapter, Path("folder")}, 2,
              adapter +
                  ": is an adapter, which becomes a .gguf file here, or a part of a model by "
                  "`tessera merge`");
  ExpectError({"convert", *model_, Path("x.gguf"), "--base", *model_}, 2,
              "--base is of an adapter's folder");
  const std::string dora = Train("dora", {"--adapter", "dora", "--lora-r", "4"});
  ExpectError({"convert", dora, Path("x.gguf")}, 2, "'use_dora': llama.cpp's adapters");
  ExpectError({"generate", "--model", Path("lora.gguf"), "--ids", "1"}, 2, "is an adapter");
}

// ChatGLM's script has no --adapter, and underscores.
TEST_F(AdapterCommandsTest, APrefixIsTrainedRunAndGoneOnWith) {
  TakeRoomierBase();
  const std::map<std::string, Arguments> runs = {
      {"prefix", {"--adapter", "prefix", "--pre-seq-len", "5"}},
      {"ptuning", {"--pre_seq_len", "5"}},
      {"projected", {"--pre_seq_len", "5", "--prefix_projection", "--prefix-hidden-size", "9"}}};
  const std::string plain = Generated({"--model", base_});
  for (const auto& [name, arguments] : runs) {
    SCOPED_TRACE(name);
    const std::string adapter = Train(name, arguments);
    const auto config = json::parse(Read(adapter + "/adapter_config.json"));
    EXPECT_EQ(config["peft_type"], "PREFIX_TUNING");
    EXPECT_EQ(config["task_type"], "CAUSAL_LM");
    EXPECT_EQ(config["num_virtual_tokens"], 5);
    EXPECT_EQ(config["prefix_projection"], name == "projected");
    EXPECT_FALSE(fs::exists(adapter + "/model.safetensors"));
    EXPECT_NE(Generated({"--model", base_, "--adapter", adapter}), plain);
    const std::string begun = Train(name + "_begun", arguments, /*steps=*/"1");
    const double loss = EvaluatedLoss({"--model", base_, "--adapter", adapter});
    EXPECT_LT(loss, EvaluatedLoss({"--model", base_, "--adapter", begun}));
    const std::string more = Train(name + "_more", {"--adapter", adapter});
    EXPECT_LT(EvaluatedLoss({"--model", base_, "--adapter", more}), loss);
    ExpectError({"merge", base_, adapter, Path("merged")}, 2,
                "prefix tuning changes no weight of the model, and cannot be merged with it");
  }
  EXPECT_EQ(Read(Path("prefix") + "/model/adapter_model.safetensors"),
            Read(Path("ptuning") + "/model/adapter_model.safetensors"));
}

// Of a projected prefix a folder has what its layers gave; a checkpoint has the layers.
TEST_F(AdapterCommandsTest, PrefixesResumeExactly) {
  TakeRoomierBase();
  for (const std::string projected : {"false", "true"}) {
    const Arguments prefix = {
        "--adapter", "prefix", "--pre-seq-len",   "3", "--prefix-projection=" + projected,
        "--dropout", "0.1",    "--save-interval", "3", "--schedule-steps",
        "6"};
    const std::string whole = Train("whole" + projected, prefix);
    Train("resumed" + projected, prefix, /*steps=*/"3");
    Arguments rest = prefix;
    rest.push_back("--resume");
    EXPECT_EQ(Read(Train("resumed" + projected, rest) + "/adapter_model.safetensors"),
              Read(whole + "/adapter_model.safetensors"));
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
  // An adapter continues where it was.
  const Outcome more = Run(TrainArguments("more", {"--adapter", whole}));
  EXPECT_EQ(more.code, 0) << more.err;
}

TEST_F(AdapterCommandsTest, WhatCannotBeIsSaidInALine) {
  ExpectError(TrainArguments("x", {"--adapter", "loar"}), 2,
              "adapter: 'loar' is neither lora, rslora, dora, prefix nor a folder");
  ExpectError(TrainArguments("x", {"--adapter", "lora", "--target-modules", "q_proj"}), 2,
              "--target-modules name no linear layer of this model");
  ExpectError(TrainArguments("x", {"--lora-r", "4"}), 2,
              "--lora-r is set, which needs adapter lora, rslora or dora");
  ExpectError(TrainArguments("x", {"--adapter", "prefix", "--lora-r", "4"}), 2,
              "--lora-r is set, which needs adapter lora, rslora or dora");
  ExpectError(TrainArguments("x", {"--adapter", "prefix", "--target-modules", "c_attn"}), 2,
              "--target-modules is set, which needs adapter lora, rslora or dora");
  ExpectError(TrainArguments("x", {"--adapter", "lora", "--pre-seq-len", "4"}), 2,
              "--pre-seq-len is set, which needs adapter prefix");
  ExpectError(TrainArguments("x", {"--pre-seq-len", "4", "--prefix-hidden-size", "4"}), 2,
              "--prefix-hidden-size is set, which needs prefix_projection true");
  ExpectError(TrainArguments("x", {"--pre-seq-len", "0"}), 2, "--pre-seq-len must be at least 1");
  ExpectError(TrainArguments("x", {"--pre-seq-len", "4"}), 2,
              "--seq-len 16 is longer than the model's 12 positions");
  ExpectError(TrainArguments("x", {"--pre-seq-len", "1000000"}), 2,
              "'num_virtual_tokens' is 1000000, which leaves none of the model's");
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
