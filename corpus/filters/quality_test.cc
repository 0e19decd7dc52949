// SPDX-License-Identifier: Apache-2.0
#include "corpus/filters/quality.h"

#include <gtest/gtest.h>

namespace tessera::corpus {
namespace {

std::string Prose(int sentences) {
  std::string text;
  for (int i = 0; i < sentences; ++i) {
    text += "The story number " + std::to_string(i * 7919 % 1000) + " that we have was about item" +
            std::to_string(i) + " and the people of town" + std::to_string(i * 31) + ".\n";
  }
  return text;
}

std::string Gopher(const std::string& text) { return GopherQuality(TextFacts(text)).filter; }
std::string Repetition(const std::string& text) { return GopherRepetition(TextFacts(text)).filter; }

std::string Times(int count, const std::string& text) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

TEST(TextFactsTest, CountsWhatThereIs) {
  const TextFacts facts("Größe  eins\n\n \nzwei\xE3\x80\x80世界 ");
  EXPECT_EQ(facts.words.size(), 4u);
  EXPECT_EQ(facts.words[0].characters, 5);
  EXPECT_EQ(facts.lines.size(), 2u);
  EXPECT_EQ(facts.paragraphs.size(), 2u);
  EXPECT_EQ(CountPieces("I've seen 12 cats."), 6);
  EXPECT_EQ(CountPieces("你好世界"), 4);
}

TEST(QualityTest, GopherRulesByName) {
  EXPECT_EQ(Gopher(Prose(10)), "");
  EXPECT_EQ(Gopher("too short"), "gopher_words");
  EXPECT_EQ(Gopher(Times(100, "a b ")), "gopher_word_length");
  EXPECT_EQ(Gopher(Prose(10) + Times(40, "# ")), "gopher_symbols");
  EXPECT_EQ(Gopher(Times(20, "- the list of items and that\n")), "gopher_bullets");
  EXPECT_EQ(Gopher(Times(20, "the line of the text that goes here and there on...\n")),
            "gopher_ellipsis");
  EXPECT_EQ(Gopher(Prose(4) + Times(60, "1234 ")), "gopher_letters");
  EXPECT_EQ(Gopher(Times(60, "ohne jedes Stoppwort ")), "gopher_stop_words");
}

TEST(QualityTest, GopherRepetitionByName) {
  std::string varied;
  for (int i = 0; i < 300; ++i)
    varied += "word" + std::to_string(i * i) + (i % 9 == 8 ? "\n" : " ");
  EXPECT_EQ(Repetition(varied), "");
  EXPECT_EQ(Repetition(Times(5, Prose(1) + "\n")), "gopher_duplicate_paragraphs");
  EXPECT_EQ(Repetition(Prose(10) + Times(10, "x y\n")), "gopher_duplicate_lines");
  EXPECT_EQ(Repetition(Prose(3) + Times(30, "same words ")), "gopher_top_2_gram");
  std::string half;
  for (int i = 0; i < 60; ++i) half += "word" + std::to_string(i) + " ";
  EXPECT_EQ(Repetition(half + half), "gopher_duplicate_5_gram");
}

TEST(QualityTest, C4TakesLinesOut) {
  std::string text = Times(5, "This is a whole sentence. ") +
                     "\nNo end here at all\nShort one.\n"
                     "Please turn on Javascript to see this.\nWe have a privacy policy right here.";
  Counts counts;
  EXPECT_EQ(C4(&text, &counts).filter, "");
  EXPECT_EQ(text, Times(5, "This is a whole sentence. ").substr(0, 129));
  for (const char* rule : {"end", "words", "javascript", "policy"}) {
    EXPECT_EQ(counts[std::string("removed: c4_line_") + rule], 1) << rule;
  }
  std::string code = Times(5, "This line is a { whole sentence.\n");
  EXPECT_EQ(C4(&code, &counts).filter, "c4_curly_bracket");
  std::string few = "This is a whole sentence.";
  EXPECT_EQ(C4(&few, &counts).filter, "c4_sentences");
  EXPECT_EQ(BadWords(TextFacts("It is \"Ugly\"."), {"ugly"}).value, "ugly");
}

}  // namespace
}  // namespace tessera::corpus
