// Threads that work on one thing together: every thread runs the same function (SPMD), knows its rank, and meets the
// others at barriers. Pieces of work are fixed by the problem, never by the number of threads, so results do not depend
// on it.
//
//   pool.Run([&](Team& team) {
//     for (int64_t piece = team.rank(); piece < num_pieces; piece += team.size()) DoPiece(piece);
//     team.Sync();                      // every piece is done and visible to all
//     ...
//   });
//
//   pool.ParallelFor(num_tiles, [&](int64_t tile, int thread) { ... });   // tiles are handed out dynamically
//
// An exception that leaves `work` or `body` ends the process: the other threads could never be told.
//
// Nested use: inside Run or ParallelFor a function that wants a Team may be given TeamOfOne(). Run is not reentrant and
// one thread at a time may call it (the pool's owner).
#ifndef LOCKSTEP_RUNTIME_BASE_THREAD_POOL_H_
#define LOCKSTEP_RUNTIME_BASE_THREAD_POOL_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/functional/function_ref.h"

namespace lockstep {

class SpinBarrier;

// What one thread sees of the group it works in.
class Team {
 public:
  Team(int rank, int size, SpinBarrier* barrier) : rank_(rank), size_(size), barrier_(barrier) {}
  int rank() const { return rank_; }
  int size() const { return size_; }
  // Returns when all threads of the team have called it; writes before it are visible after it.
  void Sync();

 private:
  int rank_;
  int size_;
  SpinBarrier* barrier_;  // nullptr in a team of one
};

inline Team TeamOfOne() { return Team(0, 1, nullptr); }

class ThreadPool {
 public:
  // num_threads includes the caller of Run; at least 1. `on_start` runs first on every worker thread (not on the
  // caller).
  explicit ThreadPool(int num_threads, std::function<void()> on_start = nullptr);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const;

  // Runs `work` on every thread at the same time, on the caller as rank 0; returns when all are done.
  void Run(absl::FunctionRef<void(Team&)> work) noexcept;

  // Calls body(index, thread) once for each index in [0, count); which thread takes which index is not defined.
  void ParallelFor(int64_t count, absl::FunctionRef<void(int64_t index, int thread)> body) noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// CPUs this process may run on (its affinity mask, and the cgroup's quota where there is one).
int NumUsableCpus();

}  // namespace lockstep

#endif  // LOCKSTEP_RUNTIME_BASE_THREAD_POOL_H_
