// SPDX-License-Identifier: Apache-2.0
#include "corpus/fetch/robots.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "absl/strings/ascii.h"

namespace tessera::corpus {
namespace {

constexpr size_t kMostBytes = size_t{500} << 10;  // as the RFC asks for

std::string_view Trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

// Linear in the path for each piece between stars: memmem is.
bool Fits(std::string_view pattern, std::string_view path) {
  const bool whole = pattern.ends_with('$');
  if (whole) pattern.remove_suffix(1);
  size_t star = pattern.find('*');
  if (!path.starts_with(pattern.substr(0, star))) return false;
  if (star == std::string_view::npos) return !whole || path.size() == pattern.size();
  path.remove_prefix(star);
  pattern.remove_prefix(star);
  while (!pattern.empty()) {
    pattern.remove_prefix(1);  // the star
    star = pattern.find('*');
    const std::string_view piece = pattern.substr(0, star);
    if (star == std::string_view::npos && whole) return path.ends_with(piece);
    const void* const found = memmem(path.data(), path.size(), piece.data(), piece.size());
    if (found == nullptr) return false;
    path.remove_prefix(static_cast<size_t>(static_cast<const char*>(found) - path.data()) +
                       piece.size());
    pattern.remove_prefix(piece.size());
  }
  return true;
}

}  // namespace

Robots Robots::DenyAll() {
  Robots robots;
  robots.rules_.push_back({"/", false});
  return robots;
}

Robots::Robots(std::string_view text, std::string_view agent) {
  text = text.substr(0, kMostBytes);
  const std::string mine = absl::AsciiStrToLower(std::string(agent));
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
    const std::string field = absl::AsciiStrToLower(std::string(Trimmed(line.substr(0, colon))));
    const std::string_view value = Trimmed(line.substr(colon + 1));
    if (field == "user-agent") {
      if (!in_agents) for_me = for_all = false;
      in_agents = true;
      const std::string name = absl::AsciiStrToLower(std::string(value));
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

int64_t Robots::bytes() const {
  int64_t bytes = 0;
  for (const Rule& rule : rules_) bytes += std::ssize(rule.pattern) + sizeof(Rule);
  return bytes;
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
