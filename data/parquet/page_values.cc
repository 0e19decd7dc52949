// SPDX-License-Identifier: Apache-2.0
#include "data/parquet/page_values.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>

#include "base/utf8.h"
#include "data/columns/column.h"
#include "data/parquet/bit_readers.h"
#include "data/parquet/parquet_leaf_type.h"

namespace tessera::data {
namespace {

Status EndsEarly() { return DataLoss("a page's values end early"); }

// Values are made so many at once.
constexpr int64_t kValuesAtOnce = 1024;

// Appends `count` values of `width` bytes, to be written.
std::byte* Grow(int64_t count, int width, std::vector<std::byte>* out) {
  const size_t begin = out->size();
  out->resize(begin + static_cast<size_t>(count * width));
  return out->data() + begin;
}

// PLAIN of a fixed width.
class PlainFixed final : public PageValues {
 public:
  PlainFixed(std::string_view bytes, int width) : bytes_(bytes), width_(width) {}
  Status Read(int64_t count, LeafValues* out) override {
    if (count > std::ssize(bytes_) / width_) return EndsEarly();
    const auto size = static_cast<size_t>(count * width_);
    const auto* const begin = reinterpret_cast<const std::byte*>(bytes_.data());
    out->fixed.insert(out->fixed.end(), begin, begin + size);
    bytes_.remove_prefix(size);
    return OkStatus();
  }

 private:
  std::string_view bytes_;
  int width_;
};

// PLAIN of byte arrays: each with its length before it.
class PlainStrings final : public PageValues {
 public:
  explicit PlainStrings(std::string_view bytes) : bytes_(bytes) {}
  Status Read(int64_t count, LeafValues* out) override {
    if (count > std::ssize(bytes_) / 4) return EndsEarly();
    const char* at = bytes_.data();
    const char* const end = at + bytes_.size();
    for (int64_t i = 0; i < count; ++i) {
      uint32_t size = 0;
      if (end - at < 4) return EndsEarly();
      std::memcpy(&size, at, sizeof(size));
      at += 4;
      if (static_cast<int64_t>(size) > end - at) return EndsEarly();
      out->strings.emplace_back(at, size);
      at += size;
    }
    bytes_.remove_prefix(static_cast<size_t>(at - bytes_.data()));
    return OkStatus();
  }

 private:
  std::string_view bytes_;
};

// PLAIN of truth values: a bit each.
class PlainBooleans final : public PageValues {
 public:
  explicit PlainBooleans(std::string_view bytes) : bytes_(bytes) {}
  Status Read(int64_t count, LeafValues* out) override {
    if (static_cast<uint64_t>(count) > bytes_.size() * 8 - bit_) return EndsEarly();
    std::byte* const values = Grow(count, 1, &out->fixed);
    for (int64_t i = 0; i < count; ++i, ++bit_) {
      values[i] =
          static_cast<std::byte>((static_cast<uint8_t>(bytes_[bit_ / 8]) >> (bit_ % 8)) & 1);
    }
    return OkStatus();
  }

 private:
  std::string_view bytes_;
  uint64_t bit_ = 0;
};

// RLE of truth values.
class RunBooleans final : public PageValues {
 public:
  explicit RunBooleans(std::string_view bytes) : runs_(bytes, 1) {}
  Status Read(int64_t count, LeafValues* out) override {
    std::byte* const values = Grow(count, 1, &out->fixed);
    return runs_.Read(reinterpret_cast<uint8_t*>(values), count) ? OkStatus() : EndsEarly();
  }

 private:
  RunReader runs_;
};

class DictionaryIndices final : public PageValues {
 public:
  DictionaryIndices(std::string_view bytes, int bit_width, int width, const LeafValues& dictionary)
      : runs_(bytes, bit_width),
        width_(width),
        dictionary_(dictionary),
        size_(width == 0 ? dictionary.strings.size()
                         : dictionary.fixed.size() / static_cast<size_t>(width)) {}

