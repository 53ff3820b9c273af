// RoPE and the finishing of q/k/v rows beside scalar references in double.
#include "model/kernels/qkv_post.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <vector>

#include "model/kernels/rope.h"
#include "tests/model/kernels/test_values.h"

namespace lockstep::model {
namespace {

RopeParameters Parameters(int64_t head_dim, RopePairing pairing) {
  RopeParameters p;
  p.head_dim = head_dim;
  p.max_positions = 300;
  p.theta = 10000;
  p.pairing = pairing;
  return p;
}

// Turns one head by the definition.
std::vector<double> Turned(const RopeParameters& p, int64_t position, std::vector<double> head) {
  const int64_t half = p.head_dim / 2;
  for (int64_t i = 0; i < half; ++i) {
    const int64_t a = p.pairing == RopePairing::kHalves ? i : 2 * i;
    const int64_t b = p.pairing == RopePairing::kHalves ? i + half : 2 * i + 1;
    const double angle = position * std::pow(p.theta, -2.0 * i / p.head_dim);
    const double x = head[a], y = head[b];
    head[a] = x * std::cos(angle) - y * std::sin(angle);
    head[b] = y * std::cos(angle) + x * std::sin(angle);
  }
  return head;
}

TEST(Rope, TurnsEveryPairByItsAngleAndBack) {
  for (const RopePairing pairing : {RopePairing::kHalves, RopePairing::kNeighbours}) {
    for (const int64_t dim : {8, 24, 64, 128}) {
      const RopeParameters p = Parameters(dim, pairing);
      const RopeTable table(p);
      const std::vector<float> before = TestNormal<float>(3 * dim, dim);
      for (const int64_t position : {0, 1, 299}) {
        std::vector<float> heads = before;
        RopeForward(table, position, 3, heads.data());
        for (int64_t h = 0; h < 3; ++h) {
          const auto first = before.begin() + h * dim;
          const std::vector<double> want = Turned(p, position, std::vector<double>(first, first + dim));
          // Two products and a sum of values below 8, sine and cosine rounded once.
          for (int64_t i = 0; i < dim; ++i) ASSERT_NEAR(heads[h * dim + i], want[i], 4 * 8 * 0x1p-24);
        }
        if (position == 0) {
          EXPECT_EQ(heads, before);
        }
        RopeBackward(table, position, 3, heads.data());
        for (size_t i = 0; i < heads.size(); ++i) ASSERT_NEAR(heads[i], before[i], 8 * 8 * 0x1p-24);
      }
    }
  }
}

TEST(Rope, Llama3ScalingKeepsShortWavesAndStretchesLongOnes) {
  RopeParameters p = Parameters(128, RopePairing::kHalves);
  p.theta = 500000;
  p.scaling = RopeParameters::Scaling::kLlama3;
  p.factor = 8;
  p.low_freq_factor = 1;
  p.high_freq_factor = 4;
  p.original_max_positions = 8192;
  int kept = 0, stretched = 0, blended = 0;
  for (int64_t i = 0; i < 64; ++i) {
    const double plain = std::pow(500000.0, -i / 64.0);
    const double wavelength = 2 * std::numbers::pi / plain;
    const double got = RopeFrequency(p, i);
    if (wavelength < 2048) {
      EXPECT_DOUBLE_EQ(got, plain);
      ++kept;
    } else if (wavelength > 8192) {
      EXPECT_DOUBLE_EQ(got, plain / 8);
      ++stretched;
    } else {
      EXPECT_GT(got, plain / 8);
      EXPECT_LT(got, plain);
      ++blended;
    }
  }
  EXPECT_GT(kept, 20);
  EXPECT_GT(stretched, 20);
  EXPECT_GT(blended, 3);
  p.scaling = RopeParameters::Scaling::kLinear;
  EXPECT_DOUBLE_EQ(RopeFrequency(p, 5), std::pow(500000.0, -5 / 64.0) / 8);
}

// A small layer with everything switched on.
struct Layer {
  static constexpr int64_t kHeads = 4, kKvHeads = 2, kDim = 24;
  RopeParameters rope_parameters = Parameters(kDim, RopePairing::kHalves);
  RopeTable rope{rope_parameters};
  std::vector<float> bias = TestNormal<float>((kHeads + 2 * kKvHeads) * kDim, 1);
  std::vector<float> query_norm = TestNormal<float>(kDim, 2), key_norm = TestNormal<float>(kDim, 3);
  QkvPost post;
  Layer(bool with_bias, bool with_norm) {
    post.num_heads = kHeads;
    post.num_kv_heads = kKvHeads;
    post.head_dim = kDim;
    post.rope = &rope;
    if (with_bias) post.bias = bias.data();
    if (with_norm) {
      post.query_norm = query_norm.data();
      post.key_norm = key_norm.data();
    }
  }
  // All of q, k, v in double.
  std::vector<double> Forward(int64_t position, const std::vector<double>& qkv, const std::vector<double>& b,
                              const std::vector<double>& qn, const std::vector<double>& kn) const {
    std::vector<double> result;
    for (int64_t h = 0; h < kHeads + 2 * kKvHeads; ++h) {
      std::vector<double> head(kDim);
      double squares = 0;
      for (int64_t i = 0; i < kDim; ++i) {
        head[i] = qkv[h * kDim + i] + (post.bias != nullptr ? b[h * kDim + i] : 0.0);
        squares += head[i] * head[i];
      }
      const double inverse = 1 / std::sqrt(squares / kDim + post.norm_eps);
      if (h < kHeads + kKvHeads) {
        for (int64_t i = 0; i < kDim && post.query_norm != nullptr; ++i) head[i] *= inverse * (h < kHeads ? qn : kn)[i];
        head = Turned(rope_parameters, position, head);
      }
      result.insert(result.end(), head.begin(), head.end());
    }
    return result;
  }
};

template <typename T>
class QkvPostTest : public ::testing::Test {};
using StorageTypes = ::testing::Types<float, Bf16>;
TYPED_TEST_SUITE(QkvPostTest, StorageTypes);

TYPED_TEST(QkvPostTest, ForwardAgreesWithDoubleReference) {
  for (const bool with_bias : {false, true}) {
    for (const bool with_norm : {false, true}) {
      const Layer layer(with_bias, with_norm);
      const std::vector<float> input = TestNormal<float>(layer.post.cols(), 9);
      std::vector<float> qkv = input;
      const int64_t q_cols = Layer::kHeads * Layer::kDim, kv_cols = Layer::kKvHeads * Layer::kDim;
      std::vector<TypeParam> out(layer.post.cols());
      QkvPostForward<TypeParam>(layer.post, 77, qkv.data(), out.data(), out.data() + q_cols,
                                out.data() + q_cols + kv_cols);
      const std::vector<double> want = layer.Forward(
          77, {input.begin(), input.end()}, {layer.bias.begin(), layer.bias.end()},
          {layer.query_norm.begin(), layer.query_norm.end()}, {layer.key_norm.begin(), layer.key_norm.end()});
      // About 30 roundings at magnitudes below 16, then the one of T.
      for (size_t i = 0; i < out.size(); ++i) {
        ASSERT_NEAR(ToFloat(out[i]), want[i], 30 * 16 * 0x1p-24 + kRounding<TypeParam> * std::abs(want[i])) << i;
      }
    }
  }
}

TYPED_TEST(QkvPostTest, BackwardAgreesWithFiniteDifferences) {
  for (const bool with_bias : {false, true}) {
    for (const bool with_norm : {false, true}) {
      const Layer layer(with_bias, with_norm);
      const int64_t cols = layer.post.cols(), q_cols = Layer::kHeads * Layer::kDim,
                    kv_cols = Layer::kKvHeads * Layer::kDim;
      const std::vector<float> input = TestNormal<float>(cols, 9), weight = TestNormal<float>(cols, 10);
      std::vector<double> qkv(input.begin(), input.end()), b(layer.bias.begin(), layer.bias.end()),
          qn(layer.query_norm.begin(), layer.query_norm.end()), kn(layer.key_norm.begin(), layer.key_norm.end());
      const auto slope = [&](double& value) {
        const auto loss = [&] {
          const std::vector<double> out = layer.Forward(77, qkv, b, qn, kn);
          double sum = 0;
          for (int64_t i = 0; i < cols; ++i) sum += out[i] * weight[i];
          return sum;
        };
        const double h = 1e-5, kept = value;
        value = kept + h;
        const double above = loss();
        value = kept - h;
        const double below = loss();
        value = kept;
        return (above - below) / (2 * h);
      };
      std::vector<float> d = weight, d_bias(cols), d_qn(Layer::kDim), d_kn(Layer::kDim);
      std::vector<TypeParam> d_qkv(cols);
      QkvPostGradients gradients;
      if (with_bias) gradients.bias = d_bias.data();
      if (with_norm) gradients.query_norm = d_qn.data(), gradients.key_norm = d_kn.data();
      QkvPostBackward<TypeParam>(layer.post, 77, with_norm ? input.data() : nullptr, d.data(), d.data() + q_cols,
                                 d.data() + q_cols + kv_cols, d_qkv.data(), gradients);
      // Tens of roundings at magnitudes below 30.
      const double tolerance = 30 * 30 * 0x1p-24;
      for (int64_t i = 0; i < cols; ++i) {
        const double want = slope(qkv[i]);
        ASSERT_NEAR(ToFloat(d_qkv[i]), want, tolerance + kRounding<TypeParam> * std::abs(want)) << i;
        if (with_bias) {
          ASSERT_NEAR(d_bias[i], slope(b[i]), tolerance) << i;
        }
      }
      for (int64_t i = 0; i < Layer::kDim && with_norm; ++i) {
        ASSERT_NEAR(d_qn[i], slope(qn[i]), tolerance) << i;
        ASSERT_NEAR(d_kn[i], slope(kn[i]), tolerance) << i;
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::model
