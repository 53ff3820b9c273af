#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/data/token_tree.h"

namespace lockstep {
namespace {

// The samples' trees laid over each other, token by token. Vertex 0 is the place before the first token.
class JoinedTrees {
 public:
  struct Vertex {
    int32_t token_id = 0;
    int32_t position = -1;
    int32_t parent = -1;
    bool sampled = false;
    int32_t first_child = -1;
    int32_t last_child = -1;
    int32_t next_sibling = -1;
    int32_t row = -1;
  };

  JoinedTrees() : vertices_(1) {}

  // Returns for each node the vertices of its tokens.
  std::vector<std::vector<int32_t>> Add(const TokenTree& tree) {
    std::vector<std::vector<int32_t>> of_node;
    of_node.reserve(tree.nodes().size());
    for (const TokenTree::Node& node : tree.nodes()) {
      int32_t at = node.parent.node == kNoNode ? 0 : of_node[node.parent.node][node.parent.num_tokens - 1];
      std::vector<int32_t>& vertices = of_node.emplace_back();
      vertices.reserve(node.ids.size());
      for (int32_t id : node.ids) {
        const int32_t joined = node.is_sampled() ? -1 : FindUnsampledChild(at, id);
        at = joined >= 0 ? joined : AddChild(at, id, node.is_sampled());
        vertices.push_back(at);
      }
    }
    return of_node;
  }

  // Numbers the rows depth-first, children in order of first appearance.
  void WriteRows(FlatForest& forest) {
    const size_t num_rows = vertices_.size() - 1;
    forest.token_ids.reserve(num_rows);
    forest.position_ids.reserve(num_rows);
    forest.subtree_end.assign(num_rows, 0);
    int32_t v = 0;
    bool entering = true;
    while (true) {
      Vertex& vertex = vertices_[v];
      if (entering && v != 0) {
        vertex.row = static_cast<int32_t>(forest.token_ids.size());
        forest.token_ids.push_back(vertex.token_id);
        forest.position_ids.push_back(vertex.position);
      }
      if (entering && vertex.first_child >= 0) {
        v = vertex.first_child;
        continue;
      }
      if (v == 0) return;
      forest.subtree_end[vertex.row] = static_cast<int32_t>(forest.token_ids.size());
      entering = vertex.next_sibling >= 0;
      v = entering ? vertex.next_sibling : vertex.parent;
    }
  }

  int32_t row(int32_t vertex) const { return vertices_[vertex].row; }
  int32_t parent_row(int32_t vertex) const { return vertices_[vertices_[vertex].parent].row; }

 private:
  int32_t FindUnsampledChild(int32_t parent, int32_t token_id) const {
    for (int32_t child = vertices_[parent].first_child; child >= 0; child = vertices_[child].next_sibling) {
      if (!vertices_[child].sampled && vertices_[child].token_id == token_id) return child;
    }
    return -1;
  }

  int32_t AddChild(int32_t parent, int32_t token_id, bool sampled) {
    CHECK_LT(vertices_.size(), static_cast<size_t>(std::numeric_limits<int32_t>::max()));
    const int32_t child = static_cast<int32_t>(vertices_.size());
    vertices_.push_back({token_id, vertices_[parent].position + 1, parent, sampled});
    Vertex& above = vertices_[parent];
    if (above.last_child >= 0) {
      vertices_[above.last_child].next_sibling = child;
    } else {
      above.first_child = child;
    }
    above.last_child = child;
    return child;
  }

