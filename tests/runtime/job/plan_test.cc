#include "runtime/job/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/status_matchers.h"

namespace lockstep::job {
namespace {

using ::lockstep::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

RunOptions WithRoles(std::vector<int32_t> learner, std::vector<int32_t> rollout) {
  RunOptions options;
  options.roles.learner = std::move(learner);
  options.roles.rollout = std::move(rollout);
  return options;
}

TEST(Plan, OneRankDoesEverything) {
  ASSERT_OK_AND_ASSIGN(const RankPlan plan, PlanRanks(RunOptions(), 1));
  EXPECT_THAT(plan.roles, ElementsAre(Role::kColocated));
  EXPECT_EQ(plan.learner_rank, 0);
  EXPECT_THAT(plan.rollout_ranks, ElementsAre(0));
}

TEST(Plan, OfSeveralRanksTheFirstLearns) {
  ASSERT_OK_AND_ASSIGN(const RankPlan two, PlanRanks(RunOptions(), 2));
  EXPECT_THAT(two.roles, ElementsAre(Role::kLearner, Role::kRollout));
  ASSERT_OK_AND_ASSIGN(const RankPlan three, PlanRanks(RunOptions(), 3));
  EXPECT_THAT(three.roles, ElementsAre(Role::kLearner, Role::kRollout, Role::kRollout));
  EXPECT_THAT(three.rollout_ranks, ElementsAre(1, 2));
}

TEST(Plan, RolesMayBeWritten) {
  ASSERT_OK_AND_ASSIGN(const RankPlan plan, PlanRanks(WithRoles({1}, {2, 0}), 3));
  EXPECT_THAT(plan.roles, ElementsAre(Role::kRollout, Role::kLearner, Role::kRollout));
  EXPECT_EQ(plan.learner_rank, 1);
  EXPECT_THAT(plan.rollout_ranks, ElementsAre(0, 2));
  ASSERT_OK_AND_ASSIGN(const RankPlan alone, PlanRanks(WithRoles({0}, {0}), 1));
  EXPECT_THAT(alone.roles, ElementsAre(Role::kColocated));
}

TEST(Plan, RanksThatTheRolesCannotUseAreErrors) {
  const auto expect = [](const RunOptions& options, int num_ranks, const char* text) {
    EXPECT_THAT(PlanRanks(options, num_ranks), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)));
  };
  expect(RunOptions(), 0, "0 ranks: there must be one at least");
  expect(RunOptions(), -3, "there must be one at least");
  expect(RunOptions(), 10, "9 rollout ranks share 8 prompts a step");
  expect(WithRoles({0}, {1, 2}), 2, "roles.rollout names rank 2, but there are ranks 0 to 1 only");
  expect(WithRoles({5}, {1}), 2, "roles.learner names rank 5");
  expect(WithRoles({0}, {1}), 3, "rank 2 of 3 has no role");
  expect(WithRoles({0, 1}, {2}), 3, "roles.learner is [0, 1]: one rank learns");
  expect(WithRoles({0}, {0, 1}), 2, "both name rank 0");
  expect(WithRoles({0}, {}), 1, "set both or neither");
}

TEST(Plan, LearnerAndRolloutTakeTurnsOnTheCpus) {
  const RunOptions options;
  ASSERT_OK_AND_ASSIGN(const RankPlan plan, PlanRanks(options, 4));
  EXPECT_EQ(RankThreads(options, plan, 0, 8), 8);
  EXPECT_EQ(RankThreads(options, plan, 1, 8), 2) << "three rollout ranks share 8 CPUs";
  EXPECT_EQ(RankThreads(options, plan, 3, 2), 1) << "never fewer than one";
  RunOptions fixed = options;
  fixed.compute.threads = 5;
  EXPECT_EQ(RankThreads(fixed, plan, 0, 8), 5);
  EXPECT_EQ(RankThreads(fixed, plan, 2, 8), 5);
}

}  // namespace
}  // namespace lockstep::job
