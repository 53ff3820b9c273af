#include "runtime/job/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "model/training_pass.h"
#include "tests/testing/status_matchers.h"

namespace lockstep::job {
namespace {

using ::lockstep::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::StartsWith;

RunOptions Valid() {
  RunOptions options;
  options.model.path = "m";
  return options;
}

// What Validate() says after `change`.
template <typename F>
absl::Status After(F change) {
  RunOptions options = Valid();
  change(options);
  return options.Validate();
}

TEST(Options, DefaultsAreValidOnceThereIsAModel) {
  EXPECT_OK(Valid().Validate());
  EXPECT_THAT(RunOptions().Validate(), StatusIs(absl::StatusCode::kInvalidArgument, StartsWith("model.path is empty")));
}

TEST(Options, EveryFieldHasItsOwnPathAndAComment) {
  RunOptions options;
  const FieldList list = ListFields(options);
  std::set<std::string> paths;
  for (const Field& field : list.fields()) {
    EXPECT_TRUE(paths.insert(field.path).second) << field.path << " is listed twice";
    EXPECT_GT(std::string(field.comment).size(), 10u) << field.path;
    EXPECT_FALSE(FieldTypeText(field).empty());
    EXPECT_EQ(list.Find(field.path), &field);
  }
  EXPECT_GT(paths.size(), 50u);
  EXPECT_EQ(list.Find("rollout"), nullptr);
}

TEST(Options, EveryFieldPointsAtItsOwnPlace) {
  RunOptions options;
  const FieldList list = ListFields(options);
  std::set<const void*> places;
  for (const Field& field : list.fields()) {
    const void* place = std::visit(
        [](const auto& value) -> const void* {
          if constexpr (std::is_pointer_v<std::decay_t<decltype(value)>>) {
            return value;
          } else {
            return value.target;
          }
        },
        field.value);
    EXPECT_TRUE(places.insert(place).second) << field.path << " shares its member with another option";
  }
}

TEST(Options, EveryChoiceIsItsOwnValueAndReadsBack) {
  RunOptions options;
  const FieldList list = ListFields(options);
  for (const Field& field : list.fields()) {
    const auto* choice = std::get_if<EnumField>(&field.value);
    if (choice == nullptr) continue;
    for (size_t i = 0; i < choice->names.size(); ++i) {
      choice->set(i);
      EXPECT_EQ(choice->get(), i) << field.path << ": " << choice->names[i];
      EXPECT_EQ(FieldText(field), choice->names[i]);
    }
  }
  EXPECT_EQ(options.algorithm.advantage.estimator, algos::AdvantageEstimator::kGdpo);
  EXPECT_EQ(options.learner.recompute, model::Recompute::kLayer);
}

TEST(Options, ValidateNamesFieldValueAndWhatIsValid) {
  const auto expect = [](const absl::Status& status, const char* start) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, StartsWith(start)));
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  expect(After([](auto& o) { o.run.dir.clear(); }), "run.dir is empty: it must be");
  expect(After([](auto& o) { o.run.steps = -1; }), "run.steps is -1: it must be 0 or more");
  expect(After([](auto& o) { o.run.save_every = -1; }), "run.save_every is -1");
  expect(After([](auto& o) { o.run.max_skipped_steps = 0; }), "run.max_skipped_steps is 0: it must be 1 or more");
  expect(After([](auto& o) { o.data.train = {""}; }), "data.train holds an empty text");
  expect(After([](auto& o) { o.data.max_prompt_tokens = -2; }), "data.max_prompt_tokens is -2");
  expect(After([](auto& o) { o.rollout.prompts_per_step = 0; }), "rollout.prompts_per_step is 0");
  expect(After([](auto& o) { o.rollout.n = 100'000'000; }),
         "rollout.prompts_per_step is 8 and rollout.n is 100000000, 800000000 samples a step");
  expect(After([](auto& o) { o.rollout.max_batch = 0; }), "rollout.max_batch is 0");
  expect(After([](auto& o) { o.rollout.prefill_chunk_tokens = 0; }), "rollout.prefill_chunk_tokens is 0");
  expect(After([](auto& o) { o.rollout.sampling.top_p = 0; }), "rollout.top_p is 0");
  expect(After([](auto& o) { o.rollout.sampling.min_tokens = 65; }), "rollout.min_tokens is 65");
  expect(After([](auto& o) { o.reward.deadline_ms = 0; }), "reward.deadline_ms is 0");
  expect(After([](auto& o) { o.reward.num_processes = 0; }), "reward.num_processes is 0");
  expect(After([](auto& o) { o.reward.max_attempts = 0; }), "reward.max_attempts is 0");
  expect(After([&](auto& o) { o.reward.format_bonus = nan; }), "reward.format_bonus is nan");
  expect(After([&](auto& o) { o.reward.weights = {{"a", nan}}; }), "reward.weights.a is nan");
  expect(After([](auto& o) { o.algorithm.loss.clip_low = 1.5; }),
         "algorithm.clip_ratio_low is 1.5: it must be from 0 to 1");
  expect(After([](auto& o) { o.algorithm.loss.dual_clip = 1; }),
         "algorithm.clip_ratio_c is 1: it must be 0 (off) or above 1");
  expect(After([&](auto& o) { o.algorithm.loss.kl_coef = nan; }), "algorithm.kl_loss_coef is nan");
  expect(After([](auto& o) { o.algorithm.advantage.eps = -1; }), "algorithm.advantage_eps is -1");
  expect(After([](auto& o) { o.learner.schedule.base = -1; }), "learner.lr is -1");
  expect(After([](auto& o) { o.learner.schedule.min = 1; }), "learner.min_lr is 1: it must be from 0 to learner.lr");
  expect(After([](auto& o) { o.learner.adamw.beta2 = 1; }), "learner.beta2 is 1: it must be from 0 to below 1");
  expect(After([](auto& o) { o.learner.adamw.eps = 0; }), "learner.eps is 0");
  expect(After([](auto& o) { o.learner.max_grad_norm = -1; }), "learner.max_grad_norm is -1");
  expect(After([](auto& o) { o.learner.mini_batches = 0; }), "learner.mini_batches is 0");
  expect(After([](auto& o) { o.learner.micro_batch_tokens = 0; }), "learner.micro_batch_tokens is 0");
  expect(After([](auto& o) { o.eval.n = 0; }), "eval.n is 0");
  expect(After([](auto& o) { o.eval.temperature = -1; }), "eval.temperature is -1");
  expect(After([](auto& o) { o.roles = {{-1}, {0}}; }), "roles.learner is -1");
  expect(After([](auto& o) {
           o.roles = {{0}, {1, 1}};
         }),
         "roles.rollout is 1: it must be a list that names a rank once");
  expect(After([](auto& o) { o.compute.threads = -1; }), "compute.threads is -1");
  expect(After([](auto& o) { o.learner.mini_batches = 9; }),
         "learner.mini_batches is 9 and rollout.prompts_per_step is 8");
}

TEST(Options, HelpShowsEveryOptionWithDefaultAndChoices) {
  const RunOptions defaults;
  const std::string yaml = ToYaml(defaults, /*with_comments=*/true);
  EXPECT_THAT(yaml, HasSubstr("\nrollout:\n"));
  EXPECT_THAT(yaml, HasSubstr("  n: 8\n"));
  EXPECT_THAT(yaml, HasSubstr("  # one of error, warn, off\n  bit_equal: error\n"));
  EXPECT_THAT(yaml, HasSubstr("  lr: 1e-06\n"));
  EXPECT_THAT(yaml, HasSubstr("  learner: auto\n"));
  size_t longest = 0;
  for (size_t at = 0, end; (end = yaml.find('\n', at)) != std::string::npos; at = end + 1) {
    longest = std::max(longest, end - at);
  }
  EXPECT_LE(longest, 120u);
}

}  // namespace
}  // namespace lockstep::job
