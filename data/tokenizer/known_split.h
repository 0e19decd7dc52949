// SPDX-License-Identifier: Apache-2.0
// The patterns that most tokenizer.json files split text with, without a regular expression.
//
//   if (const KnownSplit find = FindKnownSplit(pattern)) {
//     find(text, [](size_t begin, size_t end) { ... });   // the successive matches of the pattern
//   }
//
// Matches are those of Oniguruma (core/regex.h), with the letters of Unicode 16.0.
#ifndef TESSERA_DATA_TOKENIZER_KNOWN_SPLIT_H_
#define TESSERA_DATA_TOKENIZER_KNOWN_SPLIT_H_

#include <cstddef>
#include <functional>
#include <span>
#include <string_view>

namespace tessera::data {

// Calls f for the successive matches in `text`, valid UTF-8.
using KnownSplit = void (*)(std::string_view text, const std::function<void(size_t, size_t)>& f);

// nullptr: the pattern is none of them.
KnownSplit FindKnownSplit(std::string_view pattern);

// The patterns, for tests.
std::span<const std::string_view> KnownSplitPatterns();

}  // namespace tessera::data

#endif  // TESSERA_DATA_TOKENIZER_KNOWN_SPLIT_H_
