// SPDX-License-Identifier: Apache-2.0
// Conversations from the command line: learnt from a file, and held.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/cli/cli_runs.h"

namespace tessera {
namespace {

using nlohmann::json;

constexpr char kTokenizer[] = "data/chat/testdata/tokenizer";

class ChatCommandsTest : public CliRuns {
 protected:
  static void SetUpTestSuite() {
    CliRuns::SetUpTestSuite();
    shared_ = new std::string(testing::TempDir() + "/chat_commands");
    fs::remove_all(*shared_);
    fs::create_directories(*shared_);
    // Two questions in any order, in one turn or two.
    std::ofstream chats(*shared_ + "/chats.jsonl");
    for (int i = 0; i < 64; ++i) {
      json turns = json::array();
      for (const int bit : {i % 2, i / 2 % 2}) {
        turns.push_back({{"from", "human"}, {"value", bit == 0 ? "red" : "green"}});
        turns.push_back({{"from", "gpt"}, {"value", bit == 0 ? "there" : "in use"}});
        if (i % 4 == 3) break;
      }
      chats << json{{"conversations", turns}} << "\n";
    }
  }

  static std::string Chats() { return *shared_ + "/chats.jsonl"; }
  static Arguments TrainArguments(const std::string& model, const std::string& out,
                                  const Arguments& more) {
    Arguments arguments = {"train",          model, "--task",         "chat", "--data",    Chats(),
                           "--out",          out,   "--batch-size",   "8",    "--seq-len", "128",
                           "--val-fraction", "0",   "--weight-decay", "0"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  // A model that has learnt the two answers; trained once.
  std::string Trained() const {
    const std::string out = *shared_ + "/run";
    if (!fs::exists(out + "/model")) {
      const Outcome outcome = Run(TrainArguments(
          "llama-tiny", out,
          {"--tokenizer", kTokenizer, "--config-overrides",
           "hidden_size=32,num_hidden_layers=2,num_attention_heads=4,num_key_value_heads=2,"
           "head_dim=8,intermediate_size=64",
           "--lr", "1e-2", "--max-steps", "120", "--packing", "true"}));
      EXPECT_EQ(outcome.code, 0) << outcome.err;
    }
    return out + "/model";
  }
  // The training's folder with another chat template.
  std::string WithTemplate(const std::string& name, const std::string& chat_template) const {
    fs::copy(Trained(), Path(name), fs::copy_options::recursive);
    Write(name + "/chat_template.jinja", chat_template);
    return Path(name);
  }
  std::string Answer(const std::string& messages, const Arguments& more = {}) const {
    Arguments arguments = {"generate", "--model",    Trained(),
                           "--chat",   "--messages", Write("messages.json", messages)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Output(arguments);
  }
  Outcome Conversation(const std::string& lines, const Arguments& more = {}) const {
    Arguments arguments = {"generate", "--model", Trained(), "--chat"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Run(arguments, {.stdin_path = Write("lines.txt", lines)});
  }
  double Loss(const Arguments& more) const {
    Arguments arguments = {"eval",   "--model", Trained(),      "--task", "chat",
                           "--data", Chats(),   "--batch-size", "5"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const std::string line = Output(arguments);
    const size_t at = line.find("loss ");
    EXPECT_NE(at, std::string::npos) << line;
    return at == std::string::npos ? -1 : std::stod(line.substr(at + 5));
  }

  inline static std::string* shared_ = nullptr;
};

TEST_F(ChatCommandsTest, TheAnswerAloneIsPrinted) {
  EXPECT_EQ(Answer(R"([{"role": "user", "content": "red"}])"), "there\n");
  EXPECT_EQ(Answer(R"({"messages": [{"role": "user", "content": "green"}], "tools": null})"),
            "in use\n");
  EXPECT_EQ(Answer(R"([{"role": "user", "content": "red"},
                       {"role": "assistant", "content": "there"},
                       {"role": "user", "content": "green"}])",
                   {"--temperature", "0.01", "--top-k", "2"}),
            "in use\n");
  EXPECT_EQ(Output({"generate", "--model", Trained(), "--chat", "--messages", "-"},
                   {.stdin_path = Write("in", R"([{"role": "user", "content": "red"}])")}),
            "there\n");
}

TEST_F(ChatCommandsTest, LinesAreAnsweredWithWhatWasSaidBefore) {
  const Outcome outcome = Conversation("red\ngreen\n\n/clear\ngreen\n/exit\nred\n");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.err, "");
  EXPECT_EQ(outcome.out, "there\nin use\nin use\n");
  // The end of input ends it too, also within a line.
  EXPECT_EQ(Conversation("green").out, "in use\n");
  EXPECT_EQ(Conversation("").out, "");
}

TEST_F(ChatCommandsTest, WhatWasSaidAndTheSystemsWordsReachTheTemplate) {
  // A third message is refused with all that there is.
  const std::string model = WithTemplate(
      "refusing",
      "{% if messages | length > 2 %}{{ raise_exception(messages | map(attribute='content') | "
      "join('|')) }}{% endif %}{% for m in messages %}<|im_start|>{{ m.role + '\n' + m.content }}"
      "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}");
  const Outcome outcome = Run(
      {"generate", "--model", model, "--chat", "--system", "Be brief.", "--max-new-tokens", "5"},
      {.stdin_path = Write("lines.txt", "red\nand\n/clear\nred\n")});
  EXPECT_EQ(outcome.code, 0);
  ASSERT_GE(outcome.out.size(), 2u);
  const std::string answer = outcome.out.substr(0, outcome.out.size() / 2 - 1);
  EXPECT_EQ(outcome.out, answer + "\n" + answer + "\n");
  EXPECT_EQ(outcome.err,
            "error: " + model + "/chat_template.jinja:1: Be brief.|red|" + answer + "|and\n");
}

TEST_F(ChatCommandsTest, PackedRowsAndOthersHaveOneLoss) {
  const double packed = Loss({"--packing", "true"});
  EXPECT_LT(packed, 0.5);
  EXPECT_NEAR(Loss({"--packing", "false"}), packed, 1e-4 * packed + 1e-6);
}

TEST_F(ChatCommandsTest, AnAdapterAnswers) {
  const Outcome trained =
      Run(TrainArguments(Trained(), Path("adapted"),
                         {"--adapter", "lora", "--target-modules", "all-linear", "--lr", "1e-3",
                          "--max-steps", "5", "--group-by-length", "true"}));
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_EQ(
      Answer(R"([{"role": "user", "content": "red"}])", {"--adapter", Path("adapted") + "/model"}),
      "there\n");
}

TEST_F(ChatCommandsTest, WhatCannotBeAnsweredIsOneLine) {
  const std::string model = Trained();
  const auto fails = [&](const Arguments& more, const std::string& part) {
    Arguments arguments = {"generate", "--model", model};
    arguments.insert(arguments.end(), more.begin(), more.end());
    ExpectError(arguments, 2, part);
  };
  const std::string red = Write("red.json", R"([{"role": "user", "content": "red"}])");
  fails({"--messages", red, "--prompt", "a"}, "--messages needs --chat");
  fails({"--messages", red}, "--messages needs --chat");
  fails({"--chat", "--prompt", "a"}, "give one of --prompt");
  fails({"--chat", "--messages", red, "--system", "a"}, "--system begins a conversation");
  fails({"--chat", "--messages", Path("none.json")}, "none.json");
  fails({"--chat", "--messages", Write("bad.json", "[{")}, "bad.json: not valid JSON at byte 3");
  fails({"--chat", "--messages", Write("request.json", R"({"messages": [], "max_tokens": 3})")},
        "request.json: unknown key 'max_tokens'");
  fails({"--chat", "--messages", Write("empty.json", "[]")}, "empty.json: 'messages' is empty");
  const std::string long_chat = Write(
      "long.json", json::array({{{"role", "user"}, {"content", std::string(400, 'x')}}}).dump());
  fails({"--chat", "--messages", long_chat}, "tokens; the model has 256 positions");
  ExpectError({"generate", "--model", *model_, "--chat", "--messages", red}, 2,
              "has no chat template");
  const std::string refusing =
      WithTemplate("refusing", "\n{{ raise_exception('no ' ~ messages[0].role) }}");
  ExpectError({"generate", "--model", refusing, "--chat", "--messages", red}, 2,
              refusing + "/chat_template.jinja:2: no user");
  // In the terminal it continues.
  const Outcome outcome = Conversation(std::string(400, 'x') + "\n\xFF\nred\n");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.out, "there\n");
  EXPECT_NE(outcome.err.find("tokens; the model has 256 positions\n"), std::string::npos)
      << outcome.err;
  EXPECT_NE(outcome.err.find("invalid UTF-8 at byte 0 of the line\n"), std::string::npos);
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 2);
}

TEST_F(ChatCommandsTest, WhatCannotBeLearntIsOneLine) {
  const auto fails = [&](const Arguments& more, const std::string& part) {
    Arguments arguments = TrainArguments("llama-tiny", Path("x"), {"--max-steps", "1"});
    arguments.insert(arguments.end(), more.begin(), more.end());
    ExpectError(arguments, 2, part);
  };
  fails({}, "has no chat template");
  Arguments short_rows =
      TrainArguments("llama-tiny", Path("x"), {"--max-steps", "1", "--tokenizer", kTokenizer});
  *(std::find(short_rows.begin(), short_rows.end(), "--seq-len") + 1) = "20";
  ExpectError(short_rows, 2, Chats() + ":1: the conversation has ");
  fails({"--tokenizer", kTokenizer, "--long-samples", "split"}, "long-samples");
}

}  // namespace
}  // namespace tessera
