// Times decoding and training of one model beside the bare matrix products of the same shapes, in the same run and by
// turns, since machines are noisy. Prints one line a case with the median of the rounds.
//
//   lockstep_bench decode MODEL [--batch 64] [--prompt 64] [--new 48] [--rounds 5] [--threads 2]
//   lockstep_bench train  MODEL [--rows 16] [--length 192] [--rounds 5] [--threads 2]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "learner/learner.h"
#include "model/load.h"
#include "model/packed_model.h"
#include "rollout/engine.h"
#include "runtime/base/philox.h"
#include "scripts/bench/bare_products.h"

namespace lockstep::bench {
namespace {

using Flags = std::map<std::string, int64_t>;
using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Random tokens: what they say does not matter, and a prompt is never another's.
int32_t RandomToken(const model::ModelConfig& config, int64_t index) {
  return static_cast<int32_t>((static_cast<uint64_t>(index) * 2654435761u) % static_cast<uint64_t>(config.vocab_size));
}

// Tokens per second, and those of bare products by either backend, of each round.
struct Rounds {
  std::vector<double> lockstep, own, onednn;

  void Print(const std::string& what) const {
    std::vector<double> best(own.size());
    for (size_t i = 0; i < best.size(); ++i) best[i] = lockstep[i] / std::max(own[i], onednn[i]);
    std::printf(
        "lockstep %s: %.0f tokens/s; bare products: own %.0f, oneDNN bf16 %.0f; %.0f%% of oneDNN's, %.0f%% of the "
        "faster\n",
        what.c_str(), Median(lockstep), Median(own), Median(onednn), 100 * Median(lockstep) / Median(onednn),
        100 * Median(best));
    std::fflush(stdout);
  }
};

// Seconds of the steps of one batch that only decode.
double DecodeSeconds(rollout::Engine& engine, const model::ModelConfig& config, const Flags& flags, int64_t round) {
  const int64_t batch = flags.at("batch"), prompt = flags.at("prompt");
  for (int64_t i = 0; i < batch; ++i) {
    rollout::GenerationRequest request;
    request.request_id = request.ordinal = i;
    for (int64_t j = 0; j < prompt; ++j) {
      request.prompt_ids.push_back(RandomToken(config, (round * batch + i) * prompt + j + 1));
    }
    request.params.max_tokens = static_cast<int32_t>(flags.at("new"));
    const absl::Status status = engine.Submit(request);
    if (!status.ok()) {
      std::fprintf(stderr, "lockstep_bench: %s\n", std::string(status.message()).c_str());
      std::exit(2);
    }
  }
  std::vector<rollout::GenerationResult> finished;
  double seconds = 0;
  while (engine.busy()) {
    const int64_t prefilled = engine.counters().prefill_rows;
    const Clock::time_point start = Clock::now();
    engine.Step(&finished);
    if (engine.counters().prefill_rows == prefilled) seconds += SecondsSince(start);
  }
  return seconds;
}

void Decode(const model::LoadedModel& model, const Flags& flags, ThreadPool& pool) {
  const int64_t batch = flags.at("batch");
  const model::PackedLayout layout(model.config, DType::kBf16);
  Buffer packed(static_cast<size_t>(layout.num_bytes()));
  model::PackModel<Bf16>(pool, model.config, model.parameters, layout, packed.data());
  rollout::EngineOptions options;
  options.max_batch = static_cast<int32_t>(batch);
  options.max_context = static_cast<int32_t>(flags.at("prompt") + flags.at("new"));
  options.kv_blocks = static_cast<int32_t>(batch * (options.max_context / 64 + 1) + 8);
  auto engine = rollout::Engine::Make(model.config, DType::kBf16, options, pool);
  if (!engine.ok()) std::exit(2);
  (*engine)->SetWeights(packed.data(), 0);
  BareProducts own(model, model::MatMulBackend::kOwn, batch, pool);
  BareProducts onednn(model, model::MatMulBackend::kOneDnn, batch, pool);
  Rounds rounds;
  for (int64_t round = 0; round <= flags.at("rounds"); ++round) {
    const double seconds = DecodeSeconds(**engine, model.config, flags, round);
    double own_seconds = 0, onednn_seconds = 0;
    constexpr int kPasses = 10;
    for (int i = 0; i < kPasses; ++i) own_seconds += own.Forward();
    for (int i = 0; i < kPasses; ++i) onednn_seconds += onednn.Forward();
    if (round == 0) continue;  // warms up
    // The prompt's last row draws the first new token.
    rounds.lockstep.push_back(static_cast<double>(batch * (flags.at("new") - 1)) / seconds);
    rounds.own.push_back(static_cast<double>(kPasses * batch) / own_seconds);
    rounds.onednn.push_back(static_cast<double>(kPasses * batch) / onednn_seconds);
  }
  rounds.Print("decode, batch " + std::to_string(batch) + ", sampling and log-probs");
}

FlatForest RandomRows(const model::ModelConfig& config, int64_t rows, int64_t length) {
  FlatForest forest;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < length; ++i) {
      const auto begin = static_cast<int32_t>(r * length);
      forest.token_ids.push_back(RandomToken(config, r * length + i + 1));
      forest.position_ids.push_back(static_cast<int32_t>(i));
      forest.subtree_end.push_back(begin + static_cast<int32_t>(length));
      if (i == 0) continue;
      LossRow row;
      row.row = begin + static_cast<int32_t>(i) - 1;
      row.target_id = forest.token_ids.back();
      row.sample_id = static_cast<int32_t>(r);
      forest.loss_rows.push_back(row);
    }
  }
  return forest;
}

