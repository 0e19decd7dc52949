// SPDX-License-Identifier: Apache-2.0
#include "corpus/urls/url.h"

#include <algorithm>
#include <set>

#include "absl/strings/ascii.h"

namespace tessera::corpus {
namespace {

constexpr size_t kMostBytes = 2048;
constexpr size_t kMostExtensionBytes = 8;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

bool IsHost(std::string_view host) {
  if (host == "localhost") return true;
  if (host.size() > 253 || host.find('.') == std::string_view::npos) return false;
  size_t label = 0;
  for (size_t i = 0; i <= host.size(); ++i) {
    if (i == host.size() || host[i] == '.') {
      if (label == 0 || label > 63 || host[i - 1] == '-') return false;
      label = 0;
      continue;
    }
    const char c = host[i];
    // Bytes of names in other letters pass.
    const bool fits = (c >= 'a' && c <= 'z') || IsDigit(c) || c == '-' || c == '_' ||
                      static_cast<unsigned char>(c) >= 0x80;
    if (!fits || (label == 0 && c == '-')) return false;
    ++label;
  }
  return true;
}

bool IsLetterOrDigit(char c) {
  // Bytes of names in other letters pass.
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
         static_cast<unsigned char>(c) >= 0x80;
}

// Between two dots: letters, digits, and "-" within. The last one is longer than a letter.
bool IsUsualLabel(std::string_view label, bool is_last) {
  if (label.size() > 63 || label.size() < (is_last ? 2 : 1)) return false;
  return IsLetterOrDigit(label.front()) && IsLetterOrDigit(label.back()) &&
         std::ranges::all_of(label, [](char c) { return IsLetterOrDigit(c) || c == '-'; });
}

bool IsFourNumbers(std::string_view host) {
  int numbers = 0;
  for (size_t at = 0; at <= host.size(); ++numbers) {
    const size_t end = std::min(host.find('.', at), host.size());
    const std::string_view number = host.substr(at, end - at);
    if (number.empty() || number.size() > 3 || !std::ranges::all_of(number, IsDigit)) return false;
    at = end + 1;
  }
  return numbers == 4;
}

bool IsUsualHost(std::string_view host) {
  if (IsFourNumbers(host)) return true;
  if (host.ends_with('.')) host.remove_suffix(1);
  const size_t last = host.rfind('.');
  if (last == std::string_view::npos || !IsUsualLabel(host.substr(last + 1), true)) return false;
  for (size_t at = 0; at <= last;) {
    const size_t end = host.find('.', at);
    if (!IsUsualLabel(host.substr(at, end - at), false)) return false;
    at = end + 1;
  }
  return true;
}

}  // namespace

std::optional<Url> ParseUrl(std::string_view text) {
  while (!text.empty() && (text.back() == ' ' || text.back() == '\r')) text.remove_suffix(1);
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  const bool odd = std::ranges::any_of(text, [](char c) {
    return (static_cast<unsigned char>(c) <= ' ') || c == 0x7F || c == '"' || c == '<' || c == '>';
  });
  if (text.size() > kMostBytes || odd) return std::nullopt;
  Url url;
  const size_t colon = text.find("://");
  if (colon == std::string_view::npos) return std::nullopt;
  url.scheme = absl::AsciiStrToLower(std::string(text.substr(0, colon)));
  if (url.scheme != "http" && url.scheme != "https") return std::nullopt;
  text.remove_prefix(colon + 3);
  text = text.substr(0, text.find('#'));
  const size_t end = std::min(text.find_first_of("/?"), text.size());
  std::string_view host = text.substr(0, end);
  url.path = text.substr(end);
  if (!url.path.starts_with('/')) url.path.insert(0, "/");
  if (const size_t at = host.rfind('@'); at != std::string_view::npos) host.remove_prefix(at + 1);
  if (const size_t port = host.rfind(':'); port != std::string_view::npos) {
    url.port = host.substr(port + 1);
    host = host.substr(0, port);
    if (url.port.size() > 5 || !std::ranges::all_of(url.port, IsDigit)) return std::nullopt;
  }
  url.host = absl::AsciiStrToLower(std::string(host));
  if (url.host.ends_with('.')) url.host.pop_back();
  if (!IsHost(url.host)) return std::nullopt;
  return url;
}

std::string UrlKey(const Url& url) {
  std::string key = url.host.starts_with("www.") ? url.host.substr(4) : url.host;
  const bool usual = url.port.empty() || url.port == (url.scheme == "https" ? "443" : "80");
  if (!usual) key += ":" + url.port;
  key += url.path;
  while (key.ends_with('/')) key.pop_back();
  return key;
}

bool HasUsualForm(std::string_view text) {
  const size_t colon = text.find("://");
  if (colon == std::string_view::npos) return false;
  text.remove_prefix(colon + 3);
  const size_t end = std::min(text.find_first_of(":/?"), text.size());
  if (!IsUsualHost(text.substr(0, end))) return false;
  text.remove_prefix(end);
  if (text.starts_with(':')) {
    text.remove_prefix(1);
    const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
    if (digits == 0) return false;
    text.remove_prefix(digits);
  }
  return text.empty() || text.front() == '/' || (text.front() == '?' && text.size() > 1);
}

std::string_view RegisteredName(std::string_view host) {
  static const auto* const kinds = new std::set<std::string_view>{
      "ac", "co", "com", "edu", "gen", "go", "gob", "gov", "ne", "net", "nom", "or", "org"};
  if (IsFourNumbers(host)) return host;
  size_t end = host.rfind('.');
  if (end == std::string_view::npos) return host;
  const auto begin = [&] { return end == 0 ? 0 : host.rfind('.', end - 1) + 1; };  // npos + 1 is 0
  const bool is_country = host.size() - end == 3;
  if (is_country && begin() > 0 && kinds->contains(host.substr(begin(), end - begin()))) {
    end = begin() - 1;
  }
  return host.substr(begin(), end - begin());
}

std::string ExtensionOf(const Url& url) {
  const std::string_view path = std::string_view(url.path).substr(0, url.path.find('?'));
  const std::string_view name = path.substr(path.rfind('/') + 1);
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos || name.size() - dot - 1 > kMostExtensionBytes) return "";
  return absl::AsciiStrToLower(std::string(name.substr(dot + 1)));
}

}  // namespace tessera::corpus
