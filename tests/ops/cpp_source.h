// SPDX-License-Identifier: Apache-2.0
// As much understanding of C++ text as the coverage test needs: clang-formatted sources without
// raw strings, read without a compiler.
//
//   for (const std::string& chunk : TopLevelChunks(WithoutCommentsAndStrings(text))) ...
#ifndef TESSERA_TESTS_OPS_CPP_SOURCE_H_
#define TESSERA_TESTS_OPS_CPP_SOURCE_H_

#include <cstddef>
#include <set>
#include <string>
#include <vector>

namespace tessera::coverage {

// Comments are dropped, string and character literals emptied, directives removed.
std::string WithoutCommentsAndStrings(const std::string& text);

// Declarations and definitions at namespace level, each from its first character to its `;` or
// closing brace.
std::vector<std::string> TopLevelChunks(const std::string& text);

std::set<std::string> Identifiers(const std::string& text);

// The text between the brackets of every call `name(...)`.
std::vector<std::string> ArgumentsOfCalls(const std::string& text, const std::string& name);

// The initialiser of the local variable `name` (`const auto name = ...;`); empty if there is none.
std::string InitialiserOf(const std::string& text, const std::string& name);

// `text` without the designated initialiser `.field = ...`.
std::string WithoutField(const std::string& text, const std::string& field);

}  // namespace tessera::coverage

#endif  // TESSERA_TESTS_OPS_CPP_SOURCE_H_