void Train(model::LoadedModel model, const Flags& flags, ThreadPool& pool) {
  constexpr int64_t kBareRows = 512;
  const int64_t tokens = flags.at("rows") * flags.at("length");
  const FlatForest forest = RandomRows(model.config, flags.at("rows"), flags.at("length"));
  BareProducts own(model, model::MatMulBackend::kOwn, kBareRows, pool);
  BareProducts onednn(model, model::MatMulBackend::kOneDnn, kBareRows, pool);
  learner::LearnerConfig config;
  config.max_positions = flags.at("length");
  auto made = learner::Learner::Make(std::move(model), config, pool);
  if (!made.ok()) std::exit(2);
  learner::Learner& learner = **made;
  Buffer packed(static_cast<size_t>(learner.packed_bytes()));
  learner.Pack(packed.data());
  learner.UseWeights(packed.data());
  Rounds rounds;
  for (int64_t round = 0; round <= flags.at("rounds"); ++round) {
    learner.BeginStep(1);
    const Clock::time_point start = Clock::now();
    learner.AddGradient(forest, [](absl::Span<const float>, absl::Span<const float>, absl::Span<float> d) {
      for (float& value : d) value = -1.0f / static_cast<float>(d.size());
    });
    const double seconds = SecondsSince(start);
    const double own_seconds = own.ForwardBackward(), onednn_seconds = onednn.ForwardBackward();
    if (round == 0) continue;
    rounds.lockstep.push_back(static_cast<double>(tokens) / seconds);
    rounds.own.push_back(static_cast<double>(kBareRows) / own_seconds);
    rounds.onednn.push_back(static_cast<double>(kBareRows) / onednn_seconds);
  }
  rounds.Print("forward + backward, " + std::to_string(flags.at("rows")) + " x " + std::to_string(flags.at("length")));
}

int Main(int argc, char** argv) {
  Flags flags = {{"batch", 64},
                 {"prompt", 64},
                 {"new", 48},
                 {"rows", 16},
                 {"length", 192},
                 {"rounds", 5},
                 {"threads", NumUsableCpus()}};
  bool understood = argc >= 3 && argc % 2 == 1;
  for (int i = 3; understood && i + 1 < argc; i += 2) {
    const std::string name = std::strncmp(argv[i], "--", 2) == 0 ? argv[i] + 2 : "";
    understood = flags.count(name) == 1 && std::atoll(argv[i + 1]) > 0;
    flags[name] = std::atoll(argv[i + 1]);
  }
  const std::string what = argc > 1 ? argv[1] : "";
  if (!understood || (what != "decode" && what != "train")) {
    std::fprintf(stderr,
                 "usage: lockstep_bench decode|train MODEL [--batch|--prompt|--new|--rows|--length|--rounds|"
                 "--threads N ...]\n");
    return 2;
  }
  absl::StatusOr<model::LoadedModel> model = model::LoadModel(argv[2]);
  if (!model.ok()) {
    std::fprintf(stderr, "lockstep_bench: %s\n", std::string(model.status().message()).c_str());
    return 2;
  }
  ThreadPool pool(static_cast<int>(flags["threads"]));
  if (what == "decode") {
    Decode(*model, flags, pool);
  } else {
    Train(*std::move(model), flags, pool);
  }
  return 0;
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) { return lockstep::bench::Main(argc, argv); }
