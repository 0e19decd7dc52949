// SPDX-License-Identifier: Apache-2.0
#include "tests/runtime/library_file.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <regex>

#include "base/file.h"
#include "gtest/gtest.h"
#include "tests/process/shell.h"

namespace tessera {
namespace {

// The first group of every match.
std::set<std::string> Matches(const std::string& text, const std::regex& pattern) {
  std::set<std::string> found;
  for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it) {
    found.insert((*it)[1]);
  }
  return found;
}

std::string OutputOf(const std::string& command) {
  const ShellRun ran = RunShell(command);
  EXPECT_EQ(ran.code, 0) << command << "\n" << ran.output;
  return ran.output;
}

// nm's rows are "[address] kind name[@version]"; other lines name an archive's members.
std::set<std::string> Symbols(const std::string& nm) {
  const std::regex row("(?:^|\n)[0-9a-f ]* [A-Za-z] ([^\\s@]+)");
  std::set<std::string> names = Matches(OutputOf(nm), row);
  names.erase("TESSERA_1");  // the version's own name is among the symbols
  return names;
}

}  // namespace

bool IsInstrumented() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return true;
#else
  // GCC has no macro for it; --config=ubsan sets its options.
  return std::getenv("UBSAN_OPTIONS") != nullptr;
#endif
}

std::set<std::string> DeclaredFunctions(const std::vector<std::string>& headers) {
  std::set<std::string> names;
  for (const std::string& header : headers) {
    const std::string code = std::regex_replace(*ReadFile(header), std::regex("/\\*[^]*?\\*/"), "");
    names.merge(Matches(code, std::regex("\\b(tsr_[a-z_]+)\\(")));
  }
  return names;
}

std::set<std::string> SharedSymbols(const std::string& library) {
  return Symbols("nm -D -g --defined-only " + library);
}

std::set<std::string> ArchiveSymbols(const std::string& archive) {
  return Symbols("nm -g --defined-only " + archive);
}

std::set<std::string> NeededLibraries(const std::string& library) {
  return Matches(OutputOf("readelf -d " + library), std::regex("\\(NEEDED\\)[^\\[]*\\[([^\\]]*)"));
}

int NewestGlibcMinor(const std::string& library) {
  int newest = 0;
  for (const std::string& minor :
       Matches(OutputOf("objdump -T " + library), std::regex("GLIBC_2\\.([0-9]+)"))) {
    newest = std::max(newest, std::stoi(minor));
  }
  return newest;
}

int64_t StrippedBytes(const std::string& library) {
  const std::string stripped = testing::TempDir() + "/stripped.so";
  OutputOf("strip -o " + stripped + " " + library);
  return static_cast<int64_t>(std::filesystem::file_size(stripped));
}

}  // namespace tessera
