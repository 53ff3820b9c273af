#include <gtest/gtest.h>

#include <map>

#include "algos/advantages.h"
#include "tests/testing/golden.h"

namespace lockstep::algos {
namespace {

using nlohmann::json;
using testing::ExpectGolden;

Deviation DeviationOf(const json& config) {
  return config.value("std", "sample") == "population" ? Deviation::kPopulation : Deviation::kSample;
}

Whitening WhiteningOf(const std::string& name) {
  if (name == "population_floor") return Whitening::kPopulationFloor;
  if (name == "sample_eps_inside") return Whitening::kSampleEpsInside;
  if (name == "sequence_sample_std") return Whitening::kSequenceSampleStd;
  ADD_FAILURE() << "unknown whitening " << name;
  return Whitening::kPopulationFloor;
}

AdvantageEstimator EstimatorOf(const std::string& name) {
  static const std::map<std::string, AdvantageEstimator> known = {
      {"grpo", AdvantageEstimator::kGrpo},
      {"dr_grpo", AdvantageEstimator::kDrGrpo},
      {"rloo", AdvantageEstimator::kRloo},
      {"grpo_loo", AdvantageEstimator::kGrpoLoo},
      {"reinforce_pp", AdvantageEstimator::kReinforcePp},
      {"reinforce_pp_baseline", AdvantageEstimator::kReinforcePpBaseline},
      {"gdpo", AdvantageEstimator::kGdpo}};
  EXPECT_TRUE(known.count(name)) << "unknown estimator " << name;
  return known.at(name);
}

RewardBatch BatchOf(const json& inputs) {
  RewardBatch batch;
  std::map<std::string, int32_t> numbers;
  for (const json& id : inputs["group_ids"]) {
    batch.groups.push_back(numbers.emplace(id.dump(), static_cast<int32_t>(numbers.size())).first->second);
  }
  if (inputs.contains("rewards")) {
    for (const json& reward : inputs["rewards"]) batch.rewards.push_back(testing::Number(reward));
  }
  if (inputs.contains("reward_components")) {
    for (const json& component : inputs["reward_components"]) {
      std::vector<double> part;
      for (const json& reward : component) part.push_back(testing::Number(reward));
      batch.parts.push_back(part);
    }
  }
  if (inputs.contains("valid")) {
    for (const json& valid : inputs["valid"]) batch.valid.push_back(valid.get<int>() != 0);
  }
  if (inputs.contains("token_counts")) batch.token_counts = inputs["token_counts"].get<std::vector<int64_t>>();
  return batch;
}

AdvantageOptions OptionsOf(const json& inputs) {
  AdvantageOptions options;
  options.estimator = EstimatorOf(inputs["estimator"].get<std::string>());
  const json config = inputs.value("config", json::object());
  const json rule = config.contains("component") ? config["component"] : config;
  options.deviation = DeviationOf(rule);
  options.eps = rule.value("eps", 0.0);
  if (config.contains("whitening")) options.whitening = WhiteningOf(config["whitening"].get<std::string>());
  if (config.contains("final")) options.whitening = WhiteningOf(config["final"].get<std::string>());
  if (config.contains("weights")) options.part_weights = config["weights"].get<std::vector<double>>();
  return options;
}

// A constant group must give exactly 0 whatever the estimator, the deviation, eps, the size and the rewards' type.
int RunConstantSweep(const json& test) {
  const json& inputs = test["inputs"];
  int ran = 0;
  RewardBatch batch;
  const auto run = [&](const AdvantageOptions& options, const std::string& what) {
    for (double advantage : ComputeAdvantages(batch, options)) EXPECT_EQ(advantage, 0.0) << what;
    ++ran;
  };
  for (const json& dtype : inputs["dtypes"]) {
    for (const json& size : inputs["sizes"]) {
      for (const json& number : inputs["values"]) {
        const double value = testing::Number(number);
        batch.rewards.assign(size.get<size_t>(), dtype == "f32" ? static_cast<float>(value) : value);
        batch.groups.assign(size.get<size_t>(), 0);
        for (const json& estimator : inputs["estimators"]) {
          for (const json& std : inputs["std"]) {
            for (const json& eps : inputs["eps"]) {
              AdvantageOptions options;
              options.estimator = EstimatorOf(estimator.get<std::string>());
              options.deviation = DeviationOf({{"std", std}});
              options.eps = eps.get<double>();
              run(options, estimator.dump() + " " + size.dump() + " of " + number.dump());
            }
          }
        }
      }
    }
  }
  return ran;
}

TEST(AdvantagesGolden, EveryCase) {
  LOCKSTEP_NEEDS_SHARED();
  const json golden = testing::LoadGolden("algos/advantages.json");
  int ran = 0;
  for (const json& test : golden["cases"]) {
    const std::string id = test["id"].get<std::string>();
    const json& inputs = test["inputs"];
    ++ran;
    if (id.starts_with("constant_groups_sweep")) {
      EXPECT_GT(RunConstantSweep(test), 10000) << id;
      continue;
    }
    const RewardBatch batch = BatchOf(inputs);
    if (inputs.contains("operation")) {
      ASSERT_EQ(inputs["operation"], "group_filter") << id;
      std::vector<size_t> kept;
      const std::vector<bool> filter = GroupFilter(batch);
      for (size_t i = 0; i < filter.size(); ++i) {
        if (filter[i]) kept.push_back(i);
      }
      EXPECT_EQ(json(kept), test["expected"]["kept_sample_indices"]) << id;
      continue;
    }
    const std::vector<double> got = ComputeAdvantages(batch, OptionsOf(inputs));
    ASSERT_EQ(got.size(), test["expected"]["advantages"].size()) << id;
    for (size_t i = 0; i < got.size(); ++i)
      ExpectGolden(got[i], test["expected"]["advantages"][i], test["tolerance"], id);
    for (const json& at : test["expected"].value("exact_zero_at", json::array()))
      EXPECT_EQ(got[at.get<size_t>()], 0.0) << id;
  }
  std::printf("advantages.json: ran %d of %zu cases\n", ran, golden["cases"].size());
  EXPECT_EQ(ran, static_cast<int>(golden["cases"].size()));
}

}  // namespace
}  // namespace lockstep::algos
