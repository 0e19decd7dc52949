// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/bert_normalizer.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

#include "base/normal_forms.h"
#include "base/unicode_classes.h"
#include "base/utf8.h"

namespace tessera::data {
namespace {

struct CodeRange {
  uint32_t first;
  uint32_t last;
};
struct LowerRange {
  uint32_t first;
  uint32_t last;
  uint32_t step;
  int32_t difference;
};

#include "data/tokenizer/bert_unicode.inc"

// Those that get blanks around them.
constexpr CodeRange kIdeographs[] = {
    {0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},   {0x20000, 0x2A6DF},
    {0x2A700, 0x2B81F}, {0x2B920, 0x2CEAF}, {0x2F800, 0x2FA1F},
};

enum Property : uint8_t {
  kIsRemoved = 1,
  kIsPunctuation = 2,
  kIsAccent = 4,
  kIsIdeograph = 8,
  kDecomposes = 16,
  kHasLower = 32,
};

class Properties {
 public:
  static const Properties& Get() {
    static const auto* const properties = new Properties();
    return *properties;
  }
  uint8_t Of(char32_t c) const { return c < of_.size() ? of_[c] : 0; }

 private:
  Properties() : of_(0x110000, 0) {
    Mark(kRemoved, kIsRemoved);
    Mark(kPunctuation, kIsPunctuation);
    Mark(kAccents, kIsAccent);
    Mark(kIdeographs, kIsIdeograph);
    VisitDecomposing([this](char32_t c) { of_[c] |= kDecomposes; });
    for (const LowerRange& range : kLower) {
      for (uint32_t c = range.first; c <= range.last; c += range.step) of_[c] |= kHasLower;
    }
  }
  template <size_t kCount>
  void Mark(const CodeRange (&ranges)[kCount], Property property) {
    for (const CodeRange& range : ranges) {
      for (uint32_t c = range.first; c <= range.last; ++c) of_[c] |= property;
    }
  }

  std::vector<uint8_t> of_;
};

char32_t Lower(char32_t c) {
  if (c >= 'A' && c <= 'Z') return c + 32;
  if ((Properties::Get().Of(c) & kHasLower) == 0) return c;
  const auto* range = std::upper_bound(std::begin(kLower), std::end(kLower), c,
                                       [](char32_t v, const LowerRange& r) { return v < r.first; });
  return c + static_cast<char32_t>((range - 1)->difference);
}

// The conjoining letters of a Hangul syllable (the Unicode standard, section 3.12).
constexpr uint32_t kHangulFirst = 0xAC00;
constexpr uint32_t kHangulLast = 0xD7A3;

// The characters of c without its accents.
int Stripped(char32_t c, char32_t* to) {
  const uint8_t properties = Properties::Get().Of(c);
  if ((properties & kIsAccent) != 0) return 0;
  if (c >= kHangulFirst && c <= kHangulLast) {
    const uint32_t s = c - kHangulFirst;
    to[0] = 0x1100 + s / 588;
    to[1] = 0x1161 + s % 588 / 28;
    to[2] = 0x11A7 + s % 28;
    return s % 28 == 0 ? 2 : 3;
  }
  to[0] = c;
  if ((properties & kDecomposes) == 0) return 1;
  int count = 0;
  for (const char32_t part : CanonicalDecomposition(c)) {
    if ((Properties::Get().Of(part) & kIsAccent) == 0) to[count++] = part;
  }
  return count;
}

}  // namespace

void AppendLower(char32_t c, std::string* out) {
  if (c == 0x130) {  // the one letter whose lower case is two
    out->append("i\u0307");
  } else {
    AppendUtf8(Lower(c), out);
  }
}

std::string LowerCased(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = DecodeUtf8(text, i);
    if (c.valid) {
      AppendLower(c.code_point, &out);
    } else {
      out.push_back(text[i]);
    }
    i += static_cast<size_t>(c.length);
  }
  return out;
}

bool IsBertPunctuation(char32_t c) { return (Properties::Get().Of(c) & kIsPunctuation) != 0; }

bool IsBertIdeograph(char32_t c) { return (Properties::Get().Of(c) & kIsIdeograph) != 0; }

void BertNormalizer::AppendNormalized(char32_t c, std::string* out) const {
  char32_t parts[3] = {c};
  const int count = options_.strip_accents.value_or(options_.lowercase) ? Stripped(c, parts) : 1;
  for (int i = 0; i < count; ++i) {
    if (options_.lowercase) {
      AppendLower(parts[i], out);
    } else {
      AppendUtf8(parts[i], out);
    }
  }
}

std::string BertNormalizer::Normalize(std::string_view text) const {
  std::string out;
  out.reserve(text.size() + text.size() / 8);
  for (size_t i = 0; i < text.size();) {
    const auto byte = static_cast<uint8_t>(text[i]);
    if (byte >= 0x20 && byte < 0x7F) {
      const bool upper = options_.lowercase && byte >= 'A' && byte <= 'Z';
      out.push_back(static_cast<char>(upper ? byte + 32 : byte));
      ++i;
      continue;
    }
    const Utf8Char c = DecodeUtf8(text, i);
    i += static_cast<size_t>(c.length);
    const uint8_t properties = Properties::Get().Of(c.code_point);
    if (!c.valid || (options_.clean_text && (properties & kIsRemoved) != 0)) continue;
    if (options_.clean_text && IsUnicodeSpace(c.code_point)) {
      out.push_back(' ');
    } else if (options_.tokenize_chinese_chars && (properties & kIsIdeograph) != 0) {
      out.push_back(' ');
      AppendNormalized(c.code_point, &out);
      out.push_back(' ');
    } else {
      AppendNormalized(c.code_point, &out);
    }
  }
  return out;
}

void BertNormalizer::ForEachWord(std::string_view text,
                                 const std::function<void(std::string_view)>& f) {
  size_t begin = 0;
  const auto end_word = [&](size_t end) {
    if (end > begin) f(text.substr(begin, end - begin));
  };
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = DecodeUtf8(text, i);
    const auto length = static_cast<size_t>(c.length);
    if (IsUnicodeSpace(c.code_point)) {
      end_word(i);
      begin = i + length;
    } else if ((Properties::Get().Of(c.code_point) & kIsPunctuation) != 0) {
      end_word(i);
      f(text.substr(i, length));
      begin = i + length;
    }
    i += length;
  }
  end_word(text.size());
}

}  // namespace tessera::data
