// SPDX-License-Identifier: Apache-2.0
#include "corpus/fetch/fetch.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/file.h"
#include "corpus/fetch/private_address.h"
#include "corpus/fetch/robots.h"
#include "net/http/http_server.h"

namespace tessera::corpus {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

TEST(RobotsTest, LongestRuleOfMyGroup) {
  const std::string text =
      "User-agent: other\nDisallow: /\n\nUser-Agent: *\nDisallow: /private # no\nAllow: "
      "/private/open\nDisallow: /*.cgi$\nCrawl-delay: 2.5\n";
  const Robots all(text, "tessera-corpus");
  EXPECT_TRUE(all.Allows("/"));
  EXPECT_FALSE(all.Allows("/private/x"));
  EXPECT_TRUE(all.Allows("/private/open/x"));
  EXPECT_FALSE(all.Allows("/a/b.cgi"));
  EXPECT_TRUE(all.Allows("/a/b.cgi?x"));
  EXPECT_EQ(all.crawl_delay(), 2.5);
  EXPECT_FALSE(Robots(text, "Other/1.0").Allows("/"));
  EXPECT_TRUE(Robots("", "x").Allows("/"));
  EXPECT_FALSE(Robots::DenyAll().Allows("/"));
  EXPECT_TRUE(Robots("User-agent: *\nDisallow:\n", "x").Allows("/a"));
  // Many stars end in time.
  std::string stars = "User-agent: *\nDisallow: /";
  for (int i = 0; i < 2000; ++i) stars += "*a";
  EXPECT_TRUE(Robots(stars + "$", "x").Allows("/" + std::string(3000, 'b')));
  std::string almost = "User-agent: *\n";
  for (int i = 0; i < 480; ++i) almost += "Disallow: /*" + std::string(1000, 'a') + "b\n";
  const Robots many(almost, "x");
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(many.Allows("/" + std::string(2000, 'a')));
  EXPECT_FALSE(many.Allows("/" + std::string(2000, 'a') + "b"));
}

TEST(RobotsTest, StarsAndEndsFitAsTheRfcSays) {
  struct Case {
    const char* pattern;
    const char* path;
    bool fits;
  };
  for (const Case& c :
       {Case{"/fish", "/fish.html", true}, Case{"/fish", "/Fish", false},
        Case{"/fish*", "/fish", true}, Case{"/*.php", "/a.php?b", true},
        Case{"/*.php$", "/a.php?b", false}, Case{"/*.php$", "/a.php", true},
        Case{"/fish*.php", "/fish.php", true}, Case{"/a*a$", "/a", false},
        Case{"/a*a$", "/aa", true}, Case{"/a*b*c$", "/abcbc", true}, Case{"/a*b*c$", "/acb", false},
        Case{"*", "/x", true}, Case{"*$", "/x", true}, Case{"/$", "/", true},
        Case{"/$", "/x", false}, Case{"/**x", "/yx", true}}) {
    const Robots robots(std::string("User-agent: *\nDisallow: ") + c.pattern, "x");
    EXPECT_EQ(robots.Allows(c.path), !c.fits) << c.pattern << ' ' << c.path;
  }
}

TEST(PrivateAddressTest, IsWhateverIsNotOfThePublicInternet) {
  const auto is_private = [](const std::string& text) {
    sockaddr_in ipv4 = {};
    if (inet_pton(AF_INET, text.c_str(), &ipv4.sin_addr) == 1) {
      ipv4.sin_family = AF_INET;
      return IsPrivateAddress(reinterpret_cast<const sockaddr*>(&ipv4));
    }
    sockaddr_in6 ipv6 = {};
    EXPECT_EQ(inet_pton(AF_INET6, text.c_str(), &ipv6.sin6_addr), 1) << text;
    ipv6.sin6_family = AF_INET6;
    return IsPrivateAddress(reinterpret_cast<const sockaddr*>(&ipv6));
  };
  for (const char* address : {"0.0.0.0",
                              "0.1.2.3",
                              "10.0.0.0",
                              "10.255.255.255",
                              "100.64.0.1",
                              "100.127.255.255",
                              "127.0.0.1",
                              "127.255.0.1",
                              "169.254.169.254",
                              "172.16.0.1",
                              "172.31.255.255",
                              "192.0.0.8",
                              "192.0.2.1",
                              "192.168.1.1",
                              "198.18.0.1",
                              "198.19.255.255",
                              "198.51.100.7",
                              "203.0.113.9",
                              "224.0.0.1",
                              "239.1.1.1",
                              "240.0.0.1",
                              "255.255.255.255",
                              "::",
                              "::1",
                              "::ffff:127.0.0.1",
                              "::ffff:10.1.2.3",
                              "::127.0.0.1",
                              "64:ff9b::a00:1",
                              "64:ff9b:1::1",
                              "100::1",
                              "fe80::1",
                              "fc00::1",
                              "fd12::3",
                              "fec0::1",
                              "ff02::1",
                              "2001:db8::1",
                              "2001::1",
                              "2002:7f00:1::",
                              "2002:a01:203::"}) {
    EXPECT_TRUE(is_private(address)) << address;
  }
  for (const char* address : {"1.1.1.1",
                              "9.255.255.255",
                              "11.0.0.0",
                              "100.63.255.255",
                              "100.128.0.0",
                              "126.1.1.1",
                              "128.0.0.1",
                              "169.253.1.1",
                              "172.15.255.255",
                              "172.32.0.0",
                              "192.0.1.1",
                              "192.167.1.1",
                              "198.17.255.255",
                              "198.20.0.0",
                              "223.255.255.255",
                              "93.184.216.34",
                              "::ffff:93.184.216.34",
                              "64:ff9b::5db8:d822",
                              "2606:4700::1111",
                              "2a00:1450::1",
                              "2002:5db8:d822::"}) {
    EXPECT_FALSE(is_private(address)) << address;
  }
}

class Site {
 public:
  explicit Site(bool robots_moved = false)
      : robots_moved_(robots_moved), server_(std::move(net::HttpServer::Listen({}).value())) {
    thread_ = std::thread(
        [this] { server_.Serve([this](net::HttpExchange exchange) { Answer(exchange); }); });
  }
  ~Site() {
    server_.Stop(milliseconds(100));
    thread_.join();
  }
  std::string Url(const std::string& path) const { return server_.url() + path; }
  int Calls(const std::string& path) {
    const std::lock_guard lock(mutex_);
    return calls_[path];
  }

