// Valid files with a few random changes: whatever comes out, the readers answer with a status and touch nothing outside
// the file. Under the asan preset every byte beside the file is poisoned. tests/fuzz searches deeper.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <memory>

#include "runtime/base/philox.h"
#include "runtime/formats/gguf.h"
#include "runtime/formats/safetensors.h"
#include "tests/fuzz/exercise.h"
#include "tests/runtime/formats/gguf_builder.h"

namespace lockstep::formats {
namespace {

constexpr int kNumMutants = 5000;

class Dice {
 public:
  explicit Dice(int64_t mutant) : mutant_(mutant) {}
  uint32_t Below(uint64_t bound) {
    return UniformBelow({.seed = 1, .purpose = RandomPurpose::kTest}, {.ordinal = mutant_, .draw = draw_++}, bound);
  }

 private:
  int64_t mutant_;
  int64_t draw_ = 0;
};

// Numbers that break careless arithmetic.
std::string EvilNumber(Dice& dice) {
  const uint64_t numbers[] = {0,          1,          2,          0x7f,       0xff,       0xffff,     0x7fffffff,
                              0xffffffff, 1ull << 32, 1ull << 40, 1ull << 61, 1ull << 62, 1ull << 63, ~0ull};
  const std::string raw = Raw(numbers[dice.Below(std::size(numbers))]);
  return raw.substr(0, 1u << dice.Below(4));
}

std::string Mutate(std::string bytes, int64_t mutant) {
  Dice dice(mutant);
  const uint32_t num_changes = 1 + dice.Below(3);
  for (uint32_t i = 0; i < num_changes && !bytes.empty(); ++i) {
    const size_t at = dice.Below(bytes.size());
    switch (dice.Below(6)) {
      case 0:
        bytes[at] = static_cast<char>(bytes[at] ^ (1u << dice.Below(8)));
        break;
      case 1:
        bytes[at] = static_cast<char>(dice.Below(256));
        break;
      case 2: {
        const std::string number = EvilNumber(dice);
        bytes.replace(at, std::min(number.size(), bytes.size() - at), number);
        break;
      }
      case 3:
        bytes.resize(at);
        break;
      case 4:
        bytes.erase(at, 1 + dice.Below(16));
        break;
      default:
        bytes.insert(at, bytes.substr(dice.Below(bytes.size()), 1 + dice.Below(64)));
    }
  }
  return bytes;
}

template <typename Exercise>
int CountAccepted(const std::string& valid, Exercise exercise) {
  int accepted = 0;
  for (int mutant = 0; mutant < kNumMutants; ++mutant) {
    const std::string bytes = Mutate(valid, mutant);
    // An allocation of its exact size, so that a sanitizer sees the first byte beyond it.
    const std::unique_ptr<uint8_t[]> exact(new uint8_t[bytes.size()]);
    std::copy(bytes.begin(), bytes.end(), exact.get());
    accepted += exercise(exact.get(), bytes.size()) ? 1 : 0;
  }
  return accepted;
}

std::string ValidGguf() {
  GgufBuilder b;
  b.String("general.architecture", "llama").U32("llama.block_count", 2).F32("llama.rope.freq_base", 10000);
  b.Array("words", GgufBuilder::kString, 3, RawString("a") + RawString("bc") + RawString(""));
  b.Array("ids", GgufBuilder::kI32, 3, Raw(1) + Raw(2) + Raw(3));
  b.Array("nested", GgufBuilder::kArray, 1, Raw<uint32_t>(GgufBuilder::kU8) + Raw<uint64_t>(2) + "ab");
  b.Floats("f", {2, 3}, {1, 2, 3, 4, 5, 6});
  b.Tensor("q", {2, 32}, 3, std::string(40, 'x')).Tensor("h", {4}, 1, std::string(8, 'y'));
  return b.Build();
}

std::string ValidSafetensors() {
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
      R"("b":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]},"c":{"dtype":"I64","shape":[],"data_offsets":[32,40]}})";
  return Raw<uint64_t>(header.size()) + header + std::string(40, 'z');
}

TEST(Mutation, GgufReaderSurvives) {
  const std::string valid = ValidGguf();
  ASSERT_TRUE(ExerciseGguf(reinterpret_cast<const uint8_t*>(valid.data()), valid.size()));
  const int accepted = CountAccepted(valid, ExerciseGguf);
  std::cout << accepted << " of " << kNumMutants << " mutants accepted\n";
  EXPECT_GT(accepted, kNumMutants / 100) << "the mutations are too coarse to reach the inner checks";
  EXPECT_LT(accepted, kNumMutants * 9 / 10);
}

TEST(Mutation, SafetensorsReaderSurvives) {
  const std::string valid = ValidSafetensors();
  ASSERT_TRUE(ExerciseSafetensors(reinterpret_cast<const uint8_t*>(valid.data()), valid.size()));
  const int accepted = CountAccepted(valid, ExerciseSafetensors);
  std::cout << accepted << " of " << kNumMutants << " mutants accepted\n";
  EXPECT_GT(accepted, kNumMutants / 100);
  EXPECT_LT(accepted, kNumMutants * 9 / 10);
}

}  // namespace
}  // namespace lockstep::formats
