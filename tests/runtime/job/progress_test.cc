#include "runtime/job/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

namespace lockstep::job {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

StepProgress Done(int64_t step, double seconds) {
  return {.step = step,
          .reward = 0.5125,
          .mean_tokens = 12.34,
          .tokens_per_s = 840.4,
          .step_seconds = seconds,
          .detail = "entropy 0.2"};
}

class ProgressTest : public ::testing::Test {
 protected:
  ProgressOutput Output(bool terminal) {
    return {.terminal = terminal,
            .columns = [this] { return columns_; },
            .draw = [this](const std::string& bytes) { drawn_.push_back(bytes); },
            .log = [this](const std::string& line) { logged_.push_back(line); }};
  }
  int columns_ = 80;
  std::vector<std::string> drawn_, logged_;
};

TEST(DurationText, IsMinutesAndSecondsRoundedUp) {
  EXPECT_EQ(DurationText(0), "0:00");
  EXPECT_EQ(DurationText(0.01), "0:01");
  EXPECT_EQ(DurationText(59.5), "1:00");
  EXPECT_EQ(DurationText(725), "12:05");
  EXPECT_EQ(DurationText(3600), "1:00:00");
  EXPECT_EQ(DurationText(10979), "3:02:59");
  EXPECT_EQ(DurationText(-1), "0:00");
  EXPECT_EQ(DurationText(1e300), DurationText(INFINITY));
  EXPECT_EQ(DurationText(std::nan("")), DurationText(INFINITY));
}

TEST_F(ProgressTest, WithoutATerminalAStepIsAPlainLine) {
  {
    Progress progress(20, Output(false));
    progress.Step(Done(1, 3));
    progress.Step(Done(2, 3));
  }
  EXPECT_THAT(logged_, ElementsAre("step 1/20  reward 0.512  length 12.3  840 tokens/s  0:57 left  entropy 0.2",
                                   "step 2/20  reward 0.512  length 12.3  840 tokens/s  0:54 left  entropy 0.2"));
  EXPECT_TRUE(drawn_.empty());
}

TEST_F(ProgressTest, ATerminalSeesOneLineThatIsDrawnOver) {
  {
    Progress progress(20, Output(true));
    progress.Step(Done(1, 3));
    progress.Step(Done(2, 3));
  }
  EXPECT_THAT(drawn_, ElementsAre("\rstep 1/20  reward 0.512  length 12.3  840 tokens/s  0:57 left\x1b[K\r",
                                  "\rstep 2/20  reward 0.512  length 12.3  840 tokens/s  0:54 left\x1b[K\r", "\n"));
  EXPECT_EQ(logged_.size(), 2u);
}

TEST_F(ProgressTest, FinishIsForDrawnLinesAndOnlyOnce) {
  Progress untouched(20, Output(true));
  untouched.Finish();
  EXPECT_TRUE(drawn_.empty());
  Progress progress(20, Output(true));
  progress.Step(Done(1, 3));
  progress.Finish();
  progress.Finish();
  EXPECT_EQ(drawn_.size(), 2u);
}

TEST_F(ProgressTest, ANarrowTerminalGetsALineThatDoesNotWrap) {
  Progress progress(20, Output(true));
  columns_ = 11;
  progress.Step(Done(1, 3));
  EXPECT_EQ(drawn_.back(), "\rstep 1/20 \x1b[K\r");
  columns_ = 0;
  progress.Step(Done(2, 3));
  EXPECT_EQ(drawn_.back(), "\r\x1b[K\r");
}

TEST_F(ProgressTest, TimeLeftFollowsTheLastSteps) {
  Progress progress(100, Output(false));
  progress.Step(Done(1, 100));
  EXPECT_THAT(logged_.back(), HasSubstr("2:45:00 left"));  // 99 x 100 s
  for (int64_t step = 2; step <= 17; ++step) progress.Step(Done(step, 1));
  EXPECT_THAT(logged_.back(), HasSubstr("  1:23 left"));  // 83 x 1 s: the slow first step is forgotten
  progress.Step(Done(100, 1));
  EXPECT_THAT(logged_.back(), HasSubstr("  0:00 left"));
}

}  // namespace
}  // namespace lockstep::job
