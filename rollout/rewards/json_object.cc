#include <algorithm>
#include <nlohmann/json.hpp>

#include "rollout/rewards/builtin_rewards.h"
#include "rollout/rewards/text_fields.h"
#include "runtime/base/json.h"
#include "runtime/base/status.h"

namespace lockstep::rollout {
namespace {

constexpr char kRequiredKeys[] = "required_keys";

// 1 if the completion is one JSON object and nothing else, with all the row's "required_keys" if it lists such.
class JsonObjectReward final : public SampleReward {
 public:
  absl::Status CheckRow(const std::string& row_json) const override { return RequiredKeys(row_json).status(); }

 private:
  static absl::StatusOr<std::vector<std::string>> RequiredKeys(const std::string& row_json) {
    ASSIGN_OR_RETURN(const Json row, ParseJson(row_json));
    std::vector<std::string> keys;
    if (!row.is_object() || !row.contains(kRequiredKeys)) return keys;
    const Json& list = row[kRequiredKeys];
    if (!list.is_array() || !std::all_of(list.begin(), list.end(), [](const Json& key) { return key.is_string(); })) {
      return absl::InvalidArgumentError("\"required_keys\" of the row is not a list of texts");
    }
    for (const Json& key : list) keys.push_back(key.get<std::string>());
    return keys;
  }

  absl::StatusOr<RewardResult> ScoreSample(const RewardRequest& request) const override {
    ASSIGN_OR_RETURN(const std::vector<std::string> keys, RequiredKeys(request.row_json));
    const absl::StatusOr<Json> object = ParseJson(Trim(request.completion));
    const bool good =
        object.ok() && object->is_object() &&
        std::all_of(keys.begin(), keys.end(), [&](const std::string& key) { return object->contains(key); });
    RewardResult result;
    result.reward = good ? 1 : 0;
    return result;
  }
};

}  // namespace

std::unique_ptr<Reward> MakeJsonObjectReward(const RewardOptions&) { return std::make_unique<JsonObjectReward>(); }

}  // namespace lockstep::rollout
