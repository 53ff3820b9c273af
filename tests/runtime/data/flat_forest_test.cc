// Flattening beside a slow reference that keeps every token's whole path.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/data/token_tree.h"
#include "tests/testing/status_matchers.h"

namespace lockstep {
namespace {

using ::lockstep::testing::StatusIs;
using ::testing::HasSubstr;
using Ids = std::vector<int32_t>;

constexpr int32_t kVocab = 50;

SampledRun Sampled(const Ids& ids) {
  SampledRun run;
  for (int32_t id : ids) run.tokens.push_back({id, -0.5f, true, 0});
  return run;
}

// A token on a path: its id, and who sampled it (0: nobody). Tokens join if and only if their whole paths are equal.
using PathToken = std::pair<int32_t, int32_t>;
using Path = std::vector<PathToken>;

struct Reference {
  std::vector<Path> rows;  // in depth-first order
  std::map<Path, int32_t> row_of;
  struct Loss {
    int32_t sample, position, row, target, tag;
  };
  std::vector<Loss> losses;
};

Reference Slow(const std::vector<const TokenTree*>& trees) {
  std::vector<Path> order;  // distinct paths by first appearance
  std::map<Path, std::vector<Path>> children;
  Reference reference;
  std::vector<std::tuple<int32_t, int32_t, Path>> sampled;  // sample, depth, path
  int32_t tag = 0;
  for (size_t s = 0; s < trees.size(); ++s) {
    std::vector<std::vector<Path>> of_node;
    for (const TokenTree::Node& node : trees[s]->nodes()) {
      Path path = node.parent.node == kNoNode ? Path{} : of_node[node.parent.node][node.parent.num_tokens - 1];
      std::vector<Path>& paths = of_node.emplace_back();
      for (int32_t id : node.ids) {
        Path longer = path;
        longer.emplace_back(id, node.is_sampled() ? ++tag : 0);
        std::vector<Path>& siblings = children[path];
        if (std::find(siblings.begin(), siblings.end(), longer) == siblings.end()) siblings.push_back(longer);
        if (node.is_sampled()) {
          sampled.emplace_back(static_cast<int32_t>(s), static_cast<int32_t>(path.size()), longer);
        }
        path = longer;
        paths.push_back(path);
      }
    }
  }
  const std::function<void(const Path&)> visit = [&](const Path& path) {
    if (!path.empty()) {
      reference.row_of[path] = static_cast<int32_t>(reference.rows.size());
      reference.rows.push_back(path);
    }
    for (const Path& child : children[path]) visit(child);
  };
  visit({});
  std::stable_sort(sampled.begin(), sampled.end(), [](const auto& a, const auto& b) {
    return std::tie(std::get<0>(a), std::get<1>(a)) < std::tie(std::get<0>(b), std::get<1>(b));
  });
  for (const auto& [sample, depth, path] : sampled) {
    const Path before(path.begin(), path.end() - 1);
    reference.losses.push_back({sample, depth, reference.row_of.at(before), path.back().first, path.back().second});
  }
  return reference;
}

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  int32_t Below(int32_t bound) { return std::uniform_int_distribution<int32_t>(0, bound - 1)(engine_); }
  Ids Tokens(int32_t count, int32_t alphabet) {
    Ids ids(count);
    for (int32_t& id : ids) id = Below(alphabet);
    return ids;
  }

