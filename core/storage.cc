#include "core/storage.h"

#include "core/allocator.h"
#include "core/error.h"

namespace tessera {

Storage::Storage(size_t bytes, Device device)
    : data_(Allocator::For(device).Allocate(bytes)), bytes_(bytes), device_(device) {}

Storage::Storage(void* data, size_t bytes, Device device, std::shared_ptr<void> owner)
    : data_(data), bytes_(bytes), device_(device), owner_(std::move(owner)) {}

Storage::~Storage() {
  if (owner_ == nullptr && !released_) Allocator::For(device_).Free(data_, bytes_);
}

void Storage::ReleaseBytes() {
  TESSERA_CHECK(owner_ == nullptr, "release", "the storage's memory is owned by someone else");
  if (released_) return;
  Allocator::For(device_).Free(data_, bytes_);
  data_ = nullptr;
  released_ = true;
}

void Storage::ObtainBytes() {
  if (!released_) return;
  data_ = Allocator::For(device_).Allocate(bytes_);
  released_ = false;
}

}  // namespace tessera