  Status Read(int64_t count, LeafValues* out) override {
    std::array<uint32_t, kValuesAtOnce> indices;
    for (; count > 0; count -= std::min(count, kValuesAtOnce)) {
      const int64_t n = std::min(count, kValuesAtOnce);
      if (!runs_.Read(indices.data(), n)) return EndsEarly();
      const uint32_t largest = *std::max_element(indices.begin(), indices.begin() + n);
      if (largest >= size_) {
        return DataLoss("value ", largest, " of a dictionary that has ", size_);
      }
      Take(std::span(indices.data(), static_cast<size_t>(n)), out);
    }
    return OkStatus();
  }

 private:
  void Take(std::span<const uint32_t> indices, LeafValues* out) const {
    if (width_ == 0) {
      for (const uint32_t i : indices) out->strings.push_back(dictionary_.strings[i]);
      return;
    }
    std::byte* values = Grow(std::ssize(indices), width_, &out->fixed);
    const auto copy = [&](auto width) {
      for (const uint32_t i : indices) {
        std::memcpy(values, &dictionary_.fixed[i * static_cast<size_t>(width)],
                    static_cast<size_t>(width));
        values += width;
      }
    };
    // Constant widths: a move each.
    if (width_ == 4) return copy(std::integral_constant<int, 4>());
    if (width_ == 8) return copy(std::integral_constant<int, 8>());
    copy(width_);
  }

  RunReader runs_;
  int width_;
  const LeafValues& dictionary_;
  size_t size_;
};

class DeltaIntegers final : public PageValues {
 public:
  DeltaIntegers(DeltaReader deltas, int width) : deltas_(deltas), width_(width) {}
  Status Read(int64_t count, LeafValues* out) override {
    std::array<int64_t, kValuesAtOnce> numbers;
    for (; count > 0; count -= std::min(count, kValuesAtOnce)) {
      const int64_t n = std::min(count, kValuesAtOnce);
      if (!deltas_.Read(numbers.data(), n)) return EndsEarly();
      std::byte* const values = Grow(n, width_, &out->fixed);
      for (int64_t i = 0; i < n; ++i) {
        std::memcpy(values + i * width_, &numbers[static_cast<size_t>(i)],
                    static_cast<size_t>(width_));
      }
    }
    return OkStatus();
  }

 private:
  DeltaReader deltas_;
  int width_;
};

// DELTA_LENGTH_BYTE_ARRAY: all lengths, then all bytes.
class DeltaLengthStrings final : public PageValues {
 public:
  Status Open(std::string_view bytes) {
    size_t end = 0;
    if (!lengths_.Open(bytes) || !DeltaReader(lengths_).FindEnd(&end)) return EndsEarly();
    bytes_ = bytes.substr(end);
    return OkStatus();
  }
  Status Read(int64_t count, LeafValues* out) override {
    for (int64_t i = 0; i < count; ++i) {
      int64_t length = 0;
      if (!lengths_.Read(&length, 1) || length < 0 || length > std::ssize(bytes_)) {
        return EndsEarly();
      }
      out->strings.push_back(bytes_.substr(0, static_cast<size_t>(length)));
      bytes_.remove_prefix(static_cast<size_t>(length));
    }
    return OkStatus();
  }

 private:
  DeltaReader lengths_;
  std::string_view bytes_;
};

// DELTA_BYTE_ARRAY: how much of the value before each begins with, and what follows.
class DeltaStrings final : public PageValues {
 public:
  explicit DeltaStrings(int width) : width_(width) {}
  Status Open(std::string_view bytes) {
    size_t end = 0;
    if (!prefixes_.Open(bytes) || !DeltaReader(prefixes_).FindEnd(&end)) return EndsEarly();
    return suffixes_.Open(bytes.substr(end));
  }

  Status Read(int64_t count, LeafValues* out) override {
    LeafValues suffixes;
    for (; count > 0; count -= std::min(count, kValuesAtOnce)) {
      const int64_t n = std::min(count, kValuesAtOnce);
      suffixes.strings.clear();
      TESSERA_RETURN_IF_ERROR(suffixes_.Read(n, &suffixes));
      std::array<int64_t, kValuesAtOnce> prefixes;
      if (!prefixes_.Read(prefixes.data(), n)) return EndsEarly();
      TESSERA_RETURN_IF_ERROR(
          Join(std::span(prefixes.data(), static_cast<size_t>(n)), suffixes.strings, out));
    }
    return OkStatus();
  }

