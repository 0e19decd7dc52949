// SPDX-License-Identifier: Apache-2.0
// The one exception type: misuse by the programmer (shapes, dtypes, devices, gradient misuse).
//
//   TESSERA_CHECK(a.size(1) == b.size(0), "matmul", "inner dimensions differ: ", a, " and ", b);
//
// throws Error with the message "matmul: inner dimensions differ: float32[2, 3] and float32[4, 5]".
// What comes from outside returns Status instead (base/status.h). These checks guard memory
// and are on in every build.
#ifndef TESSERA_BASE_ERROR_H_
#define TESSERA_BASE_ERROR_H_

#include <exception>
#include <string>
#include <string_view>

#include "base/status.h"

namespace tessera {

class Error : public std::exception {
 public:
  Error(std::string_view operation, std::string_view detail);
  // "layers.3.mlp.up_proj: linear: cannot apply ...": where that is known, the operation, and why.
  const char* what() const noexcept override { return what_.c_str(); }
  // The operation that refused ("matmul"), and why, with the shapes, dtypes and devices.
  const std::string& operation() const { return operation_; }
  const std::string& detail() const { return detail_; }

 private:
  std::string operation_;
  std::string detail_;
  std::string what_;
};

// Thrown when a device has no room; `what()` tells what was asked, what is in use and the limit.
class OutOfMemoryError : public Error {
 public:
  using Error::Error;
};

// Thrown by work whose caller has cancelled it (ExecutionContext::cancelled). What it wrote into is
// left half done; what it only read can be used again.
class CancelledError : public Error {
 public:
  CancelledError() : Error("execution", "cancelled") {}
};

namespace internal {
// What stands before the messages of errors that are made from now on: "layers.3: ", or nothing.
// core/execution_context.h has it say whose Forward runs.
void SetPlaceOfErrors(std::string (*place)());
// Throws Error; out of line, for there are hundreds of checks.
[[noreturn, gnu::cold]] void ThrowError(const char* operation, const std::string& detail);
[[noreturn, gnu::cold]] void ThrowError(std::string_view operation, const std::string& detail);
}  // namespace internal

}  // namespace tessera

#define TESSERA_CHECK(condition, operation, ...)                                  \
  do {                                                                            \
    if (!(condition)) [[unlikely]] {                                              \
      ::tessera::internal::ThrowError(operation, ::tessera::Concat(__VA_ARGS__)); \
    }                                                                             \
  } while (false)

#endif  // TESSERA_BASE_ERROR_H_
