// SPDX-License-Identifier: Apache-2.0
#include "docs/site/reference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera::site {
namespace {

using testing::HasSubstr;
using testing::Not;

const std::map<std::string, std::string>& Doxygens() {
  static const auto* files = new std::map<std::string, std::string>{
      {"linear_8h.html",
       "<!--title nn/linear.h File Reference-->\n<div id=\"top\"></div>\n<div "
       "class=\"contents\">\n\n"
       "<p>Linear layers.  \n<a href=\"#details\">More...</a></p><img src=\"closed.png\"/>"
       "<a href=\"#nested-classes\">Classes</a><span onclick=\"f()\" class=\"x\">1</span>"
       "<a id=\"details\"></a></div>"},
      {"classnn_1_1Linear.html",
       "<!--title nn::Linear&lt; T &gt; Class Reference-->\n<div "
       "class=\"contents\"><p><code>#include "
       "&lt;nn/linear.h&gt;</code></p><a id=\"a1\"></a></div>"},
      {"functions_b.html", "<!--title Members-->\n"},
      {"jquery.js", "f()"},
      {"tags.xml",
       "<compound kind=\"file\">\n<name>linear.h</name>\n<filename>linear_8h.html</filename>\n"
       "<member kind=\"function\">\n<name>Forward</name>\n"
       "<anchorfile>classnn_1_1Linear.html</anchorfile>\n<anchor>a1</anchor>\n</member>\n</"
       "compound>\n"
       "<compound kind=\"class\">\n<name>nn::Linear</name>\n"
       "<filename>classnn_1_1Linear.html</filename>\n<member kind=\"function\">\n<type>int</type>\n"
       "<name>Forward</name>\n<anchorfile>classnn_1_1Linear.html</anchorfile>\n<anchor>a1</"
       "anchor>\n"
       "</member>\n</compound>\n"}};
  return *files;
}

TEST(ReferenceTest, TakesDoxygensPagesWithoutTheirFrame) {
  const Reference reference = ReferenceOf(Doxygens());
  ASSERT_EQ(reference.pages.size(), 3u);
  EXPECT_EQ(reference.pages[0].path, "api/index.html");
  EXPECT_THAT(
      reference.pages[0].body,
      HasSubstr("<a href=\"linear_8h.html\"><code>nn/linear.h</code></a></td><td>Linear layers."));
  EXPECT_EQ(reference.headers.at("nn/linear.h"), "api/linear_8h.html");
  EXPECT_EQ(reference.pages[1].title, "nn::Linear< T > Class Reference");
  const std::string& body = reference.pages[2].body;
  EXPECT_THAT(body, Not(HasSubstr("img")));
  EXPECT_THAT(body, Not(HasSubstr("onclick")));
  EXPECT_THAT(body, HasSubstr("<span class=\"x\">1</span>"));
  EXPECT_THAT(body, HasSubstr("<a>Classes</a>"));
}

TEST(ReferenceTest, EveryNameIsFoundOnce) {
  const Reference reference = ReferenceOf(Doxygens());
  int found = 0;
  for (const Page& page : reference.pages) {
    for (const Section& section : page.sections) {
      if (section.heading != "nn::Linear::Forward") continue;
      ++found;
      EXPECT_EQ(page.path, "api/classnn_1_1Linear.html");
      EXPECT_EQ(section.anchor, "a1");
    }
  }
  EXPECT_EQ(found, 1);
}

TEST(ReferenceTest, MayBeMissing) { EXPECT_TRUE(ReferenceOf({}).pages.empty()); }

}  // namespace
}  // namespace tessera::site
