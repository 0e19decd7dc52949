// SPDX-License-Identifier: Apache-2.0
// The site as a whole: of small pages that are made here, and of the project's own. These are
// rendered by cmark-gfm where it is installed; their links are checked without it.
#include "docs/site/site.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <stdexcept>

#include "base/file.h"
#include "docs/site/html.h"
#include "docs/site/manual.h"
#include "tests/process/shell.h"

namespace tessera::site {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A repository of a few files, with the site's own frame.
class SiteTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) / "site_test";
    fs::remove_all(root_);
    for (const char* name : {"page.html", "site.css", "site.js"}) {
      Put(std::string("docs/site/") + name, *ReadFile(std::string("docs/site/") + name));
    }
    Put("docs/site/navigation.txt",
        "# first\n[Start]\nREADME.md Overview\ndocs/models/ Families\n");
    Put("core/tensor.h", "// a < b\n");
    Put("core/testdata/x.bin", "x");
    Put("docs/images/p.png", "picture");
  }
  void TearDown() override { fs::remove_all(root_); }

  void Put(const std::string& path, const std::string& text) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }

  SiteInputs Inputs() const {
    return {
        .guides = {{"README.md",
                    "<h1>Tessera</h1><a href=\"docs/a.md#one\">a</a><a href=\"docs/models\">m</a>"
                    "<a href=\"core/tensor.h\">t</a><a href=\"core\">c</a>"},
                   {"docs/a.md", "<h1>Page a</h1><h2>One</h2><img src=\"images/p.png\" />"},
                   {"docs/models/b.md", "<h1>B</h1><a href=\"../../README.md\">r</a>"}},
        .reference = {},
        .manual = "",
        .root = root_.string()};
  }

  fs::path root_;
};

TEST_F(SiteTest, LeadsFromGuidesToGuidesListsPicturesAndSources) {
  const Files files = SiteOf(Inputs());
  EXPECT_THAT(DeadLinks(files), IsEmpty());
  const std::string& home = files.at("index.html");
  EXPECT_THAT(home, HasSubstr("<a href=\"docs/a.html#one\">a</a>"));
  EXPECT_THAT(home, HasSubstr("<a href=\"docs/models/index.html\">m</a>"));
  EXPECT_THAT(home, HasSubstr("<a href=\"source/core/tensor.h.html\">t</a>"));
  EXPECT_THAT(files.at("source/core/tensor.h.html"), HasSubstr("// a &lt; b\n"));
  EXPECT_THAT(files.at("source/core/index.html"), HasSubstr("<li>testdata/</li>"));
  EXPECT_EQ(files.at("docs/images/p.png"), "picture");
  EXPECT_THAT(files.at("docs/models/index.html"), HasSubstr("<a href=\"b.html\">B</a>"));
}

TEST_F(SiteTest, NavigationHasEveryGuideAndMarksThePage) {
  const Files files = SiteOf(Inputs());
  EXPECT_THAT(files.at("docs/models/b.html"),
              HasSubstr("<a href=\"b.html\" aria-current=\"page\">B</a>"));
  EXPECT_THAT(files.at("docs/a.html"), HasSubstr("<h2>More</h2>"));
  EXPECT_THAT(files.at("docs/a.html"), HasSubstr("<a href=\"#one\">One</a>"));
  EXPECT_THAT(files.at("docs/a.html"), HasSubstr("href=\"../site.css\""));
  Put("docs/site/navigation.txt", "[Start]\ndocs/none.md\n");
  EXPECT_THROW(SiteOf(Inputs()), std::runtime_error);
}

TEST_F(SiteTest, ADeadLinkIsNamed) {
  SiteInputs inputs = Inputs();
  inputs.guides["docs/a.md"] += "<a href=\"none.md\">n</a><a href=\"../README.md#none\">n</a>";
  EXPECT_THAT(DeadLinks(SiteOf(inputs)), ElementsAre("docs/a.html: dead link '../index.html#none'",
                                                     "docs/a.html: dead link 'none.md'"));
}

TEST_F(SiteTest, TheSameInputsGiveTheSameBytes) { EXPECT_EQ(SiteOf(Inputs()), SiteOf(Inputs())); }

