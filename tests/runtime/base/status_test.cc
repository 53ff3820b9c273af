#include "runtime/base/status.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <string>

#include "tests/testing/status_matchers.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using testing::StatusIs;

absl::StatusOr<int> Half(int number) {
  if (number % 2 != 0) return absl::InvalidArgumentError("odd");
  return number / 2;
}

absl::StatusOr<int> Quarter(int number, int* steps) {
  ASSIGN_OR_RETURN(const int half, Half(number));
  ++*steps;
  ASSIGN_OR_RETURN(const int quarter, Half(half));
  ++*steps;
  return quarter;
}

absl::Status FirstFailure(const absl::Status& first, const absl::Status& second) {
  RETURN_IF_ERROR(first);
  RETURN_IF_ERROR(second);
  return absl::OkStatus();
}

TEST(Status, AssignOrReturnGoesOnOrLeaves) {
  int steps = 0;
  ASSERT_OK_AND_ASSIGN(const int quarter, Quarter(12, &steps));
  EXPECT_EQ(quarter, 3);
  EXPECT_EQ(steps, 2);
  steps = 0;
  EXPECT_THAT(Quarter(6, &steps), StatusIs(absl::StatusCode::kInvalidArgument, "odd"));
  EXPECT_EQ(steps, 1);
}

TEST(Status, AssignOrReturnMoves) {
  const auto length = [](absl::StatusOr<std::unique_ptr<std::string>> text) -> absl::StatusOr<size_t> {
    ASSIGN_OR_RETURN(const std::unique_ptr<std::string> owned, std::move(text));
    return owned->size();
  };
  EXPECT_EQ(length(std::make_unique<std::string>("four")).value(), 4u);
}

TEST(Status, ReturnIfErrorTakesTheFirst) {
  EXPECT_OK(FirstFailure(absl::OkStatus(), absl::OkStatus()));
  EXPECT_THAT(FirstFailure(absl::NotFoundError("a"), absl::DataLossError("b")),
              StatusIs(absl::StatusCode::kNotFound, "a"));
  EXPECT_THAT(FirstFailure(absl::OkStatus(), absl::DataLossError("b")), StatusIs(absl::StatusCode::kDataLoss, "b"));
}

TEST(Status, ContextGoesInFrontAndTheCodeStays) {
  EXPECT_THAT(AddContext(absl::DataLossError("short"), "reading x"),
              StatusIs(absl::StatusCode::kDataLoss, "reading x: short"));
  EXPECT_OK(AddContext(absl::OkStatus(), "reading x"));
}

TEST(Status, ErrnoBecomesACodeAndAReason) {
  const struct {
    int error_number;
    absl::StatusCode code;
  } cases[] = {
      {ENOENT, absl::StatusCode::kNotFound},          {EACCES, absl::StatusCode::kPermissionDenied},
      {EPERM, absl::StatusCode::kPermissionDenied},   {EEXIST, absl::StatusCode::kAlreadyExists},
      {ENOSPC, absl::StatusCode::kResourceExhausted}, {EDQUOT, absl::StatusCode::kResourceExhausted},
      {EMFILE, absl::StatusCode::kResourceExhausted}, {ENOMEM, absl::StatusCode::kResourceExhausted},
      {EIO, absl::StatusCode::kUnavailable},          {EROFS, absl::StatusCode::kUnavailable},
  };
  for (const auto& [error_number, code] : cases) {
    EXPECT_THAT(ErrnoStatus(error_number, "cannot open x"), StatusIs(code, StartsWith("cannot open x: ")));
  }
  EXPECT_THAT(ErrnoStatus(ENOSPC, "w"), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("No space left")));
}

TEST(Status, MessageIsTheTextAlone) {
  EXPECT_EQ(Message(absl::NotFoundError("no such tensor")), "no such tensor");
  EXPECT_EQ(Message(absl::OkStatus()), "");
}

}  // namespace
}  // namespace lockstep
