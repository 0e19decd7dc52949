// SPDX-License-Identifier: Apache-2.0
#include "runtime/border.h"

#include <pthread.h>

#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <stdexcept>

#include "runtime/handles.h"

struct tsr_status {
  int code;
  std::string message;
};

namespace tessera::runtime {
namespace {

constexpr char kNoMemory[] = "there is no memory left";

// What there is without memory: no handle, so that releasing it does nothing.
constexpr char no_memory_place = 0;
tsr_status* NoMemoryStatus() {
  return reinterpret_cast<tsr_status*>(const_cast<char*>(&no_memory_place));
}

tsr_status* MakeStatus(int code, std::string_view message) noexcept {
  try {
    auto status = std::make_unique<tsr_status>(tsr_status{code, std::string(message)});
    AddHandle(status.get(), HandleKind::kStatus);
    return status.release();
  } catch (...) {
    return NoMemoryStatus();
  }
}

}  // namespace

CallScope::CallScope() {
  std::fegetenv(&arithmetic_);
  std::fesetenv(FE_DFL_ENV);
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state_);
}

CallScope::~CallScope() {
  std::fesetenv(&arithmetic_);
  pthread_setcancelstate(cancel_state_, nullptr);
}

tsr_status* ToBorder(const Status& status) noexcept {
  return status.ok() ? nullptr : MakeStatus(static_cast<int>(status.code()), status.message());
}

Status FromBorder(tsr_status* status) {
  if (status == nullptr) return OkStatus();
  if (status != NoMemoryStatus() && !IsHandle(status, HandleKind::kStatus)) {
    return InvalidArgument("what a callback returned is not a status, or was released");
  }
  const Status taken(static_cast<StatusCode>(tsr_status_code(status)), tsr_status_message(status));
  tsr_status_release(status);
  return taken;
}

tsr_status* ExceptionToBorder() noexcept {
  try {
    throw;
  } catch (const CancelledError& error) {
    // Where it was in the model when it ended says nothing to the caller.
    return MakeStatus(TSR_CANCELLED, error.detail().c_str());
  } catch (const OutOfMemoryError& error) {
    return MakeStatus(TSR_RESOURCE_EXHAUSTED, error.what());
  } catch (const StatusError& error) {
    return MakeStatus(static_cast<int>(error.code()), error.what());
  } catch (const Error& error) {
    return MakeStatus(TSR_INVALID_ARGUMENT, error.what());
  } catch (const std::bad_alloc&) {
    return NoMemoryStatus();
  } catch (const std::length_error& error) {
    return MakeStatus(TSR_RESOURCE_EXHAUSTED, error.what());
  } catch (const std::exception& error) {
    return MakeStatus(TSR_INTERNAL, error.what());
  } catch (...) {
    return MakeStatus(TSR_INTERNAL, "a callback threw an object that is no std::exception");
  }
}

Status CopyOptions(const void* given, size_t known, const char* name, void* options) {
  if (given == nullptr) return OkStatus();
  size_t size = 0;
  std::memcpy(&size, given, sizeof(size));
  // Beyond this it is no size of ours, and is not read.
  constexpr size_t kLargest = 4096;
  if (size < sizeof(size) || size > kLargest) {
    return InvalidArgument(name, ": size is ", size, "; set it to sizeof(", name, ")");
  }
  const auto* const bytes = static_cast<const unsigned char*>(given);
  for (size_t i = known; i < size; ++i) {
    if (bytes[i] != 0) {
      return InvalidArgument(name, ": a member that version ", TSR_VERSION, " does not know");
    }
  }
  std::memcpy(options, given, size < known ? size : known);
  return OkStatus();
}

Status CheckArray(const void* pointer, size_t n, const char* name) {
  // No array is longer than the address space; such a number is a mistake of sign.
  if (n > size_t{1} << 47) return InvalidArgument(name, ": ", n, " is no number of elements");
  return pointer != nullptr || n == 0 ? OkStatus()
                                      : InvalidArgument(name, " is NULL, of ", n, " elements");
}

}  // namespace tessera::runtime

using tessera::runtime::HandleKind;

tsr_status* tsr_status_create(int code, const char* message) {
  if (code == TSR_OK) return nullptr;
  const bool known = code > TSR_OK && code <= TSR_BUSY;
  return tessera::runtime::MakeStatus(known ? code : TSR_UNKNOWN,
                                      message == nullptr ? "" : message);
}

int tsr_status_code(const tsr_status* status) {
  if (status == nullptr) return TSR_OK;
  if (status == tessera::runtime::NoMemoryStatus()) return TSR_RESOURCE_EXHAUSTED;
  return tessera::runtime::IsHandle(status, HandleKind::kStatus) ? status->code
                                                                 : TSR_INVALID_ARGUMENT;
}

const char* tsr_status_message(const tsr_status* status) {
  if (status == nullptr) return "";
  if (status == tessera::runtime::NoMemoryStatus()) return tessera::runtime::kNoMemory;
  return tessera::runtime::IsHandle(status, HandleKind::kStatus)
             ? status->message.c_str()
             : "the pointer is not a status, or was released";
}

void tsr_status_release(tsr_status* status) {
  try {
    if (status != nullptr && tessera::runtime::RemoveHandle(status, HandleKind::kStatus).ok()) {
      delete status;
    }
  } catch (const std::bad_alloc&) {
    // Only the words for a pointer that is no status: there is nothing to release.
  }
}
