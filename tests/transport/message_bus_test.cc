#include "transport/message_bus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <zmq.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "tests/testing/status_matchers.h"
#include "transport/private_dir.h"

namespace lockstep::transport {
namespace {

using ::lockstep::testing::StatusIs;
using ::testing::HasSubstr;

Deadline Soon() { return After(absl::Milliseconds(50)); }
Deadline Late() { return After(absl::Seconds(30)); }

class MessageBusTest : public ::testing::Test {
 protected:
  std::unique_ptr<Router> Bind(const BusOptions& options = {}) {
    auto router = Router::Bind(dir_.bus_endpoint(), options);
    EXPECT_OK(router);
    return *std::move(router);
  }
  std::unique_ptr<Dealer> Connect(WorkerId worker_id, const BusOptions& options = {}) {
    auto dealer = Dealer::Connect(dir_.bus_endpoint(), worker_id, options);
    EXPECT_OK(dealer);
    return *std::move(dealer);
  }
  // The worker says hello and the router has heard it.
  static void Introduce(Router& router, Dealer& dealer) {
    ASSERT_OK(dealer.Send(Hello{dealer.worker_id(), 1, "sig", ""}, Late()));
    ASSERT_OK_AND_ASSIGN(const auto received, router.Receive(Late()));
    ASSERT_TRUE(received.has_value());
    ASSERT_EQ(received->worker_id, dealer.worker_id());
  }

  PrivateDir dir_ = *PrivateDir::Create();
};

TEST_F(MessageBusTest, WorkersAreToldApartAndAnswered) {
  auto router = Bind();
  auto one = Connect(1), two = Connect(2);
  Introduce(*router, *two);
  Introduce(*router, *one);
  ASSERT_OK(router->Send(1, Stop{"for one"}, Late()));
  ASSERT_OK(router->Send(2, Stop{"for two"}, Late()));
  ASSERT_OK_AND_ASSIGN(const auto first, one->Receive(Late()));
  ASSERT_OK_AND_ASSIGN(const auto second, two->Receive(Late()));
  EXPECT_EQ(std::get<Stop>(first.value()).reason, "for one");
  EXPECT_EQ(std::get<Stop>(second.value()).reason, "for two");
  EXPECT_EQ(router->counters().num_sent, 2);
  EXPECT_EQ(router->counters().num_received, 2);
  EXPECT_EQ(router->counters().sent_bytes, one->counters().received_bytes + two->counters().received_bytes);
  EXPECT_GT(one->counters().sent_bytes, 0);
}

TEST_F(MessageBusTest, NothingWithinTheDeadlineIsNoError) {
  auto router = Bind();
  auto dealer = Connect(1);
  ASSERT_OK_AND_ASSIGN(const auto nothing, router->Receive(Soon()));
  EXPECT_FALSE(nothing.has_value());
  ASSERT_OK_AND_ASSIGN(const auto silence, dealer->Receive(Soon()));
  EXPECT_FALSE(silence.has_value());
}

TEST_F(MessageBusTest, WhatIsSentBeforeTheRouterBindsArrives) {
  auto dealer = Connect(1);
  ASSERT_OK(dealer->Send(Heartbeat{1, 0, 0}, Soon()));
  auto router = Bind();
  ASSERT_OK_AND_ASSIGN(const auto received, router->Receive(Late()));
  EXPECT_TRUE(received.has_value() && std::holds_alternative<Heartbeat>(received->message));
}

TEST_F(MessageBusTest, UnknownAndVanishedWorkersAreUnavailable) {
  auto router = Bind();
  EXPECT_THAT(router->Send(5, Stop{}, Soon()),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("sending Stop to worker 5")));
  auto dealer = Connect(5);
  Introduce(*router, *dealer);
  ASSERT_OK(router->Send(5, Stop{}, Soon()));
  dealer.reset();
  absl::Status status;
  for (const Deadline deadline = Late(); status.ok() && std::chrono::steady_clock::now() < deadline;) {
    status = router->Send(5, Stop{}, Soon());
    (void)*router->Receive(Soon());
  }
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("not connected")));
}

TEST_F(MessageBusTest, ARestartedWorkerTakesItsNameBack) {
  auto router = Bind();
  auto old_one = Connect(3);
  Introduce(*router, *old_one);
  auto new_one = Connect(3);  // while the old connection still stands
  Introduce(*router, *new_one);
  ASSERT_OK(router->Send(3, Stop{"to the new one"}, Late()));
  ASSERT_OK_AND_ASSIGN(const auto received, new_one->Receive(Late()));
  EXPECT_EQ(std::get<Stop>(received.value()).reason, "to the new one");
  ASSERT_OK_AND_ASSIGN(const auto nothing, old_one->Receive(Soon()));
  EXPECT_FALSE(nothing.has_value());
}

