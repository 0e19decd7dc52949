// SPDX-License-Identifier: Apache-2.0
// robots.txt (RFC 9309): what a site lets crawlers have.
#ifndef TESSERA_CORPUS_FETCH_ROBOTS_H_
#define TESSERA_CORPUS_FETCH_ROBOTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::corpus {

class Robots {
 public:
  // Everything is allowed.
  Robots() = default;
  // The rules of the group for `agent` (a product's name, without case), else for "*".
  Robots(std::string_view text, std::string_view agent);
  static Robots DenyAll();

  // By the longest rule that fits the path (with the query); of two, the one that allows.
  bool Allows(std::string_view path) const;
  // Seconds between two calls, where the site asks for some.
  std::optional<double> crawl_delay() const { return crawl_delay_; }
  // How much memory its rules take, about.
  int64_t bytes() const;

 private:
  struct Rule {
    std::string pattern;  // with * and, at its end, $
    bool allow;
  };
  std::vector<Rule> rules_;
  std::optional<double> crawl_delay_;
};

}  // namespace tessera::corpus

#endif  // TESSERA_CORPUS_FETCH_ROBOTS_H_
