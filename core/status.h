// Results of what comes from outside: files, flags, configurations, weights, the network.
//
//   StatusOr<Config> LoadConfig(const std::string& path) {
//     TESSERA_ASSIGN_OR_RETURN(std::string text, ReadFile(path));
//     if (text.empty()) return InvalidArgument(path, ": the file is empty");
//     ...
//   }
//
// Nothing from outside may throw or crash: it returns a status whose message names the path, the
// key or the byte offset. Misuse by the programmer throws `tessera::Error` (core/error.h) instead.
//
// The types are Abseil's. This is the one file that says so: everything else uses the names below.
#ifndef TESSERA_CORE_STATUS_H_
#define TESSERA_CORE_STATUS_H_

#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"

namespace tessera {

using Status = absl::Status;
using StatusCode = absl::StatusCode;
template <typename T>
using StatusOr = absl::StatusOr<T>;

inline Status OkStatus() { return absl::OkStatus(); }

// Concatenates anything that has operator<<.
template <typename... Parts>
std::string Concat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return std::move(out).str();
}

// A failure of any kind. Debian builds Abseil with its own `string_view`, which does not convert.
template <typename... Parts>
Status Failure(StatusCode code, const Parts&... parts) {
  const std::string message = Concat(parts...);
  return Status(code, absl::string_view(message.data(), message.size()));
}

// The usual kinds. The command line exits with 2 for InvalidArgument and NotFound (wrong usage,
// configuration or input) and with 1 for everything else.
template <typename... Parts>
Status InvalidArgument(const Parts&... parts) {
  return Failure(StatusCode::kInvalidArgument, parts...);
}
template <typename... Parts>
Status NotFound(const Parts&... parts) {
  return Failure(StatusCode::kNotFound, parts...);
}
template <typename... Parts>
Status DataLoss(const Parts&... parts) {
  return Failure(StatusCode::kDataLoss, parts...);
}
template <typename... Parts>
Status Internal(const Parts&... parts) {
  return Failure(StatusCode::kInternal, parts...);
}
// Of a system call: its kind is that of `error` (an errno), which is named in words at the end.
template <typename... Parts>
Status SystemFailure(int error, const Parts&... parts) {
  const std::string message = Concat(parts...);
  return absl::ErrnoToStatus(error, absl::string_view(message.data(), message.size()));
}

// The message of a status as one printable std::string.
inline std::string Message(const Status& status) {
  return std::string(status.message().data(), status.message().size());
}

// A failure may carry marks ("already printed"), by name, which go where it goes.
inline void SetMark(Status& status, const char* mark) { status.SetPayload(mark, absl::Cord()); }
inline bool HasMark(const Status& status, const char* mark) {
  return status.GetPayload(mark).has_value();
}

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

#endif  // TESSERA_CORE_STATUS_H_
