// SPDX-License-Identifier: Apache-2.0
#include "corpus/urls/urls.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "corpus/urls/url.h"

namespace tessera::corpus {
namespace {

TEST(UrlTest, Parts) {
  const auto url = ParseUrl(" HTTPS://me@WWW.Example.org:8443/a/B.PDF?x=1#part ");
  ASSERT_TRUE(url.has_value());
  EXPECT_EQ(url->host, "www.example.org");
  EXPECT_EQ(url->port, "8443");
  EXPECT_EQ(url->path, "/a/B.PDF?x=1");
  EXPECT_EQ(ExtensionOf(*url), "pdf");
  EXPECT_EQ(UrlKey(*url), "example.org:8443/a/B.PDF?x=1");
  EXPECT_EQ(UrlKey(*ParseUrl("http://a.org:80/")), UrlKey(*ParseUrl("https://www.a.org")));
  EXPECT_EQ(ExtensionOf(*ParseUrl("http://a.org/v1.2/page")), "");
  for (const char* wrong :
       {"", "a.org", "ftp://a.org", "http://", "http://a", "http://a..b", "http://-a.org",
        "http://a.org:x", "http://a b.org", "http://a.org/<", "http:///x", "http://.org"}) {
    EXPECT_FALSE(ParseUrl(wrong).has_value()) << wrong;
  }
  EXPECT_TRUE(ParseUrl("http://localhost:80/x").has_value());
  EXPECT_TRUE(ParseUrl("http://münchen.de/x").has_value());
  EXPECT_FALSE(ParseUrl("http://a.org/" + std::string(3000, 'x')).has_value());
}

TEST(UrlsTest, DropsByName) {
  const std::string root = testing::TempDir() + "/urls";
  std::filesystem::remove_all(root);
  std::filesystem::create_directories(root);
  std::ofstream(root + "/black.txt") << "# no\nbad.com\nok.org/private\n";
  std::ofstream(root + "/in.txt") << "http://ok.org/a\nhttps://www.ok.org/a/\nhttp://x.bad.com/b\n"
                                     "http://notbad.com/b\nhttp://ok.org/private/c\nnonsense\n"
                                     "http://ok.org/d.jpg\nhttp://ok.org/privates\n";
  UrlsOptions options;
  options.input = {root + "/in.txt"};
  options.output = root + "/out.txt";
  options.dropped = root + "/dropped.tsv";
  options.blacklist = {root + "/black.txt"};
  const auto counts = RunUrls(options, {});
  ASSERT_TRUE(counts.ok()) << Message(counts.status());
  EXPECT_EQ(*ReadFile(options.output),
            "http://ok.org/a\nhttp://notbad.com/b\nhttp://ok.org/privates\n");
  EXPECT_EQ(*ReadFile(options.dropped),
            "2\tduplicate_url\t1\n3\tblacklisted_domain\tbad.com\n"
            "5\tblacklisted_domain\tok.org/private\n6\tmalformed_url\tnonsense\n"
            "7\tblacklisted_extension\tjpg\n");
  EXPECT_EQ(counts->at("in"), 8);
  EXPECT_EQ(counts->at("out"), 3);
}

}  // namespace
}  // namespace tessera::corpus
