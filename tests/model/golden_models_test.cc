// Logits, log-probs and gradients of the shared reference models (../shared/goldens/models), and the bit equality of
// the ways through the model.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "model/head.h"
#include "model/load.h"
#include "model/training_pass.h"
#include "runtime/formats/safetensors.h"
#include "tests/testing/shared_files.h"
#include "tests/testing/status_matchers.h"

namespace lockstep::model {
namespace {

class GradientArray : public GradientSink {
 public:
  explicit GradientArray(int64_t size) : values(size, 0.0f) {}
  void Add(int64_t offset, absl::Span<const float> tile) override {
    for (size_t i = 0; i < tile.size(); ++i) values[offset + i] += tile[i];
  }
  std::vector<float> values;
};

std::vector<float> Floats(const formats::SafetensorsFile& file, const std::string& name) {
  const formats::SafetensorsTensor* tensor = file.Find(name);
  CHECK(tensor != nullptr);
  std::vector<float> values(tensor->num_elements);
  CHECK(formats::ToFloat(*tensor, values.data()).ok());
  return values;
}

std::vector<int32_t> Ids(const formats::SafetensorsFile& file, const std::string& name) {
  const formats::SafetensorsTensor* tensor = file.Find(name);
  CHECK(tensor != nullptr);
  std::vector<int32_t> ids(tensor->num_elements);
  std::memcpy(ids.data(), tensor->data, tensor->num_bytes);
  return ids;
}

// The four sequences of a golden file as one packed forest of chains.
struct PackedSequences {
  std::vector<int32_t> ids, positions, subtree_end, lengths;
  std::vector<int32_t> loss_rows;
  std::vector<HeadTarget> targets;
  explicit PackedSequences(const formats::SafetensorsFile& golden) {
    for (int i = 0; i < 4; ++i) Append(Ids(golden, absl::StrCat("input_ids.", i)));
  }
  void Append(const std::vector<int32_t>& sequence) {
    const int32_t begin = static_cast<int32_t>(ids.size()), length = static_cast<int32_t>(sequence.size());
    for (int32_t t = 0; t < length; ++t) {
      ids.push_back(sequence[t]);
      positions.push_back(t);
      subtree_end.push_back(begin + length);
      if (t + 1 == length) continue;
      loss_rows.push_back(begin + t);
      targets.push_back({sequence[t + 1], 1.0f, {}});
    }
    lengths.push_back(length);
  }
  ForestView view() const { return {ids, positions, subtree_end}; }
  int64_t rows() const { return static_cast<int64_t>(ids.size()); }
};

template <typename T>
struct LoadedSetup {
  LoadedModel loaded;
  ThreadPool pool;
  PackedLayout layout;
  Buffer memory;
  Transformer<T> transformer;
  LoadedSetup(LoadedModel model, int threads, MatMulBackend backend = MatMulBackend::kOwn)
      : loaded(std::move(model)),
        pool(threads),
        layout(loaded.config, DTypeOf<T>::value, backend),
        memory(layout.num_bytes()),
        transformer(loaded.config, 256) {
    PackModel<T>(pool, loaded.config, loaded.parameters, layout, memory.data());
  }
  PackedModel<T> packed() const { return PackedModel<T>(loaded.config, layout, memory.data()); }
};

// Of the backend under test.
#define LOCKSTEP_NEEDS_BACKEND(dtype)                                                        \
  if (std::get<1>(GetParam()) == MatMulBackend::kOneDnn && !CheckOneDnn(dtype, 64, 64).ok()) \
  GTEST_SKIP() << "SKIPPED: oneDNN has no " << DTypeName(dtype) << " product on this machine"

class GoldenModel : public ::testing::TestWithParam<std::tuple<const char*, MatMulBackend>> {};

TEST_P(GoldenModel, LogitsAndLogProbsAgree) {
  LOCKSTEP_NEEDS_SHARED();
  LOCKSTEP_NEEDS_BACKEND(DType::kF32);
  const std::string folder = testing::SharedPath(absl::StrCat("goldens/models/", std::get<0>(GetParam())));
  ASSERT_OK_AND_ASSIGN(const formats::SafetensorsFile golden,
                       formats::SafetensorsFile::Open(folder + "/golden.safetensors"));
  ASSERT_OK_AND_ASSIGN(LoadedModel model, LoadModel(folder));
  LoadedSetup<float> setup(std::move(model), 2, std::get<1>(GetParam()));
  const PackedSequences sequences(golden);
  TrainingPass<float> pass(setup.transformer, setup.pool, Recompute::kNone);
  const PackedModel<float> packed = setup.packed();
  pass.Forward(packed, sequences.view());
  std::vector<int32_t> all(sequences.rows());
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int32_t>(i);
  OwnedMatrix<float> hidden(sequences.rows(), setup.loaded.config.hidden_size);
  pass.GatherHidden(packed, all, hidden.view());
  OwnedMatrix<float> logits(sequences.rows(), setup.loaded.config.vocab_size);
  Team one = TeamOfOne();
  MatMul<float, float>(one, hidden.view(), packed.head, logits.view());
  int64_t row = 0;
  for (int i = 0; i < 4; ++i) {
    const std::vector<float> want = Floats(golden, absl::StrCat("logits.", i));
    for (size_t j = 0; j < want.size(); ++j) {
      ASSERT_NEAR(logits.data()[row * logits.cols() + j], want[j], 1e-4) << "sequence " << i << " value " << j;
    }
    row += sequences.lengths[i];
  }
}

template <typename T>
std::vector<float> GradientOf(LoadedSetup<T>& setup, const PackedSequences& sequences, Recompute recompute,
                              std::vector<float>* logprobs) {
  const ModelConfig& config = setup.loaded.config;
  const PackedModel<T> packed = setup.packed();
  TransposedModel<T> transposed(config, setup.layout.backend());
  transposed.Pack(setup.pool, config, setup.loaded.parameters);
  TrainingPass<T> pass(setup.transformer, setup.pool, recompute);
  pass.Forward(packed, sequences.view());
  const int64_t num_targets = static_cast<int64_t>(sequences.targets.size());
  OwnedMatrix<T> hidden(num_targets, config.hidden_size);
  pass.GatherHidden(packed, sequences.loss_rows, hidden.view());
  Head<T> head(config, setup.pool);
  logprobs->resize(num_targets);
  head.LogProbs(packed, hidden.view(), sequences.targets, absl::MakeSpan(*logprobs), {});
  const std::vector<float> d_logprobs(num_targets, -1.0f / static_cast<float>(num_targets));
  OwnedMatrix<float> d_hidden(num_targets, config.hidden_size);
  GradientArray gradient(setup.loaded.parameters.size());
  const ParameterLayout& layout = setup.loaded.parameters.layout();
  head.Backward(packed, transposed, hidden.view(), sequences.targets, d_logprobs, {}, d_hidden.view(), layout,
                gradient);
  pass.Backward(packed, transposed, sequences.loss_rows, d_hidden.view(), layout, gradient);
  return gradient.values;
}

TEST_P(GoldenModel, GradientsAgree) {
  LOCKSTEP_NEEDS_SHARED();
  LOCKSTEP_NEEDS_BACKEND(DType::kF32);
  const std::string folder = testing::SharedPath(absl::StrCat("goldens/models/", std::get<0>(GetParam())));
  ASSERT_OK_AND_ASSIGN(const formats::SafetensorsFile golden,
                       formats::SafetensorsFile::Open(folder + "/golden.safetensors"));
  ASSERT_OK_AND_ASSIGN(LoadedModel model, LoadModel(folder));
  LoadedSetup<float> setup(std::move(model), 2, std::get<1>(GetParam()));
  std::vector<float> logprobs;
  const std::vector<float> gradient = GradientOf<float>(setup, PackedSequences(golden), Recompute::kNone, &logprobs);
  double loss = 0;
  for (float logprob : logprobs) loss -= logprob / static_cast<double>(logprobs.size());
  EXPECT_NEAR(loss, Floats(golden, "loss")[0], 1e-5);
  int compared = 0;
  for (const ParameterLayout::Entry& entry : setup.loaded.parameters.layout().entries()) {
    const std::vector<float> want = Floats(golden, "grad." + entry.name);
    ASSERT_EQ(static_cast<int64_t>(want.size()), entry.size);
    float largest = 0;
    for (float value : want) largest = std::max(largest, std::abs(value));
    for (int64_t j = 0; j < entry.size; ++j) {
      ASSERT_NEAR(gradient[entry.offset + j], want[j], 1e-4f * largest) << entry.name << " value " << j;
    }
    ++compared;
  }
  EXPECT_GT(compared, 20);
}

TEST_P(GoldenModel, GradientBitsDoNotDependOnThreadsOrRecompute) {
  LOCKSTEP_NEEDS_SHARED();
  LOCKSTEP_NEEDS_BACKEND(DType::kBf16);
  const std::string folder = testing::SharedPath(absl::StrCat("goldens/models/", std::get<0>(GetParam())));
  ASSERT_OK_AND_ASSIGN(const formats::SafetensorsFile golden,
                       formats::SafetensorsFile::Open(folder + "/golden.safetensors"));
  const PackedSequences sequences(golden);
  std::vector<float> first, logprobs;
  for (const auto& [threads, recompute] :
       {std::pair{1, Recompute::kNone}, {3, Recompute::kNone}, {2, Recompute::kLayer}}) {
    ASSERT_OK_AND_ASSIGN(LoadedModel model, LoadModel(folder));
    LoadedSetup<Bf16> setup(std::move(model), threads, std::get<1>(GetParam()));
    const std::vector<float> gradient = GradientOf<Bf16>(setup, sequences, recompute, &logprobs);
    if (first.empty()) first = gradient;
    EXPECT_EQ(gradient, first) << threads << " threads";
  }
}

INSTANTIATE_TEST_SUITE_P(All, GoldenModel,
                         ::testing::Combine(::testing::Values("llama_rope3", "llama_tied", "qwen2", "qwen3"),
                                            ::testing::Values(MatMulBackend::kOwn, MatMulBackend::kOneDnn)),
                         [](const auto& info) {
                           return absl::StrCat(std::get<0>(info.param), "_",
                                               MatMulBackendName(std::get<1>(info.param)));
                         });

}  // namespace
}  // namespace lockstep::model
