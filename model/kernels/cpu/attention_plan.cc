#include "model/kernels/attention_plan.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace lockstep::model {

AttentionPlan::AttentionPlan(absl::Span<const int32_t> position_ids, absl::Span<const int32_t> subtree_end,
                             int64_t max_tile_queries) {
  CHECK_EQ(position_ids.size(), subtree_end.size());
  CHECK_GT(max_tile_queries, 0);
  const int64_t num_rows = static_cast<int64_t>(position_ids.size());
  // Depth first, the row at depth p of the current path is the last row that had depth p.
  std::vector<int32_t> path;
  for (int64_t begin = 0; begin < num_rows;) {
    const int64_t depth = position_ids[begin];
    CHECK(depth >= 0 && depth <= static_cast<int64_t>(path.size()));
    CHECK(depth == 0 || subtree_end[path[depth - 1]] > begin);  // the parent's subtree reaches this row
    if (depth == 0) {
      if (!trees_.empty()) trees_.back().tile_end = static_cast<int32_t>(tiles_.size());
      const int32_t tile = static_cast<int32_t>(tiles_.size());
      trees_.push_back({static_cast<int32_t>(begin), subtree_end[begin], tile, tile});
    }
    int64_t end = begin + 1;
    while (end < num_rows && position_ids[end] == depth + (end - begin)) ++end;
    path.resize(depth);
    for (int64_t r = begin; r < end; ++r) path.push_back(static_cast<int32_t>(r));

    const int64_t offset = static_cast<int64_t>(path_rows_.size());
    path_rows_.insert(path_rows_.end(), path.begin(), path.end());
    for (int64_t r = begin; r < end; r += max_tile_queries) {
      const int64_t count = std::min(max_tile_queries, end - r);
      tiles_.push_back(
          {static_cast<int32_t>(r), static_cast<int32_t>(count), static_cast<int32_t>(position_ids[r]), offset});
    }
    begin = end;
  }
  if (!trees_.empty()) trees_.back().tile_end = static_cast<int32_t>(tiles_.size());
}

QueryTile AttentionPlan::tile(int64_t index) const {
  const Tile& tile = tiles_[index];
  QueryTile result;
  result.q_begin = tile.q_begin;
  result.count = tile.count;
  result.first_depth = tile.first_depth;
  result.key_rows = path_rows_.data() + tile.path_offset;
  return result;
}

}  // namespace lockstep::model