 private:
  Status Join(std::span<const int64_t> prefixes, const std::vector<std::string_view>& suffixes,
              LeafValues* out) {
    // Prefixes of prefixes make much of few bytes.
    const auto most = static_cast<uint64_t>(kMaxRepeatedBytes - out->joined_bytes);
    uint64_t total = 0;
    uint64_t last = last_.size();
    for (size_t i = 0; i < prefixes.size(); ++i) {
      if (prefixes[i] < 0 || static_cast<uint64_t>(prefixes[i]) > last) {
        return DataLoss("a value shares more bytes than the one before it has");
      }
      last = static_cast<uint64_t>(prefixes[i]) + suffixes[i].size();
      total += last;
      if (total > most) {
        return InvalidArgument("repeated values take more than ", kMaxRepeatedBytes, " bytes");
      }
      if (width_ != 0 && last != static_cast<uint64_t>(width_)) {
        return DataLoss("a value of ", last, " bytes where all have ", width_);
      }
    }
    out->joined_bytes += static_cast<int64_t>(total);
    const std::shared_ptr<char[]> buffer = std::make_shared_for_overwrite<char[]>(total);
    char* at = buffer.get();
    std::string_view before = last_;
    for (size_t i = 0; i < prefixes.size(); ++i) {
      const std::string_view value(at, static_cast<size_t>(prefixes[i]) + suffixes[i].size());
      at = std::copy_n(before.data(), prefixes[i], at);
      at = std::ranges::copy(suffixes[i], at).out;
      if (width_ == 0) out->strings.push_back(value);
      before = value;
    }
    if (width_ == 0) {
      out->kept.push_back(buffer);
    } else {
      std::memcpy(Grow(std::ssize(prefixes), width_, &out->fixed), buffer.get(), total);
    }
    last_ = std::string(before);
    return OkStatus();
  }

  int width_;
  DeltaReader prefixes_;
  DeltaLengthStrings suffixes_;
  std::string last_;
};

// BYTE_STREAM_SPLIT: the first bytes of all values, then the second ones, and so on.
class SplitStreams final : public PageValues {
 public:
  SplitStreams(std::string_view bytes, int width)
      : bytes_(bytes), width_(width), size_(std::ssize(bytes) / width) {}
  Status Read(int64_t count, LeafValues* out) override {
    if (count > size_ - next_) return EndsEarly();
    std::byte* const values = Grow(count, width_, &out->fixed);
    for (int64_t b = 0; b < width_; ++b) {
      const char* const stream = bytes_.data() + b * size_ + next_;
      for (int64_t i = 0; i < count; ++i) values[i * width_ + b] = std::byte(stream[i]);
    }
    next_ += count;
    return OkStatus();
  }

