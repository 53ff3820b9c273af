// The distribution that is sampled from, as the sampler reports it and as the learner recomputes it: the shared golden
// cases on the kernels that rollout and training run.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>

#include "model/kernels/logits.h"
#include "runtime/base/philox.h"
#include "tests/testing/golden.h"

namespace lockstep::algos {
namespace {

using model::ComputeStatistics;
using model::InverseTemperature;
using model::LogitFilter;
using model::LogProb;
using model::Sample;
using model::SamplerScratch;
using model::SampleToken;
using nlohmann::json;
using Ids = std::vector<int32_t>;
using Kind = KeptIds::Kind;

std::vector<float> Floats(const json& list) {
  std::vector<float> values;
  for (const json& value : list) values.push_back(static_cast<float>(testing::Number(value)));
  return values;
}

// |got - expected| <= tolerance * max(1, |expected|) in binary32.
void ExpectFloat(double got, const json& expected, const json& tolerance, const std::string& what) {
  const double want = testing::Number(expected);
  EXPECT_NEAR(got, want, tolerance.at("f32").get<double>() * std::max(1.0, std::abs(want))) << what;
}

float LogProbOf(const std::vector<float>& logits, float temperature, const LogitFilter& filter, int32_t id) {
  const float inverse = InverseTemperature(temperature);
  return LogProb(ComputeStatistics(logits, inverse, filter), logits[id], inverse);
}

// The ids that a filter leaves; a logit of -inf takes no part.
Ids IdsOf(const LogitFilter& filter, const std::vector<float>& logits) {
  const std::set<int32_t> listed(filter.ids.begin(), filter.ids.end());
  Ids ids;
  for (int32_t id = 0; id < static_cast<int32_t>(logits.size()); ++id) {
    const bool left = filter.kind == Kind::kAll || (listed.count(id) > 0) == (filter.kind == Kind::kKept);
    if (left && std::isfinite(logits[id])) ids.push_back(id);
  }
  return ids;
}

void CheckGradient(const json& test, const std::vector<float>& logits, float temperature, const LogitFilter& filter) {
  const json& wanted = test["expected"]["grad_logits_of_first_kept"];
  const float inverse = InverseTemperature(temperature);
  const auto first = test["expected"]["kept_ids"][0].get<int32_t>();
  const model::LogitTarget target{.id = first,
                                  .inverse_temperature = inverse,
                                  .filter = filter,
                                  .statistics = ComputeStatistics(logits, inverse, filter),
                                  .d_logprob = 1};
  std::vector<float> gradient(logits.size());
  model::LogitsBackward<float>(logits, absl::MakeConstSpan(&target, 1), gradient.data());
  const auto kept = test["expected"]["kept_ids"].get<std::set<int32_t>>();
  for (size_t id = 0; id < logits.size(); ++id) {
    ExpectFloat(gradient[id], wanted[id], test["tolerance"], "gradient");
    if (kept.count(static_cast<int32_t>(id)) == 0) {
      EXPECT_EQ(gradient[id], 0.0f) << id;
    }
  }
}

void RunFilter(const json& test) {
  static const std::set<std::string> known_inputs = {"logits", "temperature", "top_k", "top_p", "banned_ids"};
  static const std::set<std::string> known_expected = {
      "kept_ids",           "kept_mass",        "rollout_logprob_of_kept",  "raw_logprob_of_kept",
      "ratio_same_weights", "probability_of_0", "grad_logits_of_first_kept"};
  const json& inputs = test["inputs"];
  const json& expected = test["expected"];
  for (const auto& [key, value] : inputs.items()) ASSERT_TRUE(known_inputs.count(key)) << key;
  for (const auto& [key, value] : expected.items()) {
    ASSERT_TRUE(known_expected.count(key) || key.starts_with("wrong_")) << key;  // wrong_*: what known defects give
  }
  const std::vector<float> logits = Floats(inputs["logits"]);
  const auto temperature = inputs["temperature"].get<float>();
  const Ids banned = inputs["banned_ids"].get<Ids>();
  const Ids kept = expected["kept_ids"].get<Ids>();
  const model::SamplingFilter filter{temperature, inputs["top_k"].get<int32_t>(), inputs["top_p"].get<float>(), banned};
  const LogitFilter not_banned{banned.empty() ? Kind::kAll : Kind::kCut, banned};

  SamplerScratch scratch(static_cast<int64_t>(logits.size()));
  std::set<int32_t> drawn;
  for (int draw = 0; draw < 64; ++draw) {
    const Sample got = SampleToken(logits, filter, (draw + 0.5) / 64, scratch);
    ASSERT_EQ(IdsOf(got.filter, logits), kept);
    const size_t at = std::find(kept.begin(), kept.end(), got.id) - kept.begin();
    ASSERT_LT(at, kept.size());
    drawn.insert(got.id);
    ExpectFloat(got.logprob, expected["rollout_logprob_of_kept"][at], test["tolerance"], "rollout log-prob");
    // ratio_same_weights: the learner recomputes the very bits from the recorded list.
    EXPECT_EQ(std::bit_cast<uint32_t>(got.logprob),
              std::bit_cast<uint32_t>(LogProbOf(logits, temperature, got.filter, got.id)));
  }
  EXPECT_EQ(expected["ratio_same_weights"], 1.0);
  double mass = 0;
  for (size_t at = 0; at < kept.size(); ++at) {
    const double of_all = std::exp(LogProbOf(logits, temperature, not_banned, kept[at]));
    mass += of_all;
    ExpectFloat(LogProbOf(logits, temperature, {Kind::kKept, kept}, kept[at]), expected["rollout_logprob_of_kept"][at],
                test["tolerance"], "log-prob under the kept list");
    ExpectFloat(LogProbOf(logits, 1, {}, kept[at]), expected["raw_logprob_of_kept"][at], test["tolerance"], "raw");
    // 64 even draws meet every id whose interval is wider than their distance.
    if (std::exp(testing::Number(expected["rollout_logprob_of_kept"][at])) > 1.01 / 64) {
      EXPECT_TRUE(drawn.count(kept[at])) << kept[at];
    }
  }
  ExpectFloat(mass, expected["kept_mass"], test["tolerance"], "kept mass");
  if (expected.contains("probability_of_0")) {
    ExpectFloat(std::exp(LogProbOf(logits, temperature, not_banned, 0)), expected["probability_of_0"],
                test["tolerance"], "probability of 0");
  }
  CheckGradient(test, logits, temperature, {Kind::kKept, kept});
}

void RunGreedy(const json& test) {
  const std::vector<float> logits = Floats(test["inputs"]["logits"]);
  SamplerScratch scratch(static_cast<int64_t>(logits.size()));
  const Sample got = SampleToken(logits, {.temperature = 0}, 0.7, scratch);
  EXPECT_EQ(got.id, test["expected"]["token"].get<int32_t>());
  EXPECT_EQ(got.logprob, testing::Number(test["expected"]["rollout_logprob"]));
  ExpectFloat(LogProbOf(logits, 1, {}, got.id), test["expected"]["raw_logprob"], test["tolerance"], "raw log-prob");
  // What the learner makes of the record: a point mass.
  EXPECT_EQ(LogProbOf(logits, 0, got.filter, got.id), 0.0f);
}

void RunLearnerRecompute(const json& test) {
  const json& inputs = test["inputs"];
  const Ids kept = inputs["kept_ids"].get<Ids>();
  const auto temperature = inputs["temperature"].get<float>();
  const auto token = inputs["token"].get<int32_t>();
  const float rollout = LogProbOf(Floats(inputs["sampling_logits"]), temperature, {Kind::kKept, kept}, token);
  const float policy = LogProbOf(Floats(inputs["learner_logits"]), temperature, {Kind::kKept, kept}, token);
  ExpectFloat(rollout, test["expected"]["rollout_logprob"], test["tolerance"], "rollout log-prob");
  ExpectFloat(policy, test["expected"]["policy_logprob"], test["tolerance"], "policy log-prob");
  ExpectFloat(std::exp(policy - rollout), test["expected"]["ratio"], test["tolerance"], "ratio");
}

void RunEntropy(const json& test) {
  const json& rows = test["inputs"]["logits"];
  const auto temperature = test["inputs"]["temperature"].get<float>();
  ASSERT_EQ(rows.size(), test["expected"]["entropy"].size());
  std::vector<float> entropy;
  for (const json& row : rows) {
    entropy.push_back(
        ComputeStatistics(Floats(row), InverseTemperature(temperature), {}, /*with_entropy=*/true).entropy);
    ExpectFloat(entropy.back(), test["expected"]["entropy"][entropy.size() - 1], test["tolerance"], "entropy");
  }
  const json zeros = test["expected"].value("exact_zero_at", json::array());
  for (const json& at : zeros) EXPECT_EQ(entropy[at.get<size_t>()], 0.0f);
}

// Samples of one prompt draw from streams of their own.
void RunDistinctStreams(const json& test) {
  const json& inputs = test["inputs"];
  const std::vector<float> logits(inputs["vocab"].get<size_t>(), 0.0f);
  SamplerScratch scratch(static_cast<int64_t>(logits.size()));
  std::set<Ids> sequences;
  for (int32_t sample = 0; sample < inputs["samples"].get<int32_t>(); ++sample) {
    Ids ids;
    for (int64_t draw = 0; draw < inputs["positions"].get<int64_t>(); ++draw) {
      const double u = UniformDouble({.seed = 1}, {.ordinal = 5, .sample = sample, .turn = 0, .draw = draw});
      ids.push_back(SampleToken(logits, {}, u, scratch).id);
    }
    sequences.insert(ids);
  }
  EXPECT_GE(sequences.size(), test["expected"]["min_distinct_sequences"].get<size_t>());
}

TEST(SamplingGolden, EveryCase) {
  LOCKSTEP_NEEDS_SHARED();
  const json golden = testing::LoadGolden("algos/sampling.json");
  int ran = 0;
  for (const json& test : golden["cases"]) {
    SCOPED_TRACE(test["id"].get<std::string>());
    const std::string operation = test["inputs"].value("operation", "");
    ++ran;
    if (operation.empty()) {
      RunFilter(test);
    } else if (operation == "greedy") {
      RunGreedy(test);
    } else if (operation == "learner_recompute") {
      RunLearnerRecompute(test);
    } else if (operation == "entropy") {
      RunEntropy(test);
    } else if (operation == "distinct_streams") {
      RunDistinctStreams(test);
    } else {
      ADD_FAILURE() << "unknown operation " << operation;
    }
  }
  std::printf("sampling.json: ran %d of %zu cases\n", ran, golden["cases"].size());
  EXPECT_EQ(ran, static_cast<int>(golden["cases"].size()));
}

}  // namespace
}  // namespace lockstep::algos
