// `make-data`: rows for the built-in tasks.
#include <nlohmann/json.hpp>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "runtime/base/hash.h"
#include "runtime/base/json.h"
#include "runtime/base/philox.h"
#include "runtime/job/commands.h"

namespace lockstep::job {
namespace {

// One sum in five is for testing and is never trained on: which ones, a fixed hash of the pair decides.
bool IsTestPair(int a, int b) {
  const int pair[2] = {a, b};
  return Hash64(pair, sizeof(pair)) % 5 == 0;
}

Json ArithmeticRow(const RandomKey& key, int64_t row, bool test) {
  for (int64_t draw = 0;; draw += 2) {
    const int a = 1 + static_cast<int>(UniformBelow(key, {.ordinal = row, .draw = draw}, 9));
    const int b = 1 + static_cast<int>(UniformBelow(key, {.ordinal = row, .draw = draw + 1}, 9));
    if (IsTestPair(a, b) != test) continue;
    const std::string question = absl::StrCat("What is ", a, " + ", b, "? Reply with the number only.");
    return {{"messages", Json::array({{{"role", "user"}, {"content", question}}})}, {"answer", absl::StrCat(a + b)}};
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
  const std::string question =
      absl::StrCat("Describe a ", kThings[thing], " as one JSON object with the keys \"", kKeys[first], "\" and \"",
                   kKeys[second], "\". Reply with the object only.");
  return {{"messages", Json::array({{{"role", "user"}, {"content", question}}})},
          {"required_keys", Json::array({kKeys[first], kKeys[second]})}};
}

}  // namespace

absl::Status MakeDataCommand(const MakeDataArgs& args, std::ostream& out) {
  if (args.rows < 1)
    return absl::InvalidArgumentError(absl::StrCat("--rows is ", args.rows, ": it must be at least 1"));
  if (args.split != "train" && args.split != "test") return absl::InvalidArgumentError("--split must be train or test");
  const bool test = args.split == "test";
  const RandomKey key{args.seed, RandomPurpose::kMakeData};
  for (int64_t row = 0; row < args.rows; ++row) {
    if (args.task == "arithmetic") {
      out << DumpJson(ArithmeticRow(key, row, test)) << "\n";
    } else if (args.task == "json_object") {
      out << DumpJson(JsonObjectRow(key, row, test)) << "\n";
    } else {
      return absl::InvalidArgumentError(absl::StrCat("unknown task ", args.task, ": arithmetic or json_object"));
    }
  }
  return out.good() ? absl::OkStatus() : absl::UnavailableError("the output is gone");
}

}  // namespace lockstep::job
