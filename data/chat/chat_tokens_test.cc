// SPDX-License-Identifier: Apache-2.0
#include "data/chat/chat_tokens.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "nlohmann/json.hpp"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr char kFolder[] = "data/chat/testdata/tokenizer";

class ChatTokensTest : public testing::Test {
 protected:
  ChatTokensTest()
      : root_(testing::TempDir() + "/tokens_" +
              testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(root_);
    fs::create_directories(root_);
  }

  // A tokenizer in a folder with this chat template.
  void Load(const std::string& path, const std::string& chat_template,
            const Json& normalizer = nullptr) {
    Json model = Json::parse(*ReadFile(path));
    if (!normalizer.is_null()) model["normalizer"] = normalizer;
    const bool llama = path.find("llama") != std::string::npos;
    const Json config = {{"bos_token", llama ? "<s>" : "<|endoftext|>"},
                         {"eos_token", llama ? "</s>" : "<|endoftext|>"},
                         {"chat_template", chat_template}};
    std::ofstream(root_ + "/tokenizer.json") << model.dump();
    std::ofstream(root_ + "/tokenizer_config.json") << config.dump();
    auto tokenizer = LoadTokenizer(root_);
    ASSERT_TRUE(tokenizer.ok()) << Message(tokenizer.status());
    tokenizer_ = *std::move(tokenizer);
    auto format = ChatFormat::OfTokenizer(*tokenizer_);
    ASSERT_TRUE(format.ok()) << Message(format.status());
    format_ = std::make_unique<ChatFormat>(*std::move(format));
  }

  // What the answers of a conversation are.
  std::vector<std::string> Answers(const Json& messages) const {
    const auto tokens = TokenizeChat(*format_, *tokenizer_, {.messages = messages});
    EXPECT_TRUE(tokens.ok()) << Message(tokens.status());
    std::vector<std::string> texts;
    if (!tokens.ok()) return texts;
    for (const ChatTokens::Span& span : tokens->answers) {
      texts.push_back(
          tokenizer_->Decode(std::span(tokens->ids).subspan(span.begin, span.end - span.begin)));
    }
    return texts;
  }
  std::string Failure(const Json& messages) const {
    return Message(TokenizeChat(*format_, *tokenizer_, {.messages = messages}).status());
  }

  const std::string root_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<ChatFormat> format_;
};

