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
}

// What clean_page of C4's code (tensorflow/datasets, text/c4_utils.py) makes of a line before three
// sentences: the line, the rule that takes it out, or the one that drops the page.
TEST(QualityTest, C4DoesWhatItsCodeDoes) {
  const auto left = [](const std::string& line) {
    std::string text = line + "\n" + Times(3, "This is a whole sentence. ");
    Counts counts;
    const std::string filter = C4(&text, &counts).filter;
    if (!filter.empty()) return filter;
    return counts.empty() ? text.substr(0, text.find('\n')) : counts.begin()->first;
  };
  EXPECT_EQ(left("He was born[12] in [edit] a town[citation needed]."), "He was born in  a town.");
  EXPECT_EQ(left("Born in a small town.[12]"), "Born in a small town.");
  EXPECT_EQ(left("Born in a small town. [12]"), "removed: c4_line_end");
  EXPECT_EQ(left("[12] He was born in a town."), "He was born in a town.");
  EXPECT_EQ(left("An array[i] has [1, 2] of them."), "An array[i] has [1, 2] of them.");
  const std::string more = " and these are more words.", longest(1000, 'x');
  EXPECT_EQ(left(longest + more), longest + more);
  EXPECT_EQ(left(longest + "x" + more), "removed: c4_line_long_word");
  EXPECT_EQ(left("\u3000It ends with another blank.\u00A0"), "It ends with another blank.");
  EXPECT_EQ(left("These\u00A0five\u00A0words\u00A0do\u3000it."),
            "These\u00A0five\u00A0words\u00A0do\u3000it.");
  EXPECT_EQ(left("These are four words."), "removed: c4_line_words");
  EXPECT_EQ(left("This line is a { whole sentence."), "c4_curly_bracket");
  EXPECT_EQ(left("We use cookies { and more of them }."), "c4_curly_bracket");
  EXPECT_EQ(left("This javascript { is no prose of ours."), "removed: c4_line_javascript");
  EXPECT_EQ(left("A { of a line without an end"), "removed: c4_line_end");
  EXPECT_EQ(left("This is the Lorem Ipsum, not javascript."), "c4_lorem_ipsum");
  Counts counts;
  std::string few = Times(2, "This is a whole sentence. ");
  EXPECT_EQ(C4(&few, &counts).filter, "c4_sentences");
}

TEST(QualityTest, BadWordsAndPhrases) {
  const auto found = [](const std::string& text) {
    return BadWords(TextFacts(text), {"ugly", "very bad", "c++", "s&m", "übel"}).value;
  };
  EXPECT_EQ(found("It is \"Ugly\"."), "ugly");
  EXPECT_EQ(found("UGLY-looking"), "ugly");
  EXPECT_EQ(found("It is re-ugly"), "ugly");
  EXPECT_EQ(found("“ÜBEL”"), "übel");
  EXPECT_EQ(found("a very bad thing"), "very bad");
  EXPECT_EQ(found("we like C++"), "c++");
  EXPECT_EQ(found("s&m"), "s&m");
  for (const char* fine : {"", "uglyness", "ugly2", "_ugly", "nugly", "very  bad", "very badly"}) {
    EXPECT_EQ(found(fine), "") << fine;
  }
}

}  // namespace
}  // namespace tessera::corpus
