// SPDX-License-Identifier: Apache-2.0
#include "corpus/fetch/robots.h"

#include <algorithm>
#include <charconv>

namespace tessera::corpus {
namespace {

constexpr size_t kMostBytes = size_t{500} << 10;  // as the RFC asks for

std::string_view Trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  return lower;
}

// Greedy matching with one way back: linear in the path for each star.
bool Fits(std::string_view pattern, std::string_view path) {
  const bool whole = pattern.ends_with('$');
  if (whole) pattern.remove_suffix(1);
  size_t p = 0, i = 0, star = std::string_view::npos, from = 0;
  for (;;) {
    if (p == pattern.size() && (!whole || i == path.size())) return true;
    if (p < pattern.size() && pattern[p] == '*') {
      star = ++p;
      from = i;
    } else if (p < pattern.size() && i < path.size() && pattern[p] == path[i]) {
      ++p;
      ++i;
    } else if (star != std::string_view::npos && from < path.size()) {
      p = star;
      i = ++from;
    } else {
      return false;
    }
  }
}

}  // namespace

Robots Robots::DenyAll() {
  Robots robots;
  robots.rules_.push_back({"/", false});
  return robots;
}

Robots::Robots(std::string_view text, std::string_view agent) {
  text = text.substr(0, kMostBytes);
  const std::string mine = Lower(agent);
  Robots specific, general;
  bool has_specific = false;
  bool for_me = false, for_all = false, in_agents = false;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    line = Trimmed(line.substr(0, line.find('#')));
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    const std::string field = Lower(Trimmed(line.substr(0, colon)));
    const std::string_view value = Trimmed(line.substr(colon + 1));
    if (field == "user-agent") {
      if (!in_agents) for_me = for_all = false;
      in_agents = true;
      const std::string name = Lower(value);
      for_all = for_all || name == "*";
      for_me = for_me || (name != "*" && !name.empty() && mine.starts_with(name));
      has_specific = has_specific || for_me;
      continue;
    }
    in_agents = false;
    for (const auto& [applies, group] : {std::pair{for_me, &specific}, {for_all, &general}}) {
      if (!applies) continue;
      double seconds = 0;
      if ((field == "allow" || field == "disallow") && !value.empty()) {
        group->rules_.push_back({std::string(value), field == "allow"});
      } else if (field == "crawl-delay" &&
                 std::from_chars(value.data(), value.data() + value.size(), seconds).ec ==
                     std::errc()) {
        group->crawl_delay_ = seconds;
      }
    }
  }
  *this = has_specific ? specific : general;
}

bool Robots::Allows(std::string_view path) const {
  const Rule* best = nullptr;
  for (const Rule& rule : rules_) {
    if (!Fits(rule.pattern, path)) continue;
    const bool longer = best == nullptr || rule.pattern.size() > best->pattern.size();
    const bool kinder =
        best != nullptr && rule.pattern.size() == best->pattern.size() && rule.allow;
    if (longer || kinder) best = &rule;
  }
  return best == nullptr || best->allow;
}

}  // namespace tessera::corpus
