// SPDX-License-Identifier: Apache-2.0
// What a library of the C interface shows and needs, read off its files.
#ifndef TESSERA_TESTS_RUNTIME_LIBRARY_FILE_H_
#define TESSERA_TESTS_RUNTIME_LIBRARY_FILE_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace tessera {

// Built with a sanitizer: larger, with a library of its own, and no host's compiler links it.
bool IsInstrumented();

// Functions that C headers declare.
std::set<std::string> DeclaredFunctions(const std::vector<std::string>& headers);
// Symbols that a shared library or an archive offers to those who link it.
std::set<std::string> SharedSymbols(const std::string& library);
std::set<std::string> ArchiveSymbols(const std::string& archive);
// Libraries that a shared library asks the loader for.
std::set<std::string> NeededLibraries(const std::string& library);
// M of the newest GLIBC_2.M that a shared library asks for.
int NewestGlibcMinor(const std::string& library);
int64_t StrippedBytes(const std::string& library);

}  // namespace tessera

#endif  // TESSERA_TESTS_RUNTIME_LIBRARY_FILE_H_
