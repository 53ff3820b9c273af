#include "transport/weight_channel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/hash.h"
#include "tests/testing/status_matchers.h"
#include "transport/private_dir.h"
#include "transport/weight_memory.h"

namespace lockstep::transport {
namespace {

using ::lockstep::testing::StatusIs;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr size_t kBytes = 3 * 4096 + 100;

Deadline Soon() { return After(absl::Milliseconds(50)); }
Deadline Late() { return After(absl::Seconds(30)); }

// Fills a slot with one byte and publishes it, hash included.
absl::Status Write(WeightPublisher& publisher, int64_t number, Deadline deadline) {
  auto slot = publisher.BeginWrite(deadline);
  if (!slot.ok()) return slot.status();
  std::fill(slot->bytes.begin(), slot->bytes.end(), static_cast<uint8_t>(number));
  const WeightVersion version = {number, Hash64(slot->bytes.data(), slot->bytes.size())};
  const auto publication = publisher.Publish(version);
  EXPECT_EQ(publication.version, version);
  EXPECT_EQ(publication.slot, slot->index);
  return absl::OkStatus();
}

void ExpectHolds(const WeightLease& lease, int64_t number) {
  EXPECT_EQ(lease.version().number, number);
  EXPECT_THAT(lease.bytes(), Each(static_cast<uint8_t>(number)));
  EXPECT_EQ(lease.version().hash, Hash64(lease.bytes().data(), lease.bytes().size()));
  EXPECT_EQ(lease.bytes().size(), kBytes);
}

bool Eventually(const std::function<bool()>& condition) {
  for (const Deadline deadline = Late(); std::chrono::steady_clock::now() < deadline;) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return false;
}

class WeightChannelTest : public ::testing::Test {
 protected:
  std::unique_ptr<WeightPublisher> Publisher(int num_slots = 2) {
    auto publisher = WeightPublisher::Create({kBytes, num_slots, dir_.weights_socket()});
    EXPECT_OK(publisher);
    return *std::move(publisher);
  }
  std::unique_ptr<WeightReader> Connect() {
    auto reader = WeightReader::Connect(dir_.weights_socket(), Late());
    EXPECT_OK(reader);
    return *std::move(reader);
  }

  PrivateDir dir_ = *PrivateDir::Create();
};

TEST_F(WeightChannelTest, ReadersSeeWhatWasPublishedLast) {
  auto publisher = Publisher();
  auto local = publisher->LocalReader();
  auto remote = Connect();
  EXPECT_THAT(remote->Current(), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("no weights")));
  for (int64_t number = 0; number < 5; ++number) {
    ASSERT_OK(Write(*publisher, number, Late()));
    for (WeightReader* reader : {local.get(), remote.get()}) {
      ASSERT_OK_AND_ASSIGN(const WeightLease lease, reader->Current());
      ExpectHolds(lease, number);
    }
  }
  EXPECT_EQ(publisher->num_readers(), 2);
  EXPECT_EQ(remote->slot_bytes(), kBytes);
}

TEST_F(WeightChannelTest, ASlotInUseIsNeverWritten) {
  auto publisher = Publisher();
  auto reader = Connect();
  ASSERT_OK(Write(*publisher, 1, Late()));
  ASSERT_OK_AND_ASSIGN(WeightLease old_lease, reader->Current());
  ASSERT_OK(Write(*publisher, 2, Late()));  // the other slot
  EXPECT_THAT(publisher->BeginWrite(Soon()),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("1 leases are held")));
  ExpectHolds(old_lease, 1);
  ASSERT_OK_AND_ASSIGN(const WeightLease new_lease, reader->Current());
  ExpectHolds(new_lease, 2);
  old_lease = WeightLease();
  ASSERT_OK(Write(*publisher, 3, Late()));
  ExpectHolds(new_lease, 2);  // the lease on version 2 still stands
}

TEST_F(WeightChannelTest, MovedLeasesReleaseOnce) {
  auto publisher = Publisher();
  auto reader = publisher->LocalReader();
  ASSERT_OK(Write(*publisher, 1, Late()));
  {
    ASSERT_OK_AND_ASSIGN(WeightLease first, reader->Current());
    ASSERT_OK_AND_ASSIGN(WeightLease second, reader->Current());
    WeightLease moved = std::move(first);
    EXPECT_FALSE(first.valid());  // NOLINT: moved-from leases are empty by contract
    second = std::move(moved);    // lets go of its own
    ExpectHolds(second, 1);
    ASSERT_OK(Write(*publisher, 2, Late()));
    EXPECT_THAT(publisher->BeginWrite(Soon()),
                StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("1 leases are held")));
  }
  EXPECT_OK(publisher->BeginWrite(Soon()));
}

TEST_F(WeightChannelTest, AWaitingPublisherGoesOnWhenTheLeaseEnds) {
  auto publisher = Publisher();
  auto reader = publisher->LocalReader();
  ASSERT_OK(Write(*publisher, 1, Late()));
  auto lease = std::make_unique<WeightLease>(*reader->Current());
  ASSERT_OK(Write(*publisher, 2, Late()));
  std::thread releaser([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    lease.reset();
  });
  EXPECT_OK(publisher->BeginWrite(Late()));
  releaser.join();
}

