#include "runtime/job/trajectory_log.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lockstep::job {
namespace {

SampledRun Sampled(const std::vector<int32_t>& ids, int64_t version, FinishReason reason = FinishReason::kStop) {
  SampledRun run;
  run.sample_id = 2;
  run.finish_reason = reason;
  for (const int32_t id : ids) run.tokens.push_back({id, -0.5f * static_cast<float>(id), true, version});
  return run;
}

Json Object(const TokenTree& tree, const rollout::RewardResult& reward) {
  return ToJson(Trajectory{.ordinal = 17,
                           .sample_id = 2,
                           .tree = &tree,
                           .prompt_text = "Hi",
                           .text = "Ho",
                           .reward = &reward,
                           .advantage = -1.5});
}

TEST(TrajectoryLog, ASingleTurn) {
  TokenTree tree;
  const NodeId prompt = tree.AppendContext({}, TokenSource::kPrompt, {10, 11, 12});
  SampledRun run = Sampled({1, 2}, 4);
  run.tokens[1].logprob_valid = false;
  tree.AppendSampled(tree.End(prompt), run);
  rollout::RewardResult reward;
  reward.reward = 1.5;
  reward.parts = {{"alone", 1}, {"correct", 1}};
  EXPECT_EQ(DumpJson(Object(tree, reward)),
            R"({"ordinal":17,"sample":2,"prompt_ids":[10,11,12],"completion_ids":[1,2],)"
            R"("sources":[["prompt",3],["model",2]],"rollout_logprobs":[-0.5,null],"weight_versions":[4,4],)"
            R"("prompt_text":"Hi","text":"Ho","finish_reason":"stop","reward":1.5,)"
            R"("parts":{"alone":1.0,"correct":1.0},"valid":true,"invalid_reason":"","advantage":-1.5})");
}

TEST(TrajectoryLog, AnInvalidSampleKeepsItsReason) {
  TokenTree tree;
  tree.AppendSampled(tree.End(tree.AppendContext({}, TokenSource::kPrompt, {10})),
                     Sampled({1}, 1, FinishReason::kLength));
  rollout::RewardResult reward;
  reward.error = "no judge today";
  const Json object = Object(tree, reward);
  EXPECT_EQ(object["valid"], false);
  EXPECT_EQ(object["invalid_reason"], "no judge today");
  EXPECT_EQ(object["finish_reason"], "length");
  EXPECT_FALSE(object.contains("off_path_tokens"));
}

TEST(TrajectoryLog, SeveralTurnsSayWhoWroteWhat) {
  TokenTree tree;
  NodeId node = tree.AppendContext({}, TokenSource::kPrompt, {10, 11});
  node = tree.AppendSampled(tree.End(node), Sampled({1, 2}, 4));
  node = tree.AppendContext(tree.End(node), TokenSource::kTool, {20});
  node = tree.AppendContext(tree.End(node), TokenSource::kTemplate, {21});
  tree.AppendSampled(tree.End(node), Sampled({3}, 5, FinishReason::kLength));
  const Json object = Object(tree, {});
  EXPECT_EQ(object["prompt_ids"], Json::parse("[10, 11]"));
  EXPECT_EQ(object["completion_ids"], Json::parse("[1, 2, 20, 21, 3]"));
  EXPECT_EQ(object["sources"],
            Json::parse(R"([["prompt", 2], ["model", 2], ["tool", 1], ["template", 1], ["model", 1]])"));
  EXPECT_EQ(object["rollout_logprobs"], Json::parse("[-0.5, -1.0, null, null, -1.5]"));
  EXPECT_EQ(object["weight_versions"], Json::parse("[4, 4, null, null, 5]"));
  EXPECT_EQ(object["finish_reason"], "length");
}

//  10 11 -- 1 2 3            the first turn
//        \_ 1' -- 20 -- 4    its stripped copy, after the first token of the prompt's second half
TEST(TrajectoryLog, BranchesOffTheLastPathAreCounted) {
  TokenTree tree;
  const NodeId prompt = tree.AppendContext({}, TokenSource::kPrompt, {10, 11});
  tree.AppendSampled(tree.End(prompt), Sampled({1, 2, 3}, 4));
  NodeId node = tree.AppendContext({prompt, 1}, TokenSource::kModel, {1}, /*context_copy=*/true);
  node = tree.AppendContext(tree.End(node), TokenSource::kUser, {20});
  tree.AppendSampled(tree.End(node), Sampled({4}, 5));
  const Json object = Object(tree, {});
  EXPECT_EQ(object["prompt_ids"], Json::parse("[10, 1, 20]"));
  EXPECT_EQ(object["completion_ids"], Json::parse("[4]"));
  EXPECT_EQ(object["sources"], Json::parse(R"([["prompt", 1], ["model copy", 1], ["user", 1], ["model", 1]])"));
  EXPECT_EQ(object["off_path_tokens"], 4);  // 11, 1, 2, 3
}

}  // namespace
}  // namespace lockstep::job
