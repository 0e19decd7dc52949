// SPDX-License-Identifier: Apache-2.0
// Results of what comes from outside: files, flags, configurations, weights, the network.
//
//   StatusOr<Config> LoadConfig(const std::string& path) {
//     TESSERA_ASSIGN_OR_RETURN(std::string text, ReadFile(path));
//     if (text.empty()) return InvalidArgument(path, ": the file is empty");
//     ...
//   }
//
// Nothing from outside may throw or crash: it returns a status whose message names the path, the
// key or the byte offset. Misuse by the programmer throws `tessera::Error` (base/error.h) instead.
//
// Both types are what Abseil's users know by those names; they are written here because the runtime
// library needs nothing but libc (docs/embedding.md).
#ifndef TESSERA_BASE_STATUS_H_
#define TESSERA_BASE_STATUS_H_

#if __cplusplus < 202002L
#error "Tessera's headers for C++ need C++20: compile with -std=c++20"
#endif

#include <concepts>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/text_builder.h"

namespace tessera {

// The kinds of failure; names and numbers are gRPC's.
enum class StatusCode {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
  kUnauthenticated = 16,
};

// OK, or a kind of failure and a message. Copies share what they hold.
class [[nodiscard]] Status {
 public:
  Status() = default;
  // Of kOk: the message is dropped.
  Status(StatusCode code, std::string message);

  bool ok() const { return failure_ == nullptr; }
  StatusCode code() const { return ok() ? StatusCode::kOk : failure_->code; }
  // "" where it is OK. It lives as long as this status does.
  std::string_view message() const;

  // Takes `other` if this one is OK: the first failure stays.
  void Update(const Status& other) {
    if (ok()) failure_ = other.failure_;
  }
  // For a failure that changes nothing.
  void IgnoreError() const {}

  friend bool operator==(const Status& a, const Status& b) {
    return a.code() == b.code() && a.message() == b.message();
  }

 private:
  friend void SetMark(Status& status, const char* mark);
  friend bool HasMark(const Status& status, const char* mark);

  struct Failed {
    StatusCode code;
    std::string message;
    std::vector<std::string> marks;
  };
  std::shared_ptr<const Failed> failure_;
};

// Nothing has failed.
inline Status OkStatus() { return Status(); }

// Its message, or "OK".
inline TextBuilder& operator<<(TextBuilder& text, const Status& status) {
  return text << (status.ok() ? "OK" : status.message());
}

namespace internal {
// Throws Error: a value was asked of a failure, or a StatusOr was made of an OK status.
[[noreturn]] void ThrowNoValue(const Status& status);
}  // namespace internal

// A value, or why there is none. Asking a failure for its value throws `Error`.
template <typename T>
class [[nodiscard]] StatusOr {
 public:
  using value_type = T;

  StatusOr() : status_(StatusCode::kUnknown, "no value was set") {}
  // NOLINTBEGIN(google-explicit-constructor): a function returns its value or its failure as it is.
  // A failure: an OK status throws.
  StatusOr(const Status& status) : status_(status) { CheckFailed(); }
  StatusOr(Status&& status) : status_(std::move(status)) { CheckFailed(); }
  // What T can be made of.
  template <typename U = T>
  requires(std::constructible_from<T, U&&> && !std::same_as<std::remove_cvref_t<U>, StatusOr> &&
           !std::same_as<std::remove_cvref_t<U>, Status>) explicit(!std::convertible_to<U&&, T>)
      StatusOr(U&& value)
      : value_(std::in_place, std::forward<U>(value)) {}
  // Of a pointer to a base, say.
  template <typename U>
  requires(!std::same_as<U, T> && std::convertible_to<U, T>) StatusOr(StatusOr<U> other)
      : status_(std::move(other).status()) {
    if (status_.ok()) value_.emplace(*std::move(other));
  }
  // NOLINTEND(google-explicit-constructor)

  bool ok() const { return value_.has_value(); }
  const Status& status() const& { return status_; }
  Status status() && { return std::move(status_); }

