// EXPECT_OK / ASSERT_OK / ASSERT_OK_AND_ASSIGN, and StatusIs(code, text matcher).
#ifndef LOCKSTEP_TESTS_TESTING_STATUS_MATCHERS_H_
#define LOCKSTEP_TESTS_TESTING_STATUS_MATCHERS_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lockstep::testing {

inline const absl::Status& StatusOf(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& value) {
  return value.status();
}

MATCHER_P2(StatusIs, code, message_matcher, "") {
  const absl::Status& status = StatusOf(arg);
  if (status.code() != code) {
    *result_listener << "status is " << status.ToString();
    return false;
  }
  return ::testing::ExplainMatchResult(message_matcher, std::string(status.message()), result_listener);
}

}  // namespace lockstep::testing

#define EXPECT_OK(expression)                                        \
  do {                                                               \
    const auto& lockstep_value = (expression);                       \
    EXPECT_TRUE(::lockstep::testing::StatusOf(lockstep_value).ok())  \
        << ::lockstep::testing::StatusOf(lockstep_value).ToString(); \
  } while (false)
#define ASSERT_OK(expression)                                        \
  do {                                                               \
    const auto& lockstep_value = (expression);                       \
    ASSERT_TRUE(::lockstep::testing::StatusOf(lockstep_value).ok())  \
        << ::lockstep::testing::StatusOf(lockstep_value).ToString(); \
  } while (false)
#define LOCKSTEP_TEST_CONCAT_(a, b) a##b
#define LOCKSTEP_TEST_CONCAT(a, b) LOCKSTEP_TEST_CONCAT_(a, b)
#define ASSERT_OK_AND_ASSIGN(target, expression)                         \
  auto LOCKSTEP_TEST_CONCAT(status_or_, __LINE__) = (expression);        \
  ASSERT_TRUE(LOCKSTEP_TEST_CONCAT(status_or_, __LINE__).ok())           \
      << LOCKSTEP_TEST_CONCAT(status_or_, __LINE__).status().ToString(); \
  target = *std::move(LOCKSTEP_TEST_CONCAT(status_or_, __LINE__))

#endif  // LOCKSTEP_TESTS_TESTING_STATUS_MATCHERS_H_
