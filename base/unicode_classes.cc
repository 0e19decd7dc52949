// SPDX-License-Identifier: Apache-2.0
#include "base/unicode_classes.h"

namespace tessera {
namespace {

struct ClassRange {
  uint32_t first;
  uint32_t last;
  CharClass char_class;
};

constexpr ClassRange kRanges[] = {
#include "base/unicode_ranges.inc"
};

}  // namespace

UnicodeClasses::UnicodeClasses() : packed_(0x110000 / 4, 0) {
  for (const ClassRange& range : kRanges) {
    const auto bits = static_cast<uint8_t>(range.char_class);
    for (uint32_t c = range.first; c <= range.last; ++c) {
      packed_[c >> 2] |= static_cast<uint8_t>(bits << ((c & 3) * 2));
    }
  }
}

const UnicodeClasses& UnicodeClasses::Get() {
  static const auto* const classes = new UnicodeClasses();
  return *classes;
}

}  // namespace tessera
