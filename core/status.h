// Results of what comes from outside: files, flags, configurations, weights, the network.
//
//   absl::StatusOr<Config> LoadConfig(const std::string& path) {
//     TESSERA_ASSIGN_OR_RETURN(std::string text, ReadFile(path));
//     if (text.empty()) return InvalidArgument(path, ": the file is empty");
//     ...
//   }
//
// Nothing from outside may throw or crash: it returns a status whose message names the path, the
// key or the byte offset. Misuse by the programmer throws `tessera::Error` (core/error.h) instead.
//
// Debian builds Abseil with its own `absl::string_view`, which does not convert to or from
// `std::string_view`; `ToAbsl` and `ToStd` are the one bridge between the two.
#ifndef TESSERA_CORE_STATUS_H_
#define TESSERA_CORE_STATUS_H_

#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tessera {

inline absl::string_view ToAbsl(std::string_view s) {
  return absl::string_view(s.data(), s.size());
}
inline std::string_view ToStd(absl::string_view s) { return std::string_view(s.data(), s.size()); }

// Concatenates anything that has operator<<.
template <typename... Parts>
std::string Concat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return std::move(out).str();
}

// One constructor per kind of failure. The command line exits with 2 for InvalidArgument and
// NotFound (wrong usage, configuration or input) and with 1 for everything else.
template <typename... Parts>
absl::Status InvalidArgument(const Parts&... parts) {
  return absl::InvalidArgumentError(Concat(parts...));
}
template <typename... Parts>
absl::Status NotFound(const Parts&... parts) {
  return absl::NotFoundError(Concat(parts...));
}
template <typename... Parts>
absl::Status DataLoss(const Parts&... parts) {
  return absl::DataLossError(Concat(parts...));
}
template <typename... Parts>
absl::Status Internal(const Parts&... parts) {
  return absl::InternalError(Concat(parts...));
}

// The message of a status as one printable std::string.
inline std::string Message(const absl::Status& status) {
  return std::string(status.message().data(), status.message().size());
}

}  // namespace tessera

#define TESSERA_CONCAT_INNER_(a, b) a##b
#define TESSERA_CONCAT_(a, b) TESSERA_CONCAT_INNER_(a, b)

// Returns the status from the enclosing function unless it is OK.
#define TESSERA_RETURN_IF_ERROR(expr)                  \
  do {                                                 \
    absl::Status tessera_status_ = (expr);             \
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