TEST_F(MessageBusTest, AFullQueueIsADeadlineAndNothingAcceptedIsLost) {
  BusOptions options;
  options.high_water_mark = 4;
  auto router = Bind(options);
  auto dealer = Connect(1, options);
  Introduce(*router, *dealer);
  const std::string payload(100000, 'x');
  int num_accepted = 0;
  absl::Status status;
  while ((status = router->Send(1, Metrics{num_accepted, payload}, Soon())).ok()) {
    ASSERT_LT(++num_accepted, 1000) << "the queue is not bounded";
  }
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("queue is full")));
  for (int i = 0; i < num_accepted; ++i) {
    ASSERT_OK_AND_ASSIGN(const auto received, dealer->Receive(Late()));
    ASSERT_TRUE(received.has_value());
    EXPECT_EQ(std::get<Metrics>(received.value()).worker_id, i);
  }
  EXPECT_OK(router->Send(1, Stop{}, Late()));
}

TEST_F(MessageBusTest, AFullQueueOfAWorkerIsADeadlineToo) {
  BusOptions options;
  options.high_water_mark = 2;
  auto dealer = Connect(1, options);  // nobody listens
  ASSERT_OK(dealer->Send(Heartbeat{}, Soon()));
  ASSERT_OK(dealer->Send(Heartbeat{}, Soon()));
  EXPECT_THAT(dealer->Send(Heartbeat{}, Soon()),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("sending Heartbeat to the coordinator")));
}

TEST_F(MessageBusTest, OversizedMessagesAreRefusedBeforeTheyLeave) {
  BusOptions options;
  options.max_message_bytes = 2048;
  auto dealer = Connect(1, options);
  EXPECT_THAT(dealer->Send(Stop{std::string(4096, 'x')}, Soon()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("larger than the limit of 2048")));
}

// A peer that speaks ZeroMQ but not our messages.
class Stranger {
 public:
  Stranger(const std::string& endpoint, const std::string& routing_id) : context_(zmq_ctx_new()) {
    socket_ = zmq_socket(context_, ZMQ_DEALER);
    const int linger = 1000;
    zmq_setsockopt(socket_, ZMQ_LINGER, &linger, sizeof linger);
    if (!routing_id.empty()) zmq_setsockopt(socket_, ZMQ_ROUTING_ID, routing_id.data(), routing_id.size());
    EXPECT_EQ(zmq_connect(socket_, endpoint.c_str()), 0);
  }
  ~Stranger() {
    zmq_close(socket_);
    zmq_ctx_term(context_);
  }
  void Send(const std::vector<std::string>& frames) {
    for (size_t i = 0; i < frames.size(); ++i) {
      const int flags = i + 1 < frames.size() ? ZMQ_SNDMORE : 0;
      EXPECT_GE(zmq_send(socket_, frames[i].data(), frames[i].size(), flags), 0);
    }
  }

 private:
  void* context_;
  void* socket_;
};

TEST_F(MessageBusTest, MalformedMessagesAreErrorsAndTheBusGoesOn) {
  auto router = Bind();
  {
    Stranger stranger(router->endpoint(), "w7");
    stranger.Send({"not a message"});
    EXPECT_THAT(router->Receive(Late()),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("from worker 7: malformed")));
    stranger.Send({"", "two", "frames"});
    EXPECT_THAT(router->Receive(Late()), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not one frame")));
    stranger.Send({""});
    EXPECT_THAT(router->Receive(Late()), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("malformed")));
    Stranger nameless(router->endpoint(), "");
    nameless.Send({std::string(64, '\0')});
    EXPECT_THAT(router->Receive(Late()), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no worker id")));
  }
  EXPECT_EQ(router->counters().num_refused, 4);
  auto dealer = Connect(1);
  Introduce(*router, *dealer);
}

TEST_F(MessageBusTest, AnOversizedMessageFromOutsideNeverArrives) {
  BusOptions options;
  options.max_message_bytes = 4096;
  auto router = Bind(options);
  Stranger stranger(router->endpoint(), "w7");
  stranger.Send({std::string(100000, 'x')});
  ASSERT_OK_AND_ASSIGN(const auto nothing, router->Receive(Soon()));
  EXPECT_FALSE(nothing.has_value());
  auto dealer = Connect(1, options);
  Introduce(*router, *dealer);
}

TEST_F(MessageBusTest, WakeEndsAWait) {
  auto router = Bind();
  std::thread waker([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    router->Wake();
  });
  const auto start = std::chrono::steady_clock::now();
  ASSERT_OK_AND_ASSIGN(const auto nothing, router->Receive(Late()));
  EXPECT_FALSE(nothing.has_value());
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  waker.join();
  ASSERT_OK_AND_ASSIGN(const auto again, router->Receive(Soon()));  // one wake wakes once: this one waits its time
  EXPECT_FALSE(again.has_value());
}

