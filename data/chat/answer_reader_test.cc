// SPDX-License-Identifier: Apache-2.0
#include "data/chat/answer_reader.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tessera::data {
namespace {

using Kind = AnswerPart::Kind;

constexpr char kQwen[] = "... within <tool_call></tool_call> XML tags ...";
constexpr char kLlama[] = R"(Respond in the format {"name": function name, "parameters": ...)";
constexpr char kMistral[] = "{{ '[TOOL_CALLS] [' }}";
constexpr char kMistralNames[] = "{{ '[TOOL_CALLS]' + name + '[ARGS]' + arguments }}";

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
}

TEST(AnswerReaderTest, CallsOfEveryForm) {
  struct Case {
    const char* chat_template;
    const char* answer;
    const char* parts;
  };
  const Case kCases[] = {
      // Qwen 2.5 and Hermes, which writes the arguments first.
      {kQwen,
       "Wait. <tool_call>\n{\"name\": \"f\", \"arguments\": {\"b\": 1, \"a\": \"x\"}}\n"
       "</tool_call>\n<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>",
       R"(Wait. |f{"b":1,"a":"x"}|g{})"},
      {kQwen, "<tool_call>\n{\"arguments\": {\"a\": 1}, \"name\": \"f\"}\n</tool_call>",
       R"(f{"a":1})"},
      {kQwen, "<tool_call>{\"name\": \"f\", \"arguments\": {}}", "f{}"},
      {kQwen, "<tool_call>{\"name\": \"f\"}\n{\"name\": \"g\"}</tool_call> So.", "f{}|g{}|So."},
      {kQwen, R"(<tool_call>{"name": "f", "parameters": {"a": "}"}}</tool_call>)", R"(f{"a":"}"})"},
      // Llama 3: an object, several behind the mark and with ";" between them.
      {kLlama, R"({"name": "f", "parameters": {"a": [1, 2]}})", R"(f{"a":[1,2]})"},
      {kLlama, R"(<|python_tag|>{"name": "g", "parameters": {}})", "g{}"},
      {kLlama, R"(Let me see. <|python_tag|>{"name": "f"}; {"name": "g", "arguments": {"a": 1}})",
       R"(Let me see. |f{}|g{"a":1})"},
      {kLlama, R"({"name": "f", "parameters": {"a": ";"}};{"name": "g", "parameters": {}})",
       R"(f{"a":";"}|g{})"},
      {kLlama, R"({"type": "function", "name": "g", "parameters": "{\"a\": 1}"})", R"(g{"a": 1})"},
      // Mistral: a list, and since 2025 names.
      {kMistral,
       R"([TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {}}])",
       R"(f{"a":1}|g{})"},
      {kMistral, R"([TOOL_CALLS][{"name": "f", "arguments": "{\"a\": 1}", "id": "123456789"}])",
       R"(f{"a": 1})"},
      {kMistral, R"(Yes.[TOOL_CALLS][{"name": "f"}])", "Yes.|f{}"},
      {kMistralNames, R"([TOOL_CALLS]f[ARGS]{"a": "[TOOL_CALLS]"})", R"(f{"a":"[TOOL_CALLS]"})"},
      {kMistralNames, R"(Yes.[TOOL_CALLS]f[CALL_ID]123456789[ARGS]{"a": 1}[TOOL_CALLS]g[ARGS]{})",
       R"(Yes.|f{"a":1}|g{})"},
      {kMistralNames, R"([TOOL_CALLS] f [ARGS] {"a": 1} [TOOL_CALLS] g [ARGS] {} )",
       R"(f{"a":1}|g{})"},
      {kMistralNames, R"([TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}}])", R"(f{"a":1})"},
  };
  for (const Case& one : kCases) ExpectParts(Calling(one.chat_template), one.answer, one.parts);
  AnswerReaderOptions one = Calling(kMistral);
  one.most_calls = 1;
  ExpectParts(one, R"([TOOL_CALLS] [{"name": "f"}, {"name": "g"}])", "f{}");
}

TEST(AnswerReaderTest, ArgumentsAreSpelledAsTheModelWroteThem) {
  const std::string numbers = R"({"id":123456789012345678901234567890,"n":[-0,1.10,1E5,)"
                              R"(0.12345678901234567890123],"a b":" \u00e9 \" {","o":{}})";
  ExpectParts(Calling(kQwen),
              "<tool_call>{\"name\": \"f\", \"arguments\": " + numbers + " }\n</tool_call>",
              "f" + numbers);
  ExpectParts(Calling(kMistral),
              R"([TOOL_CALLS][{"arguments":)" + numbers + R"(, "name" : "f"},{"name": "g"}])",
              "f" + numbers + "|g{}");
  ExpectParts(Calling(kMistralNames), "[TOOL_CALLS]f[ARGS]" + numbers, "f" + numbers);
  // Blanks between values are left out; of a key given twice the last value counts.
  ExpectParts(Calling(kLlama),
              "{\"name\": \"g\", \"name\": \"f\",\n\"parameters\" : { \"a\" : [ 1 , {} ] } }",
              R"(f{"a":[1,{}]})");
  ExpectParts(Calling(kQwen), R"(<tool_call>{"name": "f", "arguments": null }</tool_call>)", "f{}");
}

