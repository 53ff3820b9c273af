// What happened in one sample, as an append-only tree of token runs.
//
// A node is a run of tokens with one source. Turns append; a history that the template rewrites, or that an agent
// rewinds, forks. Nothing is ever changed or removed, so a NodeId stays valid for life.
//
//   P ── model A1 ── user ── ...              A1 was sampled once and is trained once;
//    └── copy A1' ── user ── model A2         A1' is its stripped form, context only.
//
// A fork may start inside a node: NodePosition names a place after `num_tokens` tokens of a node, and a child may hang
// there.
//
// Not thread-safe: one conversation owns its tree. A group joins its samples' trees where their prompts agree
// (Flatten); sampled nodes of different samples stay apart, even where their tokens are equal.
#ifndef LOCKSTEP_RUNTIME_DATA_TOKEN_TREE_H_
#define LOCKSTEP_RUNTIME_DATA_TOKEN_TREE_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "runtime/data/sampling_params.h"

namespace lockstep {

enum class TokenSource : uint8_t { kPrompt, kTemplate, kModel, kTool, kUser };
const char* TokenSourceName(TokenSource source);

using NodeId = int32_t;
inline constexpr NodeId kNoNode = -1;

// The place after the first `num_tokens` tokens of `node`. {kNoNode, 0} is the place before the first token.
struct NodePosition {
  NodeId node = kNoNode;
  int32_t num_tokens = 0;
  friend bool operator==(const NodePosition&, const NodePosition&) = default;
};

// One token the engine drew.
struct SampledToken {
  int32_t id = 0;
  float rollout_logprob = 0;   // of the distribution really sampled from
  bool logprob_valid = false;  // absent is not 0.0
  int64_t weight_version = 0;  // WeightVersion::number
};

// Where top-k, top-p or bans cut the vocabulary: per token the kept or the cut ids, whichever list is shorter,
// ascending. Token t's list is ids[offsets[t] .. offsets[t+1]); offsets is empty where nothing was cut off for any
// token.
struct KeptIds {
  enum class Kind : uint8_t { kAll, kKept, kCut };
  std::vector<Kind> kinds;       // [tokens]
  std::vector<int32_t> offsets;  // [tokens + 1]
  std::vector<int32_t> ids;
  bool empty() const { return kinds.empty(); }
  Kind kind(int64_t token) const { return kinds.empty() ? Kind::kAll : kinds[token]; }
  absl::Span<const int32_t> list(int64_t token) const {
    if (kinds.empty()) return {};
    return absl::MakeConstSpan(ids).subspan(offsets[token], offsets[token + 1] - offsets[token]);
  }
  // Appends one token's list; once anything is appended, every token needs its entry.
  void Append(Kind kind, absl::Span<const int32_t> list);
};

struct SampledRun {
  int32_t sample_id = 0;  // sample within its group
  SamplingParams params;
  std::vector<SampledToken> tokens;
  KeptIds kept;  // empty if nothing was cut off
  FinishReason finish_reason = FinishReason::kNone;
};

class TokenTree {
 public:
  struct Node {
    NodePosition parent;  // where it hangs
    TokenSource source = TokenSource::kPrompt;
    bool context_copy = false;  // a re-rendered copy of tokens that were sampled elsewhere in the tree
    int32_t depth = 0;          // position of its first token on its path
    std::vector<int32_t> ids;   // [tokens]
    // Sampled nodes only (source kModel and not context_copy): parallel to ids.
    int32_t sample_id = -1;
    SamplingParams params;
    std::vector<SampledToken> sampled;  // [tokens], or empty
    KeptIds kept;
    FinishReason finish_reason = FinishReason::kNone;
    bool is_sampled() const { return !sampled.empty(); }
  };

  // Longest prefix of `ids` that lies on one path from the root; `at` is where it ends and where a fork would hang.
  // Among equal paths the first appended wins.
  struct PrefixMatch {
    NodePosition at;
    int64_t num_tokens = 0;
  };
  PrefixMatch Match(absl::Span<const int32_t> ids) const;

  // Both CHECK that `at` exists and that the run is not empty; a sampled run needs a token before it, whose row
  // predicts its first one. {node, 0} is the place where `node` hangs.
  NodeId AppendContext(NodePosition at, TokenSource source, absl::Span<const int32_t> ids, bool context_copy = false);
  NodeId AppendSampled(NodePosition at, SampledRun run);

  // The place after the last token of a node.
  NodePosition End(NodeId node) const;
  // All tokens from the root to `at`.
  std::vector<int32_t> PathIds(NodePosition at) const;

  const std::vector<Node>& nodes() const { return nodes_; }
  int64_t num_tokens() const { return num_tokens_; }  // of all nodes
  int64_t num_sampled_tokens() const { return num_sampled_tokens_; }

 private:
  NodeId Append(NodePosition at, Node node);

  std::vector<Node> nodes_;
  int64_t num_tokens_ = 0;
  int64_t num_sampled_tokens_ = 0;
};

// Row `row` of the flattened forest (its logits) predicts `target_id`.
struct LossRow {
  int32_t row = 0;
  int32_t target_id = 0;
  int32_t sample_id = 0;  // index of the tree in the span given to Flatten, so unique within the forest
  int32_t position = 0;   // depth of the predicted token
  float weight = 1;       // how many times the row counts (merged trees); 1 in trees that keep samples apart
  float rollout_logprob = 0;
  bool logprob_valid = false;
  int64_t weight_version = 0;
  float temperature = 1;
  KeptIds::Kind kept_kind = KeptIds::Kind::kAll;
  int32_t kept_begin = 0;  // range in FlatForest::kept_ids
  int32_t kept_end = 0;
};

// Depth-first arrays: all that the model and the losses need, with no tokens x tokens mask anywhere.
//   key k is visible to query q  <=>  k <= q < subtree_end[k]
struct FlatForest {
  std::vector<int32_t> token_ids;     // [tokens]
  std::vector<int32_t> position_ids;  // [tokens] depth of the token on its path: siblings share positions
  std::vector<int32_t> subtree_end;   // [tokens]
  std::vector<LossRow> loss_rows;     // ascending by (sample_id, position); ties in the order of sampling
  std::vector<int32_t> kept_ids;      // lists of the loss rows
  int64_t num_tokens() const { return static_cast<int64_t>(token_ids.size()); }
};

// Joins the samples of one group where they agree on unsampled tokens from the root on (the shared prompt is computed
// once), and flattens: depth-first, children in order of first appearance. Sampled tokens never merge; unsampled
// branches of one tree that begin alike do. Trees must be non-empty.
FlatForest Flatten(absl::Span<const TokenTree* const> trees);

// Appends `other` behind `forest`: trees side by side, rows and sample ids shifted. sample ids become sample_id +
// sample_offset, which must lie above those of `forest` (CHECKed), so that the loss rows stay sorted.
void AppendForest(const FlatForest& other, int32_t sample_offset, FlatForest& forest);

// Checks the invariants of the three arrays; for tests and for data from outside.
absl::Status ValidateForest(const FlatForest& forest, int64_t vocab_size);

}  // namespace lockstep

#endif  // LOCKSTEP_RUNTIME_DATA_TOKEN_TREE_H_
