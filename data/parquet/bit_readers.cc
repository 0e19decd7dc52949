// SPDX-License-Identifier: Apache-2.0
#include "data/parquet/bit_readers.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace tessera::data {

int BitsOf(int largest) { return static_cast<int>(std::bit_width(static_cast<unsigned>(largest))); }

uint64_t BitsAt(std::string_view bytes, uint64_t position, int width) {
  if (width == 0) return 0;
  const size_t begin = position / 8;
  const int shift = static_cast<int>(position % 8);
  std::array<char, 9> copy{};
  const char* source = bytes.data() + begin;
  if (bytes.size() - begin < 9) {
    std::memcpy(copy.data(), source, bytes.size() - begin);
    source = copy.data();
  }
  uint64_t low = 0;
  std::memcpy(&low, source, sizeof(low));
  low >>= shift;
  if (shift + width > 64)
    low |= static_cast<uint64_t>(static_cast<uint8_t>(source[8])) << (64 - shift);
  return width == 64 ? low : low & ((uint64_t{1} << width) - 1);
}

// ---- RunReader ---------------------------------------------------------------------------------

bool RunReader::NextRun() {
  uint64_t header = 0;
  for (int shift = 0;; shift += 7) {
    if (position_ == bytes_.size() || shift > 35) return false;
    const auto byte = static_cast<uint8_t>(bytes_[position_++]);
    header |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if ((byte & 0x80) == 0) break;
  }
  const size_t available = bytes_.size() - position_;
  packed_ = (header & 1) != 0;
  left_ = static_cast<int64_t>(header >> 1);
  if (!packed_) {
    const auto size = static_cast<size_t>((bit_width_ + 7) / 8);
    if (size > available) return false;
    value_ = 0;
    std::memcpy(&value_, bytes_.data() + position_, size);
    position_ += size;
    return (static_cast<uint64_t>(value_) >> bit_width_) == 0;
  }
  // The last group may be cut off behind the last value.
  const uint64_t size = static_cast<uint64_t>(left_) * static_cast<uint64_t>(bit_width_);
  group_ = bytes_.substr(position_, std::min<uint64_t>(size, available));
  position_ += group_.size();
  left_ = std::min<int64_t>(
      left_ * 8, static_cast<int64_t>(group_.size() * 8 / static_cast<size_t>(bit_width_)));
  bit_ = 0;
  return true;
}

template <typename T>
bool RunReader::ReadInto(T* out, int64_t count) {
  if (bit_width_ == 0) {
    std::fill_n(out, count, T{0});
    return true;
  }
  while (count > 0) {
    if (left_ == 0) {
      if (!NextRun()) return false;
      continue;
    }
    const int64_t n = std::min(count, left_);
    if (packed_) {
      const auto width = static_cast<uint64_t>(bit_width_);
      const uint64_t mask = (uint64_t{1} << width) - 1;
      int64_t i = 0;
      // Whole words while eight bytes can be read.
      for (; i < n && bit_ / 8 + 8 <= group_.size(); ++i, bit_ += width) {
        uint64_t word = 0;
        std::memcpy(&word, group_.data() + bit_ / 8, sizeof(word));
        out[i] = static_cast<T>((word >> (bit_ % 8)) & mask);
      }
      for (; i < n; ++i, bit_ += width) {
        out[i] = static_cast<T>(BitsAt(group_, bit_, bit_width_));
      }
    } else {
      std::fill_n(out, n, static_cast<T>(value_));
    }
    out += n;
    count -= n;
    left_ -= n;
  }
  return true;
}

template bool RunReader::ReadInto(uint8_t*, int64_t);
template bool RunReader::ReadInto(uint32_t*, int64_t);

// ---- PackedLevelReader -------------------------------------------------------------------------

bool PackedLevelReader::Read(uint8_t* out, int64_t count) {
  if (static_cast<uint64_t>(count) * static_cast<uint64_t>(bit_width_) > bytes_.size() * 8 - bit_) {
    return false;
  }
  for (int64_t i = 0; i < count; ++i) {
    int value = 0;
    for (int b = 0; b < bit_width_; ++b, ++bit_) {
      value = 2 * value + ((static_cast<uint8_t>(bytes_[bit_ / 8]) >> (7 - bit_ % 8)) & 1);
    }
    out[i] = static_cast<uint8_t>(value);
  }
  return true;
}

// ---- DeltaReader -------------------------------------------------------------------------------

bool DeltaReader::Varint(uint64_t* value) {
  *value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (position_ == bytes_.size()) return false;
    const auto byte = static_cast<uint8_t>(bytes_[position_++]);
    *value |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if ((byte & 0x80) == 0) return true;
  }
  return false;
}

bool DeltaReader::Open(std::string_view bytes) {
  bytes_ = bytes;
  uint64_t block_values = 0;
  uint64_t first = 0;
  if (!Varint(&block_values) || !Varint(&miniblocks_) || !Varint(&count_) || !Varint(&first)) {
    return false;
  }
  constexpr uint64_t kMaxBlock = 1 << 20;
  if (block_values == 0 || block_values > kMaxBlock || miniblocks_ == 0 ||
      block_values % miniblocks_ != 0 || block_values / miniblocks_ % 8 != 0) {
    return false;
  }
  miniblock_values_ = block_values / miniblocks_;
  miniblock_ = miniblocks_;
  left_ = count_;
  value_ = (first >> 1) ^ (~(first & 1) + 1);
  return true;
}

bool DeltaReader::NextBlock() {
  uint64_t zigzag = 0;
  if (!Varint(&zigzag) || bytes_.size() - position_ < miniblocks_) return false;
  min_delta_ = (zigzag >> 1) ^ (~(zigzag & 1) + 1);
  widths_ = bytes_.substr(position_, miniblocks_);
  position_ += miniblocks_;
  miniblock_ = 0;
  return true;
}

bool DeltaReader::NextMiniblock() {
  if (miniblock_ == miniblocks_ && !NextBlock()) return false;
  width_ = static_cast<uint8_t>(widths_[miniblock_++]);
  if (width_ > 64) return false;
  const uint64_t size = miniblock_values_ / 8 * static_cast<uint64_t>(width_);
  if (size > bytes_.size() - position_) return false;
  packed_ = bytes_.substr(position_, size);
  position_ += size;
  left_in_miniblock_ = miniblock_values_;
  bit_ = 0;
  return true;
}

bool DeltaReader::Read(int64_t* out, int64_t count) {
  if (static_cast<uint64_t>(count) > left_) return false;
  left_ -= static_cast<uint64_t>(count);
  for (int64_t i = 0; i < count; ++i) {
    if (first_) {
      first_ = false;
    } else {
      if (left_in_miniblock_ == 0 && !NextMiniblock()) return false;
      value_ += min_delta_ + BitsAt(packed_, bit_, width_);
      bit_ += static_cast<uint64_t>(width_);
      --left_in_miniblock_;
    }
    out[i] = static_cast<int64_t>(value_);
  }
  return true;
}

bool DeltaReader::FindEnd(size_t* end) {
  uint64_t deltas = count_ == 0 ? 0 : count_ - 1;
  while (deltas > 0) {
    if (!NextMiniblock()) return false;
    deltas -= std::min(deltas, miniblock_values_);
  }
  *end = position_;
  return true;
}

}  // namespace tessera::data
