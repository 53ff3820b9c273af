#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include "transport/mpi_collective.h"

#include <mpi.h>
#include <stdlib.h>

#include <algorithm>
#include <climits>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "transport/progress_board.h"

namespace lockstep::transport {
namespace {

// MPI counts are int. Larger operations are cut into pieces of this many elements, equal on all ranks.
constexpr size_t kMaxCount = size_t{1} << 30;

std::string MpiErrorText(int code) {
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) return absl::StrCat("MPI error ", code);
  return std::string(text, static_cast<size_t>(length));
}

absl::Status MpiStatus(int code, const std::string& what) {
  if (code == MPI_SUCCESS) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(what, ": ", MpiErrorText(code)));
}

// ---- A communicator and what belongs to it ----

class Communicator {
 public:
  explicit Communicator(MPI_Comm comm, bool owned) : comm_(comm), owned_(owned) {}
  ~Communicator() {
    if (owned_) MPI_Comm_free(&comm_);
  }
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  MPI_Comm get() const { return comm_; }
  int rank() const {
    int rank = 0;
    MPI_Comm_rank(comm_, &rank);
    return rank;
  }
  int size() const {
    int size = 1;
    MPI_Comm_size(comm_, &size);
    return size;
  }

 private:
  MPI_Comm comm_;
  const bool owned_;
};

// The node's ranks of a communicator, and the board in their shared memory.
class NodeBoard {
 public:
  explicit NodeBoard(const Communicator& group) {
    MPI_Comm node;
    CHECK_EQ(MPI_Comm_split_type(group.get(), MPI_COMM_TYPE_SHARED, group.rank(), MPI_INFO_NULL, &node), MPI_SUCCESS);
    node_ = std::make_unique<Communicator>(node, /*owned=*/true);
    const int my_row = node_->rank(), num_rows = node_->size(), my_rank = group.rank();
    std::vector<int> ranks(static_cast<size_t>(num_rows));
    CHECK_EQ(MPI_Allgather(&my_rank, 1, MPI_INT, ranks.data(), 1, MPI_INT, node), MPI_SUCCESS);

    const size_t num_bytes = ProgressBoard::NumBytes(num_rows);
    void* memory = nullptr;
    const MPI_Aint mine = my_row == 0 ? static_cast<MPI_Aint>(num_bytes) : 0;
    CHECK_EQ(MPI_Win_allocate_shared(mine, 1, MPI_INFO_NULL, node, &memory, &window_), MPI_SUCCESS);
    MPI_Aint size = 0;
    int unit = 0;
    CHECK_EQ(MPI_Win_shared_query(window_, 0, &size, &unit, &memory), MPI_SUCCESS);
    if (my_row == 0) std::fill_n(static_cast<unsigned char*>(memory), num_bytes, 0);
    CHECK_EQ(MPI_Barrier(node), MPI_SUCCESS);
    board_ = std::make_unique<ProgressBoard>(memory, my_row, std::move(ranks));
    CHECK_EQ(MPI_Barrier(node), MPI_SUCCESS);
  }
  ~NodeBoard() { MPI_Win_free(&window_); }

  ProgressBoard& board() { return *board_; }
  const Communicator& node() const { return *node_; }

 private:
  std::unique_ptr<Communicator> node_;
  MPI_Win window_ = MPI_WIN_NULL;
  std::unique_ptr<ProgressBoard> board_;
};

// ---- The group ----

class MpiCollective final : public Collective {
 public:
  explicit MpiCollective(std::unique_ptr<Communicator> comm)
      : comm_(std::move(comm)), rank_(comm_->rank()), world_size_(comm_->size()), node_board_(*comm_) {
    MPI_Comm_set_errhandler(comm_->get(), MPI_ERRORS_RETURN);
  }

  ~MpiCollective() override {
    if (!in_flight_.empty())
      LogWarning(absl::StrCat(in_flight_.size(), " collective operations were never waited for"));
  }

  int rank() const override { return rank_; }
  int world_size() const override { return world_size_; }
  const Communicator& node() const { return node_board_.node(); }

 private:
  struct InFlight {
    CollectiveCall call;
    std::vector<MPI_Request> requests;
    absl::Status error;
  };

