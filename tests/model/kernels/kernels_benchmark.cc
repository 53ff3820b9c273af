// How fast the kernels are, at the sizes of SmolLM2-135M (hidden 576, 9 query heads, 3 key heads of 64, intermediate
// 1536, vocabulary 49152). One thread.
//
//   model_kernels_benchmark [--benchmark_filter=Attention]
#include <benchmark/benchmark.h>

#include <cstdint>
#include <numeric>
#include <vector>

#include "model/kernels/attention.h"
#include "model/kernels/elementwise.h"
#include "model/kernels/logits.h"
#include "model/kernels/qkv_post.h"
#include "model/kernels/rope.h"
#include "tests/model/kernels/test_values.h"

namespace lockstep::model {
namespace {

constexpr AttentionShape kSmol{9, 3, 64};

// Decoding: 64 sequences at the given depth, one layer. Items are (block, kv head) pairs.
template <typename T>
void AttentionDecode(benchmark::State& state) {
  const int64_t sequences = 64, depth = state.range(0), blocks = (depth + 63) / 64;
  const int64_t rows = sequences * blocks * 64;
  const auto q = TestNormal<T>(sequences * 576, 1);
  const auto some = TestNormal<T>(64 * 192, 2);
  std::vector<T> k, v, out(sequences * 576);
  while (static_cast<int64_t>(k.size()) < rows * 192) k.insert(k.end(), some.begin(), some.end());
  v = k;
  std::vector<int32_t> key_rows(rows);
  std::iota(key_rows.begin(), key_rows.end(), 0);
  for (auto _ : state) {
    for (int64_t s = 0; s < sequences; ++s) {
      const QueryTile tile{
          .q_begin = s, .count = 1, .first_depth = depth - 1, .key_rows = key_rows.data() + s * blocks * 64};
      for (int64_t h = 0; h < 3; ++h) {
        AttentionForward<T>(kSmol, h, tile, Matrix<const T>(q.data(), sequences, 576),
                            Matrix<const T>(k.data(), rows, 192), Matrix<const T>(v.data(), rows, 192),
                            Matrix<T>(out.data(), sequences, 576), {});
      }
    }
  }
  state.SetItemsProcessed(state.iterations() * sequences * 3 * blocks);
  state.counters["ns_per_block"] =
      benchmark::Counter(static_cast<double>(state.iterations() * sequences * 3 * blocks) * 1e-9,
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK_TEMPLATE(AttentionDecode, Bf16)->Arg(64)->Arg(100)->Arg(128)->Arg(1024);
BENCHMARK_TEMPLATE(AttentionDecode, float)->Arg(100);

// A whole sequence in tiles, one kv head; counts the products of visible pairs only.
template <typename T>
void AttentionSequence(benchmark::State& state) {
  const int64_t rows = state.range(0);
  const bool backward = state.range(1) != 0;
  const auto q = TestNormal<T>(rows * 576, 1), k = TestNormal<T>(rows * 192, 2), v = TestNormal<T>(rows * 192, 3);
  const auto d_out = TestNormal<float>(rows * 576, 4);
  std::vector<T> out(rows * 576);
  std::vector<float> lse(rows * 9), dq(rows * 576), dk(rows * 192), dv(rows * 192);
  std::vector<int32_t> key_rows(rows);
  std::iota(key_rows.begin(), key_rows.end(), 0);
  const int64_t size = MaxTileQueries(kSmol);
  const auto pass = [&](bool back) {
    for (int64_t i = 0; i < rows; i += size) {
      const QueryTile tile{
          .q_begin = i, .count = std::min(size, rows - i), .first_depth = i, .key_rows = key_rows.data()};
      const Matrix<const T> qs(q.data(), rows, 576), ks(k.data(), rows, 192), vs(v.data(), rows, 192);
      const Matrix<T> outs(out.data(), rows, 576);
      const Matrix<float> lses(lse.data(), rows, 9);
      if (back) {
        AttentionBackward<T>(kSmol, 0, tile, qs, ks, vs, outs, lses, Matrix<const float>(d_out.data(), rows, 576),
                             Matrix<float>(dq.data(), rows, 576), Matrix<float>(dk.data(), rows, 192),
                             Matrix<float>(dv.data(), rows, 192));
      } else {
        AttentionForward<T>(kSmol, 0, tile, qs, ks, vs, outs, lses);
      }
    }
  };
  pass(false);
  for (auto _ : state) pass(backward);
  const double pairs = 3.0 * rows * (rows + 1) / 2;
  state.counters["GFLOPS"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * pairs * 64 * 2 * (backward ? 5 : 2) * 1e-9,
                         benchmark::Counter::kIsRate);
}
BENCHMARK_TEMPLATE(AttentionSequence, Bf16)->ArgsProduct({{64, 192, 1024}, {0, 1}});

void RmsNorm(benchmark::State& state) {
  const auto x = TestNormal<float>(64 * 576, 1), gain = TestNormal<float>(576, 2);
  std::vector<Bf16> y(64 * 576);
  for (auto _ : state) {
    RmsNormForward<Bf16>(Matrix<const float>(x.data(), 64, 576), gain.data(), 1e-5f, Matrix<Bf16>(y.data(), 64, 576),
                         nullptr);
    benchmark::DoNotOptimize(y.data());
  }
  state.SetItemsProcessed(state.iterations() * 64 * 576);
}
BENCHMARK(RmsNorm);

void SwiGlu(benchmark::State& state) {
  const auto gate_up = TestNormal<Bf16>(64 * 3072, 1);
  std::vector<Bf16> act(64 * 1536);
  for (auto _ : state) {
    SwiGluForward<Bf16>(Matrix<const Bf16>(gate_up.data(), 64, 3072), Matrix<Bf16>(act.data(), 64, 1536));
    benchmark::DoNotOptimize(act.data());
  }
  state.SetItemsProcessed(state.iterations() * 64 * 1536);
}
BENCHMARK(SwiGlu);

void QkvPostRows(benchmark::State& state) {
  RopeParameters parameters;
  parameters.head_dim = 64;
  parameters.max_positions = 2048;
  const RopeTable rope(parameters);
  QkvPost post;
  post.num_heads = 9;
  post.num_kv_heads = 3;
  post.head_dim = 64;
  post.rope = &rope;
  auto qkv = TestNormal<float>(64 * 960, 1);
  std::vector<Bf16> out(64 * 960);
  for (auto _ : state) {
    for (int64_t r = 0; r < 64; ++r) {
      Bf16* to = out.data() + r * 960;
      QkvPostForward<Bf16>(post, 100 + r, qkv.data() + r * 960, to, to + 576, to + 768);
    }
    benchmark::DoNotOptimize(out.data());
  }
  state.SetItemsProcessed(state.iterations() * 64);
}
BENCHMARK(QkvPostRows);

void LogitStatistics(benchmark::State& state) {
  const auto logits = TestNormal<float>(49152, 1, 3);
  for (auto _ : state) benchmark::DoNotOptimize(ComputeStatistics(logits, 1, {}, state.range(0) != 0));
}
BENCHMARK(LogitStatistics)->Arg(0)->Arg(1)->Unit(benchmark::kMicrosecond);

void LogitGradient(benchmark::State& state) {
  const auto logits = TestNormal<float>(49152, 1, 3);
  LogitTarget target;
  target.d_logprob = 1;
  target.statistics = ComputeStatistics(logits, 1, {}, true);
  std::vector<Bf16> gradient(49152);
  for (auto _ : state) LogitsBackward<Bf16>(logits, absl::MakeConstSpan(&target, 1), gradient.data());
}
BENCHMARK(LogitGradient)->Unit(benchmark::kMicrosecond);

void Sampler(benchmark::State& state) {
  const auto logits = TestNormal<float>(49152, 1, 3);
  SamplerScratch scratch(49152);
  SamplingFilter filter;
  filter.top_k = static_cast<int32_t>(state.range(0));
  filter.top_p = static_cast<float>(state.range(1)) / 100;
  int64_t draw = 0;
  for (auto _ : state) benchmark::DoNotOptimize(SampleToken(logits, filter, TestUniform(1, ++draw), scratch));
}
BENCHMARK(Sampler)->Args({0, 100})->Args({50, 100})->Args({0, 90})->Args({50, 90})->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace lockstep::model

BENCHMARK_MAIN();
