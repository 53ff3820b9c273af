#include "runtime/data/token_tree.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "runtime/base/check.h"

namespace lockstep {

const char* TokenSourceName(TokenSource source) {
  switch (source) {
    case TokenSource::kPrompt:
      return "prompt";
    case TokenSource::kTemplate:
      return "template";
    case TokenSource::kModel:
      return "model";
    case TokenSource::kTool:
      return "tool";
    case TokenSource::kUser:
      return "user";
  }
  return "?";
}

void KeptIds::Append(Kind kind, absl::Span<const int32_t> list) {
  CHECK(kind != Kind::kAll || list.empty());
  CHECK(std::is_sorted(list.begin(), list.end(), std::less_equal<>()));  // strictly ascending
  if (kinds.empty()) offsets.assign(1, 0);
  CHECK_LE(ids.size() + list.size(), static_cast<size_t>(std::numeric_limits<int32_t>::max()));
  kinds.push_back(kind);
  ids.insert(ids.end(), list.begin(), list.end());
  offsets.push_back(static_cast<int32_t>(ids.size()));
}

// A node's parent comes before it, so one pass in order of appending sees every path's beginning before its end.
TokenTree::PrefixMatch TokenTree::Match(absl::Span<const int32_t> ids) const {
  PrefixMatch best;
  std::vector<int32_t> matched(nodes_.size(), -1);  // tokens of the node that agree; -1 where its path does not
  for (size_t n = 0; n < nodes_.size(); ++n) {
    const Node& node = nodes_[n];
    const bool path_agrees = node.parent.node == kNoNode || matched[node.parent.node] >= node.parent.num_tokens;
    if (!path_agrees) continue;
    const absl::Span<const int32_t> rest = ids.subspan(node.depth);
    const auto end = std::mismatch(node.ids.begin(), node.ids.end(), rest.begin(), rest.end()).first;
    matched[n] = static_cast<int32_t>(end - node.ids.begin());
    const int64_t total = int64_t{node.depth} + matched[n];
    if (matched[n] > 0 && total > best.num_tokens) best = {{static_cast<NodeId>(n), matched[n]}, total};
  }
  return best;
}

NodeId TokenTree::AppendContext(NodePosition at, TokenSource source, absl::Span<const int32_t> ids, bool context_copy) {
  Node node;
  node.source = source;
  node.context_copy = context_copy;
  node.ids.assign(ids.begin(), ids.end());
  return Append(at, std::move(node));
}

NodeId TokenTree::AppendSampled(NodePosition at, SampledRun run) {
  CHECK(run.kept.empty() || run.kept.kinds.size() == run.tokens.size());
  Node node;
  node.source = TokenSource::kModel;
  node.ids.reserve(run.tokens.size());
  for (const SampledToken& token : run.tokens) node.ids.push_back(token.id);
  node.sample_id = run.sample_id;
  node.params = std::move(run.params);
  node.sampled = std::move(run.tokens);
  node.kept = std::move(run.kept);
  node.finish_reason = run.finish_reason;
  const NodeId id = Append(at, std::move(node));
  CHECK_GT(nodes_[id].depth, 0);  // some row has to predict the first token
  num_sampled_tokens_ += static_cast<int64_t>(nodes_[id].ids.size());
  return id;
}

NodeId TokenTree::Append(NodePosition at, Node node) {
  CHECK(!node.ids.empty());
  CHECK(at.node >= kNoNode && at.node < static_cast<NodeId>(nodes_.size()));
  const int64_t available = at.node == kNoNode ? 0 : static_cast<int64_t>(nodes_[at.node].ids.size());
  CHECK(at.num_tokens >= 0 && at.num_tokens <= available);
  // The place before a node's first token is the place where the node hangs.
  while (at.node != kNoNode && at.num_tokens == 0) at = nodes_[at.node].parent;
  const int64_t depth = at.node == kNoNode ? 0 : int64_t{nodes_[at.node].depth} + at.num_tokens;
  CHECK_LE(depth + static_cast<int64_t>(node.ids.size()), std::numeric_limits<int32_t>::max());
  node.parent = at;
  node.depth = static_cast<int32_t>(depth);
  num_tokens_ += static_cast<int64_t>(node.ids.size());
  nodes_.push_back(std::move(node));
  return static_cast<NodeId>(nodes_.size() - 1);
}

NodePosition TokenTree::End(NodeId node) const {
  CHECK(node >= 0 && node < static_cast<NodeId>(nodes_.size()));
  return {node, static_cast<int32_t>(nodes_[node].ids.size())};
}

std::vector<int32_t> TokenTree::PathIds(NodePosition at) const {
  CHECK(at.node >= kNoNode && at.node < static_cast<NodeId>(nodes_.size()));
  if (at.node == kNoNode) return {};
  CHECK(at.num_tokens >= 0 && at.num_tokens <= static_cast<int64_t>(nodes_[at.node].ids.size()));
  std::vector<int32_t> path(nodes_[at.node].depth + at.num_tokens);
  while (at.node != kNoNode) {
    const Node& node = nodes_[at.node];
    std::copy_n(node.ids.begin(), at.num_tokens, path.begin() + node.depth);
    at = node.parent;
  }
  return path;
}

}  // namespace lockstep
