// SPDX-License-Identifier: Apache-2.0
// Guides: pages of Markdown, which a program has rendered, made pages of the site.
#ifndef TESSERA_DOCS_SITE_GUIDES_H_
#define TESSERA_DOCS_SITE_GUIDES_H_

#include <functional>
#include <string>
#include <string_view>

#include "docs/site/page.h"

namespace tessera::site {

// "README.md" is "index.html", "docs/cli.md" is "docs/cli.html".
std::string PathOfGuide(std::string_view markdown_path);

// `html` is what a renderer made of the page: headings without anchors get GitHub's, links and
// pictures become what `link` says of theirs (to another host they stay), tables scroll by
// themselves where the screen is narrow. The title is the first heading; the text between headings
// is for the search.
Page GuideOf(std::string_view markdown_path, std::string_view html,
             const std::function<std::string(const std::string& link)>& link);

}  // namespace tessera::site

#endif  // TESSERA_DOCS_SITE_GUIDES_H_