TEST_F(WeightChannelTest, MoreSlotsMeanLessWaiting) {
  auto publisher = Publisher(3);
  auto reader = Connect();
  ASSERT_OK(Write(*publisher, 1, Late()));
  ASSERT_OK_AND_ASSIGN(const WeightLease lease, reader->Current());
  for (int64_t number = 2; number < 6; ++number) ASSERT_OK(Write(*publisher, number, Soon()));
  ExpectHolds(lease, 1);
}

TEST_F(WeightChannelTest, WaitForAVersion) {
  auto publisher = Publisher();
  auto reader = Connect();
  EXPECT_THAT(reader->WaitFor(1, Soon()), StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("none yet")));
  ASSERT_OK(Write(*publisher, 1, Late()));
  EXPECT_THAT(reader->WaitFor(2, Soon()), StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("current is 1")));
  std::thread writer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_OK(Write(*publisher, 2, Late()));
  });
  ASSERT_OK_AND_ASSIGN(const WeightLease lease, reader->WaitFor(2, Late()));
  writer.join();
  ExpectHolds(lease, 2);
}

TEST_F(WeightChannelTest, ReadersOutliveThePublisherAndKnowIt) {
  auto publisher = Publisher();
  auto remote = Connect();
  auto local = publisher->LocalReader();
  ASSERT_OK(Write(*publisher, 1, Late()));
  ASSERT_OK_AND_ASSIGN(const WeightLease lease, remote->Current());
  EXPECT_TRUE(remote->PublisherAlive());
  EXPECT_TRUE(local->PublisherAlive());
  publisher.reset();
  EXPECT_FALSE(remote->PublisherAlive());
  EXPECT_FALSE(local->PublisherAlive());
  ExpectHolds(lease, 1);
  EXPECT_THAT(remote->WaitFor(2, Late()), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("has gone")));
}

TEST_F(WeightChannelTest, LeasesOutliveTheirReader) {
  auto publisher = Publisher();
  auto reader = Connect();
  ASSERT_OK(Write(*publisher, 1, Late()));
  auto lease = std::make_unique<WeightLease>(*reader->Current());
  reader.reset();
  ASSERT_OK(Write(*publisher, 2, Late()));
  EXPECT_THAT(publisher->BeginWrite(Soon()).status(), StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("")));
  ExpectHolds(*lease, 1);
  lease.reset();
  EXPECT_OK(publisher->BeginWrite(Late()));
  EXPECT_TRUE(Eventually([&] { return publisher->num_readers() == 0; }));
}

// A child process, as a rollout worker is one: it reads, holds a lease and is killed while it holds it.
TEST_F(WeightChannelTest, AKilledReaderHoldsNothing) {
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  const pid_t child = fork();  // before any thread of this test exists
  ASSERT_GE(child, 0);
  if (child == 0) {
    auto reader = WeightReader::Connect(dir_.weights_socket(), Late());
    if (!reader.ok()) _exit(1);
    auto lease = (*reader)->WaitFor(1, Late());
    const char verdict = lease.ok() && lease->bytes().size() == kBytes && lease->bytes()[kBytes - 1] == 1 ? 'y' : 'n';
    if (write(fds[1], &verdict, 1) != 1) _exit(1);
    while (true) pause();
  }
  auto publisher = Publisher();
  ASSERT_OK(Write(*publisher, 1, Late()));
  char verdict = 0;
  ASSERT_EQ(read(fds[0], &verdict, 1), 1);
  EXPECT_EQ(verdict, 'y');
  ASSERT_OK(Write(*publisher, 2, Late()));
  EXPECT_THAT(publisher->BeginWrite(Soon()).status(),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("1 leases")));
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_OK(publisher->BeginWrite(Late()));
  EXPECT_EQ(publisher->num_readers(), 0);
  close(fds[0]);
  close(fds[1]);
}

TEST_F(WeightChannelTest, ReadersInOtherThreadsNeverSeeAMixture) {
  auto publisher = Publisher();
  std::atomic<bool> stop{false};
  std::atomic<int64_t> num_leases{0};
  const auto read_on = [&](std::unique_ptr<WeightReader> reader) {
    int64_t last = 0;
    while (!stop.load()) {
      auto lease = reader->WaitFor(last, Late());
      ASSERT_OK(lease);
      ASSERT_GE(lease->version().number, last);
      last = lease->version().number;
      ASSERT_EQ(Hash64(lease->bytes().data(), lease->bytes().size()), lease->version().hash);
      num_leases.fetch_add(1);
    }
  };
  std::vector<std::thread> readers;
  readers.emplace_back(read_on, publisher->LocalReader());
  readers.emplace_back(read_on, publisher->LocalReader());
  readers.emplace_back(read_on, Connect());
  for (int64_t number = 1; number <= 300 || num_leases.load() < 300; ++number) {
    ASSERT_OK(Write(*publisher, number, Late()));
  }
  stop.store(true);
  for (std::thread& reader : readers) reader.join();
}

