#include "runtime/base/check.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

int Counted(int* calls, int value) {
  ++*calls;
  return value;
}

TEST(Check, HoldsQuietly) {
  CHECK(true);
  CHECK_EQ(1, 1);
  CHECK_NE(1, 2);
  CHECK_LT(1, 2);
  CHECK_LE(2, 2);
  CHECK_GT(2, 1);
  CHECK_GE(2, 2);
}

TEST(Check, EvaluatesItsOperandsOnce) {
  int calls = 0;
  CHECK(Counted(&calls, 1) == 1);
  EXPECT_EQ(calls, 1);
  CHECK_EQ(Counted(&calls, 5), 5);
  EXPECT_EQ(calls, 2);
}

TEST(Check, IsOneStatement) {
  bool reached = false;
  if (false)
    CHECK(false);
  else
    reached = true;
  EXPECT_TRUE(reached);
}

// The call site is named from the root of the repository, wherever the checkout lies.
TEST(CheckDeathTest, NamesPlaceAndCondition) {
  const int two = 2;
  EXPECT_DEATH(CHECK(two == 3), "^tests/runtime/base/check_test.cc:[0-9]+: .*CHECK failed: two == 3");
}

TEST(CheckDeathTest, PrintsBothOperands) {
  const int two = 2;
  EXPECT_DEATH(CHECK_GT(two, 3), "CHECK failed: two > 3 \\(2 vs 3\\)");
}

}  // namespace
}  // namespace lockstep
