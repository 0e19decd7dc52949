// SPDX-License-Identifier: Apache-2.0
#include "corpus/dedup/shingles.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

#include "base/unicode_classes.h"
#include "base/utf8.h"
#include "corpus/engine/hash.h"
#include "corpus/sixteen_bytes.h"
#include "data/tokenizer/bert_normalizer.h"

namespace tessera::corpus {
namespace {

// A lower-cased character is at most so much longer than the character.
constexpr size_t kGrowth = 3;

constexpr uint64_t kBase = 0x2545F4914F6CDD1Du;
constexpr uint64_t Power(int n) { return n == 0 ? 1 : kBase * Power(n - 1); }

bool IsAsciiWord(uint8_t c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == '_'; }

// Eight bytes may be read from anywhere in the word's text.
uint64_t HashWord(const char* word, size_t size) {
  uint64_t hash = size * kHashA;
  uint64_t piece;
  for (; size > 8; size -= 8, word += 8) {
    std::memcpy(&piece, word, 8);
    hash = Fold(hash ^ piece, kHashB);
  }
  std::memcpy(&piece, word, 8);
  piece &= ~uint64_t{0} >> (64 - 8 * size);
  return Fold(hash ^ piece, kHashB);
}

}  // namespace

void ShingleReader::AppendBits(uint64_t bits, int count) {
  const size_t word = size_ / 64, shift = size_ % 64;
  is_word_[word] |= bits << shift;
  if (shift + static_cast<size_t>(count) > 64) is_word_[word + 1] |= bits >> (64 - shift);
}

void ShingleReader::Append(std::string_view bytes, bool is_word) {
  std::memcpy(lower_.data() + size_, bytes.data(), bytes.size());
  if (is_word) AppendBits((uint64_t{1} << bytes.size()) - 1, static_cast<int>(bytes.size()));
  size_ += bytes.size();
}

// The character at i, whose length it returns.
size_t ShingleReader::AppendCharacter(std::string_view text, size_t i) {
  const auto first = static_cast<uint8_t>(text[i]);
  if (first < 0x80) {
    const auto lower = static_cast<char>(first >= 'A' && first <= 'Z' ? first + 32 : first);
    Append({&lower, 1}, IsAsciiWord(static_cast<uint8_t>(lower)));
    return 1;
  }
  const Utf8Char c = DecodeUtf8(text, i);
  const auto length = static_cast<size_t>(c.length);
  const CharClass char_class = UnicodeClasses::Get().Of(c.code_point);
  const bool is_word =
      c.valid && (char_class == CharClass::kLetter || char_class == CharClass::kNumber);
  const bool has_case = c.valid && (c.code_point < 0x2E80 || c.code_point >= 0xA640);
  if (c.code_point == 0x130) {
    // Its lower case is an i and a mark, which is no part of words.
    Append("i", true);
    Append("\xCC\x87", false);
  } else if (is_word && has_case) {
    std::string lower;
    data::AppendLower(c.code_point, &lower);
    Append(lower, true);
  } else {
    Append(text.substr(i, length), is_word);
  }
  return length;
}

void ShingleReader::LowerCase(std::string_view text) {
  const size_t room = text.size() * kGrowth + 16;
  if (lower_.size() < room) lower_.resize(room);
  is_word_.assign(room / 64 + 2, 0);
  size_ = 0;
  size_t i = 0;
  while (i < text.size()) {
    const size_t end = std::min(i + 16, text.size());
    if (end - i == 16) {
      const SixteenBytes bytes = LoadSixteen(text.data() + i);
      if (BitsOf(bytes >= uint8_t{0x80}) == 0) {
        const auto upper = reinterpret_cast<SixteenBytes>(Between(bytes, 'A', 'Z'));
        const SixteenBytes lower = bytes + (upper & uint8_t{32});
        const ByteMask letter = Between(lower, 'a', 'z'), digit = Between(lower, '0', '9');
        StoreSixteen(lower_.data() + size_, lower);
        AppendBits(BitsOf(letter | digit | (lower == uint8_t{'_'})), 16);
        size_ += 16;
        i = end;
        continue;
      }
    }
    while (i < end) i += AppendCharacter(text, i);
  }
}

void ShingleReader::Read(std::string_view text, std::vector<uint64_t>* shingles) {
  LowerCase(text);
  shingles->clear();
  uint64_t words[kShingleWords] = {};  // the last ones, in a ring
  uint64_t rolling = 0;
  size_t count = 0;
  // A bit that is not set ends the last word.
  const size_t num_bits = size_ + 1;
  size_t at = 0;
  const auto next = [&](uint64_t flip) {
    size_t index = at / 64;
    uint64_t bits = (is_word_[index] ^ flip) >> (at % 64) << (at % 64);
    while (bits == 0 && ++index < is_word_.size()) bits = is_word_[index] ^ flip;
    at = bits == 0 ? num_bits : index * 64 + static_cast<size_t>(std::countr_zero(bits));
    return at;
  };
  for (;;) {
    const size_t begin = next(0);
    if (begin >= size_) return;
    const size_t end = next(~uint64_t{0});
    const uint64_t word = HashWord(lower_.data() + begin, end - begin);
    uint64_t& oldest = words[count % kShingleWords];
    rolling = (rolling - oldest * Power(kShingleWords - 1)) * kBase + word;
    oldest = word;
    if (++count >= kShingleWords) shingles->push_back(Fold(rolling ^ kHashA, kHashB));
  }
}

void MakeSet(std::vector<uint64_t>* shingles) {
  constexpr size_t kFew = 32;
  std::vector<uint64_t>& values = *shingles;
  if (values.size() > kFew) {
    // By their upper bits into about as many places as there are values; what shares a place is
    // then put right by insertion.
    const int shift = 64 - static_cast<int>(std::bit_width(values.size()));
    std::vector<uint32_t> begins((size_t{1} << (64 - shift)) + 1);
    for (const uint64_t value : values) ++begins[(value >> shift) + 1];
    std::partial_sum(begins.begin(), begins.end(), begins.begin());
    std::vector<uint64_t> placed(values.size());
    for (const uint64_t value : values) placed[begins[value >> shift]++] = value;
    values.swap(placed);
  }
  for (size_t i = 1; i < values.size(); ++i) {
    const uint64_t value = values[i];
    size_t at = i;
    for (; at > 0 && values[at - 1] > value; --at) values[at] = values[at - 1];
    values[at] = value;
  }
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

double Jaccard(const std::vector<uint64_t>& a, const std::vector<uint64_t>& b) {
  size_t i = 0, j = 0, both = 0;
  while (i < a.size() && j < b.size()) {
    const uint64_t x = a[i], y = b[j];
    both += x == y;
    i += x <= y;
    j += y <= x;
  }
  const size_t either = a.size() + b.size() - both;
  return either == 0 ? 0 : static_cast<double>(both) / static_cast<double>(either);
}

}  // namespace tessera::corpus
