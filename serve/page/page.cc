// SPDX-License-Identifier: Apache-2.0
#include "serve/page/page.h"

#include "net/html/page_assets.h"
#include "serve/page/page_assets.h"

namespace tessera::serve {

std::string Page() {
  return net::Fill(kPageAssets.html, {{"style", std::string(kPageAssets.css)},
                                      {"script", std::string(kPageAssets.js)}});
}

std::string_view PageSecurityPolicy() {
  // Nobody shows the page within another, where what is clicked may not be what is seen.
  static const std::string policy = net::SecurityPolicy(kPageAssets) + "; frame-ancestors 'none'";
  return policy;
}

}  // namespace tessera::serve
