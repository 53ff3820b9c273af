// The control plane: one coordinator (Router), many workers (Dealer), over ZeroMQ.
//
//   coordinator                                              worker
//   auto router = *Router::Bind("ipc:///run/x/bus");         auto dealer = *Dealer::Connect("ipc:///run/x/bus", 2);
//   auto received = *router->Receive(deadline);              dealer->Send(Hello{...}, deadline);
//   router->Send(received->worker_id, request, deadline);    auto message = *dealer->Receive(deadline);
//
// Endpoints: "ipc://<path>" in a folder that only this user may enter (private_dir.h), or "tcp://127.0.0.1:<port>"
// (port * lets the system choose; endpoint() tells). Nothing here authenticates a TCP peer: bind other addresses only
// on a network you trust.
//
// Bounded: at most `high_water_mark` messages wait in each direction for each peer; a Send that finds the queue full
// waits for room until its deadline. Messages above `max_message_bytes` are refused on both sides.
//
// Errors of Send:    DeadlineExceeded (the queue stayed full), Unavailable (the router does not know this worker: it
//                    never spoke or its connection is gone), InvalidArgument (the message is larger than allowed).
// Errors of Receive: InvalidArgument, FailedPrecondition (malformed bytes, another protocol version; the worker is
// named
//                    and the bus stays usable: receive again). Nothing within the deadline is not an error: nullopt.
//
// Messages of one worker arrive in the order of their sending. A message that was sent is lost if its peer dies; who
// needs an answer asks again. A worker that reconnects under its id takes the place of the old connection.
//
// Thread contract: one thread uses a Router or Dealer, from the first Send or Receive to its end. Another thread may
// only call Wake, which makes a Receive in progress (or the next one) return nullopt at once.
#ifndef LOCKSTEP_TRANSPORT_MESSAGE_BUS_H_
#define LOCKSTEP_TRANSPORT_MESSAGE_BUS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/collective.h"
#include "transport/message.h"

namespace lockstep::transport {

struct BusOptions {
  // Messages that may wait per peer and direction. A result of 1,024 tokens is some 20 KB.
  int high_water_mark = 1024;
  // Bounds what a broken peer can make us allocate.
  size_t max_message_bytes = size_t{64} << 20;
  absl::Status Validate() const;
};

struct BusCounters {
  int64_t num_sent = 0;
  int64_t num_received = 0;
  int64_t num_refused = 0;  // malformed or of another version
  int64_t sent_bytes = 0;   // payload
  int64_t received_bytes = 0;
};

struct Received {
  WorkerId worker_id = 0;
  Message message;
};

class BusSocket;  // a ZeroMQ socket; message_bus.cc

class Router {
 public:
  static absl::StatusOr<std::unique_ptr<Router>> Bind(const std::string& endpoint, const BusOptions& options = {});
  ~Router();

  absl::Status Send(WorkerId worker_id, const Message& message, Deadline deadline);
  absl::StatusOr<std::optional<Received>> Receive(Deadline deadline);
  void Wake();

  // Closes the socket; messages already sent get up to `flush` to leave. The destructor closes at once.
  void Close(absl::Duration flush);

  const std::string& endpoint() const;  // what workers connect to
  const BusCounters& counters() const;

 private:
  explicit Router(std::unique_ptr<BusSocket> socket);
  std::unique_ptr<BusSocket> socket_;
};

class Dealer {
 public:
  // Does not wait for the router: messages sent before it binds wait in the queue.
  static absl::StatusOr<std::unique_ptr<Dealer>> Connect(const std::string& endpoint, WorkerId worker_id,
                                                         const BusOptions& options = {});
  ~Dealer();

  absl::Status Send(const Message& message, Deadline deadline);
  absl::StatusOr<std::optional<Message>> Receive(Deadline deadline);
  void Wake();
  void Close(absl::Duration flush);

  WorkerId worker_id() const { return worker_id_; }
  const BusCounters& counters() const;

 private:
  Dealer(std::unique_ptr<BusSocket> socket, WorkerId worker_id);
  std::unique_ptr<BusSocket> socket_;
  const WorkerId worker_id_;
};

}  // namespace lockstep::transport

#endif  // LOCKSTEP_TRANSPORT_MESSAGE_BUS_H_
