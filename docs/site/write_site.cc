// SPDX-License-Identifier: Apache-2.0
// What tools/site runs: puts the site together and checks its links.
//
//   write_site ROOT GUIDES MANUAL REFERENCE OUT
//
// ROOT is the repository; GUIDES has rendered Markdown, docs/cli.md.html for docs/cli.md; MANUAL is
// what `tessera manual` prints; REFERENCE has Doxygen's files; OUT is the site's folder. A line on
// standard error names each dead link and its page, and the exit status is then 1.
#include <cerrno>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "base/file.h"
#include "docs/site/links.h"
#include "docs/site/site.h"

namespace tessera::site {
namespace {

// Files of the folder and those below it, by their paths from it.
Status ReadFolder(const std::string& folder, const std::string& below, Files& files) {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                           ListDirectory(JoinPath(folder, below)));
  for (const std::string& name : names) {
    const std::string path = JoinPath(below, name);
    if (IsDirectory(JoinPath(folder, path))) {
      TESSERA_RETURN_IF_ERROR(ReadFolder(folder, path, files));
    } else {
      TESSERA_ASSIGN_OR_RETURN(files[path], ReadFile(JoinPath(folder, path)));
    }
  }
  return OkStatus();
}

Status Write(const Files& files, const std::string& folder) {
  for (const auto& [path, content] : files) {
    const std::string whole = JoinPath(folder, path);
    TESSERA_RETURN_IF_ERROR(MakeDirectories(whole.substr(0, whole.rfind('/'))));
    std::FILE* file = std::fopen(whole.c_str(), "wb");
    if (file == nullptr) return SystemFailure(errno, whole);
    const bool written = std::fwrite(content.data(), 1, content.size(), file) == content.size();
    if (std::fclose(file) != 0 || !written) return SystemFailure(errno, whole);
  }
  return OkStatus();
}

StatusOr<std::vector<std::string>> WriteSite(const std::vector<std::string>& arguments) {
  SiteInputs inputs;
  inputs.root = arguments[0];
  Files rendered;
  TESSERA_RETURN_IF_ERROR(ReadFolder(arguments[1], "", rendered));
  for (auto& [path, html] : rendered) {
    inputs.guides[path.substr(0, path.rfind(".html"))] = std::move(html);
  }
  TESSERA_ASSIGN_OR_RETURN(inputs.manual, ReadFile(arguments[2]));
  TESSERA_RETURN_IF_ERROR(ReadFolder(arguments[3], "", inputs.reference));
  const Files site = SiteOf(inputs);
  TESSERA_RETURN_IF_ERROR(Write(site, arguments[4]));
  return DeadLinks(site);
}

int Main(const std::vector<std::string>& arguments) {
  if (arguments.size() != 5) {
    std::fprintf(stderr, "usage: write_site ROOT GUIDES MANUAL REFERENCE OUT\n");
    return 2;
  }
  const StatusOr<std::vector<std::string>> dead = WriteSite(arguments);
  if (!dead.ok()) {
    std::fprintf(stderr, "error: %s\n", Message(dead.status()).c_str());
    return 1;
  }
  for (const std::string& fault : *dead) std::fprintf(stderr, "error: %s\n", fault.c_str());
  return dead->empty() ? 0 : 1;
}

}  // namespace
}  // namespace tessera::site

int main(int argc, char** argv) {
  try {
    return tessera::site::Main(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
