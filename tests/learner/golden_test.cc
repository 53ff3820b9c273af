// Learning rates and packing against the shared golden cases.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "learner/packing.h"
#include "learner/schedule.h"
#include "runtime/data/token_tree.h"
#include "tests/testing/golden.h"

namespace lockstep::learner {
namespace {

using nlohmann::json;
using testing::ExpectGolden;

ScheduleOptions ScheduleOf(const json& config) {
  static const std::map<std::string, ScheduleOptions::Kind> kinds = {{"constant", ScheduleOptions::Kind::kConstant},
                                                                     {"linear", ScheduleOptions::Kind::kLinear},
                                                                     {"cosine", ScheduleOptions::Kind::kCosine}};
  ScheduleOptions options;
  options.kind = kinds.at(config["kind"].get<std::string>());
  const std::string warm_up = config["warmup_kind"].get<std::string>();
  EXPECT_TRUE(warm_up == "warmup_from_first" || warm_up == "warmup_from_zero") << warm_up;
  options.warm_up =
      warm_up == "warmup_from_first" ? ScheduleOptions::WarmUp::kFromFirst : ScheduleOptions::WarmUp::kFromZero;
  options.warmup_steps = config["warmup"].get<int64_t>();
  options.total_steps = config["total"].get<int64_t>();
  options.base = config["base"].get<double>();
  options.min = config["min"].get<double>();
  return options;
}

TEST(LearnerGolden, LearningRates) {
  LOCKSTEP_NEEDS_SHARED();
  const json golden = testing::LoadGolden("learner/lr_schedules.json");
  int ran = 0;
  for (const json& test : golden["cases"]) {
    const json& inputs = test["inputs"];
    const ScheduleOptions options = ScheduleOf(inputs["config"]);
    std::vector<int64_t> at;
    if (inputs.contains("updates")) {
      for (int64_t k = 0; k < inputs["updates"].get<int64_t>(); ++k) at.push_back(k);
    } else {
      at = inputs.value("at", inputs.value("resume_at", json::array())).get<std::vector<int64_t>>();
    }
    const json& want = test["expected"].contains("lr") ? test["expected"]["lr"] : test["expected"]["next_lr"];
    ASSERT_EQ(at.size(), want.size()) << test["id"];
    ASSERT_FALSE(at.empty());
    for (size_t i = 0; i < at.size(); ++i)
      ExpectGolden(LearningRate(options, at[i]), want[i], test["tolerance"], test["id"]);
    ++ran;
  }
  std::printf("lr_schedules.json: ran %d cases\n", ran);
  EXPECT_GE(ran, 12);
}

using Packs = std::vector<std::vector<int64_t>>;

int64_t TokensOf(const std::vector<int64_t>& pack, const std::vector<int64_t>& lengths) {
  int64_t tokens = 0;
  for (int64_t i : pack) tokens += lengths[i];
  return tokens;
}

// The open pack is carried over from one delivery to the next: after each, the packs of what came so far are those of
// the whole stream, the last one possibly still open.
void CheckDeliveries(const json& test, const std::vector<int64_t>& lengths, int64_t capacity) {
  const auto batch = test["inputs"]["producer_batch"].get<size_t>();
  const json& after = test["expected"]["after_each_batch"];
  size_t closed_before = 0, delivered = 0;
  for (const json& want : after) {
    delivered = std::min(delivered + batch, lengths.size());
    Packs packs = Pack(absl::MakeConstSpan(lengths).first(delivered), capacity, PackingStrategy::kSequential);
    std::vector<int64_t> open;
    if (!packs.empty() && TokensOf(packs.back(), lengths) < capacity) {
      open = packs.back();
      packs.pop_back();
    }
    EXPECT_EQ(json(Packs(packs.begin() + static_cast<int64_t>(closed_before), packs.end())), want["closed"]);
    EXPECT_EQ(json(open), want["open"]);
    closed_before = packs.size();
  }
  EXPECT_EQ(delivered, lengths.size());
}

int64_t LowerBound(const std::vector<int64_t>& lengths, int64_t capacity) {
  int64_t oversize = 0, rest = 0;
  for (int64_t length : lengths) (length > capacity ? oversize : rest) += length > capacity ? 1 : length;
  return oversize + (rest + capacity - 1) / capacity;
}

void RunPacks(const json& test) {
  static const std::set<std::string> known = {"packs", "after_each_batch", "pack_count", "lower_bound"};
  const json& inputs = test["inputs"];
  const json& expected = test["expected"];
  for (const auto& [key, value] : expected.items()) ASSERT_TRUE(known.count(key)) << key;
  const std::string strategy = inputs["strategy"].get<std::string>();
  ASSERT_TRUE(strategy == "sequential" || strategy == "binpack") << strategy;
  const auto lengths = inputs["lengths"].get<std::vector<int64_t>>();
  const int64_t capacity = inputs["capacity"].get<int64_t>();
  const Packs packs =
      Pack(lengths, capacity, strategy == "binpack" ? PackingStrategy::kBinpack : PackingStrategy::kSequential);
  EXPECT_EQ(json(packs), expected["packs"]);
  if (expected.contains("after_each_batch")) CheckDeliveries(test, lengths, capacity);
  if (expected.contains("pack_count")) {
    EXPECT_EQ(json(packs.size()), expected["pack_count"]);
    EXPECT_EQ(json(LowerBound(lengths, capacity)), expected["lower_bound"]);
    EXPECT_GE(static_cast<int64_t>(packs.size()), LowerBound(lengths, capacity));
  }
}

// A pack is a forest of chains: positions restart in each, and the subtree of a chain's first row is its segment.
void RunLayout(const json& test) {
  const json& inputs = test["inputs"];
  const auto lengths = inputs["lengths"].get<std::vector<int32_t>>();
  for (size_t p = 0; p < inputs["packs"].size(); ++p) {
    const json& want = test["expected"]["packs"][p];
    const auto samples = inputs["packs"][p].get<std::vector<int32_t>>();
    EXPECT_EQ(json(samples), want["samples"]);
    FlatForest forest;
    std::vector<TokenTree> trees(samples.size());
    for (size_t s = 0; s < samples.size(); ++s) {
      // Equal tokens all over: only the borders keep the samples apart.
      trees[s].AppendContext({}, TokenSource::kPrompt, std::vector<int32_t>(lengths[samples[s]], 1));
      AppendForest(Flatten({&trees[s]}), static_cast<int32_t>(s), forest);
    }
    std::vector<int64_t> cu_seqlens = {0}, segment;
    int64_t max_seqlen = 0;
    while (cu_seqlens.back() < forest.num_tokens()) {
      const int64_t end = forest.subtree_end[cu_seqlens.back()];
      max_seqlen = std::max(max_seqlen, end - cu_seqlens.back());
      segment.insert(segment.end(), end - cu_seqlens.back(), static_cast<int64_t>(cu_seqlens.size()) - 1);
      cu_seqlens.push_back(end);
    }
    EXPECT_EQ(json(cu_seqlens), want["cu_seqlens"]);
    EXPECT_EQ(json(forest.position_ids), want["positions"]);
    EXPECT_EQ(json(segment), want["segment"]);
    EXPECT_EQ(json(max_seqlen), want["max_seqlen"]);
    // Forests are not padded: what the case asks for would come after the last row, in no segment.
    if (inputs["pad_to"] == 1) {
      EXPECT_EQ(want["padding"], 0);
    }
  }
}

TEST(LearnerGolden, Packing) {
  LOCKSTEP_NEEDS_SHARED();
  const json golden = testing::LoadGolden("learner/packing.json");
  int ran = 0, elsewhere = 0;
  for (const json& test : golden["cases"]) {
    SCOPED_TRACE(test["id"].get<std::string>());
    const std::string operation = test["inputs"].value("operation", "");
    if (operation == "property") {  // isolation: trees_golden_test.cc, which has a model
      ++elsewhere;
      continue;
    }
    ++ran;
    if (operation.empty()) {
      RunPacks(test);
    } else if (operation == "layout") {
      RunLayout(test);
    } else {
      ADD_FAILURE() << "unknown operation " << operation;
    }
  }
  std::printf("packing.json: ran %d cases here, %d in trees_golden_test.cc\n", ran, elsewhere);
  EXPECT_EQ(ran + elsewhere, static_cast<int>(golden["cases"].size()));
}

}  // namespace
}  // namespace lockstep::learner
