// SPDX-License-Identifier: Apache-2.0
#include "base/status.h"

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "base/error.h"

namespace tessera {

Status::Status(StatusCode code, std::string message) {
  if (code == StatusCode::kOk) return;
  failure_ = std::make_shared<const Failed>(Failed{code, std::move(message), {}});
}

std::string_view Status::message() const {
  return ok() ? std::string_view() : std::string_view(failure_->message);
}

void SetMark(Status& status, const char* mark) {
  if (status.ok() || HasMark(status, mark)) return;
  auto marked = std::make_shared<Status::Failed>(*status.failure_);
  marked->marks.emplace_back(mark);
  status.failure_ = std::move(marked);
}

bool HasMark(const Status& status, const char* mark) {
  if (status.ok()) return false;
  const std::vector<std::string>& marks = status.failure_->marks;
  return std::find(marks.begin(), marks.end(), mark) != marks.end();
}

StatusCode CodeOfErrno(int error) {
  switch (error) {
    case 0:
      return StatusCode::kOk;
    case EINVAL:
    case E2BIG:
    case EDOM:
    case EFAULT:
    case EILSEQ:
    case EISDIR:
    case ENAMETOOLONG:
    case ENOTDIR:
    case ENOTSOCK:
    case ENOTTY:
    case ESPIPE:
    case ELOOP:
      return StatusCode::kInvalidArgument;
    case ENOENT:
    case ENODEV:
    case ENXIO:
    case ESRCH:
      return StatusCode::kNotFound;
    case EEXIST:
    case EADDRNOTAVAIL:
    case EALREADY:
      return StatusCode::kAlreadyExists;
    case EACCES:
    case EPERM:
    case EROFS:
      return StatusCode::kPermissionDenied;
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
    case EMLINK:
    case ENOBUFS:
    case ENOMEM:
      return StatusCode::kResourceExhausted;
    case ENOTEMPTY:
    case EADDRINUSE:
    case EBADF:
    case EBUSY:
    case ECHILD:
    case EISCONN:
    case ENOTCONN:
    case EPIPE:
    case ETXTBSY:
      return StatusCode::kFailedPrecondition;
    case EFBIG:
    case EOVERFLOW:
    case ERANGE:
      return StatusCode::kOutOfRange;
    case ENOSYS:
    case EOPNOTSUPP:
    case EAFNOSUPPORT:
    case EPROTONOSUPPORT:
    case EXDEV:
      return StatusCode::kUnimplemented;
    case EAGAIN:
    case EINTR:
    case ECONNABORTED:
    case ECONNREFUSED:
    case ECONNRESET:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case ENETDOWN:
    case ENETRESET:
    case ENETUNREACH:
    case ENOLCK:
    case ENOLINK:
      return StatusCode::kUnavailable;
    case ETIMEDOUT:
      return StatusCode::kDeadlineExceeded;
    case EDEADLK:
    case ESTALE:
      return StatusCode::kAborted;
    case ECANCELED:
      return StatusCode::kCancelled;
    default:
      return StatusCode::kUnknown;
  }
}

Status SystemFailure(int error, std::string message) {
  return Failure(CodeOfErrno(error), message, ": ", std::generic_category().message(error));
}

namespace {
using Place = std::string (*)();
constinit Place place_of_errors = nullptr;
}  // namespace

Error::Error(std::string_view operation, std::string_view detail)
    : operation_(operation), detail_(detail) {
  if (place_of_errors != nullptr) what_ = place_of_errors();
  what_ += Concat(operation, ": ", detail);
}

namespace internal {

void SetPlaceOfErrors(Place place) { place_of_errors = place; }

void ThrowError(const char* operation, const std::string& detail) {
  throw Error(operation, detail);
}

void ThrowError(std::string_view operation, const std::string& detail) {
  throw Error(operation, detail);
}

std::string ConcatTexts(std::initializer_list<std::string_view> parts) {
  std::string text;
  for (const std::string_view part : parts) text += part;
  return text;
}

void ThrowNoValue(const Status& status) {
  throw Error("status", status.ok() ? "an OK status is no failure"
                                    : Concat("a value was asked of a failure: ", status.message()));
}

}  // namespace internal
}  // namespace tessera
