// SPDX-License-Identifier: Apache-2.0
// A reader of Thrift's compact protocol, in which Parquet's metadata is written. It reads the
// fields that a caller asks for and skips the rest. The protocol: github.com/apache/thrift,
// doc/specs/thrift-compact-protocol.md.
//
//   ThriftReader in(bytes);
//   in.Struct([&](int id) {
//     if (id == 1) return version = in.Int(), void();
//     if (id == 2) return in.List([&] { names.emplace_back(in.Binary()); });
//     in.Skip();
//   });
//   if (!in.ok()) ...
//
// Bytes that end early, a value of another type than the one asked for, and structs nested deeper
// than kMaxDepth make ok() false for good; reads then give zero and loops end.
#ifndef TESSERA_DATA_PARQUET_THRIFT_READER_H_
#define TESSERA_DATA_PARQUET_THRIFT_READER_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tessera::data {

class ThriftReader {
 public:
  static constexpr int kMaxDepth = 32;

  // The bytes begin with a struct.
  explicit ThriftReader(std::string_view bytes) : bytes_(bytes) {}

  bool ok() const { return ok_; }
  // How many bytes have been read.
  size_t position() const { return position_; }

  // Calls `field(id)` for every field; it must read the value or skip it.
  template <typename F>
  void Struct(F&& field) {
    if (!Enter(kStruct)) return;
    int id = 0;
    while (NextField(&id)) {
      field(id);
      if (!ok_) break;
    }
    --depth_;
  }
  // Calls `element()` for every element; it must read the value or skip it.
  template <typename F>
  void List(F&& element) {
    if (!Enter(kList)) return;
    uint8_t type = 0;
    for (uint64_t left = ListHeader(&type); left > 0 && ok_; --left) {
      SetElementType(type);
      element();
    }
    --depth_;
  }
  // An integer of any width.
  int64_t Int();
  bool Bool();
  std::string_view Binary();
  void Skip();

 private:
  enum Type : uint8_t {
    kStop = 0,
    kTrue = 1,
    kFalse = 2,
    kByte = 3,
    kI16 = 4,
    kI32 = 5,
    kI64 = 6,
    kDouble = 7,
    kBinary = 8,
    kList = 9,
    kSet = 10,
    kMap = 11,
    kStruct = 12,
  };

  bool Fail() {
    ok_ = false;
    return false;
  }
  bool Enter(Type wanted);
  bool NextField(int* id);
  uint64_t ListHeader(uint8_t* type);
  void SetElementType(uint8_t type);
  void SkipMap();
  uint8_t Byte();
  uint64_t Varint();
  size_t Left() const { return bytes_.size() - position_; }

  std::string_view bytes_;
  size_t position_ = 0;
  bool ok_ = true;
  int depth_ = 0;
  // Of the value that comes next.
  uint8_t type_ = kStruct;
  bool is_element_ = false;
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_PARQUET_THRIFT_READER_H_
