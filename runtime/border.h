// SPDX-License-Identifier: Apache-2.0
// The border of the library: inside there are exceptions and statuses of C++, outside tsr_status.
//
//   tsr_status* tsr_context_cancel(tsr_context* context) {
//     return AtBorder([&] { return CancelHandle(context, HandleKind::kContext); });
//   }
#ifndef TESSERA_RUNTIME_BORDER_H_
#define TESSERA_RUNTIME_BORDER_H_

#include <cfenv>
#include <cstddef>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/status.h"
#include "runtime/tessera.h"

namespace tessera::runtime {

// That a caller may ask for.
inline constexpr int kMostThreads = 4096;

// For a call: rounding and traps of arithmetic are the usual ones, as results depend on them, and
// the thread cannot be cancelled (pthread_cancel) amid it. Afterwards all is as it was.
class CallScope {
 public:
  CallScope();
  ~CallScope();
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;

 private:
  std::fenv_t arithmetic_;
  int cancel_state_;
};

// nullptr where it is OK. Where there is no memory for one, a status that says so.
tsr_status* ToBorder(const Status& status) noexcept;
// The other way round: of what a callback has returned, which is released.
Status FromBorder(tsr_status* status);

// A failure with a code of its own, through code that throws.
class StatusError : public Error {
 public:
  StatusError(StatusCode code, std::string_view operation, std::string_view detail)
      : Error(operation, detail), code_(code) {}
  StatusCode code() const { return code_; }

 private:
  StatusCode code_;
};

// Of the exception that is being handled.
tsr_status* ExceptionToBorder() noexcept;

// What `body` (a function that returns Status) gives, or throws.
template <typename Body>
tsr_status* AtBorder(const Body& body) noexcept {
  const CallScope scope;
  try {
    return ToBorder(body());
  } catch (...) {
    return ExceptionToBorder();
  }
}

// Copies a caller's struct of options to one of `known` bytes, which are 0.
Status CopyOptions(const void* given, size_t known, const char* name, void* options);

// The options that a caller gave: members that its version of the struct does not have are 0, and
// so are all of them without any.
template <typename Options>
StatusOr<Options> OptionsOf(const Options* given, const char* name) {
  Options options = {};
  TESSERA_RETURN_IF_ERROR(CopyOptions(given, sizeof(options), name, &options));
  options.size = sizeof(options);
  return options;
}

// A C string that must be there.
inline Status CheckGiven(const void* pointer, const char* what) {
  return pointer != nullptr ? OkStatus() : InvalidArgument(what, " is NULL");
}

// The name of a file or folder, which must be there.
inline Status CheckPath(const char* path, const char* what) {
  TESSERA_RETURN_IF_ERROR(CheckGiven(path, what));
  return *path != '\0' ? OkStatus() : InvalidArgument(what, " is empty");
}

// 0 or 1.
inline Status CheckFlag(int value, const char* name) {
  return value == 0 || value == 1 ? OkStatus()
                                  : InvalidArgument(name, " is ", value, "; it is 0 or 1");
}

// Memory of a caller: `n` elements of it, none of which exist where `n` is 0.
Status CheckArray(const void* pointer, size_t n, const char* name);

}  // namespace tessera::runtime

#endif  // TESSERA_RUNTIME_BORDER_H_
