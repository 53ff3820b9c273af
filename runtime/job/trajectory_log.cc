#include "runtime/job/trajectory_log.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"

namespace lockstep::job {
namespace {

// The first num_tokens tokens of a node, as a piece of a path.
struct Piece {
  const TokenTree::Node* node;
  int32_t num_tokens;
};

// From the root to the last token that was appended.
std::vector<Piece> LastPath(const TokenTree& tree) {
  CHECK(!tree.nodes().empty());
  std::vector<Piece> path;
  NodePosition at = tree.End(static_cast<NodeId>(tree.nodes().size() - 1));
  while (at.node != kNoNode) {
    const TokenTree::Node& node = tree.nodes()[at.node];
    if (at.num_tokens > 0) path.push_back({&node, at.num_tokens});
    at = node.parent;
  }
  std::reverse(path.begin(), path.end());
  return path;
}

std::string SourceName(const TokenTree::Node& node) {
  return absl::StrCat(TokenSourceName(node.source), node.context_copy ? " copy" : "");
}

}  // namespace

Json ToJson(const Trajectory& trajectory) {
  Json prompt = Json::array(), completion = Json::array(), sources = Json::array();
  Json logprobs = Json::array(), versions = Json::array();
  FinishReason finish_reason = FinishReason::kNone;
  bool sampling_began = false;
  int64_t path_tokens = 0;
  for (const Piece& piece : LastPath(*trajectory.tree)) {
    const TokenTree::Node& node = *piece.node;
    sampling_began = sampling_began || node.is_sampled();
    if (node.is_sampled()) finish_reason = node.finish_reason;
    sources.push_back({SourceName(node), piece.num_tokens});
    path_tokens += piece.num_tokens;
    for (int32_t i = 0; i < piece.num_tokens; ++i) {
      (sampling_began ? completion : prompt).push_back(node.ids[i]);
      if (!sampling_began) continue;
      const SampledToken* token = node.is_sampled() ? &node.sampled[i] : nullptr;
      logprobs.push_back(token != nullptr && token->logprob_valid ? Json(token->rollout_logprob) : Json());
      versions.push_back(token != nullptr ? Json(token->weight_version) : Json());
    }
  }
  const rollout::RewardResult& reward = *trajectory.reward;
  Json object = {{"ordinal", trajectory.ordinal},
                 {"sample", trajectory.sample_id},
                 {"prompt_ids", std::move(prompt)},
                 {"completion_ids", std::move(completion)},
                 {"sources", std::move(sources)},
                 {"rollout_logprobs", std::move(logprobs)},
                 {"weight_versions", std::move(versions)},
                 {"prompt_text", trajectory.prompt_text},
                 {"text", trajectory.text},
                 {"finish_reason", FinishReasonName(finish_reason)},
                 {"reward", reward.reward},
                 {"parts", Json(reward.parts)},
                 {"valid", reward.error.empty()},
                 {"invalid_reason", reward.error},
                 {"advantage", trajectory.advantage}};
  const int64_t off_path = trajectory.tree->num_tokens() - path_tokens;
  if (off_path > 0) object["off_path_tokens"] = off_path;
  return object;
}

}  // namespace lockstep::job
