#include "core/storage.h"

#include "core/allocator.h"
#include "core/error.h"

namespace tessera {

Storage::Storage(size_t bytes, Device device)
    : bytes_(bytes), device_(device), allocator_(&Allocator::Current(device)) {
  data_ = allocator_->Allocate(bytes);
}

Storage::Storage(void* data, size_t bytes, Device device, std::shared_ptr<void> owner)
    : data_(data), bytes_(bytes), device_(device), owner_(std::move(owner)) {}

Storage::~Storage() {
  if (owner_ == nullptr && lender_ == nullptr && !released_) {
    allocator_->Free(data_, bytes_);
  }
}

void Storage::ReleaseBytes() {
  TESSERA_CHECK(owner_ == nullptr, "release", "the storage's memory is owned by someone else");
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
