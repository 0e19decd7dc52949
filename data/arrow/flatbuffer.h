// SPDX-License-Identifier: Apache-2.0
// Tables of FlatBuffers, which Arrow's metadata is written in, read with every offset checked. The
// format: flatbuffers.dev/internals.
//
//   FlatBuffer buffer(bytes);
//   const FlatTable message = buffer.Root();
//   const int64_t body = message.Int<int64_t>(3, 0);      // field 3, or 0 where it is absent
//   if (!buffer.ok()) ...
//
// What lies outside the bytes makes ok() false for good and reads as absent.
#ifndef TESSERA_DATA_ARROW_FLATBUFFER_H_
#define TESSERA_DATA_ARROW_FLATBUFFER_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace tessera::data {

class FlatTable;

class FlatBuffer {
 public:
  // The bytes outlive the buffer and its tables.
  explicit FlatBuffer(std::string_view bytes) : bytes_(bytes) {}

  FlatTable Root();
  bool ok() const { return ok_; }

 private:
  friend class FlatTable;
  friend class FlatVector;
  bool Fits(size_t at, size_t size) {
    if (at <= bytes_.size() && size <= bytes_.size() - at) return true;
    return ok_ = false;
  }
  template <typename T>
  T Read(size_t at) {
    T value{};
    if (Fits(at, sizeof(T))) std::memcpy(&value, bytes_.data() + at, sizeof(T));
    return value;
  }

  std::string_view bytes_;
  bool ok_ = true;
};

// Elements of one size: numbers, structs, or offsets of tables.
class FlatVector {
 public:
  FlatVector() = default;
  // 0 where it is absent.
  size_t size() const { return size_; }
  // i < size(), for vectors of tables.
  FlatTable Table(size_t i) const;
  // The number at this byte of element i, for vectors of numbers or structs.
  template <typename T>
  T Int(size_t i, size_t byte = 0) const {
    return buffer_->Read<T>(at_ + i * element_size_ + byte);
  }

 private:
  friend class FlatTable;
  FlatBuffer* buffer_ = nullptr;
  size_t at_ = 0;
  size_t size_ = 0;
  size_t element_size_ = 0;
};

class FlatTable {
 public:
  // An absent table, all of whose fields are absent.
  FlatTable() = default;
  bool present() const { return buffer_ != nullptr; }

  template <typename T>
  T Int(int field, T otherwise) const {
    const size_t at = FieldAt(field);
    return at == 0 ? otherwise : buffer_->Read<T>(at);
  }
  FlatTable Table(int field) const;
  std::string_view String(int field) const;
  FlatVector Vector(int field, size_t element_size) const;

 private:
  friend class FlatBuffer;
  friend class FlatVector;
  FlatTable(FlatBuffer* buffer, size_t at) : buffer_(buffer), at_(at) {}
  // The table that the offset at this byte leads to.
  static FlatTable Follow(FlatBuffer* buffer, size_t at);
  // 0: it is absent.
  size_t FieldAt(int field) const;

  FlatBuffer* buffer_ = nullptr;
  size_t at_ = 0;
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_ARROW_FLATBUFFER_H_
