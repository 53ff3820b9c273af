// Collectives over MPI, and the life of MPI itself.
//
//   int main(int argc, char** argv) {
//     auto session = MpiSession::Start();                 // right without a launcher, too: a world of one rank
//     ...
//     absl::Status status = Run((*session)->world());
//     if (!status.ok()) (*session)->Abort(1);             // the other ranks are ended by the launcher
//   }                                                     // ranks leave together: MPI_Finalize
//
// MPI is one per process, so there is one session; nothing else here is global, and code gets its group as an argument.
//
// Ranks of one node share a small board in which each notes the operation it has reached, so that a missed deadline
// names the ranks that are missing and what they did last, and a mismatch of operations is reported with both call
// sites instead of hanging. Ranks on other nodes are not on the board: they are called "possibly a rank of another
// node".
//
// Thread contract: the thread that starts the session makes all calls of it and of its groups.
#ifndef LOCKSTEP_TRANSPORT_MPI_COLLECTIVE_H_
#define LOCKSTEP_TRANSPORT_MPI_COLLECTIVE_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/collective.h"

namespace lockstep::transport {

// Where this rank lies. A node is a set of ranks that can share memory.
struct RankPlace {
  int rank = 0;
  int world_size = 1;
  int node = 0;  // nodes are numbered in the order of their lowest rank
  int num_nodes = 1;
  int node_rank = 0;  // among the ranks of its node
  int node_size = 1;
  std::string host_name;
};

class MpiSession {
 public:
  // Whether an MPI launcher started this process (its environment says so). If not, MPI need not be started at all:
  // SingleRankCollective does.
  static bool UnderLauncher();

  // At most once per process. The launcher's signal handling and arguments are left alone.
  static absl::StatusOr<std::unique_ptr<MpiSession>> Start();

  // Leaves MPI together with the other ranks. If an operation has failed, the others may never come: aborts instead.
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  const RankPlace& place() const { return place_; }
  Collective& world() { return *world_; }

  // The ranks that pass the same `color`, in the order of their world ranks. All ranks call it. Lives within the
  // session.
  absl::StatusOr<std::unique_ptr<Collective>> Split(int color);

  // Ends all ranks now. For errors that cannot be joined.
  [[noreturn]] void Abort(int exit_code);

 private:
  MpiSession() = default;
  RankPlace place_;
  std::unique_ptr<Collective> world_;
};

}  // namespace lockstep::transport

#endif  // LOCKSTEP_TRANSPORT_MPI_COLLECTIVE_H_
