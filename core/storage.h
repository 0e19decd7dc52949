// SPDX-License-Identifier: Apache-2.0
// The bytes behind tensors: one allocation, shared by every view of it.
//
// A storage is also the *parameter handle* that the tape saves: `ReleaseBytes` gives the memory
// back while views and saved tensors stay valid as handles, and `ObtainBytes` or `Borrow` brings
// memory again before the next use (parameters that are cut over ranks). Neither counts as a change
// of the contents: only `BumpVersion` does, which every writing operation calls and which the tape
// compares to refuse a backward pass through a tensor that was changed in place. Elements that are
// asked for while released are an error (Tensor::raw_data): reading never brings them back.
#ifndef TESSERA_CORE_STORAGE_H_
#define TESSERA_CORE_STORAGE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "core/device.h"

namespace tessera {

class Allocator;
class Storage;

// Who keeps the contents of storages that are released between uses, and brings them back where it
// is told to.
class StorageKeeper {
 public:
  virtual ~StorageKeeper() = default;
  // For the error of whoever asks for the elements of `storage` while it is released: whose they
  // are, and how to have them.
  virtual std::string WhyReleased(const Storage& storage) const = 0;
};

// Bytes on a device; tensors that are views of one another share one.
class Storage {
 public:
  // Uninitialised bytes from Allocator::Current(device). Throws OutOfMemoryError.
  Storage(size_t bytes, Device device);
  // Memory owned by someone else, kept alive by `owner` (a mapped file, a caller's buffer).
  Storage(void* data, size_t bytes, Device device, std::shared_ptr<void> owner);
  // The same for memory on the CPU that cannot be written to: writing operations throw Error.
  static std::shared_ptr<Storage> ReadOnly(const void* data, size_t bytes,
                                           std::shared_ptr<const void> owner);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  // nullptr on meta, when empty, and while released.
  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  const Device& device() const { return device_; }

  bool read_only() const { return read_only_; }

  bool released() const { return released_; }
  // Gives the memory back; the contents are lost. Only for a storage that owns or borrows its
  // bytes.
  void ReleaseBytes();
  // Brings (uninitialised) memory again; does nothing when it is there.
  void ObtainBytes();
  // From now on the bytes are those of `lender` from `offset` on, which must stay where they are;
  // its own (or those borrowed before) are given back. The contents are the lender's.
  void Borrow(std::shared_ptr<Storage> lender, size_t offset);

  // Who keeps the contents while the bytes are released; nullptr: nobody.
  const std::shared_ptr<StorageKeeper>& keeper() const { return keeper_; }
  void set_keeper(std::shared_ptr<StorageKeeper> keeper) { keeper_ = std::move(keeper); }

  uint64_t version() const { return version_.load(std::memory_order_relaxed); }
  // To be called before the contents are written to.
  void BumpVersion() {
    if (read_only_) [[unlikely]]
      ThrowReadOnly();
    version_.fetch_add(1, std::memory_order_relaxed);
  }

 private:
  friend class UncountedWrite;
  [[noreturn]] void ThrowReadOnly() const;

  void* data_ = nullptr;
  size_t bytes_ = 0;
  Device device_;
  bool released_ = false;
  bool read_only_ = false;
  std::atomic<uint64_t> version_{0};
  Allocator* allocator_ = nullptr;  // whose the bytes are, where they are its own
  std::shared_ptr<void> owner_;
  std::shared_ptr<Storage> lender_;
  std::shared_ptr<StorageKeeper> keeper_;
};

// Writes within its scope do not count as changes: for code that brings back the very contents
// (gathering a released parameter).
class UncountedWrite {
 public:
  explicit UncountedWrite(std::shared_ptr<Storage> storage)
      : storage_(std::move(storage)), version_(storage_->version()) {}
  ~UncountedWrite() { storage_->version_.store(version_, std::memory_order_relaxed); }
  UncountedWrite(const UncountedWrite&) = delete;
  UncountedWrite& operator=(const UncountedWrite&) = delete;

 private:
  std::shared_ptr<Storage> storage_;
  uint64_t version_;
};

}  // namespace tessera

#endif  // TESSERA_CORE_STORAGE_H_
