// SPDX-License-Identifier: Apache-2.0
#include "docs/site/guides.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "docs/site/html.h"

namespace tessera::site {
namespace {

using testing::HasSubstr;

Page Guide(std::string_view html) {
  return GuideOf("docs/a.md", html, [](const std::string& link) { return "<" + link + ">"; });
}

TEST(GuidesTest, HaveTheirMarkdownsPath) {
  EXPECT_EQ(PathOfGuide("README.md"), "index.html");
  EXPECT_EQ(PathOfGuide("docs/models/bert.md"), "docs/models/bert.html");
}

TEST(GuidesTest, HeadingsHaveGitHubsAnchors) {
  EXPECT_EQ(AnchorOf("DeepSpeed's JSON, in_short - 2"), "deepspeeds-json-in_short---2");
  const Page page = Guide(
      "<h1>Title &amp; more</h1>\n<p>First.</p><h2>The <code>train</code> command</h2><p>a<br "
      "/>b</p>"
      "<h3>Same</h3><h3>Same</h3><p>last</p>");
  EXPECT_EQ(page.title, "Title & more");
  EXPECT_THAT(page.body,
              HasSubstr("<h2 id=\"the-train-command\">The <code>train</code> command</h2>"));
  EXPECT_THAT(page.body, HasSubstr("<h3 id=\"same-1\">"));
  ASSERT_EQ(page.sections.size(), 4u);
  EXPECT_EQ(page.sections[0].text, "First.");
  EXPECT_EQ(page.sections[1].heading, "The train command");
  EXPECT_EQ(page.sections[1].text, "a b");
  EXPECT_EQ(page.sections[1].level, 2);
  EXPECT_EQ(page.sections[3].anchor, "same-1");
  EXPECT_EQ(page.sections[3].text, "last");
}

TEST(GuidesTest, LinksBecomeTheSites) {
  const Page page = Guide(
      "<a href=\"b.md?x=1&amp;y=2\">b</a><img src=\"c.png\" alt=\"\" />"
      "<a href=\"https://example.org\">out</a>");
  EXPECT_EQ(page.body,
            "<a href=\"&lt;b.md?x=1&amp;y=2&gt;\">b</a><img src=\"&lt;c.png&gt;\" alt=\"\" />"
            "<a href=\"https://example.org\">out</a>");
}

TEST(GuidesTest, TablesScrollByThemselves) {
  EXPECT_EQ(Guide("<table><tr><td>1</td></tr></table>\n").body,
            "<div class=\"table\"><table><tr><td>1</td></tr></table></div>\n");
}

TEST(HtmlTest, ReadsTagsAndText) {
  const std::vector<Tag> tags = TagsOf("<!DOCTYPE html><A HREF='x>y' b=1 c>t</a><br/>1 < 2");
  ASSERT_EQ(tags.size(), 3u);
  EXPECT_EQ(tags[0].name, "a");
  EXPECT_EQ(tags[0].Find("href")->value, "x>y");
  EXPECT_EQ(tags[0].Find("b")->value, "1");
  EXPECT_NE(tags[0].Find("c"), nullptr);
  EXPECT_TRUE(tags[1].closes);
  EXPECT_EQ(tags[2].name, "br");
  EXPECT_EQ(PlainText("<p>a&#233;&lt;&#x41;&nbsp;&unknown;</p><p>b<b>c</b></p><!-- no --> "),
            "a\u00e9<A &unknown; bc");
  EXPECT_EQ(PlainText("<td>1</td><td>2</td><style>x</style>"), "1 2");
  EXPECT_EQ(Escaped("<a href=\"&\">"), "&lt;a href=&quot;&amp;&quot;&gt;");
}

}  // namespace
}  // namespace tessera::site