 private:
  std::mt19937 engine_;
};

KeptIds RandomKept(Random& random, const Ids& targets) {
  KeptIds kept;
  for (int32_t target : targets) {
    const int32_t kind = random.Below(3);
    if (kind == 0) {
      kept.Append(KeptIds::Kind::kAll, {});
      continue;
    }
    Ids list;
    for (int32_t id = 0; id < kVocab; ++id) {
      const bool is_target = id == target;
      if (kind == 1 ? is_target || random.Below(9) == 0 : !is_target && random.Below(9) == 0) list.push_back(id);
    }
    kept.Append(kind == 1 ? KeptIds::Kind::kKept : KeptIds::Kind::kCut, list);
  }
  return kept;
}

// Few different tokens, so that prompts agree for a while and sampled runs are often equal.
TokenTree RandomTree(Random& random, const Ids& prompt, int32_t first_version) {
  TokenTree tree;
  Ids own = prompt;
  if (random.Below(3) == 0) own.push_back(random.Below(3));
  tree.AppendContext({}, TokenSource::kPrompt, own);
  const int32_t num_nodes = random.Below(9);
  for (int32_t n = 0; n < num_nodes; ++n) {
    const NodeId parent = random.Below(static_cast<int32_t>(tree.nodes().size()));
    const int32_t length = static_cast<int32_t>(tree.nodes()[parent].ids.size());
    const NodePosition at = random.Below(2) == 0 ? tree.End(parent) : NodePosition{parent, 1 + random.Below(length)};
    const Ids ids = random.Tokens(1 + random.Below(4), 3);
    if (random.Below(2) == 0) {
      tree.AppendContext(at, TokenSource::kUser, ids, random.Below(2) == 0);
      continue;
    }
    SampledRun run = Sampled(ids);
    for (SampledToken& token : run.tokens) {
      token.rollout_logprob = -0.125f * static_cast<float>(random.Below(20));
      token.weight_version = first_version + n;
    }
    run.params.temperature = 0.5f + static_cast<float>(n);
    if (random.Below(2) == 0) run.kept = RandomKept(random, ids);
    tree.AppendSampled(at, run);
  }
  return tree;
}

void ExpectEqual(const FlatForest& forest, const Reference& reference) {
  ASSERT_EQ(forest.token_ids.size(), reference.rows.size());
  for (size_t q = 0; q < reference.rows.size(); ++q) {
    const Path& path = reference.rows[q];
    EXPECT_EQ(forest.token_ids[q], path.back().first);
    EXPECT_EQ(forest.position_ids[q], static_cast<int32_t>(path.size()) - 1);
    for (size_t k = 0; k < reference.rows.size(); ++k) {
      const Path& key = reference.rows[k];
      const bool on_path = key.size() <= path.size() && std::equal(key.begin(), key.end(), path.begin());
      EXPECT_EQ(k <= q && static_cast<int32_t>(q) < forest.subtree_end[k], on_path) << q << " sees " << k;
    }
  }
  ASSERT_EQ(forest.loss_rows.size(), reference.losses.size());
  for (size_t i = 0; i < reference.losses.size(); ++i) {
    const LossRow& row = forest.loss_rows[i];
    EXPECT_EQ(row.sample_id, reference.losses[i].sample);
    EXPECT_EQ(row.position, reference.losses[i].position);
    EXPECT_EQ(row.row, reference.losses[i].row);
    EXPECT_EQ(row.target_id, reference.losses[i].target);
  }
}

// What the loss rows say about the sampler, in order, straight from the nodes.
void ExpectSamplerRecords(const FlatForest& forest, const std::vector<const TokenTree*>& trees) {
  size_t i = 0;
  for (const TokenTree* tree : trees) {
    std::vector<std::pair<const TokenTree::Node*, size_t>> tokens;
    for (const TokenTree::Node& node : tree->nodes()) {
      for (size_t t = 0; t < node.sampled.size(); ++t) tokens.emplace_back(&node, t);
    }
    std::stable_sort(tokens.begin(), tokens.end(), [](const auto& a, const auto& b) {
      return a.first->depth + a.second < b.first->depth + b.second;
    });
    for (const auto& [node, t] : tokens) {
      const LossRow& row = forest.loss_rows[i++];
      EXPECT_EQ(row.rollout_logprob, node->sampled[t].rollout_logprob);
      EXPECT_EQ(row.logprob_valid, node->sampled[t].logprob_valid);
      EXPECT_EQ(row.weight_version, node->sampled[t].weight_version);
      EXPECT_EQ(row.temperature, node->params.temperature);
      EXPECT_EQ(row.kept_kind, node->kept.kind(static_cast<int64_t>(t)));
      const absl::Span<const int32_t> list = node->kept.list(static_cast<int64_t>(t));
      EXPECT_EQ(Ids(forest.kept_ids.begin() + row.kept_begin, forest.kept_ids.begin() + row.kept_end),
                Ids(list.begin(), list.end()));
    }
  }
  EXPECT_EQ(i, forest.loss_rows.size());
}

TEST(Flatten, RandomGroupsEqualTheSlowReference) {
  int64_t saved = 0, loss_rows = 0;
  for (uint32_t seed = 0; seed < 400; ++seed) {
    Random random(seed);
    const Ids prompt = random.Tokens(1 + random.Below(5), 3);
    std::vector<TokenTree> trees;
    const int32_t group_size = 1 + random.Below(5);
    for (int32_t s = 0; s < group_size; ++s) trees.push_back(RandomTree(random, prompt, 10 * s));
    std::vector<const TokenTree*> pointers;
    int64_t flat_tokens = 0;
    for (const TokenTree& tree : trees) {
      pointers.push_back(&tree);
      flat_tokens += tree.num_tokens();
    }
    SCOPED_TRACE(seed);
    const FlatForest forest = Flatten(pointers);
    ExpectEqual(forest, Slow(pointers));
    ExpectSamplerRecords(forest, pointers);
    EXPECT_OK(ValidateForest(forest, kVocab));
    if (HasFailure()) return;
    saved += flat_tokens - forest.num_tokens();
    loss_rows += static_cast<int64_t>(forest.loss_rows.size());
  }
  EXPECT_GT(saved, 1000);  // the test has power: prompts were shared
  EXPECT_GT(loss_rows, 1000);
}

TEST(Flatten, ASharedPromptIsComputedOnce) {
  TokenTree a, b;
  for (TokenTree* tree : {&a, &b}) tree->AppendContext({}, TokenSource::kPrompt, Ids{1, 2, 3});
  a.AppendSampled(a.End(0), Sampled({4, 5}));
  b.AppendSampled(b.End(0), Sampled({4, 6}));  // its 4 was sampled on its own, so it stays apart
  const FlatForest forest = Flatten({&a, &b});
  EXPECT_EQ(forest.token_ids, (Ids{1, 2, 3, 4, 5, 4, 6}));
  EXPECT_EQ(forest.position_ids, (Ids{0, 1, 2, 3, 4, 3, 4}));
  EXPECT_EQ(forest.subtree_end, (Ids{7, 7, 7, 5, 5, 7, 7}));
  ASSERT_EQ(forest.loss_rows.size(), 4u);
  EXPECT_EQ(forest.loss_rows[0].row, 2);  // the first sampled token is predicted by the prompt's last
  EXPECT_EQ(forest.loss_rows[1].row, 3);
  EXPECT_EQ(forest.loss_rows[2].row, 2);
  EXPECT_EQ(forest.loss_rows[2].sample_id, 1);
  EXPECT_EQ(forest.loss_rows[3].row, 5);
}

TEST(Flatten, ACopyOfSampledTokensStaysApartFromThem) {
  TokenTree tree;
  const NodeId prompt = tree.AppendContext({}, TokenSource::kPrompt, Ids{1});
  tree.AppendSampled(tree.End(prompt), Sampled({2, 3}));
  const NodeId copy = tree.AppendContext(tree.End(prompt), TokenSource::kModel, Ids{2, 3}, /*context_copy=*/true);
  tree.AppendSampled(tree.End(copy), Sampled({4}));
  const FlatForest forest = Flatten({&tree});
  EXPECT_EQ(forest.token_ids, (Ids{1, 2, 3, 2, 3, 4}));
  EXPECT_EQ(forest.loss_rows.size(), 3u);  // the copy is context: not trained
}

TEST(AppendForest, ShiftsRowsSamplesAndKeptLists) {
  Random random(5);
  std::vector<TokenTree> trees;
  for (int s = 0; s < 4; ++s) trees.push_back(RandomTree(random, Ids{0, 1}, s));
  const FlatForest first = Flatten({&trees[0], &trees[1]});
  const FlatForest second = Flatten({&trees[2], &trees[3]});
  FlatForest both;
  AppendForest(first, 0, both);
  AppendForest(second, 2, both);
  ASSERT_OK(ValidateForest(both, kVocab));
  ASSERT_EQ(both.num_tokens(), first.num_tokens() + second.num_tokens());
  for (int64_t r = 0; r < second.num_tokens(); ++r) {
    EXPECT_EQ(both.token_ids[first.num_tokens() + r], second.token_ids[r]);
    EXPECT_EQ(both.position_ids[first.num_tokens() + r], second.position_ids[r]);
    EXPECT_EQ(both.subtree_end[first.num_tokens() + r], second.subtree_end[r] + first.num_tokens());
  }
  ASSERT_FALSE(second.loss_rows.empty());
  for (size_t i = 0; i < second.loss_rows.size(); ++i) {
    const LossRow& got = both.loss_rows[first.loss_rows.size() + i];
    const LossRow& want = second.loss_rows[i];
    EXPECT_EQ(got.row, want.row + first.num_tokens());
    EXPECT_EQ(got.sample_id, want.sample_id + 2);
    EXPECT_EQ(Ids(both.kept_ids.begin() + got.kept_begin, both.kept_ids.begin() + got.kept_end),
              Ids(second.kept_ids.begin() + want.kept_begin, second.kept_ids.begin() + want.kept_end));
  }
}

// A small forest with every feature, for planting faults in.
FlatForest Healthy() {
  TokenTree tree;
  const NodeId prompt = tree.AppendContext({}, TokenSource::kPrompt, Ids{1, 2});
  SampledRun run = Sampled({3, 4});
  run.kept.Append(KeptIds::Kind::kKept, Ids{3, 7});
  run.kept.Append(KeptIds::Kind::kCut, Ids{5});
  tree.AppendSampled(tree.End(prompt), run);
  tree.AppendContext(tree.End(prompt), TokenSource::kUser, Ids{6});
  return Flatten({&tree});
}

TEST(ValidateForest, NamesEachPlantedFault) {
  ASSERT_OK(ValidateForest(Healthy(), kVocab));
  const std::vector<std::pair<const char*, std::function<void(FlatForest&)>>> faults = {
      {"equally long", [](FlatForest& f) { f.position_ids.pop_back(); }},
      {"token_ids[1]", [](FlatForest& f) { f.token_ids[1] = kVocab; }},
      {"token_ids[0]", [](FlatForest& f) { f.token_ids[0] = -1; }},
      {"position_ids[4]", [](FlatForest& f) { f.position_ids[4] = 4; }},
      {"position_ids[0]", [](FlatForest& f) { f.position_ids[0] = 1; }},
      {"subtree_end[2]", [](FlatForest& f) { f.subtree_end[2] = 2; }},
      {"subtree_end[4]", [](FlatForest& f) { f.subtree_end[4] = 6; }},
      {"position_ids[4]", [](FlatForest& f) { f.subtree_end[3] = f.subtree_end[2] = 5; }},  // 4 falls under 3
      {"row of loss_rows[0]", [](FlatForest& f) { f.loss_rows[0].row = 5; }},
      {"target of loss_rows[1]", [](FlatForest& f) { f.loss_rows[1].target_id = kVocab; }},
      {"position of loss_rows[0]", [](FlatForest& f) { f.loss_rows[0].position = 3; }},
      {"sample of loss_rows[0]", [](FlatForest& f) { f.loss_rows[0].sample_id = -1; }},
      {"ascending", [](FlatForest& f) { std::swap(f.loss_rows[0], f.loss_rows[1]); }},
      {"kept range", [](FlatForest& f) { f.loss_rows[1].kept_end = 4; }},
      {"kept_ids[1]", [](FlatForest& f) { f.kept_ids[1] = kVocab; }},
      {"kept_ids[1]", [](FlatForest& f) { f.kept_ids[1] = 3; }},
      {"were kept", [](FlatForest& f) { f.kept_ids[0] = 2; }},
      {"were cut off", [](FlatForest& f) { f.kept_ids[2] = 4; }},
      {"where all are kept", [](FlatForest& f) { f.loss_rows[0].kept_kind = KeptIds::Kind::kAll; }},
      {"finite", [](FlatForest& f) { f.loss_rows[0].temperature = -1; }},
      {"finite", [](FlatForest& f) { f.loss_rows[0].weight = std::numeric_limits<float>::infinity(); }},
  };
  for (const auto& [text, plant] : faults) {
    FlatForest forest = Healthy();
    plant(forest);
    EXPECT_THAT(ValidateForest(forest, kVocab), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)));
  }
}

}  // namespace
}  // namespace lockstep