TEST(AnswerReaderTest, EndMarksInStringsArePartsOfArguments) {
  const std::string call = R"(<tool_call>{"name": "f", "arguments": {"a": "</tool_call>\"x"}})";
  const std::string part = R"(f{"a":"</tool_call>\"x"})";
  ExpectParts(Calling(kQwen), call + "</tool_call>", part);
  ExpectParts(Calling(kQwen), call, part);
  ExpectParts(Calling(kQwen), call + "\n</tool_call>\n" + call + "\n</tool_call> So.",
              part + "|" + part + "|So.");
  // The call before the last one is told before the answer ends.
  AnswerReader reader(Calling(kQwen));
  EXPECT_EQ(reader.Push(call + "</tool_call><tool").size(), 1u);
}

TEST(AnswerReaderTest, AMalformedCallEndsAtItsMark) {
  const std::string good = R"(<tool_call>{"name": "g"}</tool_call>)";
  for (const std::string bad :
       {R"(<tool_call>{"name": "f}</tool_call>)", R"(<tool_call>{"name": </tool_call>)",
        "<tool_call>{\"name\": \"f}\n</tool_call>", R"(<tool_call>say "f</tool_call>)",
        R"(<tool_call>{"name": "f" "}</tool_call>)"}) {
    ExpectParts(Calling(kQwen), bad, bad);
    ExpectParts(Calling(kQwen), bad + " so", bad + " so");
    ExpectParts(Calling(kQwen), bad + good, bad + "|g{}");
    ExpectParts(Calling(kQwen), bad + bad + good + " so", bad + bad + "|g{}|so");
  }
}

TEST(AnswerReaderTest, MarksMayBeSpecialTokens) {
  using Marks = std::vector<std::string>;
  EXPECT_EQ(MarksOf(nullptr, false), Marks());
  EXPECT_EQ(MarksOf(CallFormOf(kQwen), true),
            (Marks{"<think>", "</think>", "<tool_call>", "</tool_call>"}));
  EXPECT_EQ(MarksOf(CallFormOf(kLlama), false), Marks{"<|python_tag|>"});
  EXPECT_EQ(MarksOf(CallFormOf(kMistralNames), false),
            (Marks{"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"}));
}

TEST(AnswerReaderTest, WhatIsNoCallStaysWords) {
  for (const std::string words :
       {"<tool_call>\n{\"name\": \"h\", \"arguments\": {}}", "<tool_call> {\"name\": ", "<tool_cal",
        "<tool_call>[]", R"(<tool_call>{"name": "f", "arguments": "{"})", "a < b",
        R"(<tool_call>{"name": "h"}</tool_call> <tool_call>{"name": 1}</tool_call>)",
        R"(<tool_call>{"name": "f"} and {"name": "g"}</tool_call>)",
        // Arguments are an object, in a text, too.
        R"(<tool_call>{"name": "f", "arguments": "[1]"}</tool_call>)",
        R"(<tool_call>{"name": "f", "arguments": "5"}</tool_call>)",
        R"(<tool_call>{"name": "f", "arguments": "\"{}\""}</tool_call>)",
        R"(<tool_call>{"name": "f", "arguments": ""}</tool_call>)",
        R"(<tool_call>{"name": "f", "arguments": [1]}</tool_call>)",
        R"(<tool_call>[{"name": "f"}, {"name": 1}]</tool_call>)",
        R"(<tool_call>{"name": "f", "arguments": {"a": NaN}}</tool_call>)"}) {
    ExpectParts(Calling(kQwen), words, words);
  }
  for (const std::string words :
       {"[TOOL_CALLS]h[ARGS]{}", "[TOOL_CALLS]f", "[TOOL_CALLS]f[ARGS]", "[TOOL_CALLS]f[ARGS]{",
        "[TOOL_CALLS]f[ARGS]{}[TOOL_CALLS]", "[TOOL_CALLS]f[ARGS][1]", "[ARGS]{}"}) {
    ExpectParts(Calling(kMistralNames), words, words);
  }
  ExpectParts(Calling(kLlama), "<|python_tag|>print(1)", "<|python_tag|>print(1)");
  ExpectParts(Calling(kLlama), R"({"name": "f"} or {"name": "g"})",
              R"({"name": "f"} or {"name": "g"})");
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
}  // namespace tessera::data
