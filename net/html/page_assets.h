// SPDX-License-Identifier: Apache-2.0
// Pages that are in the program, style and script and all.
//
//   Fill(assets.html, {{"style", std::string(assets.css)}, {"script", std::string(assets.js)}})
//
// page_assets.bzl makes the assets of a folder. A content security policy names the hashes of style
// and script, so that a browser runs nothing else, whatever the page shows.
#ifndef TESSERA_NET_HTML_PAGE_ASSETS_H_
#define TESSERA_NET_HTML_PAGE_ASSETS_H_

#include <map>
#include <string>
#include <string_view>

namespace tessera::net {

struct PageAssets {
  std::string_view html;  // {{name}} stands for what Fill puts there
  std::string_view css;
  std::string_view js;
  // Of the two, in base64.
  std::string_view css_sha256;
  std::string_view js_sha256;
};

// Every {{name}} by its part, which is put in as it is; there is a part for each.
std::string Fill(std::string_view page, const std::map<std::string_view, std::string>& parts);

// The style and the script of the assets, calls to where the page came from, and nothing else.
std::string SecurityPolicy(const PageAssets& assets);

}  // namespace tessera::net

#endif  // TESSERA_NET_HTML_PAGE_ASSETS_H_
