#include "runtime/job/make_data.h"

#include <nlohmann/json.hpp>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "runtime/base/hash.h"
#include "runtime/base/json.h"
#include "runtime/base/philox.h"
#include "runtime/base/status.h"

namespace lockstep::job {
namespace {

constexpr int64_t kMaxOperand = 1'000'000;

Json Question(const std::string& text) { return Json::array({{{"role", "user"}, {"content", text}}}); }

Json ArithmeticRow(const RandomKey& key, int64_t row, bool test, int64_t max_operand) {
  const auto bound = static_cast<uint64_t>(max_operand);
  for (int64_t draw = 0;; draw += 2) {
    const int a = 1 + static_cast<int>(UniformBelow(key, {.ordinal = row, .draw = draw}, bound));
    const int b = 1 + static_cast<int>(UniformBelow(key, {.ordinal = row, .draw = draw + 1}, bound));
    if (IsTestPair(a, b) != test) continue;
    return {{"messages", Question(absl::StrCat("What is ", a, " + ", b, "? Reply with the number only."))},
            {"answer", absl::StrCat(a + b)}};
  }
}

Json JsonObjectRow(const RandomKey& key, int64_t row, bool test) {
  static constexpr const char* kThings[] = {"city", "river", "animal", "planet", "book",
                                            "song", "tool",  "plant",  "sport",  "meal"};
  static constexpr const char* kKeys[] = {"name", "kind", "size", "color", "country", "age"};
  // Even things are for training, odd ones for testing.
  const uint32_t thing = 2 * UniformBelow(key, {.ordinal = row}, 5) + (test ? 1 : 0);
  const uint32_t first = UniformBelow(key, {.ordinal = row, .draw = 1}, 6);
  const uint32_t second = (first + 1 + UniformBelow(key, {.ordinal = row, .draw = 2}, 5)) % 6;
  return {
      {"messages", Question(absl::StrCat("Describe a ", kThings[thing], " as one JSON object with the keys \"",
                                         kKeys[first], "\" and \"", kKeys[second], "\". Reply with the object only."))},
      {"required_keys", Json::array({kKeys[first], kKeys[second]})}};
}

}  // namespace

bool IsTestPair(int a, int b) {
  const int pair[2] = {a, b};
  return Hash64(pair, sizeof(pair)) % 5 == 0;
}

absl::Status MakeDataOptions::Validate() const {
  if (task != "arithmetic" && task != "json_object") {
    return absl::InvalidArgumentError(absl::StrCat("unknown task ", task, ": it must be arithmetic or json_object"));
  }
  if (rows < 1) return absl::InvalidArgumentError(absl::StrCat("--rows is ", rows, ": it must be at least 1"));
  if (split != "train" && split != "test") {
    return absl::InvalidArgumentError(absl::StrCat("--split is ", split, ": it must be train or test"));
  }
  if (max_operand < 9 || max_operand > kMaxOperand) {
    return absl::InvalidArgumentError(
        absl::StrCat("--max-operand is ", max_operand, ": it must be from 9 to ", kMaxOperand));
  }
  return absl::OkStatus();
}

absl::Status MakeData(const MakeDataOptions& options, std::ostream& out) {
  RETURN_IF_ERROR(options.Validate());
  const bool test = options.split == "test";
  const RandomKey key{options.seed, RandomPurpose::kMakeData};
  for (int64_t row = 0; row < options.rows && out.good(); ++row) {
    out << DumpJson(options.task == "arithmetic" ? ArithmeticRow(key, row, test, options.max_operand)
                                                 : JsonObjectRow(key, row, test))
        << "\n";
  }
  out.flush();
  return out.good() ? absl::OkStatus() : absl::UnavailableError("the output takes no more rows");
}

}  // namespace lockstep::job
