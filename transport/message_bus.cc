#include "transport/message_bus.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <zmq.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"
#include "transport/message_codec.h"
#include "transport/private_dir.h"

namespace lockstep::transport {
namespace {

absl::Status ZmqStatus(const std::string& what) {
  const int error_number = zmq_errno();
  return error_number < ZMQ_HAUSNUMERO ? ErrnoStatus(error_number, what)
                                       : absl::InternalError(absl::StrCat(what, ": ", zmq_strerror(error_number)));
}

// A worker's ZeroMQ routing id. (One that starts with a zero byte is ZeroMQ's own, for peers that chose none.)
std::string RoutingId(WorkerId worker_id) { return absl::StrCat("w", worker_id); }

absl::StatusOr<WorkerId> WorkerOf(const std::string& routing_id) {
  WorkerId worker_id = 0;
  if (routing_id.size() < 2 || routing_id[0] != 'w' || !absl::SimpleAtoi(routing_id.substr(1), &worker_id)) {
    return absl::InvalidArgumentError("a message from a peer that has no worker id");
  }
  return worker_id;
}

long PollTimeout(Deadline deadline) {
  if (deadline == Deadline::max()) return -1;
  const auto left = deadline - std::chrono::steady_clock::now();
  if (left <= left.zero()) return 0;
  return std::min<int64_t>(std::chrono::ceil<std::chrono::milliseconds>(left).count(), INT_MAX);
}

// Whoever may enter the folder of an ipc endpoint may read prompts and speak for a worker.
absl::Status CheckEndpoint(const std::string& endpoint) {
  const std::string ipc = "ipc://";
  return endpoint.starts_with(ipc) ? CheckSocketPath(endpoint.substr(ipc.size())) : absl::OkStatus();
}

struct Frames {
  std::string routing_id;  // empty at a dealer
  std::string payload;
  bool well_formed = true;  // exactly the frames expected
};

}  // namespace

absl::Status BusOptions::Validate() const {
  if (high_water_mark < 1) {
    return absl::InvalidArgumentError(absl::StrCat("high_water_mark is ", high_water_mark, ": it must be at least 1"));
  }
  if (max_message_bytes < 1024 || max_message_bytes > (size_t{1} << 30)) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_message_bytes is ", max_message_bytes, ": it must be from 1 KB to 1 GB"));
  }
  return absl::OkStatus();
}

class BusSocket {
 public:
  static absl::StatusOr<std::unique_ptr<BusSocket>> Open(int type, const BusOptions& options) {
    RETURN_IF_ERROR(options.Validate());
    std::unique_ptr<BusSocket> socket(new BusSocket(options));
    socket->wake_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (socket->wake_fd_ < 0) return ErrnoStatus(errno, "making an eventfd");
    socket->context_ = zmq_ctx_new();
    if (socket->context_ == nullptr) return ZmqStatus("starting ZeroMQ");
    socket->socket_ = zmq_socket(socket->context_, type);
    if (socket->socket_ == nullptr) return ZmqStatus("making a ZeroMQ socket");
    RETURN_IF_ERROR(socket->Set(ZMQ_SNDHWM, options.high_water_mark));
    RETURN_IF_ERROR(socket->Set(ZMQ_RCVHWM, options.high_water_mark));
    RETURN_IF_ERROR(socket->Set(ZMQ_LINGER, 0));
    const int64_t max_bytes = static_cast<int64_t>(options.max_message_bytes);
    if (zmq_setsockopt(socket->socket_, ZMQ_MAXMSGSIZE, &max_bytes, sizeof max_bytes) != 0) {
      return ZmqStatus("limiting the size of messages");
    }
    return socket;
  }

  ~BusSocket() {
    Close(absl::ZeroDuration());
    if (wake_fd_ >= 0) close(wake_fd_);
  }

  absl::Status Set(int option, int value) {
    if (zmq_setsockopt(socket_, option, &value, sizeof value) != 0) return ZmqStatus("configuring a ZeroMQ socket");
    return absl::OkStatus();
  }

