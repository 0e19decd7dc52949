// SPDX-License-Identifier: Apache-2.0
#include "serve/answer_reader.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tessera::serve {
namespace {

using Kind = AnswerPart::Kind;

constexpr char kQwen[] = "... within <tool_call></tool_call> XML tags ...";
constexpr char kLlama[] = R"(Respond in the format {"name": function name, "parameters": ...)";
constexpr char kMistral[] = "{{ '[TOOL_CALLS] [' }}";

// All that an answer says, in pieces of `size` bytes: "words|(reasoning)|name{...}".
std::string Read(const AnswerReaderOptions& options, const std::string& answer, size_t size) {
  AnswerReader reader(options);
  std::vector<AnswerPart> parts;
  const auto take = [&](std::vector<AnswerPart> more) {
    for (AnswerPart& part : more) {
      const bool goes_on = !parts.empty() && parts.back().kind == part.kind;
      if (goes_on && part.kind != Kind::kCall) {
        parts.back().text += part.text;
      } else {
        parts.push_back(part);
      }
    }
  };
  for (size_t at = 0; at < answer.size(); at += size) take(reader.Push(answer.substr(at, size)));
  take(reader.Finish());
  std::string all;
  for (const AnswerPart& part : parts) {
    all += all.empty() ? "" : "|";
    all += part.kind == Kind::kReasoning ? "(" + part.text + ")" : part.name + part.text;
  }
  return all;
}

void ExpectParts(const AnswerReaderOptions& options, const std::string& answer,
                 const std::string& parts) {
  for (const size_t size : {1u, 2u, 3u, 7u, 1000u}) {
    EXPECT_EQ(Read(options, answer, size), parts) << size;
  }
}

AnswerReaderOptions Calling(const char* chat_template) {
  return {.calls = CallFormOf(chat_template), .names = {"f", "g"}};
}

TEST(AnswerReaderTest, PlainWordsPassAsTheyCome) {
  AnswerReader reader({});
  EXPECT_EQ(reader.Push(" <tool_call> {").at(0).text, " <tool_call> {");
  EXPECT_TRUE(reader.Finish().empty());
  EXPECT_EQ(CallFormOf("{{ messages }}"), nullptr);
  EXPECT_EQ(CallFormOf("<tool_call><function=f>"), nullptr);
  EXPECT_EQ(CallFormOf("[TOOL_CALLS]f[ARGS]{}"), nullptr);
}

TEST(AnswerReaderTest, CallsOfEveryForm) {
  ExpectParts(Calling(kQwen),
              "Wait. <tool_call>\n{\"name\": \"f\", \"arguments\": {\"b\": 1, \"a\": \"x\"}}\n"
              "</tool_call>\n<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>",
              R"(Wait. |f{"b":1,"a":"x"}|g{})");
  ExpectParts(Calling(kLlama), R"({"name": "f", "parameters": {"a": [1, 2]}})", R"(f{"a":[1,2]})");
  ExpectParts(Calling(kLlama), R"(<|python_tag|>{"name": "g", "parameters": {}})", "g{}");
  ExpectParts(
      Calling(kMistral),
      R"([TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {}}])",
      R"(f{"a":1}|g{})");
  // Arguments in a text, and none.
  ExpectParts(Calling(kMistral), R"([TOOL_CALLS][{"name": "f", "arguments": "{\"a\": 1}"}])",
              R"(f{"a": 1})");
  ExpectParts(Calling(kMistral), R"([TOOL_CALLS][{"name": "f"}])", "f{}");
  AnswerReaderOptions one = Calling(kMistral);
  one.most_calls = 1;
  ExpectParts(one, R"([TOOL_CALLS] [{"name": "f"}, {"name": "g"}])", "f{}");
}

TEST(AnswerReaderTest, WhatIsNoCallStaysWords) {
  for (const std::string words :
       {"<tool_call>\n{\"name\": \"h\", \"arguments\": {}}", "<tool_call> {\"name\": ", "<tool_cal",
        "<tool_call>[]", R"(<tool_call>{"name": "f", "arguments": "{"})", "a < b"}) {
    ExpectParts(Calling(kQwen), words, words);
  }
  ExpectParts(Calling(kLlama), R"( {"name": "Bob", "age": 3})", R"( {"name": "Bob", "age": 3})");
  ExpectParts(Calling(kLlama), R"(It is {"name": "f"}.)", R"(It is {"name": "f"}.)");
  const std::string deep = "<tool_call>" + std::string(100'000, '[');
  EXPECT_EQ(Read(Calling(kQwen), deep, 1 << 20), deep);
}

TEST(AnswerReaderTest, ReasoningIsApart) {
  EXPECT_TRUE(KnowsReasoning("{{ '<think>\\n\\n</think>\\n\\n' }}"));
  EXPECT_FALSE(KnowsReasoning("{{ content }}"));
  AnswerReaderOptions options = Calling(kQwen);
  options.reasons = true;
  ExpectParts(options, "<think>\nA < B, so.\n\n</think>\n\nYes. ", "(A < B, so.)|Yes. ");
  ExpectParts(options, "<think>\n\n</think>\n\nYes.", "Yes.");
  ExpectParts(options, "<think>\nA", "(A)");
  ExpectParts(options, "<think>A</think>\n<tool_call>{\"name\": \"f\"}</tool_call>", "(A)|f{}");
  options.begin = AnswerReaderOptions::Begin::kReasoning;
  ExpectParts(options, "A <b> c \n</think>\n\nYes.", "(A <b> c)|Yes.");
}

}  // namespace
}  // namespace tessera::serve
