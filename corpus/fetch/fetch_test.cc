// SPDX-License-Identifier: Apache-2.0
#include "corpus/fetch/fetch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/file.h"
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
}

class Site {
 public:
  Site() : server_(std::move(net::HttpServer::Listen({}).value())) {
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
    if (path == "/robots.txt") {
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
                                                         {"12", "robots"}}));
  EXPECT_EQ(site.Calls("/known"), 0);
  EXPECT_EQ(site.Calls("/robots.txt"), 1);
  EXPECT_EQ(site.Calls("/private/x"), 0);
  EXPECT_EQ(site.Calls("/loop"), 6);
  // Done: nobody is asked.
  ASSERT_TRUE(RunFetch(options, {}).ok());
  EXPECT_EQ(site.Calls("/page"), 2);
}

}  // namespace
}  // namespace tessera::corpus
