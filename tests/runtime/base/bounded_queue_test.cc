#include "runtime/base/bounded_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "tests/testing/status_matchers.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing::StatusIs;
using Clock = BoundedQueue<int>::Clock;

constexpr std::chrono::milliseconds kShort{20};

TEST(BoundedQueue, FirstInFirstOut) {
  BoundedQueue<int> queue(3);
  for (int i = 0; i < 3; ++i) ASSERT_OK(queue.Push(i));
  EXPECT_EQ(queue.size(), 3u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(queue.Pop().value(), i);
  EXPECT_EQ(queue.size(), 0u);
}

TEST(BoundedQueue, CarriesWhatCanOnlyBeMoved) {
  BoundedQueue<std::unique_ptr<int>> queue(1);
  ASSERT_OK(queue.Push(std::make_unique<int>(7)));
  EXPECT_EQ(**queue.Pop(), 7);
}

TEST(BoundedQueue, PushGivesUpWhileFull) {
  BoundedQueue<int> queue(2);
  ASSERT_OK(queue.Push(1));
  ASSERT_OK(queue.Push(2));
  const Clock::time_point deadline = Clock::now() + kShort;
  EXPECT_THAT(queue.Push(3, deadline), StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("full")));
  EXPECT_GE(Clock::now(), deadline);
  EXPECT_EQ(queue.size(), 2u);  // what was refused is not inside
  EXPECT_EQ(queue.Pop().value(), 1);
  ASSERT_OK(queue.Push(3, Clock::now()));  // room again: a deadline that has passed does not matter
}

TEST(BoundedQueue, PopGivesUpWhileEmpty) {
  BoundedQueue<int> queue(2);
  const Clock::time_point deadline = Clock::now() + kShort;
  EXPECT_THAT(queue.Pop(deadline), StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("empty")));
  EXPECT_GE(Clock::now(), deadline);
}

TEST(BoundedQueue, CloseRefusesNewItemsAndKeepsOldOnes) {
  BoundedQueue<int> queue(3);
  ASSERT_OK(queue.Push(1));
  ASSERT_OK(queue.Push(2));
  queue.Close();
  queue.Close();  // twice is fine
  EXPECT_THAT(queue.Push(3), StatusIs(absl::StatusCode::kCancelled, HasSubstr("closed")));
  EXPECT_EQ(queue.Pop().value(), 1);
  EXPECT_EQ(queue.Pop().value(), 2);
  EXPECT_THAT(queue.Pop(), StatusIs(absl::StatusCode::kCancelled, HasSubstr("closed")));
}

TEST(BoundedQueue, CloseWakesAllWhoWait) {
  BoundedQueue<int> empty(1), full(1);
  ASSERT_OK(full.Push(0));
  std::atomic<int> cancelled{0};
  std::vector<std::thread> waiting;
  for (int i = 0; i < 3; ++i) {
    waiting.emplace_back([&] { cancelled += absl::IsCancelled(empty.Pop().status()); });
    waiting.emplace_back([&] { cancelled += absl::IsCancelled(full.Push(1)); });
  }
  std::this_thread::sleep_for(kShort);
  empty.Close();
  full.Close();
  for (std::thread& thread : waiting) thread.join();
  EXPECT_EQ(cancelled, 6);
  EXPECT_EQ(full.Pop().value(), 0);
}

TEST(BoundedQueue, AWaitingPushGoesOnWhenThereIsRoom) {
  BoundedQueue<int> queue(1);
  ASSERT_OK(queue.Push(1));
  std::thread producer([&] { EXPECT_OK(queue.Push(2)); });
  EXPECT_EQ(queue.Pop().value(), 1);
  EXPECT_EQ(queue.Pop().value(), 2);
  producer.join();
}

// Each item comes out once, the queue never holds more than it may, and one producer's items keep their order.
TEST(BoundedQueue, ManyProducersAndConsumers) {
  constexpr int kProducers = 3, kConsumers = 3, kItems = 2000;
  constexpr size_t kCapacity = 4;
  BoundedQueue<int> queue(kCapacity);
  std::atomic<bool> overfull{false};
  std::vector<std::vector<int>> taken(kConsumers);
  std::vector<std::thread> producers, consumers;
  for (int producer = 0; producer < kProducers; ++producer) {
    producers.emplace_back([&, producer] {
      for (int i = 0; i < kItems; ++i) {
        EXPECT_OK(queue.Push(producer * kItems + i));
        if (queue.size() > kCapacity) overfull = true;
      }
    });
  }
  for (int consumer = 0; consumer < kConsumers; ++consumer) {
    consumers.emplace_back([&, consumer] {
      for (auto item = queue.Pop(); item.ok(); item = queue.Pop()) taken[consumer].push_back(*item);
    });
  }
  for (std::thread& thread : producers) thread.join();
  queue.Close();
  for (std::thread& thread : consumers) thread.join();

  EXPECT_FALSE(overfull);
  std::vector<int> times(kProducers * kItems, 0);
  for (const std::vector<int>& items : taken) {
    std::vector<int> last(kProducers, -1);
    for (const int item : items) {
      ++times.at(item);
      EXPECT_LT(last[item / kItems], item);
      last[item / kItems] = item;
    }
  }
  EXPECT_EQ(times, std::vector<int>(kProducers * kItems, 1));
}

TEST(BoundedQueueDeathTest, NeedsRoom) { EXPECT_DEATH(BoundedQueue<int>(0), "capacity"); }

}  // namespace
}  // namespace lockstep