 private:
  void Answer(net::HttpExchange& exchange) {
    const std::string path = exchange.request().path;
    int call = 0;
    {
      const std::lock_guard lock(mutex_);
      call = ++calls_[path];
    }
    if (path == "/robots.txt" && robots_moved_) {
      return exchange.Respond({.status = 301, .headers = {{"Location", "/real-robots"}}});
    }
    if (path == "/robots.txt" || path == "/real-robots") {
      return exchange.Respond(
          {.content_type = "text/plain", .body = "User-agent: *\nDisallow: /private\n"});
    }
    if (path == "/moved") {
      return exchange.Respond({.status = 302, .headers = {{"Location", "/page"}}});
    }
    if (path == "/loop") {
      return exchange.Respond({.status = 302, .headers = {{"Location", "/loop"}}});
    }
    if (path == "/missing") return exchange.Respond({.status = 404});
    if (path == "/flaky" && call == 1) return exchange.Respond({.status = 503});
    if (path == "/image") return exchange.Respond({.content_type = "image/png", .body = "x"});
    if (path == "/slow") return held_.push_back(exchange);
    const std::string filler = path == "/big" ? std::string(100000, 'x') : "";
    exchange.Respond(
        {.content_type = "text/html; charset=latin1", .body = "<p>caf\xE9 " + path + filler});
  }

