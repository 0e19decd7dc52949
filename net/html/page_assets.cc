// SPDX-License-Identifier: Apache-2.0
#include "net/html/page_assets.h"

#include "base/error.h"

namespace tessera::net {

std::string Fill(std::string_view page, const std::map<std::string_view, std::string>& parts) {
  std::string filled;
  for (size_t at = 0; at < page.size();) {
    const size_t open = page.find("{{", at);
    filled += page.substr(at, open - at);
    if (open == std::string_view::npos) break;
    const size_t close = page.find("}}", open);
    TESSERA_CHECK(close != std::string_view::npos, "page", "{{ without }}");
    const auto part = parts.find(page.substr(open + 2, close - open - 2));
    TESSERA_CHECK(part != parts.end(), "page", "it asks for what there is not");
    filled += part->second;
    at = close + 2;
  }
  return filled;
}

std::string SecurityPolicy(const PageAssets& assets) {
  return "default-src 'none'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
         "img-src data:; style-src 'sha256-" +
         std::string(assets.css_sha256) + "'; script-src 'sha256-" + std::string(assets.js_sha256) +
         "'";
}

}  // namespace tessera::net
