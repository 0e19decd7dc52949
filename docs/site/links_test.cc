// SPDX-License-Identifier: Apache-2.0
#include "docs/site/links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera::site {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(LinksTest, AreRelativeToTheirPage) {
  EXPECT_EQ(RelativeLink("index.html", "docs/cli.html"), "docs/cli.html");
  EXPECT_EQ(RelativeLink("docs/cli.html", "index.html"), "../index.html");
  EXPECT_EQ(RelativeLink("docs/models/bert.html", "docs/cli.html"), "../cli.html");
  EXPECT_EQ(RelativeLink("docs/cli.html", "docs/cli.html"), "cli.html");
  EXPECT_EQ(RelativeLink("a/b.html", "ab/c.html"), "../ab/c.html");
}

TEST(LinksTest, Resolve) {
  EXPECT_EQ(ResolvedLink("docs/models/bert.html", "../cli.html#train"), "docs/cli.html");
  EXPECT_EQ(ResolvedLink("docs/cli.html", "#train"), "docs/cli.html");
  EXPECT_EQ(ResolvedLink("docs/cli.html", "./a%20b.html"), "docs/a b.html");
  EXPECT_EQ(ResolvedLink("docs/cli.html", "../../etc"), std::nullopt);
  EXPECT_EQ(ResolvedLink("docs/cli.html", "/etc"), std::nullopt);
}

TEST(LinksTest, ThatHoldAreNotReported) {
  const Files files = {
      {"index.html",
       "<link rel=\"stylesheet\" href=\"site.css\"><a href=\"docs/a.html#one\">a</a>"
       "<a href='#top'>up</a><p id=top></p><a href=\"https://example.org/x\">out</a>"
       "<!-- <a href=\"no\"> --><script>'<a href=\"no\">'</script><img src=\"p.png\">"},
      {"docs/a.html",
       "<h2 id=\"one\">1</h2><a name=\"two\"></a><a href=\"../index.html?q=x#top\">i</a>"
       "<a href=\"a.html#two\">t</a>"},
      {"site.css", "body {}"},
      {"p.png", "..."}};
  EXPECT_THAT(DeadLinks(files), IsEmpty());
}

TEST(LinksTest, ThatAreDeadAreNamedWithTheirPage) {
  const Files files = {{"index.html",
                        "<a href=\"docs/b.html\">no file</a><a href=\"docs/a.html#two\">no part</a>"
                        "<a href=\"docs/\">a folder</a><a href=\"/docs/a.html\">absolute</a>"
                        "<a href=\"../x.html\">outside</a><a href=\"javascript:f()\">call</a>"},
                       {"docs/a.html", "<h2 id=\"one\">1</h2><a href=\"#none\">n</a>"}};
  EXPECT_THAT(
      DeadLinks(files),
      ElementsAre("docs/a.html: dead link '#none'", "index.html: dead link '../x.html'",
                  "index.html: dead link '/docs/a.html'", "index.html: dead link 'docs/'",
                  "index.html: dead link 'docs/a.html#two'", "index.html: dead link 'docs/b.html'",
                  "index.html: dead link 'javascript:f()'"));
}

TEST(LinksTest, WhatAPageLoadsIsInTheSite) {
  const Files files = {{"index.html",
                        "<script src=\"https://example.org/s.js\"></script>"
                        "<link href=\"//example.org/s.css\">"}};
  EXPECT_THAT(DeadLinks(files),
              ElementsAre("index.html: loads from elsewhere '//example.org/s.css'",
                          "index.html: loads from elsewhere 'https://example.org/s.js'"));
}

}  // namespace
}  // namespace tessera::site