  // One frame, without waiting: a full queue is DeadlineExceeded, an unknown peer Unavailable.
  absl::Status TrySend(const std::string& frame, int flags) {
    while (zmq_send(socket_, frame.data(), frame.size(), flags | ZMQ_DONTWAIT) < 0) {
      switch (zmq_errno()) {
        case EINTR:
          continue;
        case EAGAIN:
          return absl::DeadlineExceededError("the peer's queue is full");
        case EHOSTUNREACH:
          return absl::UnavailableError("the worker is not connected");
        default:
          return ZmqStatus("sending a message");
      }
    }
    return absl::OkStatus();
  }

  // The frames of one message, or nullopt at the deadline or after Wake.
  absl::StatusOr<std::optional<Frames>> ReceiveFrames(bool with_routing_id, Deadline deadline) {
    while (true) {
      ASSIGN_OR_RETURN(std::optional<Frames> frames, TryReceive(with_routing_id));
      if (frames.has_value()) return frames;
      zmq_pollitem_t items[2] = {{socket_, 0, ZMQ_POLLIN, 0}, {nullptr, wake_fd_, ZMQ_POLLIN, 0}};
      const int ready = zmq_poll(items, 2, PollTimeout(deadline));
      if (ready < 0 && zmq_errno() != EINTR) return ZmqStatus("waiting for messages");
      if (ready > 0 && items[1].revents != 0) {
        uint64_t count = 0;
        if (read(wake_fd_, &count, sizeof count) > 0) return std::optional<Frames>();
      }
      if (ready <= 0 && std::chrono::steady_clock::now() >= deadline) return std::optional<Frames>();
    }
  }

  // Waits until a dealer may send again.
  absl::Status PollOut(Deadline deadline) {
    zmq_pollitem_t item = {socket_, 0, ZMQ_POLLOUT, 0};
    if (zmq_poll(&item, 1, PollTimeout(deadline)) < 0 && zmq_errno() != EINTR) return ZmqStatus("waiting to send");
    return absl::OkStatus();
  }

  absl::StatusOr<Message> DecodeCounted(const Frames& frames) {
    counters_.received_bytes += static_cast<int64_t>(frames.payload.size());
    absl::StatusOr<Message> message =
        frames.well_formed ? Decode({reinterpret_cast<const uint8_t*>(frames.payload.data()), frames.payload.size()})
                           : absl::InvalidArgumentError("malformed message: not one frame");
    ++(message.ok() ? counters_.num_received : counters_.num_refused);
    return message;
  }

  absl::StatusOr<std::string> EncodeBounded(const Message& message) {
    absl::StatusOr<std::string> payload = Encode(message, options_.max_message_bytes);
    if (payload.ok()) return payload;
    return absl::InvalidArgumentError(payload.status().message());
  }

  void CountSent(size_t num_bytes) {
    ++counters_.num_sent;
    counters_.sent_bytes += static_cast<int64_t>(num_bytes);
  }

  void Wake() {
    const uint64_t one = 1;
    const ssize_t written = write(wake_fd_, &one, sizeof one);
    CHECK(written == sizeof one || errno == EAGAIN);  // EAGAIN: the counter is full, so a wake is pending
  }

  void Close(absl::Duration flush) {
    if (socket_ != nullptr) {
      const int linger_ms = static_cast<int>(std::clamp<int64_t>(absl::ToInt64Milliseconds(flush), 0, INT_MAX));
      CHECK(Set(ZMQ_LINGER, linger_ms).ok());
      zmq_close(socket_);
    }
    if (context_ != nullptr) {
      while (zmq_ctx_term(context_) != 0 && zmq_errno() == EINTR) {
      }
    }
    socket_ = nullptr;
    context_ = nullptr;
  }