const Json& Turns() {
  static const auto* turns = new Json(Json::parse(R"([
      {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi there"},
      {"role": "assistant", "content": "Hello.\n"}, {"role": "user", "content": "in there"},
      {"role": "assistant", "content": "the user"}])"));
  return *turns;
}

// The ids and return_assistant_tokens_mask of apply_chat_template (tests/parity/chat_tokens.py).
TEST_F(ChatTokensTest, MarkedAnswersAreThoseOfTransformers) {
  const Json cases = Json::parse(*ReadFile("data/chat/testdata/chat_tokens.json"));
  ASSERT_GE(cases.size(), 27u);
  for (const Json& one : cases) {
    const auto kind = one["tokenizer"].get<std::string>();
    SCOPED_TRACE(kind + ", " + one["name"].get<std::string>() + one["messages"].dump());
    Load(kind == "llama" ? "data/tokenizer/testdata/tokenizer_json/llama/tokenizer.json"
                         : std::string(kFolder) + "/tokenizer.json",
         one["template"].get<std::string>(), kind == "composing" ? Json{{"type", "NFC"}} : Json());
    const auto tokens = TokenizeChat(*format_, *tokenizer_, {.messages = one["messages"]});
    ASSERT_TRUE(tokens.ok()) << Message(tokens.status());
    EXPECT_EQ(tokens->ids, one["ids"].get<std::vector<int32_t>>());
    std::vector<int> mask;
    for (const bool answer : tokens->AssistantMask()) mask.push_back(answer ? 1 : 0);
    EXPECT_EQ(mask, one["mask"].get<std::vector<int>>());
  }
}

TEST_F(ChatTokensTest, OtherTemplatesTellTheAnswersByWhatTheyAdd) {
  const auto config = Json::parse(*ReadFile(std::string(kFolder) + "/tokenizer_config.json"));
  const std::string path = std::string(kFolder) + "/tokenizer.json";
  // The line's end behind the end of a turn is the template's.
  Load(path, config["chat_template"].get<std::string>());
  EXPECT_EQ(Answers(Turns()),
            (std::vector<std::string>{"Hello.\n<|im_end|>", "the user<|im_end|>"}));
  EXPECT_EQ(EndOfTurn(*format_, *tokenizer_), tokenizer_->FindSpecial("<|im_end|>"));
  const auto whole = TokenizeChat(*format_, *tokenizer_, {.messages = Turns()});
  ASSERT_TRUE(whole.ok());
  Conversation question = {.messages = Turns()};
  question.messages->erase(4);
  EXPECT_EQ(*TokenizePrompt(*format_, *tokenizer_, question),
            std::vector<int32_t>(
                whole->ids.begin(),
                whole->ids.begin() + static_cast<std::ptrdiff_t>(whole->answers[1].begin)));
  // The parts of a conversation are written with its variables.
  Load(path, "{{ mood }}{% for m in messages %}{{ m.content + eos_token }}{% endfor %}");
  const auto moody = TokenizeChat(*format_, *tokenizer_,
                                  {.messages = Turns(), .variables = Json{{"mood", "good"}}});
  ASSERT_TRUE(moody.ok()) << Message(moody.status());
  EXPECT_EQ(moody->answers.size(), 2u);
  // A blank before the answer goes with its first word; nothing is behind it.
  Load(path,
       "{% for m in messages %}{% if m.role == 'assistant' %}{{ ' ' + m.content + eos_token }}"
       "{% else %}[{{ m.content }}]{% endif %}{% endfor %}");
  EXPECT_EQ(Answers(Turns()),
            (std::vector<std::string>{" Hello.\n<|endoftext|>", " the user<|endoftext|>"}));
  EXPECT_EQ(EndOfTurn(*format_, *tokenizer_), tokenizer_->eos_id());
  // A token at the end of every text that is no prompt.
  Load(path,
       "{% for m in messages %}<|im_start|>{{ m.role + ':' + m.content }}<|im_end|>\n\n{% endfor %}"
       "{% if add_generation_prompt %}<|im_start|>assistant:{% else %}{{ eos_token }}{% endif %}");
  EXPECT_EQ(Answers(Turns()), (std::vector<std::string>{"Hello.\n<|im_end|>",
                                                        "the user<|im_end|>\n\n<|endoftext|>"}));
  EXPECT_TRUE(Answers(Json::array({Turns()[0], Turns()[1]})).empty());
}

// "weight": 0 of OpenAI's fine-tuning, whether templates mark answers or not.
TEST_F(ChatTokensTest, MessagesWithoutWeightAreNotLearnt) {
  const auto weighed = [](const Json& first, const Json& second) {
    Json turns = Turns();
    turns[2]["weight"] = first;
    turns[4]["weight"] = second;
    return turns;
  };
  const std::string header = "{% for m in messages %}<|im_start|>{{ m.role }}:";
  const std::string ends =
      "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant:"
      "{% else %}{{ eos_token }}{% endif %}";
  const std::string marked =
      header +
      "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<|im_end|>"
      "{% endgeneration %}{% else %}{{ m.content }}<|im_end|>{% endif %}" +
      ends;
  for (const std::string& text : {header + "{{ m.content }}<|im_end|>" + ends, marked}) {
    SCOPED_TRACE(text);
    Load(std::string(kFolder) + "/tokenizer.json", text);
    const std::vector<std::string> both = Answers(Turns());
    ASSERT_EQ(both.size(), 2u);
    EXPECT_EQ(Answers(weighed(1, 1)), both);
    EXPECT_EQ(Answers(weighed(nullptr, 1.0)), both);
    EXPECT_EQ(Answers(weighed(0, 1)), std::vector<std::string>{both[1]});
    EXPECT_EQ(Answers(weighed(1, 0)), std::vector<std::string>{both[0]});
    EXPECT_TRUE(Answers(weighed(0, 0)).empty());
    Json alone = Json::array({Turns()[2], Turns()[1], Turns()[4]});
    alone[0]["weight"] = 0;
    EXPECT_EQ(Answers(alone), std::vector<std::string>{both[1]});
  }
  // Reasoning of the last answer alone: nothing need be told of those before it.
  Load(std::string(kFolder) + "/tokenizer.json",
       header +
           "{% if m.role == 'assistant' and loop.last %}<think></think>{% endif %}{{ m.content }}"
           "<|im_end|>" +
           ends);
  EXPECT_EQ(Answers(weighed(0, 1)),
            std::vector<std::string>{"<think></think>the user<|im_end|><|endoftext|>"});
  Load(std::string(kFolder) + "/tokenizer.json", "{{ messages | length }}" + marked);
  EXPECT_EQ(Answers(Turns()).size(), 2u);
  EXPECT_EQ(Failure(weighed(0, 1)),
            "messages[2]: the chat template writes the messages up to it otherwise in the whole "
            "conversation than by themselves, so that the assistant's part cannot be told, as its "
            "'weight' needs");
}

TEST_F(ChatTokensTest, WhatCannotBeToldIsRefused) {
  const std::string path = std::string(kFolder) + "/tokenizer.json";
  // Reasoning is shown of the last answer only.
  Load(
      path,
      "{% for m in messages %}<|im_start|>{{ m.role }}:{% if m.role == 'assistant' and loop.last %}"
      "<think></think>{% endif %}{{ m.content }}<|im_end|>{% endfor %}"
      "{% if add_generation_prompt %}<|im_start|>assistant:{% endif %}");
  EXPECT_EQ(Failure(Turns()),
            "messages[2]: the chat template writes the messages up to it otherwise in the whole "
            "conversation than by themselves, so that the assistant's part cannot be told; the "
            "template can mark it by {% generation %} blocks");
  EXPECT_EQ(Answers(Json::array({Turns()[1], Turns()[2]})),
            std::vector<std::string>{"<think></think>Hello.\n<|im_end|>"});
  // How many messages there are is before them.
  Load(path, "{{ messages | length }}{% for m in messages %}{{ m.content }}{% endfor %}");
  EXPECT_EQ(Failure(Turns()).find("messages[2]: "), 0u) << Failure(Turns());
  EXPECT_EQ(EndOfTurn(*format_, *tokenizer_), std::nullopt);
  Load(path, "{{ raise_exception('no ' ~ messages[0].role) }}");
  EXPECT_EQ(Failure(Turns()), "tokenizer_config.json:1: no system");
}

}  // namespace
}  // namespace tessera::data
