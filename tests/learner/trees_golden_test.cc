// Token trees against independent sequences: the shared golden cases, and the isolation of packed samples, on a toy
// transformer made of the real kernels.
#include <gtest/gtest.h>

#include <bit>
#include <random>
#include <set>

#include "runtime/data/token_tree.h"
#include "tests/learner/toy_transformer.h"
#include "tests/testing/golden.h"
#include "tests/testing/status_matchers.h"

namespace lockstep::learner {
namespace {

using nlohmann::json;
using testing::ToyTransformer;
using Ids = std::vector<int32_t>;

// The golden trees join equal tokens wherever they come from, as Flatten does with context; sampled tokens would stay
// apart.
FlatForest ForestOf(const std::vector<Ids>& sequences) {
  std::vector<TokenTree> trees(sequences.size());
  std::vector<const TokenTree*> pointers;
  for (size_t s = 0; s < sequences.size(); ++s) {
    trees[s].AppendContext({}, TokenSource::kPrompt, sequences[s]);
    pointers.push_back(&trees[s]);
  }
  return Flatten(pointers);
}

// Row of the parent of each row, -1 for roots.
Ids ParentsOf(const FlatForest& forest) {
  Ids parents, open;
  for (int32_t row = 0; row < forest.num_tokens(); ++row) {
    while (!open.empty() && forest.subtree_end[open.back()] <= row) open.pop_back();
    parents.push_back(open.empty() ? -1 : open.back());
    open.push_back(row);
  }
  return parents;
}

// The rows of a sequence's tokens.
Ids RowsOf(const FlatForest& forest, const Ids& parents, const Ids& sequence) {
  Ids rows;
  int32_t at = -1;
  for (int32_t id : sequence) {
    int32_t row = at + 1;
    while (row < forest.num_tokens() && (parents[row] != at || forest.token_ids[row] != id)) ++row;
    if (row == forest.num_tokens()) {
      ADD_FAILURE() << "a sequence is not in the forest";
      return rows;
    }
    rows.push_back(row);
    at = row;
  }
  return rows;
}

// Every token after the first is predicted by the row before it; its weight is the sequence's.
void AddLossRows(const std::vector<Ids>& sequences, const std::vector<Ids>& node_of, const json& weights,
                 FlatForest& forest) {
  for (size_t s = 0; s < sequences.size(); ++s) {
    for (size_t i = 1; i < sequences[s].size(); ++i) {
      LossRow& row = forest.loss_rows.emplace_back();
      row.row = node_of[s][i - 1];
      row.target_id = sequences[s][i];
      row.sample_id = static_cast<int32_t>(s);
      row.position = static_cast<int32_t>(i);
      row.weight = static_cast<float>(testing::Number(weights[s][i]));
    }
  }
}

void ExpectFloat(float got, const json& expected, const json& tolerance, const std::string& what) {
  const double want = testing::Number(expected);
  EXPECT_NEAR(got, want, tolerance.at("f32").get<double>() * std::max(1.0, std::abs(want))) << what;
}

ToyTransformer ToyOf(const json& matrices) {
  ToyTransformer::Weights weights;
  for (const auto& [name, rows] : matrices.items()) {
    for (const json& row : rows) {
      for (const json& value : row) weights[name].push_back(static_cast<float>(testing::Number(value)));
    }
  }
  return ToyTransformer(weights);
}

void CheckArithmetic(const FlatForest& forest, const Ids& parents, const std::vector<Ids>& node_of,
                     const json& expected, int64_t flat_tokens) {
  EXPECT_EQ(json(forest.token_ids), expected["tokens"]);
  EXPECT_EQ(json(forest.position_ids), expected["position"]);
  EXPECT_EQ(json(forest.subtree_end), expected["subtree_end"]);
  EXPECT_EQ(json(parents), expected["parent"]);
  EXPECT_EQ(json(node_of), expected["node_of"]);
  EXPECT_EQ(forest.num_tokens(), expected["rows"].get<int64_t>());
  EXPECT_EQ(flat_tokens, expected["flat_tokens"].get<int64_t>());
  const json visible_rows = expected.value("visible", json::object());
  for (const auto& [row_name, visible] : visible_rows.items()) {
    const int32_t row = std::stoi(row_name.substr(std::string("row_").size()));
    Ids seen;
    for (int32_t key = 0; key <= row; ++key) {
      if (row < forest.subtree_end[key]) seen.push_back(key);
    }
    EXPECT_EQ(json(seen), visible) << row_name;
  }
}

void CheckGradients(const ToyTransformer::Weights& gradients, const json& expected, const json& tolerance) {
  ASSERT_EQ(gradients.size(), expected.size());
  for (const auto& [name, rows] : expected.items()) {
    const std::vector<float>& gradient = gradients.at(name);
    size_t i = 0;
    for (const json& row : rows) {
      for (const json& value : row) ExpectFloat(gradient.at(i++), value, tolerance, "gradient of " + name);
    }
    EXPECT_EQ(i, gradient.size());
  }
}

TEST(TreesGolden, EveryCase) {
  LOCKSTEP_NEEDS_SHARED();
  static const std::set<std::string> known_inputs = {"model", "sequences", "weights"};
  static const std::set<std::string> known_expected = {"tokens",  "parent",    "position",    "subtree_end",
                                                       "node_of", "rows",      "flat_tokens", "logprobs",
                                                       "loss",    "gradients", "visible"};
  const json golden = testing::LoadGolden("algos/trees.json");
  int ran = 0;
  for (const json& test : golden["cases"]) {
    SCOPED_TRACE(test["id"].get<std::string>());
    for (const auto& [key, value] : test["inputs"].items()) ASSERT_TRUE(known_inputs.count(key)) << key;
    for (const auto& [key, value] : test["expected"].items()) ASSERT_TRUE(known_expected.count(key)) << key;
    const auto sequences = test["inputs"]["sequences"].get<std::vector<Ids>>();
    const json& expected = test["expected"];
    FlatForest forest = ForestOf(sequences);
    const Ids parents = ParentsOf(forest);
    std::vector<Ids> node_of;
    int64_t flat_tokens = 0;
    for (const Ids& sequence : sequences) {
      node_of.push_back(RowsOf(forest, parents, sequence));
      flat_tokens += static_cast<int64_t>(sequence.size());
    }
    CheckArithmetic(forest, parents, node_of, expected, flat_tokens);
    AddLossRows(sequences, node_of, test["inputs"]["weights"], forest);

    ToyTransformer toy = ToyOf(golden["models"][test["inputs"]["model"].get<std::string>()]);
    ASSERT_OK(ValidateForest(forest, toy.vocab()));
    const std::vector<float> logprobs = toy.Forward(forest);
    double loss = 0;
    for (size_t i = 0; i < logprobs.size(); ++i) {
      const LossRow& row = forest.loss_rows[i];
      loss -= static_cast<double>(row.weight) * logprobs[i];
      ExpectFloat(logprobs[i], expected["logprobs"][row.sample_id][row.position], test["tolerance"], "log-prob");
    }
    ExpectFloat(static_cast<float>(loss), expected["loss"], test["tolerance"], "loss");
    const std::vector<float> d_logprobs(logprobs.size(), -1.0f);  // times the row's weight
    CheckGradients(toy.Backward(d_logprobs), expected["gradients"], test["tolerance"]);
    ++ran;
  }
  std::printf("trees.json: ran %d of %zu cases\n", ran, golden["cases"].size());
  EXPECT_EQ(ran, static_cast<int>(golden["cases"].size()));
}

ToyTransformer RandomToy() {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0.0f, 0.7f);
  ToyTransformer::Weights weights;
  for (const char* name : {"Wq0", "Wk0", "Wv0", "Wo0", "Wq1", "Wk1", "Wv1", "Wo1"}) weights[name].resize(16);
  for (const char* name : {"E", "U"}) weights[name].resize(40);
  for (auto& [name, values] : weights) {
    for (float& value : values) value = normal(random);
  }
  return ToyTransformer(weights);
}

// Bits of the log-probs of the last sequence, with every sequence a chain of its own.
std::vector<uint32_t> BitsOfLast(ToyTransformer& toy, const std::vector<Ids>& sequences) {
  FlatForest forest;
  for (const Ids& sequence : sequences) {
    if (!sequence.empty()) AppendForest(ForestOf({sequence}), 0, forest);
  }
  const Ids& last = sequences.back();
  const auto first_row = static_cast<int32_t>(forest.num_tokens() - static_cast<int64_t>(last.size()));
  for (size_t i = 1; i < last.size(); ++i) {
    LossRow& row = forest.loss_rows.emplace_back();
    row.row = first_row + static_cast<int32_t>(i) - 1;
    row.target_id = last[i];
    row.position = static_cast<int32_t>(i);
  }
  std::vector<uint32_t> bits;
  for (float logprob : toy.Forward(forest)) bits.push_back(std::bit_cast<uint32_t>(logprob));
  return bits;
}

TEST(PackingGolden, SamplesOfAPackDoNotSeeEachOther) {
  LOCKSTEP_NEEDS_SHARED();
  const json golden = testing::LoadGolden("learner/packing.json");
  ToyTransformer toy = RandomToy();
  std::mt19937 random(4);
  const auto tokens = [&](int64_t count) {
    Ids ids(count);
    for (int32_t& id : ids) id = static_cast<int32_t>(random() % 10);
    return ids;
  };
  int ran = 0;
  for (const json& test : golden["cases"]) {
    if (test["inputs"].value("operation", "") != "property") continue;
    ASSERT_EQ(test["expected"]["second_sample_unchanged_bits"], true);
    const auto lengths = test["inputs"]["lengths"].get<std::vector<int64_t>>();
    const Ids second = tokens(lengths[1]);
    const std::vector<uint32_t> alone = BitsOfLast(toy, {second});
    for (int64_t offset : test["inputs"]["offsets"].get<std::vector<int64_t>>()) {
      const Ids before = tokens(offset);
      Ids first = tokens(lengths[0]);
      for (int64_t changed = 0; changed < lengths[0]; ++changed) {
        first[changed] = (first[changed] + 1) % 10;
        EXPECT_EQ(BitsOfLast(toy, {before, first, second}), alone) << "offset " << offset << ", token " << changed;
      }
    }
    ++ran;
  }
  EXPECT_EQ(ran, 1);
}

}  // namespace
}  // namespace lockstep::learner
