// SPDX-License-Identifier: Apache-2.0
#include "data/arrow/flatbuffer.h"

namespace tessera::data {

FlatTable FlatBuffer::Root() { return FlatTable::Follow(this, 0); }

FlatTable FlatTable::Follow(FlatBuffer* buffer, size_t at) {
  const size_t table = at + buffer->Read<uint32_t>(at);
  if (!buffer->Fits(table, 4)) return {};
  return {buffer, table};
}

size_t FlatTable::FieldAt(int field) const {
  if (buffer_ == nullptr) return 0;
  // The table begins with the way back to its list of fields: sizes of the list and of the table,
  // then each field's place in the table, 0 for absent ones.
  const int64_t list = static_cast<int64_t>(at_) - buffer_->Read<int32_t>(at_);
  if (list < 0) {
    buffer_->ok_ = false;
    return 0;
  }
  const auto begin = static_cast<size_t>(list);
  const size_t entry = 4 + 2 * static_cast<size_t>(field);
  if (entry + 2 > buffer_->Read<uint16_t>(begin)) return 0;
  const auto place = buffer_->Read<uint16_t>(begin + entry);
  return place == 0 ? 0 : at_ + place;
}

FlatTable FlatTable::Table(int field) const {
  const size_t at = FieldAt(field);
  return at == 0 ? FlatTable() : Follow(buffer_, at);
}

std::string_view FlatTable::String(int field) const {
  const FlatVector bytes = Vector(field, 1);
  if (bytes.size() == 0) return {};
  return buffer_->bytes_.substr(bytes.at_, bytes.size_);
}

FlatVector FlatTable::Vector(int field, size_t element_size) const {
  FlatVector vector;
  const size_t at = FieldAt(field);
  if (at == 0) return vector;
  const size_t begin = at + buffer_->Read<uint32_t>(at);
  const size_t size = buffer_->Read<uint32_t>(begin);
  if (!buffer_->Fits(begin + 4, size * element_size)) return vector;
  vector.buffer_ = buffer_;
  vector.at_ = begin + 4;
  vector.size_ = size;
  vector.element_size_ = element_size;
  return vector;
}

FlatTable FlatVector::Table(size_t i) const {
  return FlatTable::Follow(buffer_, at_ + i * element_size_);
}

}  // namespace tessera::data
