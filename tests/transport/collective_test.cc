#include "transport/collective.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "tests/testing/status_matchers.h"
#include "transport/fake_collective.h"
#include "transport/mpi_collective.h"

namespace lockstep::transport {
namespace {

using ::lockstep::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Deadline Soon() { return After(absl::Milliseconds(50)); }
Deadline Late() { return After(absl::Seconds(30)); }

// Runs `body` once per rank, each in a thread of its own, and returns what they returned.
std::vector<absl::Status> OnEachRank(FakeGroup& group, int world_size,
                                     const std::function<absl::Status(Collective&)>& body) {
  std::vector<absl::Status> results(static_cast<size_t>(world_size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] { results[static_cast<size_t>(rank)] = body(group.rank(rank)); });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

void ExpectAllOk(const std::vector<absl::Status>& results) {
  for (const absl::Status& status : results) EXPECT_OK(status);
}

TEST(FakeCollective, EveryOperationGivesTheDefinedResult) {
  FakeGroup group(3);
  ExpectAllOk(OnEachRank(group, 3, [](Collective& ranks) {
    const int64_t rank = ranks.rank();
    const std::vector<uint8_t> mine = {static_cast<uint8_t>(10 * rank), static_cast<uint8_t>(10 * rank + 1)};
    std::vector<uint8_t> all(6);
    EXPECT_OK(ranks.Wait(ranks.AllGather(mine, absl::MakeSpan(all)), Late()));
    EXPECT_THAT(all, ElementsAre(0, 1, 10, 11, 20, 21));

    std::vector<int64_t> values = {rank, -rank, int64_t{1} << (40 + rank)};
    EXPECT_OK(ranks.Wait(ranks.AllReduceSum(absl::MakeSpan(values)), Late()));
    EXPECT_THAT(values, ElementsAre(3, -3, int64_t{7} << 40));

    values = {rank, -rank, 5};
    EXPECT_OK(ranks.Wait(ranks.AllReduceMax(absl::MakeSpan(values)), Late()));
    EXPECT_THAT(values, ElementsAre(2, 0, 5));

    const std::vector<int64_t> parts = {rank, 10 + rank, 20 + rank};  // one number for each rank
    int64_t part = 0;
    EXPECT_OK(ranks.Wait(ranks.ReduceScatterSum(parts, absl::MakeSpan(&part, 1)), Late()));
    EXPECT_EQ(part, 3 * 10 * rank + 3);

    std::vector<uint8_t> bytes(4, static_cast<uint8_t>(rank));
    EXPECT_OK(ranks.Wait(ranks.Broadcast(2, absl::MakeSpan(bytes)), Late()));
    EXPECT_THAT(bytes, ElementsAre(2, 2, 2, 2));
    return ranks.Wait(ranks.Barrier(), Late());
  }));
}

TEST(FakeCollective, OperationsMayOverlap) {
  FakeGroup group(2);
  ExpectAllOk(OnEachRank(group, 2, [](Collective& ranks) {
    std::vector<int64_t> a = {1}, b = {ranks.rank()};
    const auto first = ranks.AllReduceSum(absl::MakeSpan(a));
    const auto second = ranks.AllReduceMax(absl::MakeSpan(b));
    EXPECT_OK(ranks.Wait(second, Late()));
    EXPECT_OK(ranks.Wait(first, Late()));
    EXPECT_EQ(a[0], 2);
    EXPECT_EQ(b[0], 1);
    return absl::OkStatus();
  }));
}

TEST(FakeCollective, DroppedCallMissesTheDeadlineOfTheOthersAndIsNamed) {
  FakeGroup group(3);
  group.Inject(1, {.sequence = 1, .kind = FakeFault::Kind::kDrop, .delay = {}, .error = {}});
  const auto results = OnEachRank(group, 3, [](Collective& ranks) {
    EXPECT_OK(ranks.Wait(ranks.Barrier(), Late()));
    int64_t value = 0;
    return ranks.Wait(ranks.AllReduceSum(absl::MakeSpan(&value, 1)), Soon());
  });
  for (const absl::Status& status : results) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kDeadlineExceeded,
                                 AllOf(HasSubstr("rank 1 did not reach AllReduceSum of 8 bytes at"),
                                       HasSubstr("collective_test.cc:"))));
  }
}

TEST(FakeCollective, DelayWithinTheDeadlineHarmsNobody) {
  FakeGroup group(2);
  group.Inject(0,
               {.sequence = 0, .kind = FakeFault::Kind::kDelay, .delay = std::chrono::milliseconds(30), .error = {}});
  ExpectAllOk(OnEachRank(group, 2, [](Collective& ranks) { return ranks.Wait(ranks.Barrier(), Late()); }));
}

TEST(FakeCollective, DeadRankIsNamedToAllAtOnce) {
  FakeGroup group(3);
  group.Inject(2, {.sequence = 0, .kind = FakeFault::Kind::kDie, .delay = {}, .error = {}});
  const auto results =
      OnEachRank(group, 3, [](Collective& ranks) { return ranks.Wait(ranks.Barrier(), Deadline::max()); });
  for (const absl::Status& status : results) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("rank 2 is dead")));
  }
}

