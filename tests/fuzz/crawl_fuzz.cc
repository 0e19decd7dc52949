// SPDX-License-Identifier: Apache-2.0
// What corpus/fetch takes from the web beside pages: robots.txt, and addresses.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "corpus/fetch/robots.h"
#include "corpus/urls/url.h"
#include "tests/fuzz/fuzz_target.h"

namespace tessera::fuzz {
namespace {

bool RunRobots(std::string_view bytes) {
  const corpus::Robots robots(bytes, "tessera-corpus");
  bool any = false;
  // The text's own end as a path finds more of its rules than any that is fixed.
  const std::string_view end = bytes.substr(bytes.size() - bytes.size() % 64);
  for (const std::string_view path :
       {std::string_view("/"), std::string_view("/a/b.html?x=1"), end}) {
    any = robots.Allows(path) || any;
  }
  TESSERA_CHECK(robots.bytes() >= 0, "robots", "negative bytes");
  return any;
}

std::vector<std::string> RobotsSeeds() {
  return {
      "User-agent: *\nDisallow: /private\nAllow: /private/*.html$\nCrawl-delay: 2\n",
      "# note\nUser-agent: tessera-corpus\nUser-agent: other\nDisallow:\n\nSitemap: http://a.b/\n"};
}

bool RunAddress(std::string_view bytes) {
  const std::optional<corpus::Url> url = corpus::ParseUrl(bytes);
  corpus::HasUsualForm(bytes);
  if (!url) return false;
  const std::string key = corpus::UrlKey(*url);
  TESSERA_CHECK(!key.empty() && !url->path.empty(), "url", "an address without a page");
  TESSERA_CHECK(url->host.find(corpus::RegisteredName(url->host)) != std::string::npos, "url",
                "a name that is not of the host");
  corpus::ExtensionOf(*url);
  return true;
}

std::vector<std::string> AddressSeeds() {
  return {"https://user@www.example.co.uk:8080/a/b.PDF?x=1#y", "http://127.0.0.1/",
          "http://example.org"};
}

const FuzzTargetRegistration robots({.name = "robots_txt",
                                     .run = RunRobots,
                                     .seeds = RobotsSeeds,
                                     .words = {"User-agent: ", "Disallow: ", "Allow: ",
                                               "Crawl-delay: ", "*", "$", "nan", "inf", "-1"}});
const FuzzTargetRegistration address({.name = "address",
                                      .run = RunAddress,
                                      .seeds = AddressSeeds,
                                      .words = {"http://", "https://", "www.", "@", ":", "#", "?",
                                                ".co.uk", "[::1]", "xn--"}});

}  // namespace
}  // namespace tessera::fuzz