  void Start(const CollectiveCall& call) override {
    node_board_.board().Post(call);
    InFlight& operation = in_flight_[call.sequence];
    operation.call = call;
    switch (call.kind) {
      case CollectiveKind::kAllGather:
        return StartAllGather(operation);
      case CollectiveKind::kReduceScatterSum:
        return StartReduceScatter(operation);
      case CollectiveKind::kAllReduceSum:
        return StartAllReduce(operation, MPI_SUM);
      case CollectiveKind::kAllReduceMax:
        return StartAllReduce(operation, MPI_MAX);
      case CollectiveKind::kBroadcast:
        return StartBroadcast(operation);
      case CollectiveKind::kBarrier:
        return Started(operation, [&](MPI_Request* request) { return MPI_Ibarrier(comm_->get(), request); });
    }
  }

  template <typename Begin>
  void Started(InFlight& operation, Begin begin) {
    MPI_Request request = MPI_REQUEST_NULL;
    const absl::Status status = MpiStatus(begin(&request), operation.call.Describe());
    if (status.ok()) {
      operation.requests.push_back(request);
    } else {
      operation.error.Update(status);
    }
  }

  // Calls begin(offset, count) for each piece of `total` elements.
  template <typename Begin>
  void InPieces(InFlight& operation, size_t total, Begin begin) {
    for (size_t offset = 0; offset < total; offset += kMaxCount) {
      const int count = static_cast<int>(std::min(kMaxCount, total - offset));
      Started(operation, [&](MPI_Request* request) { return begin(offset, count, request); });
    }
  }

  void StartAllGather(InFlight& operation) {
    const CollectiveCall& call = operation.call;
    const size_t total = call.bytes_in.size();
    InPieces(operation, total, [&](size_t offset, int count, MPI_Request* request) {
      // A piece of each rank, one rank's share apart.
      MPI_Datatype piece, strided;
      int code = MPI_Type_contiguous(count, MPI_BYTE, &piece);
      if (code != MPI_SUCCESS) return code;
      code = MPI_Type_create_resized(piece, 0, static_cast<MPI_Aint>(total), &strided);
      MPI_Type_free(&piece);
      if (code != MPI_SUCCESS) return code;
      code = MPI_Type_commit(&strided);
      if (code == MPI_SUCCESS) {
        code = MPI_Iallgather(call.bytes_in.data() + offset, count, MPI_BYTE, call.bytes_out.data() + offset, 1,
                              strided, comm_->get(), request);
      }
      MPI_Type_free(&strided);  // freed by MPI once no operation uses it
      return code;
    });
  }

  void StartReduceScatter(InFlight& operation) {
    const CollectiveCall& call = operation.call;
    CHECK_LE(call.values_in.size(), static_cast<size_t>(INT_MAX));  // 16 GB
    if (call.values_out.empty()) return;
    Started(operation, [&](MPI_Request* request) {
      return MPI_Ireduce_scatter_block(call.values_in.data(), call.values_out.data(),
                                       static_cast<int>(call.values_out.size()), MPI_INT64_T, MPI_SUM, comm_->get(),
                                       request);
    });
  }

  void StartAllReduce(InFlight& operation, MPI_Op op) {
    const auto values = operation.call.values_out;
    InPieces(operation, values.size(), [&](size_t offset, int count, MPI_Request* request) {
      return MPI_Iallreduce(MPI_IN_PLACE, values.data() + offset, count, MPI_INT64_T, op, comm_->get(), request);
    });
  }

  void StartBroadcast(InFlight& operation) {
    const auto bytes = operation.call.bytes_out;
    InPieces(operation, bytes.size(), [&](size_t offset, int count, MPI_Request* request) {
      return MPI_Ibcast(bytes.data() + offset, count, MPI_BYTE, operation.call.root, comm_->get(), request);
    });
  }

  absl::Status Finish(int64_t sequence, Deadline deadline) override {
    const auto found = in_flight_.find(sequence);
    CHECK(found != in_flight_.end());  // waited for twice
    InFlight& operation = found->second;
    RETURN_IF_ERROR(operation.error);
    BackOff back_off(deadline);
    ProgressBoard& board = node_board_.board();
    for (int64_t polls = 0;; ++polls) {
      bool done = false;
      RETURN_IF_ERROR(Test(operation, &done));
      if (done) break;
      if (!back_off.Sleep()) {
        RETURN_IF_ERROR(board.CheckAlive(sequence));
        return absl::DeadlineExceededError(absl::StrCat(operation.call.Describe(), ": ", board.WhoIsMissing(sequence)));
      }
      if (polls % 64 == 0) RETURN_IF_ERROR(board.CheckAgreement(operation.call));
      if (polls % 1024 == 1023) RETURN_IF_ERROR(board.CheckAlive(sequence));
    }
    // Different operations of equal shape may end without MPI noticing.
    RETURN_IF_ERROR(board.CheckAgreement(operation.call));
    in_flight_.erase(found);
    return absl::OkStatus();
  }

