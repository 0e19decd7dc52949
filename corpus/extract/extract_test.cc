// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <chrono>

#include "corpus/extract/main_text.h"
#include "corpus/extract/page_blocks.h"

namespace tessera::corpus {
namespace {

PageBlocks Read(const std::string& html) {
  PageBlocks page;
  EXPECT_EQ(ReadPage(html, &page), "") << html.substr(0, 200);
  return page;
}

std::string Sentences(int count, const std::string& word) {
  std::string text;
  for (int i = 0; i < count; ++i) text += "The " + word + " number goes on and on here. ";
  return text;
}

TEST(PageBlocksTest, BlocksAreWhatAReaderSees) {
  const PageBlocks page = Read(
      "<html><head><title> A &amp; B </title><style>p{}</style></head><body><script>var x='<p>';"
      "</script><h1>Head</h1><p>one <b>two</b>\n three<br>four <a href='x'>link text</a>"
      "<li>item<div style='display: none'>hidden</div><pre>a\n  b</pre>"
      "<p>unclosed &eacute; &#x4e16;<table><tr><td>cell<td>cell 2</table>tail");
  std::vector<std::string> texts;
  for (const PageBlock& block : page.blocks) texts.push_back(block.text);
  EXPECT_EQ(page.title, " A & B ");
  EXPECT_EQ(texts, (std::vector<std::string>{"Head", "one two three\nfour link text", "item",
                                             "a\n  b", "unclosed é 世", "cell", "cell 2", "tail"}));
  EXPECT_TRUE(page.blocks[0].heading);
  EXPECT_EQ(page.blocks[1].words, 6);
  EXPECT_EQ(page.blocks[1].link_words, 2);
  EXPECT_TRUE(page.blocks[2].list_item);
}

TEST(PageBlocksTest, MarksWhatIsNoContent) {
  const PageBlocks page = Read(
      "<body class='has-sidebar'><header>top</header><nav>menu</nav><article><header>kept</header>"
      "<p>text</p><div class='post-meta'>by</div></article><div id=Sidebar>side</div>"
      "<footer>foot</footer></body>");
  std::vector<std::string> content, main;
  for (const PageBlock& block : page.blocks) {
    if (!block.boilerplate) content.push_back(block.text);
    if (block.main) main.push_back(block.text);
  }
  EXPECT_EQ(content, (std::vector<std::string>{"kept", "text"}));
  EXPECT_EQ(main, (std::vector<std::string>{"kept", "text", "by"}));
}

TEST(PageBlocksTest, HostilePagesEndInTime) {
  const auto begin = std::chrono::steady_clock::now();
  for (const char* unit : {"<div>", "<b>", "<span>", "<table><tr><td>", "<ul><li>"}) {
    std::string deep;
    for (int i = 0; i < 1000000 && deep.size() < (8u << 20); ++i) deep += unit;
    PageBlocks page;
    EXPECT_NE(ReadPage(deep + "text", &page).find("nested deeper than 512"), std::string::npos)
        << unit;
  }
  // Ends without a begin, over elements that are open.
  std::string ends;
  for (int i = 0; i < 500; ++i) ends += "<b>";
  for (int i = 0; i < 100000; ++i) ends += "</i>";
  EXPECT_EQ(Read(ends + "x").blocks.size(), 1u);
  for (const char* junk : {"", "<", "<!", "<!--", "<![CDATA[", "</", "<a href=\"", "&#xFFFFFFFF;",
                           "<html><html><body><body></p></p>", "\x01\x02", "<?xml ?>"}) {
    PageBlocks page;
    ReadPage(junk, &page);
  }
  EXPECT_EQ(MainText(Read(std::string("a\0b", 3))), "");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

TEST(MainTextTest, TakesTheArticle) {
  const std::string html =
      "<body><div><a href=1>Home</a> <a href=2>News</a> <a href=3>About us</a></div>"
      "<h1>The title</h1><p>" +
      Sentences(6, "first") + "</p><p>" + Sentences(5, "second") + "</p><h2>Heading</h2><p>" +
      Sentences(6, "third") +
      "</p><ul><li><a href=4>Read this other thing</a></li><li><a href=5>And this</a></li></ul>"
      "<div>Copyright 2020</div></body>";
  const std::string text = MainText(Read(html));
  for (const char* part : {"The title\n", "first", "second", "Heading\n", "third"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part;
  }
  for (const char* part : {"Home", "About", "Read this"}) {
    EXPECT_EQ(text.find(part), std::string::npos) << part;
  }
  EXPECT_NE(AllText(Read(html)).find("Home"), std::string::npos);
}

}  // namespace
}  // namespace tessera::corpus
