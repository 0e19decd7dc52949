// SPDX-License-Identifier: Apache-2.0
#include "data/parquet/thrift_reader.h"

namespace tessera::data {

uint8_t ThriftReader::Byte() {
  if (!ok_ || Left() == 0) return Fail(), uint8_t{0};
  return static_cast<uint8_t>(bytes_[position_++]);
}

uint64_t ThriftReader::Varint() {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const uint8_t byte = Byte();
    value |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if ((byte & 0x80) == 0) return value;
  }
  return Fail(), uint64_t{0};
}

bool ThriftReader::Enter(Type wanted) {
  const bool fits = type_ == wanted || (wanted == kList && type_ == kSet);
  if (!ok_ || !fits || depth_ == kMaxDepth) return Fail();
  ++depth_;
  return true;
}

bool ThriftReader::NextField(int* id) {
  const uint8_t header = Byte();
  type_ = header & 15;
  is_element_ = false;
  if (!ok_ || type_ == kStop) return false;
  const int step = header >> 4;
  if (step != 0) {
    *id += step;
  } else {
    const uint64_t zigzag = Varint();
    *id = static_cast<int16_t>((zigzag >> 1) ^ (~(zigzag & 1) + 1));
  }
  return ok_;
}

uint64_t ThriftReader::ListHeader(uint8_t* type) {
  const uint8_t header = Byte();
  *type = header & 15;
  uint64_t count = header >> 4;
  if (count == 15) count = Varint();
  // Every element takes a byte at least.
  if (count > Left()) return Fail(), uint64_t{0};
  return ok_ ? count : 0;
}

void ThriftReader::SetElementType(uint8_t type) {
  type_ = type;
  is_element_ = true;
}

int64_t ThriftReader::Int() {
  if (type_ == kByte) return static_cast<int8_t>(Byte());
  if (type_ != kI16 && type_ != kI32 && type_ != kI64) return Fail(), 0;
  const uint64_t zigzag = Varint();
  return static_cast<int64_t>((zigzag >> 1) ^ (~(zigzag & 1) + 1));
}

bool ThriftReader::Bool() {
  if (type_ != kTrue && type_ != kFalse) return Fail();
  return (is_element_ ? Byte() : type_) == kTrue;
}

std::string_view ThriftReader::Binary() {
  if (type_ != kBinary) return Fail(), std::string_view();
  const uint64_t size = Varint();
  if (!ok_ || size > Left()) return Fail(), std::string_view();
  const std::string_view value = bytes_.substr(position_, size);
  position_ += size;
  return value;
}

void ThriftReader::SkipMap() {
  const uint64_t count = Varint();
  if (count == 0) return;
  const uint8_t types = Byte();
  if (count > Left() || depth_ == kMaxDepth) return Fail(), void();
  ++depth_;
  for (uint64_t i = 0; i < count && ok_; ++i) {
    SetElementType(types >> 4);
    Skip();
    SetElementType(types & 15);
    Skip();
  }
  --depth_;
}

void ThriftReader::Skip() {
  switch (type_) {
    case kTrue:
    case kFalse:
      Bool();
      return;
    case kByte:
    case kI16:
    case kI32:
    case kI64:
      Int();
      return;
    case kDouble:
      if (Left() < 8) return Fail(), void();
      position_ += 8;
      return;
    case kBinary:
      Binary();
      return;
    case kList:
    case kSet:
      return List([&] { Skip(); });
    case kMap:
      return SkipMap();
    case kStruct:
      return Struct([&](int) { Skip(); });
    default:
      Fail();
  }
}

}  // namespace tessera::data
