// SPDX-License-Identifier: Apache-2.0
#include "core/storage.h"

#include "base/error.h"
#include "core/allocator.h"

namespace tessera {

Storage::Storage(size_t bytes, Device device)
    : bytes_(bytes), device_(device), allocator_(&Allocator::Current(device)) {
  data_ = allocator_->Allocate(bytes);
}

Storage::Storage(void* data, size_t bytes, Device device, std::shared_ptr<void> owner)
    : data_(data), bytes_(bytes), device_(device), owner_(std::move(owner)) {}

std::shared_ptr<Storage> Storage::ReadOnly(const void* data, size_t bytes,
                                           std::shared_ptr<const void> owner) {
  auto storage = std::make_shared<Storage>(const_cast<void*>(data), bytes, Device::Cpu(),
                                           std::const_pointer_cast<void>(std::move(owner)));
  storage->read_only_ = true;
  return storage;
}

void Storage::ThrowReadOnly() const {
  throw Error("write", Concat("the ", bytes_,
                              " bytes are only read: those of a mapped file, or of a const "
                              "pointer; copy the tensor, or load weights without mapping them"));
}

Storage::~Storage() {
  if (allocator_ != nullptr && lender_ == nullptr && !released_) {
    allocator_->Free(data_, bytes_);
  }
}

void Storage::ReleaseBytes() {
  TESSERA_CHECK(allocator_ != nullptr, "release", "the storage's memory is owned by someone else");
  if (released_) return;
  if (lender_ == nullptr) allocator_->Free(data_, bytes_);
  lender_ = nullptr;
  data_ = nullptr;
  released_ = true;
}

void Storage::ObtainBytes() {
  if (!released_) return;
  data_ = allocator_->Allocate(bytes_);
  released_ = false;
}

void Storage::Borrow(std::shared_ptr<Storage> lender, size_t offset) {
  TESSERA_CHECK(
      lender->device() == device_ && offset + bytes_ <= lender->bytes() && !lender->released(),
      "borrow", bytes_, " bytes from ", offset, " on of ", lender->bytes());
  ReleaseBytes();
  lender_ = std::move(lender);
  data_ = lender_->data() == nullptr ? nullptr : static_cast<char*>(lender_->data()) + offset;
  released_ = false;
}

}  // namespace tessera
