#include "scripts/bench/bare_products.h"

#include <algorithm>
#include <chrono>

#include "model/kernels/matmul.h"

namespace lockstep::bench {
namespace {

constexpr int64_t kGradientRows = 192;  // rows of a weight gradient computed at a time, as the learner does

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

int64_t Widest(const model::ModelConfig& config) {
  const model::Dimensions size(config);
  return std::max({size.vocab, size.hidden, size.qkv, 2 * size.intermediate});
}

}  // namespace

BareProducts::BareProducts(const model::LoadedModel& model, model::MatMulBackend backend, int64_t rows,
                           ThreadPool& pool)
    : rows_(rows),
      pool_(pool),
      layout_(model.config, DType::kBf16, backend),
      packed_(static_cast<size_t>(layout_.num_bytes())),
      model_(model.config, layout_, packed_.data()),
      transposed_(model.config, backend),
      x_(static_cast<size_t>(rows * Widest(model.config)) * sizeof(Bf16)),
      y_(static_cast<size_t>(rows * Widest(model.config)) * sizeof(float)) {
  model::PackModel<Bf16>(pool, model.config, model.parameters, layout_, packed_.data());
  transposed_.Pack(pool, model.config, model.parameters);
  std::fill_n(x_.as<Bf16>(), rows * Widest(model.config), ToBf16(0.5f));
  for (int i = 0; i < pool.num_threads(); ++i) {
    gradients_.emplace_back(static_cast<size_t>(kGradientRows * Widest(model.config)) * sizeof(float));
  }
}

void BareProducts::Multiply(Team& team, const model::PackedMatrix<Bf16>& w) {
  model::MatMul<Bf16, float>(team, Matrix<const Bf16>(x_.as<Bf16>(), rows_, w.k), w,
                             Matrix<float>(y_.as<float>(), rows_, w.n));
}

double BareProducts::Forward() {
  const auto start = std::chrono::steady_clock::now();
  pool_.Run([&](Team& team) {
    for (const model::PackedLayer<Bf16>& layer : model_.layers) {
      for (const auto* w : {&layer.qkv, &layer.output, &layer.gate_up, &layer.down}) Multiply(team, *w);
    }
    Multiply(team, model_.head);
  });
  return SecondsSince(start);
}

void BareProducts::WeightGradients(const model::PackedMatrix<Bf16>& w) {
  // The gradient's values do not matter here, so x serves as both factors.
  const Matrix<const Bf16> dy(x_.as<Bf16>(), rows_, w.n), x(x_.as<Bf16>(), rows_, w.k);
  pool_.ParallelFor((w.n + kGradientRows - 1) / kGradientRows, [&](int64_t task, int thread) {
    const int64_t begin = task * kGradientRows, count = std::min(kGradientRows, w.n - begin);
    model::WeightGradient<Bf16>(dy, begin, x, Matrix<float>(gradients_[thread].as<float>(), count, w.k), w.backend);
  });
}

double BareProducts::ForwardBackward() {
  const auto start = std::chrono::steady_clock::now();
  Forward();
  pool_.Run([&](Team& team) {
    Multiply(team, transposed_.head());
    for (size_t i = 0; i < model_.layers.size(); ++i) {
      const auto& layer = transposed_.layer(static_cast<int64_t>(i));
      for (const auto* w : {&layer.qkv, &layer.output, &layer.gate_up, &layer.down}) Multiply(team, *w);
    }
  });
  WeightGradients(model_.head);
  for (const model::PackedLayer<Bf16>& layer : model_.layers) {
    for (const auto* w : {&layer.qkv, &layer.output, &layer.gate_up, &layer.down}) WeightGradients(*w);
  }
  return SecondsSince(start);
}

}  // namespace lockstep::bench
