// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

#include "base/utf8.h"
#include "corpus/repair/repair.h"
#include "corpus/repair/windows_1252.h"

namespace tessera::corpus {
namespace {

constexpr int kNoByte = -1;

// The byte that was read as this character.
int ByteOf(char32_t c) {
  if (c >= 0x80 && c <= 0xFF) return static_cast<int>(c);
  const auto* const found = std::ranges::find(kWindows1252, c);
  if (found == std::end(kWindows1252)) return kNoByte;
  return static_cast<int>(0x80 + (found - kWindows1252));
}

// What follows a letter in texts that are as they were meant.
bool FollowsWords(int byte) {
  constexpr std::string_view kBytes =
      "\x85\x91\x92\x93\x94\x96\x97\x99\x9B\x8B\xA0\xA9\xAB\xAE\xB0\xBB\xBA\xAA\xB7";
  return kBytes.find(static_cast<char>(byte)) != std::string_view::npos;
}

struct Char {
  char32_t code_point;
  size_t offset;  // in the text
  int byte;
};

// A character of several bytes, each of which was read as one.
struct Sequence {
  size_t first;  // of the run's characters
  size_t count;
  char32_t code_point;
};

// The sequence that begins at `i`, if one does.
bool ReadSequence(const std::vector<Char>& run, size_t i, Sequence* sequence) {
  const int lead = run[i].byte;
  if (lead < 0xC2 || lead > 0xF4) return false;
  const size_t count = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (run.size() - i < count) return false;
  std::string bytes;
  for (size_t k = 0; k < count; ++k) {
    if (run[i + k].byte < 0x80) return false;
    bytes += static_cast<char>(run[i + k].byte);
  }
  const Utf8Char c = DecodeUtf8(bytes, 0);
  if (!c.valid || static_cast<size_t>(c.length) != count) return false;
  *sequence = {i, count, c.code_point};
  return true;
}

// Whether a sequence must be a mistake. Â and Ã hardly ever stand before a symbol, nor â before
// two; others count where several of them stand side by side, or what follows them is no
// punctuation.
bool IsMistake(const std::vector<Char>& run, const Sequence& sequence, bool has_neighbour) {
  const int lead = run[sequence.first].byte;
  if (lead == 0xC2 || lead == 0xC3 || lead == 0xE2 || lead >= 0xF0) return true;
  if (lead == 0xEF) return sequence.code_point >= 0xFB00;
  if (has_neighbour) return true;
  for (size_t k = 1; k < sequence.count; ++k) {
    const int byte = run[sequence.first + k].byte;
    if (!FollowsWords(byte)) return true;
  }
  return false;
}

// A run of characters that are not ASCII, with what was read wrongly put right.
bool FixRun(std::string_view text, const std::vector<Char>& run, std::string* out) {
  std::vector<Sequence> sequences;
  for (size_t i = 0; i < run.size();) {
    Sequence sequence;
    if (ReadSequence(run, i, &sequence)) {
      sequences.push_back(sequence);
      i += sequence.count;
    } else {
      ++i;
    }
  }
  bool changed = false;
  size_t at = 0;
  const auto copy = [&](size_t end) {
    for (; at < end; ++at) {
      const size_t stop = at + 1 < run.size() ? run[at + 1].offset : text.size();
      out->append(text.substr(run[at].offset, stop - run[at].offset));
    }
  };
  for (size_t s = 0; s < sequences.size(); ++s) {
    const Sequence& sequence = sequences[s];
    const bool after = s > 0 && sequences[s - 1].first + sequences[s - 1].count == sequence.first;
    const bool before =
        s + 1 < sequences.size() && sequence.first + sequence.count == sequences[s + 1].first;
    if (!IsMistake(run, sequence, after || before)) continue;
    copy(sequence.first);
    AppendUtf8(sequence.code_point, out);
    at = sequence.first + sequence.count;
    changed = true;
  }
  copy(run.size());
  return changed;
}

bool FixOnce(std::string_view text, std::string* out) {
  out->clear();
  bool changed = false;
  std::vector<Char> run;
  for (size_t i = 0; i < text.size();) {
    size_t end = i;
    while (end < text.size() && static_cast<uint8_t>(text[end]) < 0x80) ++end;
    out->append(text.substr(i, end - i));
    i = end;
    run.clear();
    while (i < text.size() && static_cast<uint8_t>(text[i]) >= 0x80) {
      const Utf8Char c = DecodeUtf8(text, i);
      run.push_back({c.code_point, i, c.valid ? ByteOf(c.code_point) : kNoByte});
      i += static_cast<size_t>(c.length);
    }
    if (!run.empty()) changed = FixRun(text.substr(0, i), run, out) || changed;
  }
  return changed;
}

}  // namespace

bool FixMojibake(std::string_view text, std::string* out) {
  constexpr int kMostTimes = 4;
  out->clear();
  std::string fixed;
  bool changed = false;
  for (int times = 0; times < kMostTimes && FixOnce(changed ? *out : text, &fixed); ++times) {
    std::swap(*out, fixed);
    changed = true;
  }
  if (!changed) out->clear();
  return changed;
}

}  // namespace tessera::corpus
