// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/split_characters.h"

#include <span>
#include <utility>

#include "base/unicode_classes.h"

namespace tessera::data {
namespace {

// `last` - `first` is a multiple of `step`.
struct CodeRun {
  uint32_t first;
  uint32_t last;
  uint32_t step;
};

#include "data/tokenizer/split_tables.inc"

}  // namespace

SplitCharacters::SplitCharacters() {
  constexpr std::pair<std::span<const CodeRun>, Property> kTables[] = {{kUpper, kIsUpper},
                                                                       {kLower, kIsLower},
                                                                       {kMarks, kIsMark},
                                                                       {kSigns, kIsSign},
                                                                       {kWord, kIsWord}};
  for (const auto& [runs, property] : kTables) {
    if (of_.size() <= runs.back().last) of_.resize(runs.back().last + 1, 0);
    for (const CodeRun& run : runs) {
      for (uint32_t c = run.first; c <= run.last; c += run.step) of_[c] |= property;
    }
  }
}

const SplitCharacters& SplitCharacters::Get() {
  static const auto* const characters = new SplitCharacters();
  return *characters;
}

bool SplitCharacters::IsWord(char32_t c) const {
  return UnicodeClasses::Get().Of(c) == CharClass::kLetter || Has(c, kIsWord) || IsMark(c);
}

}  // namespace tessera::data