  absl::Status Use() {
    if (thread_ == std::thread::id()) thread_ = std::this_thread::get_id();
    CHECK(thread_ == std::this_thread::get_id());  // one thread per socket
    if (socket_ == nullptr) return absl::FailedPreconditionError("the bus is closed");
    return absl::OkStatus();
  }

  void* socket() { return socket_; }
  const BusCounters& counters() const { return counters_; }
  std::string endpoint;

 private:
  explicit BusSocket(const BusOptions& options) : options_(options) {}

  absl::StatusOr<std::optional<Frames>> TryReceive(bool with_routing_id) {
    Frames frames;
    const int expected = with_routing_id ? 2 : 1;
    int num_frames = 0;
    for (bool more = true; more; ++num_frames) {
      zmq_msg_t frame;
      zmq_msg_init(&frame);
      int n = 0;
      while ((n = zmq_msg_recv(&frame, socket_, ZMQ_DONTWAIT)) < 0 && zmq_errno() == EINTR) {
      }
      if (n < 0) {
        zmq_msg_close(&frame);
        if (num_frames == 0 && zmq_errno() == EAGAIN) return std::optional<Frames>();
        return ZmqStatus("receiving a message");
      }
      std::string& target = with_routing_id && num_frames == 0 ? frames.routing_id : frames.payload;
      if (num_frames < expected) {
        target.assign(static_cast<const char*>(zmq_msg_data(&frame)), zmq_msg_size(&frame));
      }
      more = zmq_msg_more(&frame) != 0;
      zmq_msg_close(&frame);
    }
    frames.well_formed = num_frames == expected;
    return std::optional<Frames>(std::move(frames));
  }

  const BusOptions options_;
  void* context_ = nullptr;
  void* socket_ = nullptr;
  int wake_fd_ = -1;
  std::thread::id thread_;  // of the first use
  BusCounters counters_;
};

// ---- Router ----

Router::Router(std::unique_ptr<BusSocket> socket) : socket_(std::move(socket)) {}
Router::~Router() = default;

absl::StatusOr<std::unique_ptr<Router>> Router::Bind(const std::string& endpoint, const BusOptions& options) {
  RETURN_IF_ERROR(CheckEndpoint(endpoint));
  ASSIGN_OR_RETURN(std::unique_ptr<BusSocket> socket, BusSocket::Open(ZMQ_ROUTER, options));
  RETURN_IF_ERROR(socket->Set(ZMQ_ROUTER_MANDATORY, 1));  // an unknown peer is an error, not a silent loss
  RETURN_IF_ERROR(socket->Set(ZMQ_ROUTER_HANDOVER, 1));   // a restarted worker takes its name back
  if (zmq_bind(socket->socket(), endpoint.c_str()) != 0) return ZmqStatus(absl::StrCat("listening at ", endpoint));
  char bound[256];
  size_t size = sizeof bound;
  if (zmq_getsockopt(socket->socket(), ZMQ_LAST_ENDPOINT, bound, &size) != 0)
    return ZmqStatus("asking for the endpoint");
  socket->endpoint = bound;
  return std::unique_ptr<Router>(new Router(std::move(socket)));
}

absl::Status Router::Send(WorkerId worker_id, const Message& message, Deadline deadline) {
  RETURN_IF_ERROR(socket_->Use());
  const std::string name = absl::StrCat("sending ", MessageName(message), " to worker ", worker_id);
  absl::StatusOr<std::string> payload = socket_->EncodeBounded(message);
  if (!payload.ok()) return AddContext(payload.status(), name);
  // A router's POLLOUT speaks of any peer, so room for this one is found by trying.
  BackOff back_off(deadline);
  absl::Status sent = socket_->TrySend(RoutingId(worker_id), ZMQ_SNDMORE);
  while (absl::IsDeadlineExceeded(sent) && back_off.Sleep()) sent = socket_->TrySend(RoutingId(worker_id), ZMQ_SNDMORE);
  if (!sent.ok()) return AddContext(sent, name);
  if (sent = socket_->TrySend(*payload, 0); !sent.ok()) return AddContext(sent, name);
  socket_->CountSent(payload->size());
  return absl::OkStatus();
}

