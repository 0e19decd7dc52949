// SPDX-License-Identifier: Apache-2.0
// The 5-grams of a text's words, as numbers.
//
//   ShingleReader reader;
//   std::vector<uint64_t> shingles;
//   reader.Read("The cat sat on the mat.", &shingles);    // of 6 words: 2
//
// A word is a run of letters, digits and underscores (Unicode's L and N) of the lower-cased text,
// as Python's re.findall(r"\w+", text.lower()) has them. A shingle is a hash of 64 bits of
// kShingleWords words in a row: two that differ have the same number once in 1.8e19. They come in
// the text's order, as often as they are there; texts of fewer words have none.
#ifndef TESSERA_CORPUS_DEDUP_SHINGLES_H_
#define TESSERA_CORPUS_DEDUP_SHINGLES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::corpus {

inline constexpr int kShingleWords = 5;

class ShingleReader {
 public:
  // Replaces *shingles.
  void Read(std::string_view text, std::vector<uint64_t>* shingles);

 private:
  void LowerCase(std::string_view text);
  size_t AppendCharacter(std::string_view text, size_t i);
  void Append(std::string_view bytes, bool is_word);
  void AppendBits(uint64_t bits, int count);

  // The lower-cased text, eight bytes longer than it is, and a bit for each byte of a word.
  std::string lower_;
  size_t size_ = 0;
  std::vector<uint64_t> is_word_;
};

// Sorts, and leaves each once. Takes time in proportion to their number, since hashes are spread
// evenly.
void MakeSet(std::vector<uint64_t>* shingles);

// What both sets have, over what either has; 0 of two empty ones. Both are sorted and without
// repetitions.
double Jaccard(const std::vector<uint64_t>& a, const std::vector<uint64_t>& b);

}  // namespace tessera::corpus

#endif  // TESSERA_CORPUS_DEDUP_SHINGLES_H_
