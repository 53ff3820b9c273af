#include "runtime/base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <condition_variable>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/check.h"

namespace lockstep {
namespace {

inline void CpuRelax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Spinning is short: with more threads than cores a spinning wait takes the core from the thread that is waited for.
constexpr int kSpins = 4000;

}  // namespace

// Sense by generation: the last to arrive opens the next generation. Waiters spin briefly, then sleep on the generation
// word.
class SpinBarrier {
 public:
  explicit SpinBarrier(int size) : size_(size) {}

  void Wait() {
    const uint32_t generation = generation_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
      arrived_.store(0, std::memory_order_relaxed);
      generation_.fetch_add(1, std::memory_order_release);
      generation_.notify_all();
      return;
    }
    for (int i = 0; i < kSpins; ++i) {
      if (generation_.load(std::memory_order_acquire) != generation) return;
      CpuRelax();
    }
    while (generation_.load(std::memory_order_acquire) == generation)
      generation_.wait(generation, std::memory_order_acquire);
  }

 private:
  const int size_;
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<uint32_t> generation_{0};
};

void Team::Sync() {
  if (barrier_ != nullptr) barrier_->Wait();
}

struct ThreadPool::State {
  explicit State(int num_threads) : size(num_threads), barrier(num_threads) {}

  void WorkerLoop(int rank) {
    uint64_t seen = 0;
    while (true) {
      const absl::FunctionRef<void(Team&)>* work = nullptr;
      for (int i = 0; i < kSpins && job_number.load(std::memory_order_acquire) == seen; ++i) CpuRelax();
      {
        std::unique_lock<std::mutex> lock(mutex);
        wake.wait(lock, [&] { return stopping || job_number.load(std::memory_order_relaxed) != seen; });
        if (stopping) return;
        seen = job_number.load(std::memory_order_relaxed);
        work = job;
      }
      Team team(rank, size, &barrier);
      (*work)(team);
      barrier.Wait();  // the caller leaves Run when all have arrived here
    }
  }

  const int size;
  SpinBarrier barrier;
  std::mutex mutex;  // guards job, stopping; job_number is written under it and also read outside (spinning)
  std::condition_variable wake;
  const absl::FunctionRef<void(Team&)>* job = nullptr;
  std::atomic<uint64_t> job_number{0};
  bool stopping = false;
  std::vector<std::thread> threads;
};

ThreadPool::ThreadPool(int num_threads, std::function<void()> on_start) : state_(std::make_unique<State>(num_threads)) {
  CHECK_GE(num_threads, 1);
  for (int rank = 1; rank < num_threads; ++rank) {
    state_->threads.emplace_back([this, rank, on_start] {
      if (on_start) on_start();
      state_->WorkerLoop(rank);
    });
  }
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    state_->stopping = true;
    state_->wake.notify_all();
  }
  for (std::thread& thread : state_->threads) thread.join();
}

int ThreadPool::num_threads() const { return state_->size; }

void ThreadPool::Run(absl::FunctionRef<void(Team&)> work) noexcept {
  if (state_->size == 1) {
    Team team = TeamOfOne();
    work(team);
    return;
  }
  {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    state_->job = &work;
    state_->job_number.fetch_add(1, std::memory_order_release);
    state_->wake.notify_all();
  }
  Team team(0, state_->size, &state_->barrier);
  work(team);
  state_->barrier.Wait();
}

void ThreadPool::ParallelFor(int64_t count, absl::FunctionRef<void(int64_t, int)> body) noexcept {
  std::atomic<int64_t> next{0};
  Run([&](Team& team) {
    for (int64_t index = next.fetch_add(1, std::memory_order_relaxed); index < count;
         index = next.fetch_add(1, std::memory_order_relaxed)) {
      body(index, team.rank());
    }
  });
}

int NumUsableCpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int cpus = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
  std::ifstream quota_file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (quota_file >> quota >> period && quota != "max" && period > 0) {
    cpus = std::min(cpus, std::max(1, static_cast<int>(std::stod(quota) / period + 0.5)));
  }
  return std::max(1, cpus);
}

}  // namespace lockstep