  std::vector<Vertex> vertices_;
};

// A loss row before its list of kept ids is copied: where that list stands.
struct PendingRow {
  LossRow row;
  const KeptIds* kept = nullptr;
  int64_t token = 0;
};

std::vector<PendingRow> SampledRows(const TokenTree& tree, int32_t sample_id, const JoinedTrees& joined,
                                    const std::vector<std::vector<int32_t>>& vertices_of_node) {
  std::vector<PendingRow> rows;
  rows.reserve(tree.num_sampled_tokens());
  for (size_t n = 0; n < tree.nodes().size(); ++n) {
    const TokenTree::Node& node = tree.nodes()[n];
    for (size_t t = 0; t < node.sampled.size(); ++t) {
      const SampledToken& token = node.sampled[t];
      PendingRow& pending = rows.emplace_back();
      pending.row.row = joined.parent_row(vertices_of_node[n][t]);
      pending.row.target_id = token.id;
      pending.row.sample_id = sample_id;
      pending.row.position = node.depth + static_cast<int32_t>(t);
      pending.row.rollout_logprob = token.rollout_logprob;
      pending.row.logprob_valid = token.logprob_valid;
      pending.row.weight_version = token.weight_version;
      pending.row.temperature = node.params.temperature;
      pending.row.kept_kind = node.kept.kind(static_cast<int64_t>(t));
      pending.kept = &node.kept;
      pending.token = static_cast<int64_t>(t);
    }
  }
  // Branches of one sample may hold tokens of equal depth: those keep the order in which they were sampled.
  std::stable_sort(rows.begin(), rows.end(),
                   [](const PendingRow& a, const PendingRow& b) { return a.row.position < b.row.position; });
  return rows;
}

void AppendLossRows(const std::vector<PendingRow>& rows, FlatForest& forest) {
  for (const PendingRow& pending : rows) {
    const absl::Span<const int32_t> list = pending.kept->list(pending.token);
    CHECK_LE(forest.kept_ids.size() + list.size(), static_cast<size_t>(std::numeric_limits<int32_t>::max()));
    LossRow& row = forest.loss_rows.emplace_back(pending.row);
    row.kept_begin = static_cast<int32_t>(forest.kept_ids.size());
    forest.kept_ids.insert(forest.kept_ids.end(), list.begin(), list.end());
    row.kept_end = static_cast<int32_t>(forest.kept_ids.size());
  }
}

absl::Status Bad(const char* what, size_t index, int64_t value, const std::string& wanted) {
  return absl::InvalidArgumentError(
      absl::StrCat("forest: ", what, "[", index, "] is ", value, ", it must be ", wanted));
}

// Subtrees nest, and a row's position is one more than that of the innermost row around it.
absl::Status ValidateTokens(const FlatForest& forest, int64_t vocab_size) {
  const size_t num_rows = forest.token_ids.size();
  if (forest.position_ids.size() != num_rows || forest.subtree_end.size() != num_rows) {
    return absl::InvalidArgumentError(absl::StrCat("forest: ", num_rows, " token ids, ", forest.position_ids.size(),
                                                   " position ids and ", forest.subtree_end.size(),
                                                   " subtree ends: the three must be equally long"));
  }
  std::vector<int32_t> open;  // rows whose subtree the current row is in
  for (size_t r = 0; r < num_rows; ++r) {
    while (!open.empty() && forest.subtree_end[open.back()] <= static_cast<int64_t>(r)) open.pop_back();
    const int64_t id = forest.token_ids[r];
    if (id < 0 || id >= vocab_size) return Bad("token_ids", r, id, absl::StrCat("below ", vocab_size));
    const int64_t position = open.empty() ? 0 : forest.position_ids[open.back()] + 1;
    if (forest.position_ids[r] != position) {
      return Bad("position_ids", r, forest.position_ids[r], absl::StrCat(position, ", the depth on its path"));
    }
    const int64_t limit = open.empty() ? static_cast<int64_t>(num_rows) : forest.subtree_end[open.back()];
    const int64_t end = forest.subtree_end[r];
    if (end <= static_cast<int64_t>(r) || end > limit) {
      return Bad("subtree_end", r, end, absl::StrCat("in (", r, ", ", limit, "]"));
    }
    open.push_back(static_cast<int32_t>(r));
  }
  return absl::OkStatus();
}

absl::Status ValidateKept(const FlatForest& forest, size_t index, int64_t vocab_size) {
  const LossRow& row = forest.loss_rows[index];
  const int64_t num_ids = static_cast<int64_t>(forest.kept_ids.size());
  if (row.kept_begin < 0 || row.kept_end < row.kept_begin || row.kept_end > num_ids) {
    return Bad("kept range of loss_rows", index, row.kept_end, absl::StrCat("within ", num_ids, " kept ids"));
  }
  const absl::Span<const int32_t> list =
      absl::MakeConstSpan(forest.kept_ids).subspan(row.kept_begin, row.kept_end - row.kept_begin);
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i] < 0 || list[i] >= vocab_size || (i > 0 && list[i] <= list[i - 1])) {
      return Bad("kept_ids", row.kept_begin + i, list[i], absl::StrCat("ascending and below ", vocab_size));
    }
  }
  const bool listed = std::binary_search(list.begin(), list.end(), row.target_id);
  switch (row.kept_kind) {
    case KeptIds::Kind::kAll:
      if (!list.empty()) return Bad("number of kept ids of loss_rows", index, list.size(), "0 where all are kept");
      return absl::OkStatus();
    case KeptIds::Kind::kKept:
      if (!listed) return Bad("target of loss_rows", index, row.target_id, "one of the ids that were kept");
      return absl::OkStatus();
    case KeptIds::Kind::kCut:
      if (listed) return Bad("target of loss_rows", index, row.target_id, "none of the ids that were cut off");
      return absl::OkStatus();
  }
  return Bad("kept_kind of loss_rows", index, static_cast<int64_t>(row.kept_kind), "a known kind");
}

