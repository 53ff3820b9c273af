#include "runtime/job/suggest.h"

#include <gtest/gtest.h>

namespace lockstep::job {
namespace {

TEST(Suggest, DistanceCountsEditsAndSwaps) {
  EXPECT_EQ(EditDistance("", ""), 0);
  EXPECT_EQ(EditDistance("", "abc"), 3);
  EXPECT_EQ(EditDistance("abc", ""), 3);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3);
  EXPECT_EQ(EditDistance("ab", "ba"), 1) << "a swap of neighbours is one edit";
  EXPECT_EQ(EditDistance("rollout", "rolluot"), 1);
  EXPECT_EQ(EditDistance("ca", "abc"), 3) << "optimal string alignment edits no substring twice";
}

TEST(Suggest, NearestIsNearEnoughOrNothing) {
  EXPECT_EQ(Nearest("temprature", {"top_k", "temperature"}), "temperature");
  EXPECT_EQ(Nearest("seed", {"steps", "need"}), "need");
  EXPECT_EQ(Nearest("batch", {"lr", "eps"}), "");
  EXPECT_EQ(Nearest("aa", {"ab", "ac"}), "ab") << "ties: the first";
  EXPECT_EQ(Nearest(std::string(100'000, 'a'), {"a"}), "") << "hostile input stays cheap";
  EXPECT_EQ(DidYouMean("sed", {"seed"}), "; did you mean seed?");
  EXPECT_EQ(DidYouMean("x", {"steps"}), "");
}

}  // namespace
}  // namespace lockstep::job