  const T& value() const& { return Checked(), *value_; }
  T& value() & { return Checked(), *value_; }
  T&& value() && { return Checked(), *std::move(value_); }
  const T& operator*() const& { return value(); }
  T& operator*() & { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  const T* operator->() const { return &value(); }
  T* operator->() { return &value(); }
  template <typename U>
  T value_or(U&& otherwise) const {
    return ok() ? *value_ : static_cast<T>(std::forward<U>(otherwise));
  }

 private:
  void CheckFailed() const {
    if (status_.ok()) internal::ThrowNoValue(status_);
  }
  void Checked() const {
    if (!ok()) [[unlikely]]
      internal::ThrowNoValue(status_);
  }

  Status status_;
  std::optional<T> value_;
};

namespace internal {
// Appends what `print` writes of `part` into a stream.
void AppendStreamed(TextBuilder& text, void (*print)(std::ostream& out, const void* part),
                    const void* part);
template <typename Part>
void AppendPart(TextBuilder& text, const Part& part) {
  if constexpr (requires { text << part; }) {
    text << part;
  } else {
    AppendStreamed(
        text, [](std::ostream& out, const void* it) { out << *static_cast<const Part*>(it); },
        &part);
  }
}
}  // namespace internal

namespace internal {
// A text of any type, and a literal of any length, as one type: messages are compiled once for
// their kinds of parts.
template <typename Part>
decltype(auto) AsPart(const Part& part) {
  if constexpr (kIsString<Part>) {
    return std::string_view(part);
  } else {
    return (part);
  }
}
// Of texts alone, as most messages are.
std::string ConcatTexts(std::initializer_list<std::string_view> parts);
template <typename... Parts>
std::string ConcatParts(const Parts&... parts) {
  TextBuilder text;
  (AppendPart(text, parts), ...);
  return std::move(text).Take();
}
}  // namespace internal

// Concatenates anything that a TextBuilder or a stream takes.
template <typename... Parts>
std::string Concat(const Parts&... parts) {
  if constexpr ((kIsString<Parts> && ...)) {
    return internal::ConcatTexts({std::string_view(parts)...});
  } else {
    return internal::ConcatParts(internal::AsPart(parts)...);
  }
}

// A failure of any kind.
template <typename... Parts>
Status Failure(StatusCode code, const Parts&... parts) {
  return Status(code, Concat(parts...));
}

// The usual kinds. The command line exits with 2 for InvalidArgument and NotFound (wrong usage,
// configuration or input) and with 1 for everything else.
template <typename... Parts>
Status InvalidArgument(const Parts&... parts) {
  return Status(StatusCode::kInvalidArgument, Concat(parts...));
}
template <typename... Parts>
Status NotFound(const Parts&... parts) {
  return Status(StatusCode::kNotFound, Concat(parts...));
}
template <typename... Parts>
Status DataLoss(const Parts&... parts) {
  return Status(StatusCode::kDataLoss, Concat(parts...));
}
template <typename... Parts>
Status Internal(const Parts&... parts) {
  return Status(StatusCode::kInternal, Concat(parts...));
}
// What kind of failure an errno is.
StatusCode CodeOfErrno(int error);
// Of a system call: its kind is that of `error` (an errno), which is named in words at the end.
Status SystemFailure(int error, std::string message);
template <typename... Parts>
Status SystemFailure(int error, const Parts&... parts) {
  return SystemFailure(error, Concat(parts...));
}

// The message of a status as one std::string.
inline std::string Message(const Status& status) { return std::string(status.message()); }

// A failure may carry marks ("already printed"), by name, which go where it goes.
void SetMark(Status& status, const char* mark);
bool HasMark(const Status& status, const char* mark);

}  // namespace tessera

#define TESSERA_CONCAT_INNER_(a, b) a##b
#define TESSERA_CONCAT_(a, b) TESSERA_CONCAT_INNER_(a, b)

// Returns the status from the enclosing function unless it is OK.
#define TESSERA_RETURN_IF_ERROR(expr)                  \
  do {                                                 \
    ::tessera::Status tessera_status_ = (expr);        \
    if (!tessera_status_.ok()) return tessera_status_; \
  } while (false)

// TESSERA_ASSIGN_OR_RETURN(auto x, F()): declares or assigns x, or returns F's status.
#define TESSERA_ASSIGN_OR_RETURN(lhs, expr) \
  TESSERA_ASSIGN_OR_RETURN_IMPL_(TESSERA_CONCAT_(tessera_statusor_, __LINE__), lhs, expr)
#define TESSERA_ASSIGN_OR_RETURN_IMPL_(var, lhs, expr) \
  auto var = (expr);                                   \
  if (!var.ok()) return var.status();                  \
  lhs = std::move(var).value()

#endif  // TESSERA_BASE_STATUS_H_