  const bool robots_moved_;
  net::HttpServer server_;
  std::thread thread_;
  std::mutex mutex_;
  std::map<std::string, int> calls_;
  std::vector<net::HttpExchange> held_;
};

TEST(FetchTest, FetchesPolitelyAndGoesOn) {
  const std::string root = testing::TempDir() + "/fetch";
  std::filesystem::remove_all(root);
  std::filesystem::create_directories(root);
  Site site;
  const char* const paths[] = {"/page",  "/moved",     "/loop", "/missing", "/flaky",
                               "/image", "/private/x", "/slow", "/big",     "/page"};
  {
    std::ofstream list(root + "/urls.txt");
    for (const char* path : paths) list << site.Url(path) << "\n";
    list << "nonsense\nhttp://127.0.0.1:1/closed\n";
  }
  FetchOptions options;
  options.input = {root + "/urls.txt"};
  options.output = root + "/pages.jsonl";
  options.dropped = root + "/dropped.tsv";
  options.delay = 0.01;
  options.timeout = 0.5;
  options.max_bytes = 50000;
  options.allow_private = true;
  // What a killed run has left: one page, and half a line.
  std::ofstream(options.output + ".part")
      << json({{"url", site.Url("/known")}, {"html", ""}}).dump() << "\n{\"url\": \"half";
  std::ofstream(root + "/urls.txt", std::ios::app) << site.Url("/known") << "\n";
  const auto counts = RunFetch(options, {});
  ASSERT_TRUE(counts.ok()) << Message(counts.status());
  EXPECT_EQ(counts->at("in"), 13);
  EXPECT_EQ(counts->at("out"), 4);
  std::map<std::string, std::string> pages;
  std::ifstream in(options.output);
  for (std::string line; std::getline(in, line);) {
    const json page = json::parse(line);
    pages[page["url"]] = page["html"];
  }
  EXPECT_EQ(pages[site.Url("/page")], "<p>café /page");
  EXPECT_EQ(pages[site.Url("/moved")], "<p>café /page");
  EXPECT_EQ(pages[site.Url("/flaky")], "<p>café /flaky");
  EXPECT_EQ(pages.size(), 4u);
  std::map<std::string, std::string> dropped;
  std::ifstream list(options.dropped);
  for (std::string line; std::getline(list, line);) {
    const size_t first = line.find('\t'), second = line.find('\t', first + 1);
    dropped[line.substr(0, first)] = line.substr(first + 1, second - first - 1);
  }
  EXPECT_EQ(dropped, (std::map<std::string, std::string>{{"3", "redirect"},
                                                         {"4", "http_status"},
                                                         {"6", "content_type"},
                                                         {"7", "robots"},
                                                         {"8", "fetch_error"},
                                                         {"9", "too_large"},
                                                         {"11", "malformed_url"},
                                                         {"12", "unreachable"}}));
  EXPECT_EQ(site.Calls("/known"), 0);
  EXPECT_EQ(site.Calls("/robots.txt"), 1);
  EXPECT_EQ(site.Calls("/private/x"), 0);
  EXPECT_EQ(site.Calls("/loop"), 6);
  // Done: nobody is asked.
  ASSERT_TRUE(RunFetch(options, {}).ok());
  EXPECT_EQ(site.Calls("/page"), 2);
}

class FetchOfListTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + "/fetch_" +
            testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_);
  }
  StatusOr<Counts> Fetch(const std::vector<std::string>& urls, bool allow_private) {
    std::ofstream list(root_ + "/urls.txt");
    for (const std::string& url : urls) list << url << "\n";
    list.close();
    FetchOptions options;
    options.input = {root_ + "/urls.txt"};
    options.output = Concat(root_, "/pages", ++runs_, ".jsonl");
    options.delay = 0;
    options.timeout = 5;
    options.retries = 0;
    options.allow_private = allow_private;
    return RunFetch(options, {});
  }
  std::string root_;
  int runs_ = 0;
};

// By the address that a name is resolved to, in whatever spelling.
TEST_F(FetchOfListTest, PrivateAddressesAreNotAskedUnlessAllowed) {
  Site site;
  const std::string port = site.Url("").substr(site.Url("").rfind(':'));
  std::vector<std::string> urls;
  for (const char* host : {"127.0.0.1", "localhost", "127.1", "0177.0.0.1", "0x7f000001",
                           "2130706433", "0.0.0.0", "[::ffff:127.0.0.1]", "127.0.0.1."}) {
    urls.push_back(Concat("http://", host, port, "/page"));
  }
  auto counts = Fetch(urls, false);
  ASSERT_TRUE(counts.ok()) << Message(counts.status());
  EXPECT_EQ((*counts)["out"], 0);
  EXPECT_GE((*counts)["dropped: private_address"], 6);
  EXPECT_EQ(site.Calls("/page") + site.Calls("/robots.txt"), 0);
  counts = Fetch({site.Url("/page")}, true);
  ASSERT_TRUE(counts.ok()) << Message(counts.status());
  EXPECT_EQ((*counts)["out"], 1);
}

TEST_F(FetchOfListTest, RobotsAreFollowedWhereTheyMoved) {
  Site site(/*robots_moved=*/true);
  auto counts = Fetch({site.Url("/private/x"), site.Url("/page")}, true);
  ASSERT_TRUE(counts.ok()) << Message(counts.status());
  EXPECT_EQ((*counts)["dropped: robots"], 1);
  EXPECT_EQ((*counts)["out"], 1);
  EXPECT_EQ(site.Calls("/private/x"), 0);
  EXPECT_EQ(site.Calls("/real-robots"), 1);
}

TEST_F(FetchOfListTest, ARunThatReachesNobodyFails) {
  const auto nobody = Fetch({"http://127.0.0.1:1/a", "http://no-such-host.invalid/b"}, true);
  EXPECT_NE(Message(nobody.status()).find("no page could be fetched; http://"), std::string::npos)
      << Message(nobody.status());
  Site site;
  auto some = Fetch({"http://127.0.0.1:1/a", site.Url("/page")}, true);
  ASSERT_TRUE(some.ok()) << Message(some.status());
  EXPECT_EQ((*some)["dropped: unreachable"], 1);
  EXPECT_EQ((*some)["out"], 1);
}

}  // namespace
}  // namespace tessera::corpus
