// SPDX-License-Identifier: Apache-2.0
#include "corpus/io/document.h"

#include <gtest/gtest.h>

namespace tessera::corpus {
namespace {

std::string Line(const Document& document) {
  std::string line;
  document.AppendLine(&line);
  return line;
}

TEST(DocumentTest, WhatNobodyChangesStaysAsItIs) {
  Document document;
  const std::string line = R"({"n":1.50 , "text":"a\u00e9", "o":{ }})";
  ASSERT_EQ(document.Parse(line), nullptr);
  EXPECT_EQ(document.text(), "aé");
  EXPECT_EQ(Line(document), line + "\n");
  document.set_text("b\n");
  EXPECT_EQ(Line(document), R"({"n": 1.50, "text": "b\n", "o": { }})"
                            "\n");
  document.Set("n", "2");
  document.Set("language", "\"en\"");
  document.Remove("o");
  EXPECT_EQ(Line(document), R"({"n": 2, "text": "b\n", "language": "en"})"
                            "\n");
}

TEST(DocumentTest, IsCalledByIdUrlOrNumber) {
  Document document;
  document.number = 12;
  for (const auto& [line, id] : std::initializer_list<std::pair<const char*, const char*>>{
           {R"({"id":7,"url":"u"})", "7"},
           {R"({"id":"a\tb","url":"u"})", "a\tb"},
           {R"({"id":null,"url":"u"})", "u"},
           {R"({"id":"","text":"x"})", "12"}}) {
    ASSERT_EQ(document.Parse(line), nullptr);
    EXPECT_EQ(document.id(), id) << line;
  }
  ASSERT_EQ(document.Parse(R"({"metadata":{"url":"http://a"}})"), nullptr);
  EXPECT_EQ(document.Url(), "http://a");
  EXPECT_FALSE(document.has_text());
}

TEST(DocumentTest, FindsMembersWithinMembers) {
  Document document;
  ASSERT_EQ(document.Parse(R"({"a":{"b":{"c":1},"b.c":"\u0041"},"x.y":2,"x":{"y":3},"n":null})"),
            nullptr);
  for (const auto& [path, value] :
       std::initializer_list<std::pair<const char*, const char*>>{{"x.y", "2"},
                                                                  {"a.b", R"({"c":1})"},
                                                                  {"a.b.c", "A"},
                                                                  {"n", ""},
                                                                  {"n.m", ""},
                                                                  {"a.b.d", ""},
                                                                  {"z", ""},
                                                                  {"a.", ""}}) {
    EXPECT_EQ(document.ValueAt(path), value) << path;
  }
}

TEST(DocumentTest, SaysWhatIsWrong) {
  Document document;
  EXPECT_STREQ(document.Parse("{\"text\":\"\xFF\"}"), "invalid UTF-8");
  EXPECT_STREQ(document.Parse(R"({"text":1})"), "a text that is no string");
  EXPECT_STREQ(document.Parse("[]"), "no JSON object");
  EXPECT_EQ(document.Parse(R"({"text":"a","text":"b"})"), nullptr);
  EXPECT_EQ(document.text(), "b");
}

}  // namespace
}  // namespace tessera::corpus