TEST_F(MessageBusTest, CloseLetsTheLastWordsOut) {
  auto router = Bind();
  auto dealer = Connect(1);
  const std::string payload(1 << 20, 'x');
  for (int i = 0; i < 20; ++i) ASSERT_OK(dealer->Send(Metrics{i, payload}, Late()));
  std::thread closer([&] { dealer->Close(absl::Seconds(30)); });
  for (int i = 0; i < 20; ++i) {
    ASSERT_OK_AND_ASSIGN(const auto received, router->Receive(Late()));
    ASSERT_TRUE(received.has_value());
    EXPECT_EQ(std::get<Metrics>(received->message).worker_id, i);
  }
  closer.join();
  EXPECT_THAT(dealer->Send(Stop{}, Soon()), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("closed")));
}

TEST_F(MessageBusTest, ManyWorkersInTheirOwnThreads) {
  auto router = Bind();
  constexpr int kWorkers = 4, kRequests = 50;
  std::vector<std::thread> workers;
  for (int worker = 0; worker < kWorkers; ++worker) {
    workers.emplace_back([&, worker] {
      auto dealer = Connect(worker);
      ASSERT_OK(dealer->Send(Hello{worker, worker, "", ""}, Late()));
      while (true) {
        auto message = dealer->Receive(Late());
        ASSERT_OK(message);
        ASSERT_TRUE(message->has_value());
        if (std::holds_alternative<Stop>(**message)) return;
        GenerateResult result;
        result.request_id = std::get<GenerateRequest>(**message).request_id;
        result.tokens.resize(64);
        ASSERT_OK(dealer->Send(result, Late()));
      }
    });
  }
  std::vector<int> num_results(kWorkers);
  for (int num_done = 0; num_done < kWorkers;) {
    ASSERT_OK_AND_ASSIGN(const auto received, router->Receive(Late()));
    ASSERT_TRUE(received.has_value());
    const WorkerId worker = received->worker_id;
    int& count = num_results[static_cast<size_t>(worker)];
    if (const auto* result = std::get_if<GenerateResult>(&received->message)) {
      EXPECT_EQ(result->request_id, 1000 * worker + count);
      ++count;
    }
    GenerateRequest request;
    request.request_id = 1000 * worker + count;
    request.prompt_ids = {1, 2, 3};
    const bool done = count == kRequests;
    num_done += done ? 1 : 0;
    ASSERT_OK(router->Send(worker, done ? Message(Stop{}) : Message(request), Late()));
  }
  for (std::thread& worker : workers) worker.join();
}

TEST_F(MessageBusTest, TcpOnThisMachineWithAPortOfTheSystemsChoice) {
  ASSERT_OK_AND_ASSIGN(auto router, Router::Bind("tcp://127.0.0.1:*"));
  EXPECT_THAT(router->endpoint(), HasSubstr("tcp://127.0.0.1:"));
  ASSERT_OK_AND_ASSIGN(auto dealer, Dealer::Connect(router->endpoint(), 1));
  Introduce(*router, *dealer);
}

TEST_F(MessageBusTest, SecondRouterAtAnEndpointIsRefused) {
  ASSERT_OK_AND_ASSIGN(auto router, Router::Bind("tcp://127.0.0.1:*"));
  EXPECT_THAT(Router::Bind(router->endpoint()).status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("listening at")))
      << "any error will do, but it names the endpoint";
}

TEST_F(MessageBusTest, SocketsLieInFoldersOfThisUserAlone) {
  ASSERT_EQ(chmod(dir_.path().c_str(), 0750), 0);
  EXPECT_THAT(Router::Bind(dir_.bus_endpoint()).status(),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("chmod 700")));
  ASSERT_EQ(chmod(dir_.path().c_str(), 0700), 0);
  EXPECT_THAT(Router::Bind("ipc:///no/such/folder/bus").status(), StatusIs(absl::StatusCode::kNotFound, HasSubstr("")));
  EXPECT_THAT(Router::Bind("ipc:///" + std::string(120, 'x')).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("107")));
  EXPECT_THAT(Router::Bind("ipc://relative/bus").status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("absolute")));
}

TEST(PrivateDir, IsPrivateAndGoesAway) {
  std::string path;
  {
    ASSERT_OK_AND_ASSIGN(PrivateDir dir, PrivateDir::Create());
    path = dir.path();
    struct stat info;
    ASSERT_EQ(stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0700u);
    PrivateDir moved = std::move(dir);
    EXPECT_EQ(stat(path.c_str(), &info), 0);
  }
  struct stat info;
  EXPECT_NE(stat(path.c_str(), &info), 0);
}

}  // namespace
}  // namespace lockstep::transport
