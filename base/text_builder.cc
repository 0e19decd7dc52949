// SPDX-License-Identifier: Apache-2.0
#include "base/text_builder.h"

#include <charconv>
#include <cstdio>

namespace tessera {
namespace {

template <typename Integer>
std::string_view TextOf(Integer value, char (&digits)[24]) {
  const auto end = std::to_chars(digits, digits + sizeof(digits), value).ptr;
  return {digits, static_cast<size_t>(end - digits)};
}

}  // namespace

TextBuilder& TextBuilder::AppendSigned(long long part) {
  char digits[24];
  return Append(TextOf(part, digits));
}

TextBuilder& TextBuilder::AppendUnsigned(unsigned long long part) {
  char digits[24];
  return Append(TextOf(part, digits));
}

TextBuilder& TextBuilder::AppendDouble(double part) {
  char digits[32];
  const int length = std::snprintf(digits, sizeof(digits), "%g", part);
  // A locale's decimal point is whatever is none of these.
  constexpr std::string_view kUsual = "0123456789+-einfa.";
  bool pointed = false;
  for (int i = 0; i < length; ++i) {
    if (kUsual.find(digits[i]) != std::string_view::npos) {
      text_.push_back(digits[i]);
    } else if (!pointed) {
      text_.push_back('.');  // it may have several bytes
      pointed = true;
    }
  }
  return *this;
}

}  // namespace tessera