TEST(FakeCollective, FailureOnDemandBreaksTheGroupForThatRank) {
  FakeGroup group(2);
  group.Inject(0,
               {.sequence = 0, .kind = FakeFault::Kind::kFail, .delay = {}, .error = absl::InternalError("planted")});
  const auto results = OnEachRank(group, 2, [](Collective& ranks) {
    const absl::Status first = ranks.Wait(ranks.Barrier(), Late());
    if (!first.ok()) {
      EXPECT_EQ(ranks.Wait(ranks.Barrier(), Late()), first);
      EXPECT_EQ(ranks.status(), first);
    }
    return first;
  });
  EXPECT_THAT(results[0], StatusIs(absl::StatusCode::kInternal, HasSubstr("planted")));
  EXPECT_OK(results[1]);
}

TEST(FakeCollective, DifferentOperationsAreReportedWithBothCallSites) {
  FakeGroup group(2);
  const auto results = OnEachRank(group, 2, [](Collective& ranks) {
    int64_t value = 0;
    if (ranks.rank() == 0) return ranks.Wait(ranks.AllReduceSum(absl::MakeSpan(&value, 1)), Late());
    return ranks.Wait(ranks.Broadcast(1, {reinterpret_cast<uint8_t*>(&value), 8}), Late());
  });
  for (const absl::Status& status : results) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition,
                                 AllOf(HasSubstr("rank 0 AllReduceSum of 8 bytes at"),
                                       HasSubstr("rank 1 Broadcast of 8 bytes from rank 1 at"))));
  }
}

TEST(FakeCollective, DifferentSizesAreDifferentOperations) {
  FakeGroup group(2);
  const auto results = OnEachRank(group, 2, [](Collective& ranks) {
    std::vector<int64_t> values(1 + static_cast<size_t>(ranks.rank()));
    return ranks.Wait(ranks.AllReduceSum(absl::MakeSpan(values)), Late());
  });
  EXPECT_THAT(results[0], StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("of 16 bytes")));
}

TEST(SingleRank, IsItsOwnGroup) {
  SingleRankCollective one;
  const std::vector<uint8_t> mine = {1, 2};
  std::vector<uint8_t> all(2);
  EXPECT_OK(one.Wait(one.AllGather(mine, absl::MakeSpan(all)), Soon()));
  EXPECT_EQ(all, mine);
  const std::vector<int64_t> parts = {7};
  int64_t part = 0;
  EXPECT_OK(one.Wait(one.ReduceScatterSum(parts, absl::MakeSpan(&part, 1)), Soon()));
  EXPECT_EQ(part, 7);
  EXPECT_OK(one.Wait(one.AllReduceSum(absl::MakeSpan(&part, 1)), Soon()));
  EXPECT_EQ(part, 7);
}

TEST(JoinStatus, AllSeeTheErrorOfTheLowestFailingRank) {
  FakeGroup group(3);
  const auto results = OnEachRank(group, 3, [](Collective& ranks) {
    EXPECT_OK(JoinStatus(ranks, absl::OkStatus(), Late()));
    const absl::Status mine =
        ranks.rank() == 0 ? absl::OkStatus() : absl::DataLossError("bits differ on " + std::to_string(ranks.rank()));
    return JoinStatus(ranks, mine, Late());
  });
  for (const absl::Status& status : results) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss, "rank 1: bits differ on 1"));
  }
}

TEST(JoinStatus, LongTextsAreCut) {
  FakeGroup group(2);
  const auto results = OnEachRank(group, 2, [](Collective& ranks) {
    return JoinStatus(ranks, absl::InternalError(std::string(5000, 'x')), Late());
  });
  EXPECT_EQ(results[1].message().size(), 1024 + std::string("rank 0: ").size());
}

TEST(BroadcastText, ReachesAll) {
  FakeGroup group(3);
  ExpectAllOk(OnEachRank(group, 3, [](Collective& ranks) {
    for (const std::string wanted : {"/tmp/somewhere", ""}) {
      std::string text = ranks.rank() == 1 ? wanted : "stale";
      if (const absl::Status status = BroadcastText(ranks, 1, text, Late()); !status.ok()) return status;
      EXPECT_EQ(text, wanted);
    }
    return absl::OkStatus();
  }));
}

TEST(MpiSession, WithoutALauncherThereIsOneRankAndNoMpi) {
  ASSERT_FALSE(MpiSession::UnderLauncher());
  ASSERT_OK_AND_ASSIGN(const auto session, MpiSession::Start());
  EXPECT_EQ(session->world().world_size(), 1);
  EXPECT_EQ(session->place().num_nodes, 1);
  EXPECT_OK(session->world().Wait(session->world().Barrier(), Soon()));
  ASSERT_OK_AND_ASSIGN(const auto part, session->Split(3));
  EXPECT_EQ(part->world_size(), 1);
}

TEST(BackOff, SleepsUntilTheDeadlineAndNotLonger) {
  const auto start = std::chrono::steady_clock::now();
  BackOff back_off(start + std::chrono::milliseconds(20));
  int num_sleeps = 0;
  while (back_off.Sleep()) ++num_sleeps;
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(20));
  EXPECT_GE(num_sleeps, 5);
  EXPECT_LE(num_sleeps, 40);  // a spin would be thousands
}

}  // namespace
}  // namespace lockstep::transport
