// SPDX-License-Identifier: Apache-2.0
// Parquet's encodings of small integers: levels, indices into dictionaries, differences. All are
// read piece by piece, so that a count which lies costs no memory. The formats: Encodings.md of
// github.com/apache/parquet-format.
#ifndef TESSERA_DATA_PARQUET_BIT_READERS_H_
#define TESSERA_DATA_PARQUET_BIT_READERS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace tessera::data {

// How many bits the numbers [0, largest] take.
int BitsOf(int largest);

// A number of at most 64 bits, the lowest bit first, from bit `position` on, which with its bits
// lies inside `bytes`.
uint64_t BitsAt(std::string_view bytes, uint64_t position, int width);

// Runs of one value and groups of bit-packed ones (RLE). `bit_width` is at most 32; of 0, every
// value is 0.
class RunReader {
 public:
  RunReader() = default;
  RunReader(std::string_view bytes, int bit_width) : bytes_(bytes), bit_width_(bit_width) {}

  // The next `count` values; false where there are fewer.
  bool Read(uint8_t* out, int64_t count) { return ReadInto(out, count); }
  bool Read(uint32_t* out, int64_t count) { return ReadInto(out, count); }

 private:
  template <typename T>
  bool ReadInto(T* out, int64_t count);
  bool NextRun();

  std::string_view bytes_;
  int bit_width_ = 0;
  size_t position_ = 0;
  int64_t left_ = 0;  // of the run
  bool packed_ = false;
  uint32_t value_ = 0;      // of a run of one value
  std::string_view group_;  // of bit-packed values
  uint64_t bit_ = 0;        // within the group
};

// Levels in the older form: bit-packed, the highest bit first.
class PackedLevelReader {
 public:
  PackedLevelReader() = default;
  PackedLevelReader(std::string_view bytes, int bit_width) : bytes_(bytes), bit_width_(bit_width) {}
  // How many bytes `count` levels take.
  static int64_t Size(int64_t count, int bit_width) { return (count * bit_width + 7) / 8; }

  bool Read(uint8_t* out, int64_t count);

 private:
  std::string_view bytes_;
  int bit_width_ = 0;
  uint64_t bit_ = 0;
};

// Integers as bit-packed differences (DELTA_BINARY_PACKED).
class DeltaReader {
 public:
  DeltaReader() = default;
  // Reads the header; false where it is damaged.
  bool Open(std::string_view bytes);

  // How many values there are, as the header says.
  uint64_t count() const { return count_; }
  // The next `count` values; false where there are fewer.
  bool Read(int64_t* out, int64_t count);
  // Where the values end, found without decoding them; false where they are cut off. A copy of a
  // reader that has not read yet may ask.
  bool FindEnd(size_t* end);

 private:
  bool Varint(uint64_t* value);
  bool NextBlock();
  bool NextMiniblock();

  std::string_view bytes_;
  size_t position_ = 0;
  uint64_t miniblocks_ = 0;        // per block
  uint64_t miniblock_values_ = 0;  // per miniblock
  uint64_t count_ = 0;
  uint64_t left_ = 0;   // values that are not read yet
  bool first_ = true;   // the first value has not been read
  uint64_t value_ = 0;  // the last one
  uint64_t min_delta_ = 0;
  std::string_view widths_;  // of the block's miniblocks
  uint64_t miniblock_ = 0;   // the next one
  uint64_t left_in_miniblock_ = 0;
  std::string_view packed_;  // the miniblock
  uint64_t bit_ = 0;
  int width_ = 0;
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_PARQUET_BIT_READERS_H_
