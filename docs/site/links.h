// SPDX-License-Identifier: Apache-2.0
// Links between the files of a site, which are read from a disk or from any server.
//
//   RelativeLink("docs/models/bert.html", "docs/cli.html")      // "../cli.html"
//   ResolvedLink("docs/models/bert.html", "../cli.html")        // "docs/cli.html"
//   for (const std::string& fault : DeadLinks(files)) std::cerr << fault << "\n";
#ifndef TESSERA_DOCS_SITE_LINKS_H_
#define TESSERA_DOCS_SITE_LINKS_H_

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::site {

// Paths from the site's folder ("docs/cli.html") and contents.
using Files = std::map<std::string, std::string>;

// From one file to the other, both from the site's folder.
std::string RelativeLink(std::string_view from, std::string_view to);

// The path that a relative link of a file means ("" for "#part": the file itself); nullopt where it
// leaves the folder.
std::optional<std::string> ResolvedLink(std::string_view from, std::string_view link);

// A line for each link of an HTML file that leads nowhere: "docs/cli.html: dead link 'x.html#y'",
// for a file or a part that is not among `files`, for a folder (a disk shows no index.html), and
// for an absolute path. What a page loads (scripts, styles, pictures) is in the site: an address
// elsewhere is reported, too. Links that readers follow to other hosts (https, http, mailto) are
// not tried.
std::vector<std::string> DeadLinks(const Files& files);

}  // namespace tessera::site

#endif  // TESSERA_DOCS_SITE_LINKS_H_