TEST_F(SiteTest, TheSearchHasEverySection) {
  const std::string index = SiteOf(Inputs()).at("search-index.js");
  EXPECT_THAT(index, HasSubstr("[\"docs/a.html\",\"Page a\"]"));
  EXPECT_THAT(index, HasSubstr("\"one\",\"One\",\"\"]"));
}

// Headings and links of a page of Markdown as a renderer would have them, and nothing else.
std::string LinksOf(const std::string& path) {
  static const std::regex kHeading("(#+) (.*)");
  static const std::regex kLink(R"(\]\(([^)\s]+)\))");
  static const std::regex kCode("`[^`]*`");
  std::ifstream in(path);
  std::string html;
  bool in_code = false;
  for (std::string line; std::getline(in, line);) {
    if (line.find("```") == line.find_first_not_of(' ') && line.find("```") != std::string::npos) {
      in_code = !in_code;
    }
    if (in_code) continue;
    std::smatch match;
    if (std::regex_match(line, match, kHeading)) {
      const std::string name = "h" + std::to_string(match[1].length());
      html += "<" + name + ">" + Escaped(match[2].str()) + "</" + name + ">\n";
    }
    const std::string text = std::regex_replace(line, kCode, "");
    for (std::sregex_iterator link(text.begin(), text.end(), kLink), end; link != end; ++link) {
      html += "<a href=\"" + Escaped((*link)[1].str()) + "\"></a>\n";
    }
  }
  return html;
}

std::vector<std::string> PagesOfTheProject() {
  std::vector<std::string> paths = {"README.md"};
  for (const auto& entry : fs::recursive_directory_iterator("docs")) {
    if (entry.path().extension() == ".md") paths.push_back(entry.path().string());
  }
  return paths;
}

// Of the dead links those to pages and their parts: sources and folders are no data of this test.
std::vector<std::string> DeadBetweenPages(const Files& files) {
  static const std::regex kToAPage(R"(.*: dead link '([^'#]*\.(md|html))?(#.*)?')");
  std::vector<std::string> dead = DeadLinks(files);
  std::erase_if(dead, [](const std::string& fault) { return !std::regex_match(fault, kToAPage); });
  return dead;
}

TEST(PagesTest, LinkToPagesAndPartsThatExist) {
  SiteInputs inputs{.guides = {}, .reference = {}, .manual = "", .root = "."};
  for (const std::string& path : PagesOfTheProject()) inputs.guides[path] = LinksOf(path);
  EXPECT_GT(inputs.guides.size(), 30u);
  // Pages that are no data of this test.
  for (const char* path : {"CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"}) inputs.guides[path];
  EXPECT_THAT(DeadBetweenPages(SiteOf(inputs)), IsEmpty());
}

TEST(PagesTest, AreRenderedByCmark) {
  if (RunShell("command -v cmark-gfm").code != 0) {
    GTEST_SKIP() << "cmark-gfm is not installed (packages_site.txt)";
  }
  SiteInputs inputs{.guides = {}, .reference = {}, .manual = "", .root = "."};
  for (const std::string& path : PagesOfTheProject()) {
    const ShellRun ran = RunShell("cmark-gfm -e table -e autolink -e strikethrough '" + path + "'");
    ASSERT_EQ(ran.code, 0) << ran.output;
    inputs.guides[path] = ran.output;
  }
  for (const char* path : {"CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"}) inputs.guides[path];
  const Files files = SiteOf(inputs);
  EXPECT_THAT(DeadBetweenPages(files), IsEmpty());
  EXPECT_THAT(files.at("docs/cli.html"), HasSubstr("<div class=\"table\"><table>"));
  EXPECT_THAT(files.at("docs/cli.html"), HasSubstr("<pre><code class=\"language-sh\">"));
}

TEST(PagesTest, TheManualIsRead) {
  const ShellRun ran = RunShell("tools/tessera manual");
  ASSERT_EQ(ran.code, 0) << ran.output;
  const Manual manual = ManualOf(ran.output);
  EXPECT_GT(manual.pages.size(), 20u);
  for (const Page& page : manual.pages) EXPECT_GT(page.body.size(), 100u) << page.path;
}

}  // namespace
}  // namespace tessera::site
