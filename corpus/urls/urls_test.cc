// SPDX-License-Identifier: Apache-2.0
#include "corpus/urls/urls.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "corpus/urls/url.h"
#include "nlohmann/json.hpp"

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

// What tools/openwebtext/blacklist_urls.py of Megatron-LM says of these (its url_is_malformed).
TEST(UrlTest, TheUsualFormIsMegatrons) {
  for (const char* usual :
       {"http://a.org", "HTTPS://A.ORG/", "http://1.2.3.4/x", "http://a.org.", "http://a.org:80",
        "http://a.org:123456?x", "http://a-b.c-d.museum/a?b#c", "http://a.org/?", "http://a.b.co",
        "http://1a.xn--p1ai/", "http://a.org/\"<"}) {
    EXPECT_TRUE(HasUsualForm(usual)) << usual;
  }
  for (const char* malformed :
       {"", "a.org", "http://", "http://localhost/x", "http://a", "http://a.b", "http://a..org",
        "http://-a.org", "http://a-.org", "http://a_b.org", "http://me@a.org", "http://a.org?",
        "http://a.org#x", "http://a.org:", "http://a.org:x", "http://.org",
        "http://1.2.3.4444444x."
        "y"}) {
    EXPECT_FALSE(HasUsualForm(malformed)) << malformed;
  }
  EXPECT_TRUE(HasUsualForm("http://münchen.de/x"));  // which that script drops
}

TEST(UrlTest, TheRegisteredName) {
  for (const auto& [host, name] :
       std::initializer_list<std::pair<const char*, const char*>>{{"google.com", "google"},
                                                                  {"maps.google.co.uk", "google"},
                                                                  {"www.amazon.de", "amazon"},
                                                                  {"vine.co", "vine"},
                                                                  {"a.vid.me", "vid"},
                                                                  {"reddit.example.org", "example"},
                                                                  {"user.github.io", "github"},
                                                                  {"co.uk", "co"},
                                                                  {"1.2.3.4", "1.2.3.4"},
                                                                  {"localhost", "localhost"},
                                                                  {"a.co.com", "co"}}) {
    EXPECT_EQ(RegisteredName(host), name) << host;
  }
}

TEST(UrlsTest, HasAListOfDomains) {
  const std::string root = testing::TempDir() + "/urls_list";
  std::filesystem::remove_all(root);
  std::filesystem::create_directories(root);
  std::ofstream(root + "/in.txt")
      << "http://i.imgur.com/a\nhttp://www.google.co.uk/b\nhttp://notreddit.com/c\n"
         "http://reddit.example.org/d\nhttp://example.org/e.txt\nhttp://a\nhttp://a_b.org/f\n"
         "\thttp://example.com/g\nhttp://shop.tld/h\nftp://imgur.com/i\n";
  std::ofstream(root + "/mine.txt") << "Shop\n";
  UrlsOptions options;
  options.input = {root + "/in.txt"};
  options.output = root + "/out.txt";
  options.dropped = root + "/dropped.tsv";
  options.blocked_domains = {root + "/mine.txt"};
  auto counts = RunUrls(options, {});
  ASSERT_TRUE(counts.ok()) << Message(counts.status());
  EXPECT_EQ(*ReadFile(options.dropped),
            "1\tblacklisted_domain\timgur\n2\tblacklisted_domain\tgoogle\n"
            "5\tblacklisted_extension\ttxt\n6\tshort_url\thttp://a\n"
            "7\tmalformed_url\thttp://a_b.org/f\n9\tblacklisted_domain\tshop\n"
            "10\tmalformed_url\tftp://imgur.com/i\n");
  EXPECT_EQ(counts->at("out"), 3);
  options.domain_list = "none";
  counts = RunUrls(options, {});
  ASSERT_TRUE(counts.ok()) << Message(counts.status());
  EXPECT_EQ(counts->at("out"), 5);
}

TEST(UrlsTest, DropsByName) {
  const std::string root = testing::TempDir() + "/urls";
  std::filesystem::remove_all(root);
  std::filesystem::create_directories(root);
  std::ofstream(root + "/black.txt") << "# no\nbad.com\nok.org/private\n";
  std::ofstream(root + "/in.txt") << "http://ok.org/a\nhttps://www.ok.org/a/\nhttp://x.bad.com/b\n"
                                     "http://notbad.com/b\nhttp://ok.org/private/c\nno address\n"
                                     "http://ok.org/d.jpg\nhttp://ok.org/privates\n";
  UrlsOptions options;
  options.input = {root + "/in.txt"};
  options.output = root + "/out.txt";
  options.dropped = root + "/dropped.tsv";
  options.blocked_domains = {root + "/black.txt"};
  const auto counts = RunUrls(options, {});
  ASSERT_TRUE(counts.ok()) << Message(counts.status());
  EXPECT_EQ(*ReadFile(options.output),
            "http://ok.org/a\nhttp://notbad.com/b\nhttp://ok.org/privates\n");
  EXPECT_EQ(*ReadFile(options.dropped),
            "2\tduplicate_url\t1\n3\tblacklisted_domain\tbad.com\n"
            "5\tblacklisted_domain\tok.org/private\n6\tmalformed_url\tno address\n"
            "7\tblacklisted_extension\tjpg\n");
  EXPECT_EQ(counts->at("in"), 8);
  EXPECT_EQ(counts->at("out"), 3);
}

}  // namespace
}  // namespace tessera::corpus
