#include "rollout/engine.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "model/kernels/logits.h"
#include "rollout/batch_forward.h"
#include "rollout/kv_cache.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"

namespace lockstep::rollout {
namespace {

// One sample under way: its tokens, and the blocks that hold the keys and values of the first `num_computed` of them.
struct Sequence {
  std::shared_ptr<const GenerationRequest> request;
  int32_t sample_id = 0;
  // Samples that wait for this one's prompt and fork from it: they follow this one's id. 0 once the prompt is computed.
  int32_t num_followers = 0;
  std::vector<int32_t> tokens;  // prompt and completion
  std::vector<int32_t> blocks;
  std::vector<int32_t> key_rows;  // [positions with a block] row of each position
  int64_t num_computed = 0;
  SampledRun run;
  std::unique_ptr<StopWatcher> watcher;
  int64_t num_generated() const { return static_cast<int64_t>(run.tokens.size()); }
};

// What a row of logits is for.
struct Draw {
  Sequence* sequence = nullptr;
  int32_t logit_index = 0;
  model::Sample sample;
  std::vector<int32_t> filter_ids;
};

template <typename T>
class EngineOf final : public Engine {
 public:
  EngineOf(const model::ModelConfig& config, const EngineOptions& options, ThreadPool& pool,
           StopWatcherFactory stop_watchers)
      : config_(config),
        options_(options),
        pool_(pool),
        stop_watchers_(std::move(stop_watchers)),
        layout_(config, DTypeOf<T>::value, options.matmul),
        transformer_(config, options.max_context),
        forward_(transformer_, pool),
        blocks_(options.kv_blocks),
        cache_(config, options.kv_blocks) {
    for (int i = 0; i < pool.num_threads(); ++i)
      samplers_.push_back(std::make_unique<model::SamplerScratch>(config.vocab_size));
  }

  ~EngineOf() override { Abort(); }

  void Abort() override {
    for (auto& sequence : running_) ReleaseBlocks(*sequence);
    running_.clear();
    waiting_.clear();
  }

  void SetWeights(const uint8_t* packed, int64_t version) override {
    CHECK(!busy());
    model_ = std::make_unique<model::PackedModel<T>>(config_, layout_, packed);
    version_ = version;
  }

  absl::Status Submit(GenerationRequest request) override {
    RETURN_IF_ERROR(CheckRequest(request));
    auto shared = std::make_shared<const GenerationRequest>(std::move(request));
    auto leader = NewSequence(shared, shared->first_sample);
    leader->num_followers = shared->num_samples - 1;
    waiting_.push_back(std::move(leader));
    return absl::OkStatus();
  }

  bool busy() const override { return !running_.empty() || !waiting_.empty(); }
  const EngineCounters& counters() const override { return counters_; }

  void Step(std::vector<GenerationResult>* finished) override {
    CHECK(model_ != nullptr);
    Schedule();
    if (batch_.token_ids.empty()) return;
    const Matrix<const float> logits = forward_.Run(*model_, batch_, cache_);
    ++counters_.steps;
    for (size_t i = 0; i < scheduled_.size(); ++i) scheduled_[i]->num_computed += batch_.segments[i].count;
    Fork();
    DrawTokens(logits);
    for (Draw& draw : draws_) Commit(draw);
    CollectFinished(finished);
  }

