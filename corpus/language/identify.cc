// SPDX-License-Identifier: Apache-2.0
#include "corpus/language/identify.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>

#include "base/unicode_classes.h"
#include "base/utf8.h"
#include "data/tokenizer/bert_normalizer.h"

namespace tessera::corpus {
namespace {

constexpr size_t kMostBytes = size_t{64} << 10;
constexpr uint32_t kPlaces = 4096;  // as in make_profiles.py

struct Profile {
  const char* language;
  uint8_t cost[kPlaces];  // -16 * log2 of a trigram's share
};

constexpr Profile kProfiles[] = {
#include "corpus/language/profiles.inc"
};
constexpr size_t kNumProfiles = std::size(kProfiles);

// Bits a trigram beyond which a text is in no language that there is a profile of. Of held-out
// lines of English and German 1 of 1000 needs more; French, Spanish and Italian take 11 and more.
constexpr double kMostBits = 10.6;
// Short texts vary: they may take so much more, over the root of their trigrams.
constexpr double kMoreBits = 6;

enum Script {
  kLatin,
  kHan,
  kKana,
  kHangul,
  kCyrillic,
  kGreek,
  kArabic,
  kHebrew,
  kIndic,
  kThai,
  kRest
};
constexpr const char* kLanguageOf[] = {"",   "zh", "ja", "ko", "ru", "el",
                                       "ar", "he", "hi", "th", "und"};
constexpr size_t kNumScripts = std::size(kLanguageOf);

Script ScriptOf(char32_t c) {
  if (c < 0x250 || (c >= 0x1E00 && c < 0x1F00)) return kLatin;
  if (c >= 0x370 && c < 0x400) return kGreek;
  if (c >= 0x400 && c < 0x530) return kCyrillic;
  if (c >= 0x590 && c < 0x600) return kHebrew;
  if (c >= 0x600 && c < 0x780) return kArabic;
  if (c >= 0x900 && c < 0x980) return kIndic;
  if (c >= 0xE00 && c < 0xE80) return kThai;
  if (c >= 0x3040 && c < 0x3100) return kKana;
  if ((c >= 0xAC00 && c < 0xD7B0) || (c >= 0x1100 && c < 0x1200)) return kHangul;
  if ((c >= 0x3400 && c < 0xA000) || (c >= 0xF900 && c < 0xFB00) || (c >= 0x20000 && c < 0x32000)) {
    return kHan;
  }
  return kRest;
}

char32_t Lower(char32_t c) {
  if (c < 0x80) return c >= 'A' && c <= 'Z' ? c + 32 : c;
  std::string lower;
  data::AppendLower(c, &lower);
  return DecodeUtf8(lower, 0).code_point;
}

// Letters by script, and what the trigrams of Latin text cost in each language.
class Tally {
 public:
  void Add(std::string_view text) {
    const UnicodeClasses& classes = UnicodeClasses::Get();
    Next(' ');
    for (size_t i = 0; i < text.size();) {
      const Utf8Char c = DecodeUtf8(text, i);
      i += static_cast<size_t>(c.length);
      if (classes.Of(c.code_point) != CharClass::kLetter || !c.valid) {
        Next(' ');
        continue;
      }
      const Script script = ScriptOf(c.code_point);
      ++letters_[script];
      Next(script == kLatin ? Lower(c.code_point) : ' ');
    }
    Next(' ');
  }

  Language Best() const {
    int64_t all = 0;
    for (const int64_t count : letters_) all += count;
    if (all == 0) return {"und", 0};
    // An ideograph says as much as a few letters; kana among ideographs make them Japanese.
    std::array<double, kNumScripts> weight;
    for (size_t i = 0; i < kNumScripts; ++i) {
      const double each = i == kHan || i == kKana || i == kHangul ? 3 : 1;
      weight[i] = each * static_cast<double>(letters_[i]);
    }
    if (weight[kKana] > 0.05 * weight[kHan]) {
      weight[kKana] += weight[kHan];
      weight[kHan] = 0;
    }
    double sum = 0;
    for (const double w : weight) sum += w;
    const auto best = static_cast<size_t>(std::ranges::max_element(weight) - weight.begin());
    const double share = weight[best] / sum;
    if (best != kLatin) return {kLanguageOf[best], share};
    return OfLatin(share);
  }

 private:
  void Next(char32_t c) {
    if (c == ' ' && b_ == ' ') return;
    if (a_ != 0) {
      const uint32_t place = (static_cast<uint32_t>(a_) * 961 + static_cast<uint32_t>(b_) * 31 +
                              static_cast<uint32_t>(c)) %
                             kPlaces;
      for (size_t i = 0; i < kNumProfiles; ++i) cost_[i] += kProfiles[i].cost[place];
      ++trigrams_;
    }
    a_ = b_;
    b_ = c;
  }

  Language OfLatin(double share) const {
    if (trigrams_ == 0) return {"und", 0};
    const auto best = static_cast<size_t>(std::ranges::min_element(cost_) - cost_.begin());
    const auto n = static_cast<double>(trigrams_);
    const double bits = static_cast<double>(cost_[best]) / 16 / n;
    double others = 0;
    for (const int64_t cost : cost_) {
      others += std::exp2(static_cast<double>(cost_[best] - cost) / 16);
    }
    if (bits > kMostBits + kMoreBits / std::sqrt(n)) return {"und", share / others};
    return {kProfiles[best].language, share / others};
  }

  std::array<int64_t, kNumScripts> letters_ = {};
  std::array<int64_t, kNumProfiles> cost_ = {};
  int64_t trigrams_ = 0;
  char32_t a_ = 0, b_ = 0;
};

}  // namespace

std::vector<std::string> LanguageCodes() {
  std::vector<std::string> codes;
  for (const Profile& profile : kProfiles) codes.emplace_back(profile.language);
  for (const char* code : kLanguageOf) {
    if (*code != '\0') codes.emplace_back(code);
  }
  return codes;
}

Language IdentifyLanguage(std::string_view text) {
  Tally tally;
  tally.Add(text.substr(0, kMostBytes));
  return tally.Best();
}

}  // namespace tessera::corpus
