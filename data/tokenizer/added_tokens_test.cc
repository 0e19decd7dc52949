// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/added_tokens.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace tessera::data {
namespace {

using Pieces = std::vector<std::pair<std::string, int32_t>>;

Pieces Split(const AddedTokenMatcher& matcher, const std::string& text) {
  Pieces pieces;
  for (const TextPiece& piece : matcher.Split(text, true)) {
    pieces.emplace_back(piece.text, piece.id);
  }
  return pieces;
}

// What Hugging Face's tokenizers (0.23) makes of these texts with these tokens.
TEST(AddedTokenMatcherTest, SplitsAsTokenizersDoes) {
  const AddedTokenMatcher matcher({
      {.content = "cat", .id = 1, .single_word = true},
      {.content = "<m>", .id = 2, .lstrip = true},
      {.content = "<r>", .id = 3, .rstrip = true},
      {.content = "<b>", .id = 4, .lstrip = true, .rstrip = true},
      {.content = "\303\251", .id = 5, .single_word = true},
      {.content = "  ", .id = 6},
      {.content = " w", .id = 7, .lstrip = true, .single_word = true},
      {.content = "#x#", .id = 8, .rstrip = true, .single_word = true},
      {.content = "catalog", .id = 9, .single_word = true},
  });
  const std::vector<std::pair<std::string, Pieces>> goldens = {
      {"a cat sat", {{"a ", -1}, {"cat", 1}, {" sat", -1}}},
      {"concat cats", {{"concat cats", -1}}},
      {"cat, (cat) _cat", {{"cat", 1}, {", (", -1}, {"cat", 1}, {") _cat", -1}}},
      {"cat", {{"cat", 1}}},
      {"cat_", {{"cat_", -1}}},
      {"cat1 1cat", {{"cat1 1cat", -1}}},
      {"cat\302\262 \302\262cat", {{"cat", 1}, {"\302\262 \302\262", -1}, {"cat", 1}}},
      {"cat\342\205\247", {{"cat\342\205\247", -1}}},
      {"cat\314\201 x", {{"cat\314\201 x", -1}}},
      {"\314\201cat", {{"\314\201cat", -1}}},
      {"cat\342\200\215", {{"cat\342\200\215", -1}}},
      {"cat\342\200\213", {{"cat", 1}, {"\342\200\213", -1}}},
      {"cat's 'cat'", {{"cat", 1}, {"'s '", -1}, {"cat", 1}, {"'", -1}}},
      {"\320\272cat cat\344\270\226", {{"\320\272cat cat\344\270\226", -1}}},
      {"\360\237\230\200cat\360\237\230\200",
       {{"\360\237\230\200", -1}, {"cat", 1}, {"\360\237\230\200", -1}}},
      {"cat\342\223\220", {{"cat\342\223\220", -1}}},
      {"cat\342\200\277", {{"cat\342\200\277", -1}}},
      {"cat\302\240cat", {{"cat", 1}, {"\302\240", -1}, {"cat", 1}}},
      {"caf\303\251 \303\251 \303\251a a\303\251 .\303\251.",
       {{"caf\303\251 ", -1},
        {"\303\251", 5},
        {" \303\251a a\303\251 .", -1},
        {"\303\251", 5},
        {".", -1}}},
      {"catalog catalogs", {{"catalog", 9}, {" catalogs", -1}}},
      {"catcat", {{"catcat", -1}}},
      {"a  <m>  b", {{"a", -1}, {"  ", 6}, {"<m>", 2}, {"  ", 6}, {"b", -1}}},
      {"a <r>  b <r><m> c",
       {{"a ", -1}, {"<r>  ", 3}, {"  ", 6}, {"b ", -1}, {"<r>", 3}, {"<m>", 2}, {" c", -1}}},
      {"<b> <b>", {{"<b> ", 4}, {"<b>", 4}}},
      {"<r>  <m>", {{"<r>  ", 3}, {"  ", 6}, {"<m>", 2}}},
      {"<r>   w", {{"<r>   ", 3}, {"  ", 6}, {" w", 7}}},
      {"a w w, wb", {{"a w w, wb", -1}}},
      {"#x# b#x# #x#  c", {{"#x# ", 8}, {"b#x# ", -1}, {"#x#  ", 8}, {"  ", 6}, {"c", -1}}},
      {"cat\331\240", {{"cat\331\240", -1}}},
      {"cat\302\252", {{"cat\302\252", -1}}},
      {"cat\302\267", {{"cat", 1}, {"\302\267", -1}}},
      {"cat-cat", {{"cat", 1}, {"-", -1}, {"cat", 1}}},
      {"\342\205\247cat", {{"\342\205\247cat", -1}}},
      {"x\343\200\200<m>y", {{"x", -1}, {"\343\200\200<m>", 2}, {"y", -1}}},
      {"cat<r>cat", {{"cat", 1}, {"<r>", 3}, {"cat", 1}}},
      {"cat\342\221\240", {{"cat", 1}, {"\342\221\240", -1}}},
      {"cat\340\270\261", {{"cat\340\270\261", -1}}},
      {"cat\340\244\276", {{"cat\340\244\276", -1}}},
      {"\342\222\266cat", {{"\342\222\266cat", -1}}},
      {"cat\341\272\236", {{"cat\341\272\236", -1}}},
  };
  for (const auto& [text, pieces] : goldens) EXPECT_EQ(Split(matcher, text), pieces) << text;
}

// Bytes that are no character are no part of a word either.
TEST(AddedTokenMatcherTest, SingleWordBesideBytesThatAreNoText) {
  const AddedTokenMatcher matcher({{.content = "cat", .id = 1, .single_word = true}});
  EXPECT_EQ(Split(matcher, "\377cat\303"), (Pieces{{"\377", -1}, {"cat", 1}, {"\303", -1}}));
  EXPECT_EQ(Split(matcher, "\200\200\200\200\200cat"),
            (Pieces{{"\200\200\200\200\200", -1}, {"cat", 1}}));
}

// What is discarded does not hide a token that is not `normalized`.
TEST(AddedTokenMatcherTest, TheSecondRoundLooksAtTheTextBetweenTokens) {
  const AddedTokenMatcher matcher(
      {{.content = "<x>", .id = 1},
       {.content = "cat", .id = 2, .normalized = true, .single_word = true}});
  EXPECT_EQ(Split(matcher, "a<x>cat<x>cats"),
            (Pieces{{"a", -1}, {"<x>", 1}, {"cat", 2}, {"<x>", 1}, {"cats", -1}}));
}

}  // namespace
}  // namespace tessera::data