 private:
  absl::Status CheckRequest(const GenerationRequest& request) const {
    RETURN_IF_ERROR(request.params.Validate());
    const int64_t prompt = static_cast<int64_t>(request.prompt_ids.size());
    if (prompt == 0) return absl::InvalidArgumentError("the prompt is empty: it needs at least one token");
    if (request.num_samples < 1)
      return absl::InvalidArgumentError(absl::StrCat("num_samples is ", request.num_samples));
    for (int32_t id : request.prompt_ids) {
      if (id < 0 || id >= config_.vocab_size) {
        return absl::InvalidArgumentError(
            absl::StrCat("token id ", id, " is outside the vocabulary of ", config_.vocab_size));
      }
    }
    if (prompt >= options_.max_context) {
      return absl::InvalidArgumentError(absl::StrCat("the prompt has ", prompt, " tokens and the context is ",
                                                     options_.max_context, ": no room to answer"));
    }
    const int64_t positions = std::min<int64_t>(prompt + request.params.max_tokens, options_.max_context);
    if (BlocksFor(positions) > options_.kv_blocks) {
      return absl::ResourceExhaustedError(absl::StrCat("one sequence of ", positions, " positions needs ",
                                                       BlocksFor(positions), " cache blocks and there are ",
                                                       options_.kv_blocks, ": raise kv_blocks"));
    }
    if (!request.params.stop.empty() && stop_watchers_ == nullptr) {
      return absl::InvalidArgumentError("stop texts need a tokenizer");
    }
    return absl::OkStatus();
  }

  std::unique_ptr<Sequence> NewSequence(const std::shared_ptr<const GenerationRequest>& request, int32_t sample_id) {
    auto sequence = std::make_unique<Sequence>();
    sequence->request = request;
    sequence->sample_id = sample_id;
    sequence->tokens = request->prompt_ids;
    sequence->run.sample_id = sample_id;
    sequence->run.params = request->params;
    if (!request->params.stop.empty()) sequence->watcher = stop_watchers_(request->params.stop);
    return sequence;
  }

  void AppendBlock(Sequence& sequence, int32_t block) {
    sequence.blocks.push_back(block);
    for (int64_t i = 0; i < kBlockPositions; ++i)
      sequence.key_rows.push_back(static_cast<int32_t>(block * kBlockPositions + i));
  }

  void ReleaseBlocks(Sequence& sequence) {
    for (int32_t block : sequence.blocks) blocks_.Release(block);
    sequence.blocks.clear();
    sequence.key_rows.clear();
    sequence.num_computed = 0;
  }

  // Gives the sequence at `index` blocks for `positions`; younger running sequences give way. False if it had to give
  // way itself.
  bool EnsureBlocks(size_t index, int64_t positions) {
    Sequence& sequence = *running_[index];
    while (static_cast<int64_t>(sequence.blocks.size()) < BlocksFor(positions)) {
      if (const std::optional<int32_t> block = blocks_.Allocate()) {
        AppendBlock(sequence, *block);
        continue;
      }
      const bool itself = running_.size() == index + 1;
      ReleaseBlocks(*running_.back());
      waiting_.push_front(std::move(running_.back()));
      running_.pop_back();
      ++counters_.preemptions;
      if (itself) return false;
    }
    return true;
  }

  void AddRows(Sequence& sequence, int64_t count) {
    const int64_t begin = sequence.num_computed;
    batch_.segments.push_back({.row_begin = static_cast<int64_t>(batch_.token_ids.size()),
                               .count = count,
                               .first_position = begin,
                               .key_rows = sequence.key_rows.data()});
    for (int64_t position = begin; position < begin + count; ++position) {
      batch_.token_ids.push_back(sequence.tokens[position]);
      batch_.positions.push_back(static_cast<int32_t>(position));
      batch_.kv_rows.push_back(sequence.key_rows[position]);
    }
    if (begin + count == static_cast<int64_t>(sequence.tokens.size())) {
      batch_.logit_rows.push_back(static_cast<int32_t>(batch_.token_ids.size()) - 1);
    }
    scheduled_.push_back(&sequence);
    (count == 1 ? counters_.decode_rows : counters_.prefill_rows) += count;
  }

