#include "runtime/base/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

namespace lockstep {
namespace {

class ThreadPoolTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, ::testing::Values(1, 2, 3, 8));

TEST_P(ThreadPoolTest, RunGivesEachRankOnceWithTheCallerAsZero) {
  ThreadPool pool(GetParam());
  EXPECT_EQ(pool.num_threads(), GetParam());
  std::vector<std::thread::id> ids(GetParam());
  pool.Run([&](Team& team) {
    EXPECT_EQ(team.size(), GetParam());
    EXPECT_EQ(ids.at(team.rank()), std::thread::id());
    ids[team.rank()] = std::this_thread::get_id();
  });
  EXPECT_EQ(ids[0], std::this_thread::get_id());
  EXPECT_EQ(std::set<std::thread::id>(ids.begin(), ids.end()).size(), ids.size());
}

// Plain ints: writes before Sync must be visible after it, and a thread must not run ahead by more than one phase.
TEST_P(ThreadPoolTest, SyncMakesWritesVisible) {
  constexpr int kPhases = 300;
  ThreadPool pool(GetParam());
  std::vector<int> phase_of(GetParam(), 0);
  std::atomic<int> faults{0};
  pool.Run([&](Team& team) {
    for (int phase = 1; phase <= kPhases; ++phase) {
      phase_of[team.rank()] = phase;
      team.Sync();
      for (const int other : phase_of) faults += other != phase;
      team.Sync();
    }
  });
  EXPECT_EQ(faults, 0);
}

TEST_P(ThreadPoolTest, WritesOfARunAreVisibleAfterIt) {
  ThreadPool pool(GetParam());
  std::vector<int64_t> counts(GetParam(), 0);
  for (int run = 0; run < 1000; ++run) pool.Run([&](Team& team) { ++counts[team.rank()]; });
  EXPECT_EQ(counts, std::vector<int64_t>(GetParam(), 1000));
}

TEST_P(ThreadPoolTest, ParallelForTakesEachIndexOnce) {
  ThreadPool pool(GetParam());
  for (const int64_t count : {0, 1, 2, 7, 1000}) {
    std::vector<int> times(count, 0);  // written without atomics: an index taken twice is a race too
    std::atomic<int> wrong_threads{0};
    pool.ParallelFor(count, [&](int64_t index, int thread) {
      ++times.at(index);
      wrong_threads += thread < 0 || thread >= GetParam();
    });
    EXPECT_EQ(times, std::vector<int>(count, 1)) << count;
    EXPECT_EQ(wrong_threads, 0);
  }
}

TEST_P(ThreadPoolTest, OnStartRunsOnceOnEveryWorker) {
  std::mutex mutex;
  std::multiset<std::thread::id> started;
  {
    ThreadPool pool(GetParam(), [&] {
      const std::lock_guard<std::mutex> lock(mutex);
      started.insert(std::this_thread::get_id());
    });
    pool.Run([](Team&) {});
    const std::lock_guard<std::mutex> lock(mutex);
    EXPECT_EQ(started.size(), static_cast<size_t>(GetParam() - 1));
  }
  EXPECT_EQ(started.count(std::this_thread::get_id()), 0u);
  EXPECT_EQ(std::set<std::thread::id>(started.begin(), started.end()).size(), started.size());
}

TEST(ThreadPool, SleepingWorkersWakeUp) {
  ThreadPool pool(3);
  for (int run = 0; run < 5; ++run) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));  // longer than a worker spins
    std::atomic<int> calls{0};
    pool.Run([&](Team&) { ++calls; });
    EXPECT_EQ(calls, 3);
  }
}

TEST(ThreadPool, BarriersHoldWhileOneThreadIsLate) {
  ThreadPool pool(3);
  std::vector<int> done(3, 0);
  pool.Run([&](Team& team) {
    if (team.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(30));
    done[team.rank()] = 1;
    team.Sync();
    EXPECT_EQ(done, std::vector<int>(3, 1));
  });
}

TEST(ThreadPool, UnusedPoolsEnd) {
  for (int i = 0; i < 50; ++i) ThreadPool pool(4);
}

TEST(Team, OfOneNeverWaits) {
  Team team = TeamOfOne();
  EXPECT_EQ(team.rank(), 0);
  EXPECT_EQ(team.size(), 1);
  team.Sync();
}

TEST(ThreadPoolDeathTest, NeedsAThread) { EXPECT_DEATH(ThreadPool(0), "num_threads"); }

// The others would wait for ever at the next barrier: a thrown exception ends the process, on any rank.
TEST(ThreadPoolDeathTest, ExceptionsEndTheProcess) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  for (const int rank : {0, 1}) {
    EXPECT_DEATH(ThreadPool(2).Run([rank](Team& team) {
      if (team.rank() == rank) throw std::runtime_error("thrown in a pool");
    }),
                 "thrown in a pool");
  }
}

TEST(NumUsableCpus, FollowsTheAffinityMask) {
  EXPECT_GE(NumUsableCpus(), 1);
  int pinned = 0;
  std::thread([&] {
    cpu_set_t set;
    ASSERT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
    int first = 0;
    while (!CPU_ISSET(first, &set)) ++first;
    CPU_ZERO(&set);
    CPU_SET(first, &set);
    ASSERT_EQ(sched_setaffinity(0, sizeof(set), &set), 0);
    pinned = NumUsableCpus();
  }).join();
  EXPECT_EQ(pinned, 1);
}

}  // namespace
}  // namespace lockstep
