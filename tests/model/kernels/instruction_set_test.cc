// Runs all kernel tests under a lower instruction set than the machine has: LOCKSTEP_TEST_INSTRUCTIONS=avx2 or scalar.
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cstdlib>
#include <string>

#include "model/kernels/cpu/matmul_kernels.h"

namespace lockstep::model {
namespace {

std::string WantedInstructions() {
  const char* value = std::getenv("LOCKSTEP_TEST_INSTRUCTIONS");
  return value == nullptr ? "" : value;
}

// Before the first kernel is called.
const bool kRestricted = [] {
  if (WantedInstructions() == "avx2") hwy::DisableTargets(HWY_AVX3 | HWY_AVX3_DL);
  if (WantedInstructions() == "scalar") hwy::DisableTargets(~static_cast<int64_t>(HWY_SCALAR));
  return true;
}();

TEST(InstructionSet, IsTheOneAskedFor) {
  ASSERT_TRUE(kRestricted);
  const std::string name = internal::KernelTargetName();
  RecordProperty("instructions", name);
  if (WantedInstructions() == "avx2" && name == "SCALAR") GTEST_SKIP() << "SKIPPED: this machine has no AVX2";
  if (WantedInstructions() == "avx2") {
    EXPECT_EQ(name, "AVX2");
  } else if (WantedInstructions() == "scalar") {
    EXPECT_EQ(name, "SCALAR");
  }
}

}  // namespace
}  // namespace lockstep::model
