// SPDX-License-Identifier: Apache-2.0
#include "corpus/stats/stats.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "corpus/stats/tally.h"

namespace tessera::corpus {
namespace {

TEST(TallyTest, AddsUp) {
  Tally parts[2], whole;
  for (int i = 0; i < 10; ++i) {
    const std::string line = Concat(R"({"url": "http://www.host)", i % 3, R"(.org/", "text": ")",
                                    std::string(static_cast<size_t>(i), 'x'), " größer\"}");
    Document document;
    ASSERT_EQ(document.Parse(line), nullptr);
    parts[i % 2].Add(document);
    whole.Add(document);
  }
  parts[0].Add(*Tally::FromJson(parts[1].ToJson()));
  EXPECT_EQ(parts[0].ToJson(), whole.ToJson());
  EXPECT_EQ(whole.documents, 10);
  EXPECT_EQ(whole.characters, 10 * 7 + 45);
  EXPECT_EQ(whole.bytes, 10 * 9 + 45);
  EXPECT_EQ(whole.domains.at("host0.org"), 4);
  // 7 to 16 characters: one text of 7, eight of 8 to 15, one of 16.
  EXPECT_EQ(whole.document_characters, (Tally::Lengths{{3, 1}, {4, 8}, {5, 1}}));
  whole.Shorten(1);
  EXPECT_EQ(whole.domains, (std::map<std::string, int64_t>{{"(others)", 6}, {"host0.org", 4}}));
  EXPECT_FALSE(Tally::FromJson({{"documents", 1}}).ok());
}

TEST(StatsTest, ThePageSaysWhatThereIsAndWhatWentWithExamples) {
  const std::string root = testing::TempDir() + "/stats";
  std::filesystem::remove_all(root);
  std::filesystem::create_directories(root);
  std::ofstream out(root + "/in.jsonl");
  for (int i = 0; i < 1200; ++i) {
    out << R"({"url": "http://a.org/", "text": "Two men are standing at the stove."})"
        << "\n";
  }
  out.close();
  std::ofstream drops(root + "/drops.tsv");
  for (int i = 0; i < 7; ++i) drops << "doc" << i << "\tlanguage\t<b>&" << i << "\n";
  drops.close();
  const StatsOptions options = {.input = {root + "/in.jsonl"},
                                .output = root + "/stats.html",
                                .drops = {root + "/drops.tsv"},
                                .title = "A & B"};
  ASSERT_TRUE(RunStats(options, {}).ok());
  const std::string page = *ReadFile(options.output);
  for (const char* part : {"<title>A &amp; B</title>", ">1,200<", "a.org", "<td>en</td>",
                           "32 to 63", "<td>language", ">7<", "doc4: &lt;b&gt;&amp;4"}) {
    EXPECT_NE(page.find(part), std::string::npos) << part;
  }
  // Five examples are enough; nothing comes from elsewhere.
  EXPECT_EQ(page.find("doc5"), std::string::npos);
  EXPECT_EQ(page.find("src="), std::string::npos);
  EXPECT_FALSE(PathExists(options.output + ".work"));
}

TEST(StatsTest, AListThatIsNone) {
  const std::string path = testing::TempDir() + "/list.tsv";
  std::ofstream(path) << "no tabs\n";
  const auto counts =
      RunStats({.input = {path}, .output = testing::TempDir() + "/s.html", .drops = {path}}, {});
  EXPECT_NE(Message(counts.status()).find("list.tsv: no list of what was dropped"),
            std::string::npos)
      << Message(counts.status());
}

}  // namespace
}  // namespace tessera::corpus
