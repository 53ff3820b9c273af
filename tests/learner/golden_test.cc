// Learning rates, packing and AdamW against the shared golden cases.
#include <gtest/gtest.h>

#include <map>

#include "learner/adamw.h"
#include "learner/packing.h"
#include "learner/schedule.h"
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

TEST(LearnerGolden, Packing) {
  LOCKSTEP_NEEDS_SHARED();
  const json golden = testing::LoadGolden("learner/packing.json");
  int ran = 0, elsewhere = 0;
  for (const json& test : golden["cases"]) {
    const json& inputs = test["inputs"];
    const std::string operation = inputs.value("operation", "");
    if (operation == "layout" || operation == "property") {
      // cu_seqlens and isolation are properties of the forest: tests/runtime/data and tests/model look at them.
      ++elsewhere;
      continue;
    }
    ASSERT_EQ(operation, "") << "unknown operation";
    const std::string strategy = inputs["strategy"].get<std::string>();
    ASSERT_TRUE(strategy == "sequential" || strategy == "binpack") << strategy;
    const auto packs = Pack(inputs["lengths"].get<std::vector<int64_t>>(), inputs["capacity"].get<int64_t>(),
                            strategy == "binpack" ? PackingStrategy::kBinpack : PackingStrategy::kSequential);
    EXPECT_EQ(json(packs), test["expected"]["packs"]) << test["id"];
    ++ran;
  }
  std::printf("packing.json: ran %d cases, %d are tested elsewhere\n", ran, elsewhere);
  EXPECT_EQ(ran + elsewhere, static_cast<int>(golden["cases"].size()));
}

// |got - expected| <= tolerance * max(1, |expected|) in binary32.
void ExpectFloat(float got, const json& expected, const json& tolerance, const std::string& what) {
  const double want = testing::Number(expected);
  EXPECT_NEAR(got, want, tolerance.at("f32").get<double>() * std::max(1.0, std::abs(want))) << what;
}

TEST(LearnerGolden, AdamW) {
  LOCKSTEP_NEEDS_SHARED();
  const json golden = testing::LoadGolden("learner/optimizer.json");
  int ran = 0, skipped = 0;
  for (const json& test : golden["cases"]) {
    const json& inputs = test["inputs"];
    const std::string id = test["id"].get<std::string>();
    if (inputs.value("optimizer", "") != "adamw" || !inputs.contains("param")) {
      ++skipped;  // Muon, Newton-Schulz, clip groups and restored counters are to come
      continue;
    }
    const json& hyper = inputs["hyper"];
    const AdamWOptions options{hyper["beta1"].get<double>(), hyper["beta2"].get<double>(), hyper["eps"].get<double>(),
                               hyper["weight_decay"].get<double>()};
    std::vector<float> param;
    for (const json& value : inputs["param"]) param.push_back(static_cast<float>(testing::Number(value)));
    std::vector<float> m(param.size(), 0.0f), v(param.size(), 0.0f);
    int64_t step = 0;
    for (size_t k = 0; k < inputs["grads"].size(); ++k) {
      const json& want = test["expected"]["after_each_step"][k];
      if (!inputs["grads"][k].is_null()) {
        std::vector<float> gradient;
        bool finite = true;
        for (const json& value : inputs["grads"][k]) {
          gradient.push_back(static_cast<float>(testing::Number(value)));
          finite = finite && std::isfinite(gradient.back());
        }
        if (finite) {
          AdamWUpdate(options, hyper["lr"].get<double>(), ++step, 1.0, true, static_cast<int64_t>(param.size()),
                      gradient.data(), param.data(), m.data(), v.data());
        }
      }
      for (size_t i = 0; i < param.size(); ++i) {
        ExpectFloat(param[i], want["param"][i], test["tolerance"], id);
        if (want.contains("exp_avg")) ExpectFloat(m[i], want["exp_avg"][i], test["tolerance"], id);
        if (want.contains("exp_avg_sq")) ExpectFloat(v[i], want["exp_avg_sq"][i], test["tolerance"], id);
      }
      if (want.contains("step")) {
        EXPECT_EQ(step, want["step"].get<int64_t>()) << id;
      }
    }
    ++ran;
  }
  std::printf("optimizer.json: ran %d AdamW cases, skipped %d\n", ran, skipped);
  EXPECT_GE(ran, 6);
}

}  // namespace
}  // namespace lockstep::learner