absl::Status ValidateLossRow(const FlatForest& forest, size_t index, int64_t vocab_size) {
  const LossRow& row = forest.loss_rows[index];
  if (row.row < 0 || row.row >= forest.num_tokens()) {
    return Bad("row of loss_rows", index, row.row, absl::StrCat("below ", forest.num_tokens()));
  }
  if (row.target_id < 0 || row.target_id >= vocab_size) {
    return Bad("target of loss_rows", index, row.target_id, absl::StrCat("below ", vocab_size));
  }
  if (row.sample_id < 0) return Bad("sample of loss_rows", index, row.sample_id, "0 or more");
  if (row.position != forest.position_ids[row.row] + 1) {
    return Bad("position of loss_rows", index, row.position, absl::StrCat(forest.position_ids[row.row] + 1));
  }
  if (index > 0) {
    const LossRow& before = forest.loss_rows[index - 1];
    if (std::tie(before.sample_id, before.position) > std::tie(row.sample_id, row.position)) {
      return Bad("sample of loss_rows", index, row.sample_id, "in ascending order of (sample, position)");
    }
  }
  if (!std::isfinite(row.weight) || !std::isfinite(row.temperature) || row.temperature < 0 ||
      (row.logprob_valid && std::isnan(row.rollout_logprob))) {
    return absl::InvalidArgumentError(absl::StrCat("forest: loss_rows[", index, "] has weight ", row.weight,
                                                   ", temperature ", row.temperature, ", rollout log-prob ",
                                                   row.rollout_logprob, ": they must be finite"));
  }
  return ValidateKept(forest, index, vocab_size);
}

}  // namespace

FlatForest Flatten(absl::Span<const TokenTree* const> trees) {
  JoinedTrees joined;
  std::vector<std::vector<std::vector<int32_t>>> vertices;  // [trees][nodes][tokens]
  vertices.reserve(trees.size());
  for (const TokenTree* tree : trees) {
    CHECK(!tree->nodes().empty());
    vertices.push_back(joined.Add(*tree));
  }
  FlatForest forest;
  joined.WriteRows(forest);
  for (size_t s = 0; s < trees.size(); ++s) {
    AppendLossRows(SampledRows(*trees[s], static_cast<int32_t>(s), joined, vertices[s]), forest);
  }
  return forest;
}

void AppendForest(const FlatForest& other, int32_t sample_offset, FlatForest& forest) {
  constexpr size_t kMax = std::numeric_limits<int32_t>::max();
  CHECK_LE(forest.token_ids.size() + other.token_ids.size(), kMax);
  CHECK_LE(forest.kept_ids.size() + other.kept_ids.size(), kMax);
  CHECK_NE(&other, &forest);
  if (!forest.loss_rows.empty() && !other.loss_rows.empty()) {
    CHECK_GT(other.loss_rows.front().sample_id + sample_offset, forest.loss_rows.back().sample_id);
  }
  const auto row_offset = static_cast<int32_t>(forest.token_ids.size());
  const auto kept_offset = static_cast<int32_t>(forest.kept_ids.size());
  forest.token_ids.insert(forest.token_ids.end(), other.token_ids.begin(), other.token_ids.end());
  forest.position_ids.insert(forest.position_ids.end(), other.position_ids.begin(), other.position_ids.end());
  forest.subtree_end.reserve(forest.token_ids.size());
  for (int32_t end : other.subtree_end) forest.subtree_end.push_back(end + row_offset);
  for (LossRow row : other.loss_rows) {
    row.row += row_offset;
    row.sample_id += sample_offset;
    row.kept_begin += kept_offset;
    row.kept_end += kept_offset;
    forest.loss_rows.push_back(row);
  }
  forest.kept_ids.insert(forest.kept_ids.end(), other.kept_ids.begin(), other.kept_ids.end());
}

absl::Status ValidateForest(const FlatForest& forest, int64_t vocab_size) {
  absl::Status status = ValidateTokens(forest, vocab_size);
  for (size_t i = 0; status.ok() && i < forest.loss_rows.size(); ++i) status = ValidateLossRow(forest, i, vocab_size);
  return status;
}

}  // namespace lockstep