  absl::Status Test(InFlight& operation, bool* done) {
    int flag = 1;
    const int code = operation.requests.empty() ? MPI_SUCCESS
                                                : MPI_Testall(static_cast<int>(operation.requests.size()),
                                                              operation.requests.data(), &flag, MPI_STATUSES_IGNORE);
    *done = flag != 0;
    if (code == MPI_SUCCESS) return absl::OkStatus();
    RETURN_IF_ERROR(node_board_.board().CheckAgreement(operation.call));  // the better explanation, if it is one
    return MpiStatus(code, operation.call.Describe());
  }

  const std::unique_ptr<Communicator> comm_;
  const int rank_;
  const int world_size_;
  NodeBoard node_board_;
  std::map<int64_t, InFlight> in_flight_;
};

bool MpiRuns() {
  int initialized = 0, finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  return initialized != 0 && finalized == 0;
}

RankPlace FindPlace(const MpiCollective& world) {
  RankPlace place;
  place.rank = world.rank();
  place.world_size = world.world_size();
  place.node_rank = world.node().rank();
  place.node_size = world.node().size();
  char name[MPI_MAX_PROCESSOR_NAME];
  int length = 0;
  if (MPI_Get_processor_name(name, &length) == MPI_SUCCESS) place.host_name.assign(name, static_cast<size_t>(length));
  // A node goes by its lowest rank; nodes are numbered in that order.
  int lowest = place.rank;
  CHECK_EQ(MPI_Bcast(&lowest, 1, MPI_INT, 0, world.node().get()), MPI_SUCCESS);
  std::vector<int> all(static_cast<size_t>(place.world_size));
  CHECK_EQ(MPI_Allgather(&lowest, 1, MPI_INT, all.data(), 1, MPI_INT, MPI_COMM_WORLD), MPI_SUCCESS);
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  place.num_nodes = static_cast<int>(all.size());
  place.node = static_cast<int>(std::lower_bound(all.begin(), all.end(), lowest) - all.begin());
  return place;
}

}  // namespace

bool MpiSession::UnderLauncher() {
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE"}) {
    if (getenv(variable) != nullptr) return true;
  }
  return false;
}

absl::StatusOr<std::unique_ptr<MpiSession>> MpiSession::Start() {
  std::unique_ptr<MpiSession> session(new MpiSession());
  if (!UnderLauncher()) {
    session->world_ = std::make_unique<SingleRankCollective>();
    return session;
  }
  int initialized = 0;
  MPI_Initialized(&initialized);
  CHECK(initialized == 0);  // one session per process
  // What still waits inside MPI (start, split, end) yields the core to the ranks that are not there yet.
  setenv("OMPI_MCA_mpi_yield_when_idle", "1", /*overwrite=*/0);
  int provided = MPI_THREAD_SINGLE;
  const int code = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
  if (code != MPI_SUCCESS) return absl::InternalError("MPI could not be started");
  if (provided < MPI_THREAD_FUNNELED) {
    return absl::FailedPreconditionError("this MPI library supports no programs with threads");
  }
  auto world = std::make_unique<MpiCollective>(std::make_unique<Communicator>(MPI_COMM_WORLD, /*owned=*/false));
  session->place_ = FindPlace(*world);
  session->world_ = std::move(world);
  return session;
}

MpiSession::~MpiSession() {
  if (!MpiRuns()) return;
  // The ranks gather here asleep; MPI_Finalize itself would wait at full load.
  const absl::Status gathered = world_->Wait(world_->Barrier(), After(absl::Minutes(10)));
  if (!gathered.ok()) {
    LogError(absl::StrCat("rank ", place_.rank, " leaves alone: ", gathered.ToString()));
    Abort(1);
  }
  world_.reset();
  MPI_Finalize();
}

absl::StatusOr<std::unique_ptr<Collective>> MpiSession::Split(int color) {
  if (!MpiRuns()) return std::make_unique<SingleRankCollective>();
  MPI_Comm comm = MPI_COMM_NULL;
  RETURN_IF_ERROR(MpiStatus(MPI_Comm_split(MPI_COMM_WORLD, color, place_.rank, &comm), "splitting the ranks"));
  return std::make_unique<MpiCollective>(std::make_unique<Communicator>(comm, /*owned=*/true));
}

void MpiSession::Abort(int exit_code) {
  if (MpiRuns()) MPI_Abort(MPI_COMM_WORLD, exit_code);
  _Exit(exit_code);
}

}  // namespace lockstep::transport