TEST_F(WeightChannelTest, ConnectingFirstIsFineAndConnectingToNobodyIsNot) {
  EXPECT_THAT(WeightReader::Connect(dir_.weights_socket(), Soon()).status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("nobody publishes weights at")));
  std::unique_ptr<WeightReader> reader;
  std::thread early([&] { reader = Connect(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  auto publisher = Publisher();
  early.join();
  ASSERT_OK(Write(*publisher, 1, Late()));
  ASSERT_OK_AND_ASSIGN(const WeightLease lease, reader->Current());
  ExpectHolds(lease, 1);
}

TEST_F(WeightChannelTest, APeerOfAnotherProtocolIsRefused) {
  const int listener = socket(AF_UNIX, SOCK_SEQPACKET, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, dir_.weights_socket().c_str());
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(listener, 1), 0);
  std::thread stranger([&] {
    for (const bool speaks : {true, false}) {
      const int connection = accept(listener, nullptr, nullptr);
      EXPECT_TRUE(!speaks || send(connection, "hello", 5, MSG_NOSIGNAL) == 5);
      close(connection);
    }
  });
  EXPECT_THAT(WeightReader::Connect(dir_.weights_socket(), Late()).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("another protocol")));
  EXPECT_THAT(WeightReader::Connect(dir_.weights_socket(), Late()).status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("closed the connection")));
  stranger.join();
  close(listener);
}

TEST_F(WeightChannelTest, AReaderThatSpeaksIsLetGo) {
  auto publisher = Publisher();
  const int stranger = socket(AF_UNIX, SOCK_SEQPACKET, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, dir_.weights_socket().c_str());
  ASSERT_EQ(connect(stranger, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_TRUE(Eventually([&] { return publisher->num_readers() == 1; }));
  ASSERT_EQ(send(stranger, "x", 1, MSG_NOSIGNAL), 1);
  EXPECT_TRUE(Eventually([&] { return publisher->num_readers() == 0; }));
  close(stranger);
  auto reader = Connect();
  EXPECT_EQ(publisher->num_readers(), 1);
}

TEST_F(WeightChannelTest, TheSocketIsPrivateAndTheMemoryIsSealed) {
  auto publisher = Publisher();
  struct stat info;
  ASSERT_EQ(stat(dir_.weights_socket().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  publisher.reset();
  EXPECT_NE(stat(dir_.weights_socket().c_str(), &info), 0);

  ASSERT_OK_AND_ASSIGN(const SharedMemory memory,
                       SharedMemory::Create("test", 8192, SharedMemory::Writers::kCreatorOnly));
  EXPECT_NE(ftruncate(memory.fd(), 4096), 0);
  EXPECT_NE(ftruncate(memory.fd(), 16384), 0);
  EXPECT_EQ(mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, memory.fd(), 0), MAP_FAILED);
  memory.data()[8191] = 1;  // the creator's own mapping stays writable
  ASSERT_OK_AND_ASSIGN(const SharedMemory seen, SharedMemory::Map(UniqueFd(dup(memory.fd())), 8192, false));
  EXPECT_EQ(seen.data()[8191], 1);
}

TEST(SharedMemory, WhatCouldShrinkOrHasAnotherSizeIsNotMapped) {
  const int plain = memfd_create("plain", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(plain, 8192), 0);
  EXPECT_THAT(SharedMemory::Map(UniqueFd(plain), 8192, false).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("sealed")));
  ASSERT_OK_AND_ASSIGN(const SharedMemory memory, SharedMemory::Create("test", 8192, SharedMemory::Writers::kAll));
  EXPECT_THAT(SharedMemory::Map(UniqueFd(dup(memory.fd())), 4096, false).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("8192 bytes where 4096")));
}

TEST(SharedMemory, TooMuchIsAnErrorAndNoSignal) {
  EXPECT_THAT(SharedMemory::Create("huge", size_t{1} << 50, SharedMemory::Writers::kAll).status(),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("bytes of shared memory for huge")));
}

TEST(WeightChannelOptions, SayWhatWouldBeValid) {
  EXPECT_THAT((WeightChannelOptions{0, 2, ""}).Validate(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("slot_bytes")));
  EXPECT_THAT((WeightChannelOptions{1, 1, ""}).Validate(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("from 2 to 8")));
  EXPECT_THAT((WeightChannelOptions{1, 2, "/tmp/w"}).Validate(),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("chmod 700")));
}

TEST(WeightChannel, AllInOneProcessNeedsNoSocket) {
  ASSERT_OK_AND_ASSIGN(auto publisher, WeightPublisher::Create({kBytes, 2, ""}));
  auto reader = publisher->LocalReader();
  ASSERT_OK(Write(*publisher, 4, Late()));
  ASSERT_OK_AND_ASSIGN(const WeightLease lease, reader->Current());
  ExpectHolds(lease, 4);
}

}  // namespace
}  // namespace lockstep::transport
