// SPDX-License-Identifier: Apache-2.0
#include "base/status.h"

#include <cerrno>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include "base/error.h"
#include "gtest/gtest.h"

namespace tessera {
namespace {

TEST(StatusTest, IsOkOrAKindAndAMessage) {
  EXPECT_TRUE(Status().ok());
  EXPECT_EQ(Status().message(), "");
  EXPECT_EQ(Status(StatusCode::kOk, "dropped"), OkStatus());
  const Status failure = NotFound("a", 1, ": gone");
  EXPECT_FALSE(failure.ok());
  EXPECT_EQ(failure.code(), StatusCode::kNotFound);
  EXPECT_EQ(Message(failure), "a1: gone");
  EXPECT_NE(failure, InvalidArgument("a1: gone"));
  std::ostringstream text;
  text << failure << "|" << OkStatus();
  EXPECT_EQ(text.str(), "a1: gone|OK");
}

TEST(StatusTest, TheFirstFailureStays) {
  Status status;
  status.Update(OkStatus());
  EXPECT_TRUE(status.ok());
  status.Update(NotFound("first"));
  status.Update(Internal("second"));
  status.Update(OkStatus());
  EXPECT_EQ(status, NotFound("first"));
}

TEST(StatusTest, MarksGoWhereTheFailureGoes) {
  Status status = Internal("x");
  const Status before = status;
  SetMark(status, "printed");
  SetMark(status, "printed");
  const Status copy = status;
  EXPECT_TRUE(HasMark(copy, "printed"));
  EXPECT_FALSE(HasMark(copy, "other"));
  EXPECT_FALSE(HasMark(before, "printed"));
  Status ok;
  SetMark(ok, "printed");
  EXPECT_TRUE(ok.ok());
  EXPECT_FALSE(HasMark(ok, "printed"));
}

TEST(StatusTest, SystemFailuresSayWhatTheSystemSays) {
  EXPECT_EQ(SystemFailure(ENOENT, "a", "/b"), NotFound("a/b: No such file or directory"));
  EXPECT_EQ(CodeOfErrno(0), StatusCode::kOk);
  EXPECT_EQ(CodeOfErrno(ENOSPC), StatusCode::kResourceExhausted);
  EXPECT_EQ(CodeOfErrno(EACCES), StatusCode::kPermissionDenied);
  EXPECT_EQ(CodeOfErrno(EINVAL), StatusCode::kInvalidArgument);
  // A path of the wrong kind, as docs/cli.md counts it.
  EXPECT_EQ(CodeOfErrno(EISDIR), StatusCode::kInvalidArgument);
  EXPECT_EQ(CodeOfErrno(ENOTDIR), StatusCode::kInvalidArgument);
  EXPECT_EQ(CodeOfErrno(987654), StatusCode::kUnknown);
}

TEST(StatusOrTest, HoldsAValueOrAFailure) {
  const StatusOr<std::string> value = "text";
  ASSERT_TRUE(value.ok());
  EXPECT_EQ(*value, "text");
  EXPECT_EQ(value->size(), 4u);
  EXPECT_TRUE(value.status().ok());
  EXPECT_EQ(value.value_or("else"), "text");
  const StatusOr<std::string> failure = NotFound("no");
  EXPECT_FALSE(failure.ok());
  EXPECT_EQ(failure.status(), NotFound("no"));
  EXPECT_EQ(failure.value_or("else"), "else");
  EXPECT_THROW((void)failure.value(), Error);
  EXPECT_THROW((void)*failure, Error);
  EXPECT_THROW(StatusOr<int>{OkStatus()}, Error);
  EXPECT_FALSE(StatusOr<int>().ok());
}

TEST(StatusOrTest, HoldsWhatLooksLikeNothing) {
  const StatusOr<std::optional<std::string>> none = std::nullopt;
  ASSERT_TRUE(none.ok());
  EXPECT_FALSE(none->has_value());
  const StatusOr<std::unique_ptr<int>> null = nullptr;
  ASSERT_TRUE(null.ok());
  EXPECT_EQ(*null, nullptr);
  const StatusOr<bool> no = false;
  ASSERT_TRUE(no.ok());
  EXPECT_FALSE(*no);
}

struct Base {
  virtual ~Base() = default;
};
struct Derived : Base {};

TEST(StatusOrTest, ConvertsAsItsValueDoes) {
  StatusOr<std::unique_ptr<Derived>> derived = std::make_unique<Derived>();
  const Derived* const object = derived->get();
  const StatusOr<std::unique_ptr<Base>> base = std::move(derived);
  ASSERT_TRUE(base.ok());
  EXPECT_EQ(base->get(), object);
  const StatusOr<std::unique_ptr<Base>> failed =
      StatusOr<std::unique_ptr<Derived>>(Internal("broken"));
  EXPECT_EQ(failed.status(), Internal("broken"));
}

StatusOr<int> Half(int n) {
  if (n % 2 != 0) return InvalidArgument(n, " is odd");
  return n / 2;
}

StatusOr<int> Quarter(int n) {
  TESSERA_ASSIGN_OR_RETURN(int half, Half(n));
  TESSERA_ASSIGN_OR_RETURN(half, Half(half));
  TESSERA_RETURN_IF_ERROR(half > 100 ? Internal("large") : OkStatus());
  return half;
}

TEST(StatusOrTest, MacrosReturnTheFirstFailure) {
  EXPECT_EQ(*Quarter(12), 3);
  EXPECT_EQ(Quarter(6).status(), InvalidArgument("3 is odd"));
  EXPECT_EQ(Quarter(1000).status(), Internal("large"));
}

}  // namespace
}  // namespace tessera
