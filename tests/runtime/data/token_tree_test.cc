#include "runtime/data/token_tree.h"

#include <gtest/gtest.h>

#include <vector>

namespace lockstep {
namespace {

using Ids = std::vector<int32_t>;

SampledRun Sampled(const Ids& ids) {
  SampledRun run;
  for (int32_t id : ids) run.tokens.push_back({id, -0.5f, true, 0});
  return run;
}

TEST(TokenTree, MatchFindsTheEndOfTheCommonPath) {
  TokenTree tree;
  EXPECT_EQ(tree.Match({}).at, (NodePosition{kNoNode, 0}));
  EXPECT_EQ(tree.Match(Ids{1}).num_tokens, 0);
  const NodeId prompt = tree.AppendContext({}, TokenSource::kPrompt, Ids{1, 2, 3});
  const NodeId answer = tree.AppendSampled(tree.End(prompt), Sampled({4, 5}));

  const TokenTree::PrefixMatch inside = tree.Match(Ids{1, 2, 9});
  EXPECT_EQ(inside.at, (NodePosition{prompt, 2}));
  EXPECT_EQ(inside.num_tokens, 2);
  const TokenTree::PrefixMatch all = tree.Match(Ids{1, 2, 3, 4, 5, 6});
  EXPECT_EQ(all.at, (NodePosition{answer, 2}));
  EXPECT_EQ(all.num_tokens, 5);
  // At a border the node that ends there is named, not its child before the first token.
  EXPECT_EQ(tree.Match(Ids{1, 2, 3, 8}).at, (NodePosition{prompt, 3}));
  EXPECT_EQ(tree.Match(Ids{7}).at, (NodePosition{kNoNode, 0}));
}

TEST(TokenTree, MatchPrefersTheLongerBranchAndThenTheFirst) {
  TokenTree tree;
  const NodeId prompt = tree.AppendContext({}, TokenSource::kPrompt, Ids{1});
  const NodeId first = tree.AppendSampled(tree.End(prompt), Sampled({2, 3}));
  const NodeId second = tree.AppendSampled(tree.End(prompt), Sampled({2, 3}));
  const NodeId longer = tree.AppendContext({second, 2}, TokenSource::kUser, Ids{4});
  EXPECT_EQ(tree.Match(Ids{1, 2, 3}).at, (NodePosition{first, 2}));
  EXPECT_EQ(tree.Match(Ids{1, 2, 3, 4}).at, (NodePosition{longer, 1}));
}

TEST(TokenTree, AForkMayStartInsideANode) {
  TokenTree tree;
  const NodeId prompt = tree.AppendContext({}, TokenSource::kPrompt, Ids{1, 2});
  const NodeId answer = tree.AppendSampled(tree.End(prompt), Sampled({3, 4, 5}));
  const NodeId fork = tree.AppendContext({answer, 1}, TokenSource::kUser, Ids{7, 8});
  EXPECT_EQ(tree.nodes()[fork].depth, 3);
  EXPECT_EQ(tree.PathIds(tree.End(fork)), (Ids{1, 2, 3, 7, 8}));
  EXPECT_EQ(tree.PathIds({answer, 2}), (Ids{1, 2, 3, 4}));
  EXPECT_EQ(tree.PathIds({}), Ids{});
  EXPECT_EQ(tree.num_tokens(), 7);
  EXPECT_EQ(tree.num_sampled_tokens(), 3);
}

TEST(TokenTree, ThePlaceBeforeANodeIsWhereItHangs) {
  TokenTree tree;
  const NodeId prompt = tree.AppendContext({}, TokenSource::kPrompt, Ids{1, 2});
  const NodeId answer = tree.AppendSampled(tree.End(prompt), Sampled({3}));
  const NodeId beside = tree.AppendContext({answer, 0}, TokenSource::kUser, Ids{4});
  EXPECT_EQ(tree.nodes()[beside].parent, (NodePosition{prompt, 2}));
  const NodeId root = tree.AppendContext({prompt, 0}, TokenSource::kUser, Ids{5});
  EXPECT_EQ(tree.nodes()[root].parent, (NodePosition{kNoNode, 0}));
  EXPECT_EQ(tree.nodes()[root].depth, 0);
}

TEST(TokenTree, ASampledNodeKeepsWhatTheSamplerSaid) {
  TokenTree tree;
  tree.AppendContext({}, TokenSource::kPrompt, Ids{1});
  SampledRun run = Sampled({6, 7});
  run.sample_id = 3;
  run.params.temperature = 0.5f;
  run.kept.Append(KeptIds::Kind::kKept, Ids{6, 9});
  run.kept.Append(KeptIds::Kind::kAll, {});
  run.finish_reason = FinishReason::kStop;
  const NodeId id = tree.AppendSampled(tree.End(0), run);
  const TokenTree::Node& node = tree.nodes()[id];
  EXPECT_EQ(node.source, TokenSource::kModel);
  EXPECT_TRUE(node.is_sampled());
  EXPECT_EQ(node.ids, (Ids{6, 7}));
  EXPECT_EQ(node.sample_id, 3);
  EXPECT_EQ(node.params.temperature, 0.5f);
  EXPECT_EQ(node.finish_reason, FinishReason::kStop);
  EXPECT_EQ(node.kept.kind(0), KeptIds::Kind::kKept);
  EXPECT_EQ(Ids(node.kept.list(0).begin(), node.kept.list(0).end()), (Ids{6, 9}));
  EXPECT_TRUE(node.kept.list(1).empty());
}

TEST(KeptIds, ListsOfTokensFollowEachOther) {
  KeptIds kept;
  EXPECT_TRUE(kept.empty());
  EXPECT_EQ(kept.kind(5), KeptIds::Kind::kAll);
  EXPECT_TRUE(kept.list(5).empty());
  kept.Append(KeptIds::Kind::kCut, Ids{2});
  kept.Append(KeptIds::Kind::kAll, {});
  kept.Append(KeptIds::Kind::kKept, Ids{0, 4, 5});
  EXPECT_EQ(kept.offsets, (Ids{0, 1, 1, 4}));
  EXPECT_EQ(kept.ids, (Ids{2, 0, 4, 5}));
  EXPECT_EQ(kept.list(2).size(), 3u);
}

TEST(TokenTreeDeathTest, RefusesPlacesAndRunsThatCannotBe) {
  TokenTree tree;
  const NodeId prompt = tree.AppendContext({}, TokenSource::kPrompt, Ids{1});
  EXPECT_DEATH(tree.AppendContext({prompt, 2}, TokenSource::kUser, Ids{1}), "num_tokens");
  EXPECT_DEATH(tree.AppendContext({prompt + 1, 0}, TokenSource::kUser, Ids{1}), "node");
  EXPECT_DEATH(tree.AppendContext(tree.End(prompt), TokenSource::kUser, {}), "empty");
  EXPECT_DEATH(tree.AppendSampled({}, Sampled({1})), "depth");  // nothing would predict its first token
  SampledRun run = Sampled({1, 2});
  run.kept.Append(KeptIds::Kind::kAll, {});
  EXPECT_DEATH(tree.AppendSampled(tree.End(prompt), run), "kept");
  KeptIds kept;
  EXPECT_DEATH(kept.Append(KeptIds::Kind::kKept, Ids{3, 3}), "sorted");
  EXPECT_DEATH(kept.Append(KeptIds::Kind::kAll, Ids{3}), "kAll");
}

}  // namespace
}  // namespace lockstep
