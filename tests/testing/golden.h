// Reading the shared golden cases (../shared/goldens, format golden/1).
#ifndef LOCKSTEP_TESTS_TESTING_GOLDEN_H_
#define LOCKSTEP_TESTS_TESTING_GOLDEN_H_

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/testing/shared_files.h"

namespace lockstep::testing {

inline nlohmann::json LoadGolden(const std::string& below_goldens) {
  std::ifstream file(SharedPath("goldens/" + below_goldens));
  return nlohmann::json::parse(file);
}

// Numbers; NaN and infinities are texts.
inline double Number(const nlohmann::json& value) {
  if (value.is_number()) return value.get<double>();
  const std::string text = value.get<std::string>();
  if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (text == "inf") return std::numeric_limits<double>::infinity();
  if (text == "-inf") return -std::numeric_limits<double>::infinity();
  throw std::runtime_error("not a number: " + text);
}

// |got - expected| <= tolerance * max(1, |expected|), in binary64.
inline void ExpectGolden(double got, const nlohmann::json& expected, const nlohmann::json& tolerance,
                         const std::string& what) {
  const double want = Number(expected);
  EXPECT_NEAR(got, want, tolerance.at("f64").get<double>() * std::max(1.0, std::abs(want))) << what;
}

}  // namespace lockstep::testing

#endif  // LOCKSTEP_TESTS_TESTING_GOLDEN_H_
