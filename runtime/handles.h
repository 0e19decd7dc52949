// SPDX-License-Identifier: Apache-2.0
// What the library has handed out and not taken back: every pointer that comes in is looked up, so
// that a stale or foreign one is a status, not a crash.
//
//   TESSERA_ASSIGN_OR_RETURN(const Pin pin, Pin::Share(model, HandleKind::kModel));
//
// A pinned handle cannot be removed. Thread-safe.
#ifndef TESSERA_RUNTIME_HANDLES_H_
#define TESSERA_RUNTIME_HANDLES_H_

#include <atomic>
#include <cstdint>

#include "base/status.h"
#include "runtime/tessera.h"

namespace tessera::runtime {

enum class HandleKind : uint8_t {
  kStatus,
  kTensors,
  kModel,
  kContext,
  kTrainer,
  kBlueprint,
  kPass,
  kSettings,
  kMaking  // what a call is making
};

// "the handle is in use", beside the codes of base/status.h.
inline constexpr auto kBusy = static_cast<StatusCode>(TSR_BUSY);

// `cancelled`: the flag that Cancel sets; it is taken back when the handle is pinned no more.
void AddHandle(const void* handle, HandleKind kind, std::atomic<bool>* cancelled = nullptr);
// InvalidArgument for what is no such handle, kBusy for one that is pinned.
Status RemoveHandle(const void* handle, HandleKind kind);
bool IsHandle(const void* handle, HandleKind kind);
// Sets the flag of a handle that is pinned.
Status CancelHandle(const void* handle, HandleKind kind);
// Whether there are models, contexts, trainers, or what is lent to a callback, or a call makes one.
bool AnyHandles();

// A handle for as long as a call needs it: what is lent to a callback, or what is being made.
class Lent {
 public:
  Lent(const void* handle, HandleKind kind) : handle_(handle), kind_(kind) {
    AddHandle(handle, kind);
  }
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;
  ~Lent() { RemoveHandle(handle_, kind_).IgnoreError(); }

 private:
  const void* const handle_;
  const HandleKind kind_;
};

// Keeps a handle from being removed.
class Pin {
 public:
  // Several at a time.
  static StatusOr<Pin> Share(const void* handle, HandleKind kind);
  // The only one; kBusy where there is another.
  static StatusOr<Pin> Alone(const void* handle, HandleKind kind);

  Pin(Pin&& other) noexcept : handle_(other.handle_) { other.handle_ = nullptr; }
  Pin& operator=(Pin&&) = delete;
  ~Pin();

 private:
  explicit Pin(const void* handle) : handle_(handle) {}

  const void* handle_;
};

}  // namespace tessera::runtime

#endif  // TESSERA_RUNTIME_HANDLES_H_