  // Chooses the rows of this step: oldest sequences first; new ones while there is room.
  void Schedule() {
    batch_.Clear();
    scheduled_.clear();
    int64_t prefill_room = options_.prefill_tokens;
    for (size_t i = 0;; ++i) {
      if (i == running_.size()) {
        const bool room =
            running_.size() < static_cast<size_t>(options_.max_batch) && prefill_room > 0 && blocks_.num_free() > 0;
        if (waiting_.empty() || !room) break;
        running_.push_back(std::move(waiting_.front()));
        waiting_.pop_front();
      }
      Sequence& sequence = *running_[i];
      int64_t count = static_cast<int64_t>(sequence.tokens.size()) - sequence.num_computed;
      if (count > 1) count = std::min(count, prefill_room);
      if (count == 0) continue;  // a prompt whose turn comes in the next step
      if (!EnsureBlocks(i, sequence.num_computed + count)) break;
      if (count > 1) prefill_room -= count;
      AddRows(sequence, count);
    }
  }

  // Lists who draws from which logits. Samples that waited for a prompt join here: they share its blocks.
  void Fork() {
    draws_.clear();
    int32_t logit_index = 0;
    for (size_t i = 0; i < scheduled_.size(); ++i) {
      Sequence& sequence = *scheduled_[i];
      if (sequence.num_computed != static_cast<int64_t>(sequence.tokens.size())) continue;
      draws_.push_back({.sequence = &sequence, .logit_index = logit_index, .sample = {}, .filter_ids = {}});
      for (int32_t f = 1; f <= sequence.num_followers; ++f) {
        auto follower = NewSequence(sequence.request, sequence.sample_id + f);
        if (running_.size() < static_cast<size_t>(options_.max_batch) && ShareBlocks(sequence, *follower)) {
          draws_.push_back({.sequence = follower.get(), .logit_index = logit_index, .sample = {}, .filter_ids = {}});
          running_.push_back(std::move(follower));
        } else {
          // No room now: the rest computes the prompt again, as a group of its own.
          follower->num_followers = sequence.num_followers - f;
          waiting_.push_front(std::move(follower));
          break;
        }
      }
      sequence.num_followers = 0;
      ++logit_index;
    }
  }

  bool ShareBlocks(const Sequence& from, Sequence& to) {
    const int64_t full = from.num_computed / kBlockPositions;
    const int64_t rest = from.num_computed % kBlockPositions;
    std::optional<int32_t> own;  // the last block, where it is partly filled: each sample goes on writing there
    if (rest > 0) {
      own = blocks_.Allocate();
      if (!own.has_value()) return false;
      cache_.CopyBlock(from.blocks[full], *own, rest);
    }
    for (int64_t i = 0; i < full; ++i) {
      blocks_.AddReference(from.blocks[i]);
      AppendBlock(to, from.blocks[i]);
    }
    if (own.has_value()) AppendBlock(to, *own);
    to.num_computed = from.num_computed;
    return true;
  }

  void DrawTokens(Matrix<const float> logits) {
    pool_.ParallelFor(static_cast<int64_t>(draws_.size()), [&](int64_t index, int thread) {
      Draw& draw = draws_[index];
      const Sequence& sequence = *draw.sequence;
      const SamplingParams& params = sequence.run.params;
      std::vector<int32_t> banned;
      if (sequence.num_generated() < params.min_tokens) {
        banned = params.stop_ids;
        std::sort(banned.begin(), banned.end());
        banned.erase(std::unique(banned.begin(), banned.end()), banned.end());
      }
      const double u = UniformDouble(sequence.request->key, {.ordinal = sequence.request->ordinal,
                                                             .sample = sequence.sample_id,
                                                             .turn = sequence.request->turn,
                                                             .draw = sequence.num_generated()});
      const absl::Span<const float> row(logits.row(draw.logit_index), static_cast<size_t>(logits.cols));
      const model::SamplingFilter filter{params.temperature, params.top_k, params.top_p, banned};
      draw.sample = model::SampleToken(row, filter, u, *samplers_[thread]);
      draw.filter_ids.assign(draw.sample.filter.ids.begin(), draw.sample.filter.ids.end());
    });
  }

