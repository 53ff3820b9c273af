// Query tiles and row tables of a flattened forest (runtime/data/token_tree.h): what attention needs to train on trees
// and, as the special case of a forest of chains, on packed sequences.
//
// Consecutive rows whose next is the child of the one before form a run; a run's path is the rows of its ancestors and
// its own. Each run gets one row table and is cut into tiles.
#ifndef LOCKSTEP_MODEL_KERNELS_ATTENTION_PLAN_H_
#define LOCKSTEP_MODEL_KERNELS_ATTENTION_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "model/kernels/attention.h"

namespace lockstep::model {

class AttentionPlan {
 public:
  // One root and all below it. No tile of a tree reads or writes rows of another: for the backward pass one task is one
  // tree and one kv head, tiles in order.
  struct Tree {
    int32_t row_begin, row_end;
    int32_t tile_begin, tile_end;
  };

  AttentionPlan() = default;
  // Both // [tokens]. CHECKs that depths follow the depth-first order.
  AttentionPlan(absl::Span<const int32_t> position_ids, absl::Span<const int32_t> subtree_end,
                int64_t max_tile_queries);

  int64_t num_tiles() const { return static_cast<int64_t>(tiles_.size()); }
  // Valid while the plan lives.
  QueryTile tile(int64_t index) const;
  const std::vector<Tree>& trees() const { return trees_; }

 private:
  struct Tile {
    int32_t q_begin, count, first_depth;
    int64_t path_offset;  // in path_rows_
  };
  std::vector<int32_t> path_rows_;  // per run: the row of each position of its path
  std::vector<Tile> tiles_;
  std::vector<Tree> trees_;
};

}  // namespace lockstep::model

#endif  // LOCKSTEP_MODEL_KERNELS_ATTENTION_PLAN_H_