 private:
  std::string_view bytes_;
  int width_;
  int64_t size_;
  int64_t next_ = 0;
};

using Opened = StatusOr<std::unique_ptr<PageValues>>;

template <typename T, typename... Arguments>
Opened Made(Arguments&&... arguments) {
  return std::unique_ptr<PageValues>(std::make_unique<T>(std::forward<Arguments>(arguments)...));
}

Opened OpenPlain(const ParquetLeaf& leaf, std::string_view bytes, int width) {
  if (width == 0) return Made<PlainStrings>(bytes);
  if (leaf.physical == PhysicalType::kBoolean) return Made<PlainBooleans>(bytes);
  return Made<PlainFixed>(bytes, width);
}

Opened OpenIndices(std::string_view bytes, int width, const LeafValues* dictionary) {
  if (dictionary == nullptr) return DataLoss("a page needs a dictionary, and there is none");
  // A page of nulls alone may have no bytes.
  const int bit_width = bytes.empty() ? 0 : static_cast<uint8_t>(bytes[0]);
  if (bit_width > 32) return DataLoss("indices of ", bit_width, " bits");
  return Made<DictionaryIndices>(bytes.substr(std::min<size_t>(1, bytes.size())), bit_width, width,
                                 *dictionary);
}

// "1 byte array": in messages.
std::string Unfit(Encoding encoding) {
  return Concat("encoding ", static_cast<int>(encoding), " is not supported for this type");
}

// The length of lists of runs of truth values.
Opened OpenRuns(std::string_view bytes) {
  uint32_t size = 0;
  if (bytes.size() < sizeof(size)) return EndsEarly();
  std::memcpy(&size, bytes.data(), sizeof(size));
  if (size > bytes.size() - sizeof(size)) return EndsEarly();
  return Made<RunBooleans>(bytes.substr(sizeof(size), size));
}

}  // namespace

StatusOr<std::unique_ptr<PageValues>> OpenPageValues(const ParquetLeaf& leaf, Encoding encoding,
                                                     std::string_view bytes,
                                                     const LeafValues* dictionary) {
  const int width = PhysicalWidth(leaf.physical, leaf.type_length);
  const bool integer =
      leaf.physical == PhysicalType::kInt32 || leaf.physical == PhysicalType::kInt64;
  const bool fixed = leaf.physical == PhysicalType::kFixedLenByteArray;
  switch (encoding) {
    case Encoding::kPlain:
      return OpenPlain(leaf, bytes, width);
    case Encoding::kPlainDictionary:
    case Encoding::kRleDictionary:
      return OpenIndices(bytes, width, dictionary);
    case Encoding::kRle:
      if (leaf.physical != PhysicalType::kBoolean) break;
      return OpenRuns(bytes);
    case Encoding::kDeltaBinaryPacked: {
      if (!integer) break;
      DeltaReader deltas;
      if (!deltas.Open(bytes)) return EndsEarly();
      return Made<DeltaIntegers>(deltas, width);
    }
    case Encoding::kDeltaLengthByteArray: {
      if (width != 0) break;
      auto values = std::make_unique<DeltaLengthStrings>();
      TESSERA_RETURN_IF_ERROR(values->Open(bytes));
      return std::unique_ptr<PageValues>(std::move(values));
    }
    case Encoding::kDeltaByteArray: {
      if (width != 0 && !fixed) break;
      auto values = std::make_unique<DeltaStrings>(width);
      TESSERA_RETURN_IF_ERROR(values->Open(bytes));
      return std::unique_ptr<PageValues>(std::move(values));
    }
    case Encoding::kByteStreamSplit:
      if (width == 0 || leaf.physical == PhysicalType::kBoolean) break;
      return Made<SplitStreams>(bytes, width);
    case Encoding::kBitPacked:
      break;
  }
  return InvalidArgument(Unfit(encoding));
}

StatusOr<LeafValues> ReadDictionary(const ParquetLeaf& leaf, Encoding encoding,
                                    std::string_view bytes, int64_t count) {
  if (encoding != Encoding::kPlain && encoding != Encoding::kPlainDictionary) {
    return InvalidArgument("a dictionary in ", Unfit(encoding));
  }
  LeafValues values;
  TESSERA_ASSIGN_OR_RETURN(const auto page, OpenPageValues(leaf, Encoding::kPlain, bytes, nullptr));
  TESSERA_RETURN_IF_ERROR(page->Read(count, &values));
  TESSERA_RETURN_IF_ERROR(CheckText(leaf, values.strings, 0));
  return values;
}

Status CheckText(const ParquetLeaf& leaf, const std::vector<std::string_view>& strings,
                 size_t begin) {
  if (leaf.type->kind != TypeKind::kString) return OkStatus();
  for (size_t i = begin; i < strings.size(); ++i) {
    const size_t bad = FindInvalidUtf8(strings[i]);
    if (bad != kNoInvalidUtf8) return DataLoss("a string is not UTF-8 at its byte ", bad);
  }
  return OkStatus();
}

}  // namespace tessera::data
