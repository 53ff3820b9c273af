// Attention beside a reference in double, and the bit rule: a query's result depends on its own path alone.
#include "model/kernels/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "model/kernels/attention_plan.h"
#include "tests/model/kernels/test_values.h"

namespace lockstep::model {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// One path of `depth` positions whose rows lie scattered in arrays of `rows` rows; every row that the path does not use
// is NaN. Query i (row i of q) sits at position i.
template <typename T>
struct Path {
  AttentionShape shape;
  int64_t depth, rows;
  std::vector<int32_t> key_rows;
  std::vector<T> q, k, v, out;
  std::vector<float> lse;

  Path(AttentionShape shape, int64_t depth, int64_t stream = 1)
      : shape(shape), depth(depth), rows(depth + depth / 2 + 70) {
    const int64_t q_cols = shape.num_heads * shape.head_dim, kv_cols = shape.num_kv_heads * shape.head_dim;
    q = TestNormal<T>(depth * q_cols, stream);
    k.assign(rows * kv_cols, RoundTo<T>(kNan));
    v = k;
    out.assign(depth * q_cols, RoundTo<T>(kNan));
    lse.assign(depth * shape.num_heads, kNan);
    // A permutation of the rows; the path takes the first of it.
    std::vector<int32_t> order(rows);
    for (int64_t i = 0; i < rows; ++i) order[i] = static_cast<int32_t>(i);
    for (int64_t i = rows - 1; i > 0; --i)
      std::swap(order[i], order[static_cast<int64_t>(TestUniform(stream + 50, i) * (i + 1))]);
    key_rows.assign(order.begin(), order.begin() + depth);
    const std::vector<T> keys = TestNormal<T>(depth * kv_cols, stream + 1),
                         values = TestNormal<T>(depth * kv_cols, stream + 2);
    for (int64_t p = 0; p < depth; ++p) {
      std::copy_n(keys.begin() + p * kv_cols, kv_cols, k.begin() + key_rows[p] * kv_cols);
      std::copy_n(values.begin() + p * kv_cols, kv_cols, v.begin() + key_rows[p] * kv_cols);
    }
  }
  int64_t q_cols() const { return shape.num_heads * shape.head_dim; }
  int64_t kv_cols() const { return shape.num_kv_heads * shape.head_dim; }
  Matrix<const T> Q() const { return Matrix<const T>(q.data(), depth, q_cols()); }
  Matrix<const T> K() const { return Matrix<const T>(k.data(), rows, kv_cols()); }
  Matrix<const T> V() const { return Matrix<const T>(v.data(), rows, kv_cols()); }
  Matrix<T> Out() { return Matrix<T>(out.data(), depth, q_cols()); }
  Matrix<float> Lse() { return Matrix<float>(lse.data(), depth, shape.num_heads); }
  QueryTile Tile(int64_t begin, int64_t count) const {
    return {.q_begin = begin, .count = count, .first_depth = begin, .key_rows = key_rows.data()};
  }
  void Forward(int64_t begin, int64_t count) {
    for (int64_t h = 0; h < shape.num_kv_heads; ++h) {
      AttentionForward<T>(shape, h, Tile(begin, count), Q(), K(), V(), Out(), Lse());
    }
  }
  void ForwardInTiles(int64_t size) {
    size = std::min(size, MaxTileQueries(shape));
    for (int64_t i = 0; i < depth; i += size) Forward(i, std::min(size, depth - i));
  }
  const T* KeyHead(int64_t position, int64_t head) const {
    return k.data() + key_rows[position] * kv_cols() + head / shape.group() * shape.head_dim;
  }
  const T* ValueHead(int64_t position, int64_t head) const {
    return v.data() + key_rows[position] * kv_cols() + head / shape.group() * shape.head_dim;
  }
};

// Softmax weights of one query head in double; `magnitude` gets the largest sum of |q k| over the keys, scaled.
template <typename T>
std::vector<double> Weights(const Path<T>& path, int64_t i, int64_t head, double* lse, double* magnitude) {
  const int64_t dim = path.shape.head_dim;
  const T* query = path.q.data() + i * path.q_cols() + head * dim;
  std::vector<double> weights(i + 1);
  double max = -std::numeric_limits<double>::infinity(), sum = 0;
  *magnitude = 0;
  for (int64_t p = 0; p <= i; ++p) {
    double terms = 0;
    for (int64_t j = 0; j < dim; ++j) {
      const double term = static_cast<double>(ToFloat(query[j])) * ToFloat(path.KeyHead(p, head)[j]) / std::sqrt(dim);
      weights[p] += term;
      terms += std::abs(term);
    }
    max = std::max(max, weights[p]);
    *magnitude = std::max(*magnitude, terms);
  }
  for (double& w : weights) sum += (w = std::exp(w - max));
  for (double& w : weights) w /= sum;
  *lse = max + std::log(sum);
  return weights;
}

// A score errs by (dim + 3) roundings of its terms; a weight by twice that, its exponential, sums over the keys and the
// joining of blocks.
double ForwardError(int64_t dim, int64_t keys, double magnitude) {
  return (2 * (dim + 3) * magnitude + static_cast<double>(keys) + 30) * 0x1p-24;
}

template <typename T>
void ExpectForwardNearReference(Path<T>& path) {
  const int64_t dim = path.shape.head_dim;
  for (int64_t i = 0; i < path.depth; i += 1 + path.depth / 40) {
    for (int64_t head = 0; head < path.shape.num_heads; ++head) {
      double lse = 0, magnitude = 0;
      const std::vector<double> weights = Weights(path, i, head, &lse, &magnitude);
      const double error = ForwardError(dim, i + 1, magnitude);
      ASSERT_NEAR(path.lse[i * path.shape.num_heads + head], lse, error);
      for (int64_t j = 0; j < dim; ++j) {
        double want = 0, terms = 0;
        for (int64_t p = 0; p <= i; ++p) {
          want += weights[p] * ToFloat(path.ValueHead(p, head)[j]);
          terms += weights[p] * std::abs(ToFloat(path.ValueHead(p, head)[j]));
        }
        const double got = ToFloat(path.out[i * path.q_cols() + head * dim + j]);
        ASSERT_NEAR(got, want, error * terms + kRounding<T> * std::abs(want))
            << dim << " query " << i << " head " << head;
      }
    }
  }
}

template <typename T>
class AttentionTest : public ::testing::Test {};
using StorageTypes = ::testing::Types<float, Bf16>;
TYPED_TEST_SUITE(AttentionTest, StorageTypes);

TYPED_TEST(AttentionTest, ForwardAgreesWithDoubleReference) {
  for (const AttentionShape& shape :
       {AttentionShape{9, 3, 64}, {2, 1, 8}, {3, 3, 40}, {4, 2, 80}, {8, 1, 128}, {2, 2, 256}}) {
    Path<TypeParam> path(shape, 150);
    path.ForwardInTiles(MaxTileQueries(shape));
    ExpectForwardNearReference(path);
  }
  Path<TypeParam> longer({2, 1, 16}, 2300);  // three spans
  longer.ForwardInTiles(64);
  ExpectForwardNearReference(longer);
}

TYPED_TEST(AttentionTest, AQueryHasTheSameBitsAloneAndInEveryTile) {
  for (const AttentionShape& shape :
       {AttentionShape{9, 3, 64}, {4, 2, 128}, {4, 1, 64}, {2, 2, 64}, {4, 4, 24}, {5, 1, 128}}) {
    for (const int64_t depth : {70, 1100}) {
      Path<TypeParam> alone(shape, depth), tiled(shape, depth);
      alone.ForwardInTiles(1);
      for (const int64_t size : {MaxTileQueries(shape), int64_t{2}, int64_t{7}, int64_t{13}}) {
        std::fill(tiled.lse.begin(), tiled.lse.end(), kNan);
        tiled.ForwardInTiles(size);
        ASSERT_EQ(tiled.out, alone.out) << shape.head_dim << " tiles of " << size;
        ASSERT_EQ(tiled.lse, alone.lse);
      }
    }
  }
}

TYPED_TEST(AttentionTest, WhereTheKeysLieDoesNotMatter) {
  const AttentionShape shape{6, 2, 64};
  Path<TypeParam> scattered(shape, 200), flat(shape, 200);
  const int64_t cols = flat.kv_cols();
  for (int64_t p = 0; p < 200; ++p) {
    flat.key_rows[p] = static_cast<int32_t>(p);
    std::copy_n(scattered.k.begin() + scattered.key_rows[p] * cols, cols, flat.k.begin() + p * cols);
    std::copy_n(scattered.v.begin() + scattered.key_rows[p] * cols, cols, flat.v.begin() + p * cols);
  }
  scattered.ForwardInTiles(16);
  flat.ForwardInTiles(16);
  EXPECT_EQ(scattered.out, flat.out);
  EXPECT_EQ(scattered.lse, flat.lse);
}

TYPED_TEST(AttentionTest, WhatLiesBeyondAQuerysDepthIsHarmless) {
  const AttentionShape shape{4, 2, 64};
  for (const int64_t seen : {1, 30, 64, 65, 100}) {
    Path<TypeParam> clean(shape, 130), dirty(shape, 130);
    const int64_t cols = clean.kv_cols();
    for (int64_t p = seen; p < 130; ++p) {
      std::fill_n(dirty.k.begin() + dirty.key_rows[p] * cols, cols, RoundTo<TypeParam>(kNan));
      std::fill_n(dirty.v.begin() + dirty.key_rows[p] * cols, cols, RoundTo<TypeParam>(kNan));
    }
    clean.ForwardInTiles(24);
    dirty.ForwardInTiles(24);
    ASSERT_TRUE(std::equal(clean.out.begin(), clean.out.begin() + seen * clean.q_cols(), dirty.out.begin())) << seen;
    ASSERT_TRUE(std::equal(clean.lse.begin(), clean.lse.begin() + seen * shape.num_heads, dirty.lse.begin()));
  }
}

TYPED_TEST(AttentionTest, LogSumExpIsOptional) {
  const AttentionShape shape{4, 2, 32};
  Path<TypeParam> with(shape, 20), without(shape, 20);
  with.Forward(0, 20);
  for (int64_t h = 0; h < 2; ++h) {
    AttentionForward<TypeParam>(shape, h, without.Tile(0, 20), without.Q(), without.K(), without.V(), without.Out(),
                                {});
  }
  EXPECT_EQ(with.out, without.out);
}

// Gradients by the formulas, in double.
template <typename T>
struct BackwardReference {
  std::vector<double> dq, dk, dv;  // dk, dv by array row
  double d_score_terms = 0;        // largest magnitudes met, for the tolerance
  BackwardReference(const Path<T>& path, const std::vector<float>& d_out)
      : dq(path.q.size()), dk(path.k.size()), dv(path.k.size()) {
    const int64_t dim = path.shape.head_dim;
    const double scale = 1 / std::sqrt(dim);
    for (int64_t i = 0; i < path.depth; ++i) {
      for (int64_t head = 0; head < path.shape.num_heads; ++head) {
        double lse = 0, magnitude = 0;
        const std::vector<double> weights = Weights(path, i, head, &lse, &magnitude);
        const int64_t at = i * path.q_cols() + head * dim;
        double delta = 0;
        for (int64_t j = 0; j < dim; ++j) delta += d_out[at + j] * ToFloat(path.out[at + j]);
        for (int64_t p = 0; p <= i; ++p) {
          const int64_t key_at = path.KeyHead(p, head) - path.k.data();
          double d_weight = 0;
          for (int64_t j = 0; j < dim; ++j) d_weight += d_out[at + j] * ToFloat(path.v[key_at + j]);
          const double d_score = weights[p] * (d_weight - delta) * scale;
          d_score_terms = std::max(d_score_terms, std::abs(d_score));
          for (int64_t j = 0; j < dim; ++j) {
            dq[at + j] += d_score * ToFloat(path.k[key_at + j]);
            dk[key_at + j] += d_score * ToFloat(path.q[at + j]);
            dv[key_at + j] += weights[p] * d_out[at + j];
          }
        }
      }
    }
  }
};

TYPED_TEST(AttentionTest, BackwardAgreesWithDoubleReference) {
  for (const AttentionShape& shape : {AttentionShape{9, 3, 64}, {2, 2, 8}, {4, 1, 80}, {1, 1, 256}}) {
    Path<TypeParam> path(shape, 140);
    path.ForwardInTiles(MaxTileQueries(shape));
    const std::vector<float> d_out = TestNormal<float>(path.q.size(), 20);
    std::vector<float> dq(path.q.size(), kNan), dk(path.k.size()), dv(path.k.size());
    for (int64_t h = 0; h < shape.num_kv_heads; ++h) {
      for (int64_t i = 0; i < path.depth; i += MaxTileQueries(shape)) {
        AttentionBackward<TypeParam>(
            shape, h, path.Tile(i, std::min(MaxTileQueries(shape), path.depth - i)), path.Q(), path.K(), path.V(),
            path.Out(), path.Lse(), Matrix<const float>(d_out.data(), path.depth, path.q_cols()),
            Matrix<float>(dq.data(), path.depth, path.q_cols()), Matrix<float>(dk.data(), path.rows, path.kv_cols()),
            Matrix<float>(dv.data(), path.rows, path.kv_cols()));
      }
    }
    const BackwardReference<TypeParam> want(path, d_out);
    // Scores err by up to about 2 dim roundings at magnitudes near 10, which shifts every weight by that share; sums of
    // up to 140 * group such terms near 1.
    const double error = 2 * (shape.head_dim + 30) * 10 * 0x1p-24;
    for (size_t i = 0; i < dq.size(); ++i) ASSERT_NEAR(dq[i], want.dq[i], error * 4) << shape.head_dim << " " << i;
    for (size_t i = 0; i < dk.size(); ++i) {
      ASSERT_NEAR(dk[i], want.dk[i], error * 8) << shape.head_dim << " " << i;
      ASSERT_NEAR(dv[i], want.dv[i], error * 8) << shape.head_dim << " " << i;
    }
  }
}

// Depth-first arrays of a random forest.
struct Forest {
  std::vector<int32_t> position_ids, subtree_end, parent;
  void Grow(int32_t parent_row, int32_t depth, int64_t stream, int levels) {
    const int64_t length = 1 + static_cast<int64_t>(TestUniform(stream, 0) * 90);
    std::vector<int32_t> rows;
    for (int64_t i = 0; i < length; ++i) {
      rows.push_back(static_cast<int32_t>(position_ids.size()));
      parent.push_back(parent_row);
      parent_row = rows.back();
      position_ids.push_back(depth++);
      subtree_end.push_back(0);
    }
    // Children hang at the end and, as forks inside a run do, one in the middle once the later ones are done.
    const int64_t children = levels == 0 ? 0 : 1 + static_cast<int64_t>(TestUniform(stream, 1) * 3);
    for (int64_t c = 0; c < children; ++c) Grow(rows.back(), depth, stream * 5 + c + 1, levels - 1);
    const size_t fork = rows.size() / 2;
    for (size_t i = fork + 1; i < rows.size(); ++i) subtree_end[rows[i]] = static_cast<int32_t>(position_ids.size());
    if (levels > 0) Grow(rows[fork], position_ids[rows[fork]] + 1, stream * 5 + 4, levels - 1);
    for (size_t i = 0; i <= fork; ++i) subtree_end[rows[i]] = static_cast<int32_t>(position_ids.size());
  }
};

TEST(AttentionPlan, TilesFollowThePathsOfTheForest) {
  Forest forest;
  for (int64_t root = 0; root < 3; ++root) forest.Grow(-1, 0, root + 1, static_cast<int>(root));
  const int64_t rows = static_cast<int64_t>(forest.position_ids.size());
  const AttentionPlan plan(forest.position_ids, forest.subtree_end, 32);
  ASSERT_EQ(plan.trees().size(), 3u);
  std::vector<int> covered(rows);
  int64_t next_tile = 0;
  for (const AttentionPlan::Tree& tree : plan.trees()) {
    ASSERT_EQ(tree.tile_begin, next_tile);
    next_tile = tree.tile_end;
    for (int64_t t = tree.tile_begin; t < tree.tile_end; ++t) {
      const QueryTile tile = plan.tile(t);
      ASSERT_LE(tile.count, 32);
      for (int64_t i = 0; i < tile.count; ++i) {
        const int64_t query = tile.q_begin + i;
        ASSERT_GE(query, tree.row_begin);
        ASSERT_LT(query, tree.row_end);
        ++covered[query];
        ASSERT_EQ(forest.position_ids[query], tile.first_depth + i);
        // The path is what is visible, and the chain of parents.
        std::vector<int32_t> visible, path(tile.key_rows, tile.key_rows + tile.first_depth + i + 1), chain;
        for (int32_t k = 0; k <= query; ++k) {
          if (query < forest.subtree_end[k]) visible.push_back(k);
        }
        for (int32_t at = static_cast<int32_t>(query); at >= 0; at = forest.parent[at]) chain.insert(chain.begin(), at);
        ASSERT_EQ(path, visible);
        ASSERT_EQ(path, chain);
      }
    }
  }
  EXPECT_EQ(next_tile, plan.num_tiles());
  EXPECT_EQ(covered, std::vector<int>(rows, 1));
}

TEST(AttentionPlan, SingleTokenTreesAndNoTrees) {
  const std::vector<int32_t> positions = {0, 0, 0, 1}, ends = {1, 2, 4, 4};
  const AttentionPlan plan(positions, ends, 64);
  EXPECT_EQ(plan.trees().size(), 3u);
  EXPECT_EQ(plan.num_tiles(), 3);
  EXPECT_EQ(plan.tile(2).count, 2);
  EXPECT_EQ(AttentionPlan({}, {}, 64).num_tiles(), 0);
}

// Training on a forest gives each query the bits that it has on its path alone, as when it was sampled.
TYPED_TEST(AttentionTest, AForestIsItsPaths) {
  Forest forest;
  forest.Grow(-1, 0, 9, 2);
  const int64_t rows = static_cast<int64_t>(forest.position_ids.size());
  const AttentionShape shape{6, 2, 64};
  const int64_t q_cols = shape.num_heads * shape.head_dim, kv_cols = shape.num_kv_heads * shape.head_dim;
  const std::vector<TypeParam> q = TestNormal<TypeParam>(rows * q_cols, 1),
                               k = TestNormal<TypeParam>(rows * kv_cols, 2),
                               v = TestNormal<TypeParam>(rows * kv_cols, 3);
  std::vector<TypeParam> together(rows * q_cols), alone(rows * q_cols);
  const Matrix<const TypeParam> qs(q.data(), rows, q_cols), ks(k.data(), rows, kv_cols), vs(v.data(), rows, kv_cols);
  const AttentionPlan plan(forest.position_ids, forest.subtree_end, MaxTileQueries(shape));
  for (int64_t t = 0; t < plan.num_tiles(); ++t) {
    for (int64_t h = 0; h < 2; ++h) {
      AttentionForward<TypeParam>(shape, h, plan.tile(t), qs, ks, vs, Matrix<TypeParam>(together.data(), rows, q_cols),
                                  {});
    }
  }
  for (int64_t r = 0; r < rows; ++r) {
    std::vector<int32_t> path;
    for (int32_t at = static_cast<int32_t>(r); at >= 0; at = forest.parent[at]) path.insert(path.begin(), at);
    const QueryTile tile{.q_begin = r, .count = 1, .first_depth = forest.position_ids[r], .key_rows = path.data()};
    for (int64_t h = 0; h < 2; ++h) {
      AttentionForward<TypeParam>(shape, h, tile, qs, ks, vs, Matrix<TypeParam>(alone.data(), rows, q_cols), {});
    }
  }
  EXPECT_EQ(together, alone);
}

}  // namespace
}  // namespace lockstep::model