  void Commit(Draw& draw) {
    Sequence& sequence = *draw.sequence;
    SampledRun& run = sequence.run;
    const int32_t id = draw.sample.id;
    // A list of kept ids starts with the first token that has one; earlier tokens kept all.
    if (draw.sample.filter.kind != KeptIds::Kind::kAll && run.kept.empty()) {
      for (size_t i = 0; i < run.tokens.size(); ++i) run.kept.Append(KeptIds::Kind::kAll, {});
    }
    if (draw.sample.filter.kind != KeptIds::Kind::kAll || !run.kept.empty()) {
      run.kept.Append(draw.sample.filter.kind, draw.filter_ids);
    }
    run.tokens.push_back({id, draw.sample.logprob, true, version_});
    sequence.tokens.push_back(id);
    ++counters_.sampled_tokens;
    const SamplingParams& params = run.params;
    if (std::find(params.stop_ids.begin(), params.stop_ids.end(), id) != params.stop_ids.end()) {
      run.finish_reason = FinishReason::kStop;
    } else if (sequence.watcher != nullptr && sequence.watcher->Add(id)) {
      run.finish_reason = FinishReason::kStop;
    } else if (sequence.num_generated() >= params.max_tokens ||
               static_cast<int64_t>(sequence.tokens.size()) >= options_.max_context) {
      run.finish_reason = FinishReason::kLength;
    }
  }

  void CollectFinished(std::vector<GenerationResult>* finished) {
    size_t kept = 0;
    for (size_t i = 0; i < running_.size(); ++i) {
      Sequence& sequence = *running_[i];
      if (sequence.run.finish_reason != FinishReason::kNone) {
        ReleaseBlocks(sequence);
        finished->push_back({sequence.request->request_id, std::move(sequence.run)});
        continue;
      }
      if (kept != i) running_[kept] = std::move(running_[i]);
      ++kept;
    }
    running_.resize(kept);
  }

  const model::ModelConfig config_;
  const EngineOptions options_;
  ThreadPool& pool_;
  const StopWatcherFactory stop_watchers_;
  const model::PackedLayout layout_;
  const model::Transformer<T> transformer_;
  BatchForward<T> forward_;
  BlockPool blocks_;
  KvArrays<T> cache_;
  std::unique_ptr<model::PackedModel<T>> model_;
  int64_t version_ = 0;
  std::deque<std::unique_ptr<Sequence>> waiting_;
  std::vector<std::unique_ptr<Sequence>> running_;  // oldest first
  EngineCounters counters_;
  // Of the step in hand.
  Batch batch_;
  std::vector<Sequence*> scheduled_;  // parallel to batch_.segments
  std::vector<Draw> draws_;
  std::vector<std::unique_ptr<model::SamplerScratch>> samplers_;  // per thread
};

}  // namespace

absl::Status EngineOptions::Validate() const {
  const auto bad = [](const char* field, int64_t value) {
    return absl::InvalidArgumentError(absl::StrCat(field, " is ", value, ": it must be at least 1"));
  };
  if (kv_blocks < 1) return bad("kv_blocks", kv_blocks);
  if (max_batch < 1) return bad("max_batch", max_batch);
  if (prefill_tokens < 1) return bad("prefill_tokens", prefill_tokens);
  if (max_context < 2) return absl::InvalidArgumentError("max_context must be at least 2: a prompt and an answer");
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Engine>> Engine::Make(const model::ModelConfig& config, DType dtype,
                                                     const EngineOptions& options, ThreadPool& pool,
                                                     StopWatcherFactory stop_watchers) {
  RETURN_IF_ERROR(options.Validate());
  if (dtype == DType::kF32) return std::make_unique<EngineOf<float>>(config, options, pool, std::move(stop_watchers));
  if (dtype == DType::kBf16) return std::make_unique<EngineOf<Bf16>>(config, options, pool, std::move(stop_watchers));
  return absl::InvalidArgumentError(absl::StrCat("the engine computes in f32 or bf16, not ", DTypeName(dtype)));
}

int64_t Engine::KvBytesPerBlock(const model::ModelConfig& config, DType dtype) {
  return dtype == DType::kF32 ? KvArrays<float>::BytesPerBlock(config) : KvArrays<Bf16>::BytesPerBlock(config);
}

}  // namespace lockstep::rollout