absl::StatusOr<std::optional<Received>> Router::Receive(Deadline deadline) {
  RETURN_IF_ERROR(socket_->Use());
  ASSIGN_OR_RETURN(const std::optional<Frames> frames, socket_->ReceiveFrames(/*with_routing_id=*/true, deadline));
  if (!frames.has_value()) return std::optional<Received>();
  absl::StatusOr<Message> message = socket_->DecodeCounted(*frames);
  ASSIGN_OR_RETURN(const WorkerId worker_id, WorkerOf(frames->routing_id));
  if (!message.ok()) return AddContext(message.status(), absl::StrCat("from worker ", worker_id));
  return std::optional<Received>(Received{worker_id, *std::move(message)});
}

void Router::Wake() { socket_->Wake(); }
void Router::Close(absl::Duration flush) { socket_->Close(flush); }
const std::string& Router::endpoint() const { return socket_->endpoint; }
const BusCounters& Router::counters() const { return socket_->counters(); }

// ---- Dealer ----

Dealer::Dealer(std::unique_ptr<BusSocket> socket, WorkerId worker_id)
    : socket_(std::move(socket)), worker_id_(worker_id) {}
Dealer::~Dealer() = default;

absl::StatusOr<std::unique_ptr<Dealer>> Dealer::Connect(const std::string& endpoint, WorkerId worker_id,
                                                        const BusOptions& options) {
  RETURN_IF_ERROR(CheckEndpoint(endpoint));
  ASSIGN_OR_RETURN(std::unique_ptr<BusSocket> socket, BusSocket::Open(ZMQ_DEALER, options));
  const std::string id = RoutingId(worker_id);
  if (zmq_setsockopt(socket->socket(), ZMQ_ROUTING_ID, id.data(), id.size()) != 0) return ZmqStatus("naming a worker");
  if (zmq_connect(socket->socket(), endpoint.c_str()) != 0) return ZmqStatus(absl::StrCat("connecting to ", endpoint));
  socket->endpoint = endpoint;
  return std::unique_ptr<Dealer>(new Dealer(std::move(socket), worker_id));
}

absl::Status Dealer::Send(const Message& message, Deadline deadline) {
  RETURN_IF_ERROR(socket_->Use());
  const std::string name = absl::StrCat("sending ", MessageName(message), " to the coordinator");
  absl::StatusOr<std::string> payload = socket_->EncodeBounded(message);
  if (!payload.ok()) return AddContext(payload.status(), name);
  absl::Status sent = socket_->TrySend(*payload, 0);
  while (absl::IsDeadlineExceeded(sent) && std::chrono::steady_clock::now() < deadline) {
    RETURN_IF_ERROR(socket_->PollOut(deadline));
    sent = socket_->TrySend(*payload, 0);
  }
  if (!sent.ok()) return AddContext(sent, name);
  socket_->CountSent(payload->size());
  return absl::OkStatus();
}

absl::StatusOr<std::optional<Message>> Dealer::Receive(Deadline deadline) {
  RETURN_IF_ERROR(socket_->Use());
  ASSIGN_OR_RETURN(const std::optional<Frames> frames, socket_->ReceiveFrames(/*with_routing_id=*/false, deadline));
  if (!frames.has_value()) return std::optional<Message>();
  absl::StatusOr<Message> message = socket_->DecodeCounted(*frames);
  if (!message.ok()) return AddContext(message.status(), "from the coordinator");
  return std::optional<Message>(*std::move(message));
}

void Dealer::Wake() { socket_->Wake(); }
void Dealer::Close(absl::Duration flush) { socket_->Close(flush); }
const BusCounters& Dealer::counters() const { return socket_->counters(); }

}  // namespace lockstep::transport
